"""Energy, money, carbon, and what a cluster's draw compares with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

HOURS_PER_MONTH = 730.5


def kwh(watts: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the energy of a power curve, by trapezoids over its readings' times."""
    joules = sum(
        0.5 * (watts[i] + watts[i + 1]) * (seconds[i + 1] - seconds[i])
        for i in range(len(watts) - 1)
    )
    return joules / 3.6e6


def counted_kwh(joules: Sequence[float]) -> float:
    """Return the energy of a counter's readings; after a reset it starts again from 0."""
    steps = (b - a if b >= a else b for a, b in pairwise(joules))
    return sum(steps) / 3.6e6


def cost(energy_kwh: float, tariff: float, pue: float = 1.0) -> float:
    """Return money for energy at the wall; the building's overhead is paid too."""
    return energy_kwh * pue * tariff


def co2_kg(energy_kwh: float, grams_per_kwh: float, pue: float = 1.0) -> float:
    """Return kilograms of CO2."""
    return energy_kwh * pue * grams_per_kwh / 1000


def homes(watts: float, home_watts: float = 1200.0) -> float:
    """Return how many average homes draw as much."""
    return watts / home_watts


def hours_to_drain(watts: float, battery_kwh: float = 90.0) -> float:
    """Return hours in which the draw empties an electric car."""
    return battery_kwh * 1000 / watts


def month_end_kwh(so_far_kwh: float, elapsed_hours: float, recent_watts: float) -> float:
    """Return the energy at the end of the month if the draw stays what it is."""
    return so_far_kwh + recent_watts / 1000 * max(0.0, HOURS_PER_MONTH - elapsed_hours)
