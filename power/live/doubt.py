"""What a limit's rule must not believe: a load that is above it only by what nobody told.

A silent node counts with what it may draw, so that plans leave room for it. That is no measurement.
Where a line would be above a level only by such watts, what the rules judge is a gap there: unknown
neither fires nor clears, so nobody is woken by an assumption, and an alert that was true stays open.
"""

from __future__ import annotations

import numpy as np

from power.wiring import Floats

TREND = 0.05
"""A trend of which a larger part is assumed is none: it is the step from one assumption to another."""
_DEPTH = 62
_SPACING = 0.999


class Doubt:
    """The part of each line's load that was assumed in the last minute."""

    def __init__(self, lines: int) -> None:
        self._at: Floats = np.full(_DEPTH, -np.inf)
        self._parts: Floats = np.zeros((_DEPTH, lines), dtype=np.float32)
        self._next = 0
        self._newest: Floats = np.zeros(lines)

    def add(self, now: float, watts: Floats, assumed: Floats) -> None:
        """Take in what every line carries, and what of it is assumed."""
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.where((assumed > 0) & (watts > 0), np.minimum(assumed / watts, 1.0), 0.0)
        self._newest = part
        newest = self._at[(self._next - 1) % _DEPTH]
        if now < newest:  # as after a restart: what is kept is of another time
            self._at[:] = -np.inf
        if now - self._at[(self._next - 1) % _DEPTH] >= _SPACING:
            self._at[self._next], self._parts[self._next] = now, part
            self._next = (self._next + 1) % _DEPTH

    def part(self, now: float, seconds: float) -> Floats:
        """Return the largest part that was assumed in the last `seconds`, 0 to 1; over lines."""
        recent = self._parts[self._at > now - seconds - 1e-9]
        highest: Floats = np.maximum(recent.max(axis=0, initial=0.0), self._newest)
        return highest


def told(ratio: Floats, part: Floats, clear: float | Floats, level: float) -> Floats:
    """Return a ratio, or a gap where only what is assumed brings it from below `level` to above
    `clear`: nobody knows then whether the level is passed. `part`: of it that is assumed."""
    with np.errstate(invalid="ignore"):
        unsure = (part > 0) & (ratio > clear) & (ratio * (1 - part) <= level)
    return np.where(unsure, np.nan, ratio)
