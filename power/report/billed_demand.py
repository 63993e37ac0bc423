"""The demand of a month that is billed: its highest, or the mean of the highest of several days."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from power.network.flow import Ints
from power.report.months import STEP, Month
from power.site.config import BillConfig
from power.wiring import Floats
from telemetry.text import counted, duration

MINUTES_A_DAY = 1440


@dataclass(slots=True)
class DailyPeaks:
    """Highest known demand of each day of a month, watts."""

    days: dict[int, float] = field(default_factory=dict)
    """By the number of the day in its month, from 0."""

    def add(self, month: Month, minutes: int, watts: Floats, first: int = 0) -> None:
        """Add the demands of intervals of `minutes` from number `first` on; NaN are not known."""
        known = np.flatnonzero(np.isfinite(watts))
        of = days_of(month)[(known + first) * (60 * minutes // STEP)]
        for day, value in zip(of.tolist(), watts[known].tolist(), strict=True):
            self.days[day] = max(self.days.get(day, value), value)

    def highest(self, count: int) -> list[float]:
        """Return the highest demands of so many days, the highest first; fewer where fewer are known."""
        return sorted(self.days.values(), reverse=True)[:count]

    def mean(self, count: int) -> float | None:
        """Return what is billed: their mean; None where none is known."""
        found = self.highest(count)
        return sum(found) / len(found) if found else None

    def billed_anyway(self, day: int, count: int) -> float:
        """Return the demand above which one of that day raises the mean; 0 where any does."""
        others = sorted((peak for of, peak in self.days.items() if of != day), reverse=True)
        return max(self.days.get(day, 0.0), others[count - 1] if len(others) >= count else 0.0)


def days_of(month: Month) -> Ints:
    """Return the number of the local day of each of a month's intervals, from 0."""
    weekday = month.minute // MINUTES_A_DAY
    found: Ints = np.concatenate(([0], np.cumsum(np.diff(weekday) != 0)))
    return found


def words_of(terms: BillConfig) -> str:
    """Return what demand is billed: `highest 15 min of the month`."""
    length = duration(60 * terms.demand_minutes)
    if terms.demand_days == 1:
        return f"highest {length} of the month"
    return f"mean of the highest {length} of {counted(terms.demand_days, 'day')} of the month"
