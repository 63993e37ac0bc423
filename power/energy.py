"""Energy, money, carbon, and what a cluster's draw compares with."""

from __future__ import annotations

from collections.abc import Sequence


def kwh(watts: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the energy of a power curve, by trapezoids over its readings' times."""
    joules = sum(
        0.5 * (watts[i] + watts[i + 1]) * (seconds[i + 1] - seconds[i])
        for i in range(len(watts) - 1)
    )
    return joules / 3.6e6


def cost(energy_kwh: float, tariff: float, pue: float = 1.0) -> float:
    """Return money for energy at the wall; the building's overhead is paid too."""
    return energy_kwh * pue * tariff


def homes(watts: float, home_watts: float = 1200.0) -> float:
    """Return how many average homes draw as much."""
    return watts / home_watts


def hours_to_drain(watts: float, battery_kwh: float = 90.0) -> float:
    """Return hours in which the draw empties an electric car."""
    return battery_kwh * 1000 / watts
