"""How long each line has been above its continuous limit; a short dip does not start it anew."""

from __future__ import annotations

import numpy as np

from power.levels import CONTINUOUS
from power.wiring import Floats

DIP_SECONDS = 60.0
"""A shorter time below the limit does not count: a breaker has not cooled in it."""


class AboveLimit:
    """Since when, for every line."""

    def __init__(self, lines: int) -> None:
        self.above: Floats = np.full(lines, np.nan)
        """When it went above, monotonic; NaN while it is not."""
        self._below: Floats = np.full(lines, np.nan)
        """When it dipped below."""

    def update(self, now: float, ratio: Floats, lately: Floats) -> Floats:
        """Return seconds above for a minute's mean over the limit. Unknown changes nothing.

        `lately`: the mean of some seconds, for a deep dip is in the minute's mean long after it.
        """
        with np.errstate(invalid="ignore"):
            again = ~np.isnan(self.above) & (lately > CONTINUOUS)
            over, under = (ratio > CONTINUOUS) | again, (ratio <= CONTINUOUS) & ~again
        self.above = np.where(over & np.isnan(self.above), now, self.above)
        self._below = np.where(over, np.nan, self._below)
        dips = under & ~np.isnan(self.above) & np.isnan(self._below)
        self._below = np.where(dips, now, self._below)
        ended = now - self._below >= DIP_SECONDS
        self.above = np.where(ended, np.nan, self.above)
        self._below = np.where(ended, np.nan, self._below)
        return np.where(np.isnan(self.above), np.where(np.isnan(ratio), np.nan, 0.0), now - self.above)  # fmt: skip
