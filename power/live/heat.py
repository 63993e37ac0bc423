"""The heat of every breaker through ticks, restarts and trips.

A breaker without a known past is assumed to be as hot as hours of its present load make it, and
marked so; its latest trip is that of a cold one. Over a restart it is assumed to have carried the lesser of the loads before and after: one
that was off has cooled, one that was on has not.
"""

from __future__ import annotations

import numpy as np

from power.devices.thermal import Element, Heat, cold, may_reset, seconds_to_trip, step, used
from power.network.topology import SiteTopology
from power.wiring import Flags, Floats, highest_of_three

_WARM = 0.8
"""Assumed load over rating of a breaker that holds now although hours of its load would trip it."""
_FORGET = 3.0
"""Slow time constants after which an assumed start is forgotten."""
_EDGE = 0
"""The edge that rules use: the earliest."""
_LATEST = 2


class BreakerHeat:
    """Heat of every circuit's breaker, updated from tick to tick."""

    def __init__(self, topology: SiteTopology) -> None:
        count = len(topology.network.names)
        self._element: Element = topology.network.element
        self._rating = topology.network.effective
        self._breakers = topology.breakers
        self.heat: Heat = cold(count)
        self.ratio: Floats = np.full(count, np.nan)
        """Load over rating at the last tick."""
        self._started: Floats = np.full(count, np.nan)
        """Time of an assumed start; NaN where it was measured or restored."""
        self._last: Floats = np.full(count, np.nan)
        """Time up to which the heat is computed."""
        self._saved: tuple[Heat, Floats, Floats] = (cold(count), self.ratio.copy(), self._last.copy())
        """Heat, load and time of restored circuits, from before the gap."""

    def update(self, now: float, amps: Floats, off: Flags, unsure: Flags) -> None:
        """Advance the heat to `now` at `amps`, the mean since the last tick; `off` circuits carry nothing.
        No breaker cools by a load that is `unsure`: silence is no rest. Its latest edge cools: nothing can
        be promised of a load that nobody measured."""
        ratio = np.where(off, 0.0, amps / self._rating)
        known = ~np.isnan(ratio)
        fresh = known & np.isnan(self._last)
        if fresh.any():
            self._start(now, ratio, fresh)
        # An unknown current leaves the load at what it was.
        ratio = np.where(known, ratio, self.ratio)
        moving = ~np.isnan(ratio) & ~fresh
        seconds = np.where(moving, now - self._last, 0.0)
        after = step(self.heat, np.where(moving, ratio, 0.0), seconds, self._element)
        keeps = moving & ~off & (unsure | ~known)
        if keeps.any():
            warmer = Heat(np.maximum(after.fast, self.heat.fast), np.maximum(after.slow, self.heat.slow))
            idle = step(self.heat, np.zeros(len(seconds)), seconds, self._element)
            after = _where(keeps, _cooled(warmer, idle), after)
        self.heat = _where(moving, after, self.heat)
        self.ratio = ratio
        self._last = np.where(known | moving, now, self._last)

    @property
    def begun(self) -> Flags:
        """Circuits whose heat is tracked: their load was known once."""
        begun: Flags = ~np.isnan(self._last)
        return begun

    def used(self) -> Floats:
        """Return the part of the heat that trips the earliest edge; NaN where no breaker is known."""
        known = self._breakers & ~np.isnan(self._last)
        return np.where(known, used(self.heat, self._element)[:, _EDGE], np.nan)

    def trips(self, amps: Floats) -> Floats:
        """Return seconds until each edge trips if `amps` stay; inf is never. Shape (circuits, 3)."""
        ratio = amps / self._rating
        result = np.full((len(ratio), 3), np.inf)
        # Most circuits are too far from tripping to search for a root.
        hot = highest_of_three(used(self.heat, self._element)) > 0.5
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero((ratio > self._element.pickup[:, _EDGE]) | hot)
        if len(rows):
            part = Heat(self.heat.fast[rows], self.heat.slow[rows])
            result[rows] = seconds_to_trip(part, np.nan_to_num(ratio[rows]), self._element.part(rows))
        unknown = np.isnan(self._element.pickup[:, _EDGE])
        result[~self._breakers | unknown | np.isnan(ratio) | np.isnan(self._last)] = np.nan
        return result

    def assumed(self, now: float) -> Flags:
        """Return where an assumed start still matters."""
        slow = highest_of_three(self._element.slow_seconds)
        with np.errstate(invalid="ignore"):
            found: Flags = now - self._started < _FORGET * slow
        return found

    def assumed_seconds(self, row: int) -> float | None:
        """Return the age of one circuit's assumed start in seconds; None where it no longer matters."""
        now = self._last[row]
        return float(now - self._started[row]) if self.assumed(now)[row] else None

    def cool_seconds(self, row: int) -> float:
        """Return the seconds that an open breaker must cool before it may be switched on; NaN where its
        trip heat is not known."""
        one = Heat(self.heat.fast[row : row + 1], self.heat.slow[row : row + 1])
        element, low, high = self._element.part(np.array([row])), 0.0, 4 * 3600.0
        if np.isnan(element.pickup[0, _EDGE]):
            return np.nan
        for _ in range(24):
            middle = 0.5 * (low + high)
            hot = not may_reset(step(one, np.zeros(1), middle, element), element)[0]
            low, high = (middle, high) if hot else (low, middle)
        return high if low > 0 else 0.0

    def restore(
        self,
        row: int,
        fast: list[float],
        slow: list[float],
        ratio: float,
        at: float,
        assumed: float | None,
        rating: float | None = None,
    ) -> None:
        """Restore the heat of one circuit at `at`, in this process's monotonic seconds; `assumed`: how long
        before that its heat was assumed; `rating`: effective amps that heat and load are over, None (the
        present ones) in the checkpoint of an older release: a breaker keeps its heat when its grouping or ambient is configured otherwise."""
        if rating is not None and np.isfinite(self._rating[row]):
            same = rating / self._rating[row]
            fast, slow = [x * same**2 for x in fast], [x * same**2 for x in slow]
            ratio *= same
        if assumed is not None and rating is None:  # an older release promised trips by it
            fast, slow = [*fast[:_LATEST], 0.0], [*slow[:_LATEST], 0.0]
        self._started[row] = np.nan if assumed is None else at - assumed
        self.heat.fast[row], self.heat.slow[row] = fast, slow
        self.ratio[row] = ratio
        self._last[row] = at
        before, ratios, times = self._saved
        before.fast[row], before.slow[row], ratios[row], times[row] = fast, slow, ratio, at

    def bridge(self, now: float, amps: Floats, rows: Flags) -> None:
        """Advance restored circuits over the gap, at the lesser of the loads before and after it: from the
        heat before it, whatever was assumed until the load was known again. The latest edge cools: it may have
        been off meanwhile."""
        before, ratios, times = self._saved
        self.heat = _where(rows, before, self.heat)
        self.ratio, self._last = np.where(rows, ratios, self.ratio), np.where(rows, times, self._last)
        ratio = np.where(rows, np.fmin(self.ratio, amps / self._rating), np.nan)
        known = rows & ~np.isnan(ratio)
        seconds = np.where(known, np.maximum(now - self._last, 0.0), 0.0)
        after = step(self.heat, np.where(known, ratio, 0.0), seconds, self._element)
        idle = step(self.heat, np.zeros(len(seconds)), seconds, self._element)
        self.heat = _where(known, _cooled(after, idle), self.heat)
        self._last = np.where(known, now, self._last)

    def warm(self, now: float, amps: Floats, rows: Flags) -> None:
        """Start an assumed heat again where a meter has reported for the first time: at no less than what
        hours of its load make."""
        ratio = amps / self._rating
        rows = rows & self.assumed(now) & ~np.isnan(ratio)
        if rows.any():
            before = self.heat
            self._start(now, ratio, rows)
            warmer = Heat(np.maximum(before.fast, self.heat.fast), np.maximum(before.slow, self.heat.slow))
            self.heat = _where(rows, warmer, self.heat)

    def _start(self, now: float, ratio: Floats, fresh: Flags) -> None:
        pickup = self._element.pickup[:, _EDGE]
        steady = np.where(ratio > pickup, _WARM, ratio)
        square = np.repeat(np.square(np.where(fresh, steady, 0.0))[:, None], 3, axis=1)
        # The latest edge is a promise, and a breaker may have been switched on just now.
        square[:, _LATEST] = 0.0
        self.heat = _where(fresh, Heat(square, square), self.heat)
        self._started = np.where(fresh, now, self._started)


def _cooled(heat: Heat, idle: Heat) -> Heat:
    """Return heat with the latest edge of another."""
    fast, slow = heat.fast.copy(), heat.slow.copy()
    fast[:, _LATEST], slow[:, _LATEST] = idle.fast[:, _LATEST], idle.slow[:, _LATEST]
    return Heat(fast, slow)


def _where(rows: Flags, one: Heat, other: Heat) -> Heat:
    pick = rows[:, None]
    return Heat(np.where(pick, one.fast, other.fast), np.where(pick, one.slow, other.slow))
