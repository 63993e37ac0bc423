"""The last minutes of every circuit in bounded rings: mean squares, peaks, swings, slow steps.

A circuit's current is kept as the running integral of its square, so that the mean over any window is
one difference, however irregular the ticks were.
"""

from __future__ import annotations

import numpy as np

from power.network.flow import Ints
from power.wiring import Flags, Floats, highest_of_three

_DEPTH = 140
"""Rows of the ring, at most one a second: more than the trend's two minutes."""
_SPACING = 0.999
MEAN_SECONDS = 10.0
"""Length of the mean that rules and countdowns go by."""
HELD_SECONDS = 3.0
"""Seconds after which a load that has risen counts in full, before that mean has followed."""
SLOW_SECONDS = 5.0
"""Length of one step of the slow ring, which the trend reads."""
SLOW_DEPTH = 26
"""Steps of the slow ring: 130 s."""


class Windows:
    """Rings of recent currents, one column a circuit."""

    def __init__(self, circuits: int) -> None:
        self._sum = np.zeros((circuits, 3))
        """Integral of the square of each pole's current."""
        self._known = np.zeros(circuits)
        """Seconds with a known current."""
        self._at: Floats = np.full(_DEPTH, -np.inf)
        self._sums = np.zeros((_DEPTH, circuits, 3))
        self._knowns = np.zeros((_DEPTH, circuits))
        self._highest: Floats = np.full((_DEPTH, circuits), np.nan)
        self._next = 0
        self._last = -np.inf
        self.slow_at: Floats = np.full(SLOW_DEPTH, -np.inf)
        """End of each slow step, oldest first."""
        self.slow: Floats = np.full((SLOW_DEPTH, circuits), np.nan)
        """RMS of the highest pole in each slow step."""
        self._slow_sum, self._slow_known = self._sum.copy(), self._known.copy()
        self._newest: Floats = np.full((circuits, 3), np.nan)

    def add(self, now: float, amps: Floats) -> None:
        """Add the amps of each pole since the last call; shape (circuits, 3)."""
        if now <= self._last:
            return
        seconds = now - self._last if np.isfinite(self._last) else 0.0
        known: Flags = ~np.isnan(amps.sum(axis=1))
        # A reading is a mean over the time that has just passed.
        self._sum = self._sum + np.where(known[:, None], np.square(amps), 0.0) * seconds
        self._known = self._known + np.where(known, seconds, 0.0)
        if not np.isfinite(self._last):
            self._slow_start(now)
        self._last, self._newest = now, amps
        newest = self._at[(self._next - 1) % _DEPTH]
        if now - newest >= _SPACING:
            row = self._next
            self._at[row], self._sums[row], self._knowns[row] = now, self._sum, self._known
            self._highest[row] = np.where(known, highest_of_three(amps), np.nan)
            self._next = (row + 1) % _DEPTH
        if now - self.slow_at[-1] >= SLOW_SECONDS:
            self._slow_step(now)

    def rms(self, now: float, seconds: float) -> Floats:
        """Return the RMS of the highest pole over the last `seconds`, or over less if there is less."""
        sums, known = self._before(now - seconds)
        length = self._known - known
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = highest_of_three(self._sum - sums) / length
        rms = np.sqrt(np.maximum(mean, 0.0))
        # In an empty window the newest reading counts.
        newest: Floats = highest_of_three(self._newest)
        return np.where(length > 1e-6, rms, newest)

    def peak(self, now: float, seconds: float) -> Floats:
        """Return the highest current of the last `seconds`, of any pole."""
        highest: Floats = np.fmax.reduce(self._recent(now, seconds), axis=0)
        return highest

    def sustained(self, now: float, mean: Floats) -> Floats:
        """Return `mean`, that of `MEAN_SECONDS`, or the lowest current of the last `HELD_SECONDS` where a load has risen to it."""
        lowest: Floats = np.fmin.reduce(self._recent(now, HELD_SECONDS), axis=0)
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(lowest > mean)
        if len(rows):
            rows = rows[self._rests(now, rows) >= MEAN_SECONDS]
        sustained: Floats = np.where(np.isnan(mean), lowest, mean)
        sustained[rows] = lowest[rows]
        return sustained

    def _rests(self, now: float, rows: Ints) -> Floats:
        """Return for how long each circuit was low before it was last high; infinity where it was not high before. A
        load that rests for less swings, and the mean tells it."""
        order = (self._next + np.arange(_DEPTH)) % _DEPTH
        order = order[self._at[order] > now - HELD_SECONDS - 2 * MEAN_SECONDS]
        recent, at = self._highest[np.ix_(order, rows)], self._at[order][:, None]
        up, down = _halves(recent)
        fell: Floats = np.where(down, at, -np.inf).max(axis=0)
        was_up: Floats = np.where(up & (at < fell), at, -np.inf).max(axis=0)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(was_up), fell - was_up, np.inf)

    def steps(self, now: float) -> tuple[Floats, Floats]:
        """Return the ends of the slow steps and the RMS of each; none from before a long pause."""
        held = np.isfinite(self.slow_at) & (now - self.slow_at < 2 * SLOW_DEPTH * SLOW_SECONDS)
        held &= ~np.isnan(self.slow).all(axis=1)  # the start is the end of no step
        return self.slow_at[held], self.slow[held]

    def swing(self, now: float, seconds: float, rows: slice) -> tuple[Floats, Floats]:
        """Return peak to peak of the last `seconds`, and how often the current swung from one half to the
        other and back. Swings faster than the ticks are larger than this."""
        recent = self._recent(now, seconds)[:, rows]
        span = np.fmax.reduce(recent, axis=0) - np.fmin.reduce(recent, axis=0)
        up, down = _halves(recent)
        cycles = np.zeros(recent.shape[1])
        was_up = np.zeros(recent.shape[1], dtype=bool)
        for row in range(len(recent)):  # 60 short steps over all circuits
            cycles += was_up & down[row]
            was_up = up[row] | (was_up & ~down[row])
        return span, cycles

    def _recent(self, now: float, seconds: float) -> Floats:
        order = (self._next + np.arange(_DEPTH)) % _DEPTH
        found: Floats = self._highest[order[self._at[order] > now - seconds - 1e-9]]
        return np.concatenate([found, highest_of_three(self._newest)[None]])

    def _before(self, at: float) -> tuple[Floats, Floats]:
        """Return the integrals at a time, interpolated between two rows."""
        order = (self._next + np.arange(_DEPTH)) % _DEPTH
        order = order[np.isfinite(self._at[order])]
        times = self._at[order]
        later = int(np.searchsorted(times, at, side="right"))
        if later == 0:
            first = order[0]
            return self._sums[first], self._knowns[first]
        if later == len(order):  # after the newest row
            last = order[-1]
            return self._sums[last], self._knowns[last]
        one, two = order[later - 1], order[later]
        part = (at - self._at[one]) / (self._at[two] - self._at[one])
        return (
            self._sums[one] + part * (self._sums[two] - self._sums[one]),
            self._knowns[one] + part * (self._knowns[two] - self._knowns[one]),
        )

    def _slow_start(self, now: float) -> None:
        self.slow_at[-1] = now

    def _slow_step(self, now: float) -> None:
        length = self._known - self._slow_known
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = highest_of_three(self._sum - self._slow_sum) / length
        rms = np.sqrt(np.maximum(mean, 0.0))
        self.slow = np.concatenate([self.slow[1:], np.where(length > 0, rms, np.nan)[None]])
        self.slow_at = np.append(self.slow_at[1:], now)
        self._slow_sum, self._slow_known = self._sum, self._known


def _halves(recent: Floats) -> tuple[Flags, Flags]:
    """Return when each circuit, a column, was in the upper and in the lower part of its range."""
    low, high = np.fmin.reduce(recent, axis=0), np.fmax.reduce(recent, axis=0)
    with np.errstate(invalid="ignore"):
        return recent > low + 0.6 * (high - low), recent < low + 0.4 * (high - low)


def swings(span: Floats, cycles: Floats, rated: Floats, least: int) -> Floats:
    """Return the swing over the rating where it swung often enough, else 0."""
    often: Flags = cycles >= least
    ratio: Floats = np.where(often, span / rated, 0.0)
    return np.where(np.isnan(span), np.nan, ratio)
