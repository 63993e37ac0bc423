"""Conditions on counters, which only grow: but for resets, when the driver is loaded anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.judging import Floats, Judgement, Kind, Sight, three
from alerts.rows import Rows

_SLOTS = 11
"""Moments that a rate remembers: ten steps to a window."""
_PUNCTUAL = 0.99
"""A tick that comes a little early still counts for its step."""


class Rises(Kind, frozen=True, tag="rises"):
    """Bad at the instant in which a counter has grown; a decrease is a reset to zero before."""

    metric: str

    def metrics(self) -> Iterator[str]:
        """The counter."""
        yield self.metric

    @property
    def edge(self) -> bool:
        """It is an instant."""
        return True

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Compare with the last number known, however long ago."""
        values = sight.values(self.metric)
        last = rows.array("last", np.float64, np.nan)
        known = ~np.isnan(values)
        growth = _growth(values, last)
        last[known] = values[known]
        return Judgement(three(growth > 0, ~known), growth)


class Rate(Kind, frozen=True, tag="rate"):
    """Bad when a counter grew by at least `level` a second over the last `window` seconds.

    Bad as soon as the growth is too much for a whole window; good only when a whole window is
    known. What grew while nobody could read counts when it is read again, unless the gap was
    longer than the window: then nobody can say when it grew, and the row starts anew.
    """

    metric: str
    level: float
    window: float

    def metrics(self) -> Iterator[str]:
        """The counter."""
        yield self.metric

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Compare the growth since the start of the window with what the level allows."""
        values, now = sight.values(self.metric), sight.now
        last = rows.array("last", np.float64, np.nan)
        known_at = rows.array("known_at", np.float64, -np.inf)
        born = rows.array("born", np.float64, np.inf)
        total = rows.array("total", np.float64, 0.0)
        ring = rows.array("ring", np.float64, 0.0, depth=_SLOTS)

        known = ~np.isnan(values)
        anew = known & (now - known_at > self.window)
        growth = _growth(values, last)
        growth[anew | ~known] = 0.0
        total += growth
        last[known] = values[known]
        known_at[known] = now
        if anew.any():
            born[anew] = now
            ring[:, anew] = total[anew]
        base, elapsed = self._turn(rows, total, ring, now)
        rate = (total - ring[base]) / max(self.window, elapsed)
        bad = rate >= self.level
        return Judgement(three(bad, ~known | (~bad & (now - born < self.window))), rate)

    def _turn(self, rows: Rows, total: Floats, ring: Floats, now: float) -> tuple[int, float]:
        """Keep the totals of this moment if one is due; return the slot that the window starts
        with, and how long ago that was."""
        moments = rows.moments
        if not moments or now - max(moments) >= self.window / (_SLOTS - 1) * _PUNCTUAL:
            if len(moments) < _SLOTS:
                moments.append(now)
                slot = len(moments) - 1
            else:
                slot = moments.index(min(moments))
                moments[slot] = now
            ring[slot] = total
        whole = [moment for moment in moments if moment <= now - self.window]
        start = max(whole) if whole else min(moments)
        return moments.index(start), now - start


def _growth(values: Floats, last: Floats) -> Floats:
    """How much a counter grew since it was last known; NaN where that can't be said."""
    return np.where(values < last, values, values - last)
