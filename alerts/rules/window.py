"""Sums over the last minutes, for every row at once, in ten steps to a window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.rules.row_memory import Floats, RowMemory

SLOTS = 11
"""Ten steps to a window, and the one that is being filled."""
_PUNCTUAL = 0.99
"""Share of a step after which a tick that is a little early counts for the next."""


class RollingWindow:
    """Sums of one or more quantities over a window, in a condition's memory.

    The window is as long as requested, and up to a tenth longer. A row costs 48 bytes a sum, and
    nothing while nothing has been added anywhere.
    """

    def __init__(self, memory: RowMemory, seconds: float, names: Sequence[str]) -> None:
        self._memory = memory
        self._seconds = seconds
        self._names = names

    def add(self, growths: Sequence[Floats], now: float) -> tuple[list[Floats], float]:
        """Add the growth since the call before; return the sum of each, and the seconds that the
        sums cover at most."""
        memory, moments = self._memory, self._memory.moments
        if now - memory.state.get("added", now) > self._seconds:
            self._reset()  # no call for a whole window
        memory.state["added"] = now
        if moments:
            slot = memory.state["slot"]
            for name, growth in zip(self._names, growths, strict=True):
                if f"{name}_used" in memory.state or np.count_nonzero(growth):
                    memory.state[f"{name}_used"] = True
                    self._ring(name)[slot] += growth
                    self._sum(name)[:] += growth
        self._advance(now)
        start = max((at for at in moments if at <= now - self._seconds), default=min(moments))
        included = tuple(at >= start for at in moments)
        if included != memory.state.get("included"):
            memory.state["included"] = included
            for name in self._names:
                if f"{name}_used" in memory.state:
                    np.sum(self._ring(name)[: len(moments)][list(included)], axis=0, out=self._sum(name))
        zero = np.zeros(memory.size, np.float32)
        return [self._sum(name) if f"{name}_used" in memory.state else zero for name in self._names], now - start

    def _reset(self) -> None:
        self._memory.moments.clear()
        self._memory.state.pop("included", None)
        for name in self._names:
            if f"{name}_used" in self._memory.state:
                self._ring(name)[:] = 0.0
                self._sum(name)[:] = 0.0

    def _advance(self, now: float) -> None:
        """Begin a new step if one is due."""
        memory, moments = self._memory, self._memory.moments
        if moments and now - max(moments) < self._seconds / (SLOTS - 1) * _PUNCTUAL:
            return
        if len(moments) < SLOTS:
            moments.append(now)
            slot = len(moments) - 1
        else:
            slot = moments.index(min(moments))
            moments[slot] = now
            memory.state.pop("included", None)  # the slot is still in the sums
        memory.state["slot"] = slot
        for name in self._names:
            if f"{name}_used" in memory.state:
                self._ring(name)[slot] = 0.0

    def _ring(self, name: str) -> Floats:
        ring: Floats = self._memory.array(f"{name}_ring", np.float32, 0.0, depth=SLOTS)
        return ring

    def _sum(self, name: str) -> Floats:
        total: Floats = self._memory.array(f"{name}_sum", np.float32, 0.0)
        return total


class SinceWindow:
    """A moment for each row, in four bytes: exact to a second for a hundred days and more."""

    def __init__(self, memory: RowMemory, name: str, now: float) -> None:
        self._epoch: float = memory.state.setdefault("epoch", now)
        self.moments: Floats = memory.array(name, np.float32, -np.inf)

    def short(self, now: float) -> np.float32:
        """Return a moment as the array stores it."""
        return np.float32(now - self._epoch)

    def ago(self, now: float) -> Floats:
        """Return the seconds since each row's moment; inf for never."""
        ago: Floats = self.short(now) - self.moments
        return ago
