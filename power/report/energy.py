"""Energy between two readings, by counters or by trapezoids, and comparisons for people."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GAP_PERIODS = 3.0
"""Periods from which energy across a gap counts as estimated."""
LONGEST_GAP = 3600.0
"""Longest gap that is bridged, seconds."""
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a time span, with the parts that are estimated or unknown."""

    joules: float = 0.0
    seconds: float = 0.0
    """Covered time."""
    estimated_seconds: float = 0.0
    """Part of it that was bridged between distant readings."""
    unknown_seconds: float = 0.0
    """Time in gaps that are too long to be bridged."""

    @property
    def kwh(self) -> float:
        """Energy in kilowatt-hours."""
        return self.joules / JOULES_PER_KWH


def between(start_watts: float, end_watts: float, seconds: float, period: float) -> Energy:
    """Return the energy between two readings of power, by a trapezoid.

    Over a gap of more than three periods it is an estimate, over more than an hour unknown.
    """
    if seconds <= 0 or not math.isfinite(start_watts + end_watts):
        return Energy(unknown_seconds=max(0.0, seconds))
    if seconds > max(LONGEST_GAP, GAP_PERIODS * period):
        return Energy(unknown_seconds=seconds)
    joules = 0.5 * (start_watts + end_watts) * seconds
    return Energy(joules, seconds, seconds if seconds > GAP_PERIODS * period else 0.0)


def gained(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the joules that each counter counted between two readings; NaN is not known, and a lower value is a
    reset."""
    with np.errstate(invalid="ignore"):
        grown = np.where(after >= before, after - before, after)
    return np.where(np.isnan(before), np.nan, grown)


def counted(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> float:
    """Return the joules that many counters counted between two readings, as far as they are known."""
    return float(np.nansum(gained(before, after)))


def cost(energy_kwh: float, tariff: float, pue: float = 1.0) -> float:
    """Return money for energy at the wall; the building's overhead is paid too."""
    return energy_kwh * pue * tariff


def carbon_kg(energy_kwh: float, g_per_kwh: float, pue: float = 1.0) -> float:
    """Return kilograms of CO2 for energy at the wall, the building's overhead with it."""
    return energy_kwh * pue * g_per_kwh / 1000


def homes(watts: float, home_watts: float = 1200.0) -> float:
    """Return how many average homes draw as much."""
    return watts / home_watts


def hours_to_drain(watts: float, battery_kwh: float = 90.0) -> float:
    """Return hours in which the draw empties an electric car; inf for a draw of 0."""
    return battery_kwh * 1000 / watts if watts > 0 else math.inf
