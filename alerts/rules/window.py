"""Sums over the last minutes, for every row at once, in ten steps to a window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import Floats

SLOTS = 11
"""Ten steps to a window, and the one that is being filled."""
_PUNCTUAL = 0.99
"""A tick that comes a little early still counts for its step."""


class RollingWindow:
    """Sums of one or more things over a window; what it keeps stands in a condition's memory.

    The window is as long as asked for, and up to a tenth longer. A row costs 48 bytes a sum, and
    nothing while nothing has been added anywhere.
    """

    def __init__(self, rows: RowMemory, seconds: float, names: Sequence[str]) -> None:
        self._rows = rows
        self._seconds = seconds
        self._names = names

    def add(self, growths: Sequence[Floats], now: float) -> tuple[list[Floats], float]:
        """Add what came since the call before; return the sum of each and the seconds that they
        are of, at most."""
        rows, moments = self._rows, self._rows.moments
        if now - rows.state.get("added", now) > self._seconds:
            self._forget()  # nobody looked for a whole window
        rows.state["added"] = now
        if moments:
            slot = rows.state["slot"]
            for name, growth in zip(self._names, growths, strict=True):
                if f"{name}_used" in rows.state or growth.any():
                    rows.state[f"{name}_used"] = True
                    self._ring(name)[slot] += growth
                    self._sum(name)[:] += growth
        self._turn(now)
        start = max((at for at in moments if at <= now - self._seconds), default=min(moments))
        included = tuple(at >= start for at in moments)
        if included != rows.state.get("included"):
            rows.state["included"] = included
            for name in self._names:
                if f"{name}_used" in rows.state:
                    np.sum(
                        self._ring(name)[: len(moments)][list(included)],
                        axis=0,
                        out=self._sum(name),
                    )
        zero = np.zeros(rows.size, np.float32)
        return [
            self._sum(name) if f"{name}_used" in rows.state else zero for name in self._names
        ], now - start

    def _forget(self) -> None:
        self._rows.moments.clear()
        self._rows.state.pop("included", None)
        for name in self._names:
            if f"{name}_used" in self._rows.state:
                self._ring(name)[:] = 0.0
                self._sum(name)[:] = 0.0

    def _turn(self, now: float) -> None:
        """Begin a new step if one is due."""
        rows, moments = self._rows, self._rows.moments
        if moments and now - max(moments) < self._seconds / (SLOTS - 1) * _PUNCTUAL:
            return
        if len(moments) < SLOTS:
            moments.append(now)
            slot = len(moments) - 1
        else:
            slot = moments.index(min(moments))
            moments[slot] = now
            rows.state.pop("included", None)  # what the slot held is in the sums still
        rows.state["slot"] = slot
        for name in self._names:
            if f"{name}_used" in rows.state:
                self._ring(name)[slot] = 0.0

    def _ring(self, name: str) -> Floats:
        ring: Floats = self._rows.array(f"{name}_ring", np.float32, 0.0, depth=SLOTS)
        return ring

    def _sum(self, name: str) -> Floats:
        total: Floats = self._rows.array(f"{name}_sum", np.float32, 0.0)
        return total


class SinceWindow:
    """A moment for each row, in four bytes: exact to a second for a hundred days and more."""

    def __init__(self, rows: RowMemory, name: str, now: float) -> None:
        self._epoch: float = rows.state.setdefault("epoch", now)
        self.moments: Floats = rows.array(name, np.float32, -np.inf)

    def short(self, now: float) -> np.float32:
        """A moment as it stands in the array."""
        return np.float32(now - self._epoch)

    def ago(self, now: float) -> Floats:
        """Seconds since each row's moment; inf for never."""
        ago: Floats = self.short(now) - self.moments
        return ago
