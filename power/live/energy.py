"""Energy of every line: by its meter's own counter, and between two of its readings by the watts."""

from __future__ import annotations

import numpy as np

from power.live.lines import LineMeters
from power.wiring import Floats

LONGEST_GAP = 3600.0
"""Seconds; what happened in a longer pause of ours nobody can say, unless a meter has counted."""


class Energies:
    """Joules since kilowatch first saw each line."""

    def __init__(self, lines: int) -> None:
        self.joules: Floats = np.zeros(lines)
        """What is told: it never falls."""
        self._sure: Floats = np.zeros(lines)
        """Up to the last reading of a counter."""
        self._since: Floats = np.zeros(lines)
        """Integrated since then."""
        self._watts: Floats = np.full(lines, np.nan)
        self._counter: Floats = np.full(lines, np.nan)
        self._counted_at: Floats = np.full(lines, -np.inf)
        self._slot = np.full(lines, -1, dtype=np.int64)

    def update(self, seconds: float, watts: Floats, meters: LineMeters) -> None:
        """Take in what was drawn in the last `seconds`."""
        mean = 0.5 * (watts + np.where(np.isnan(self._watts), watts, self._watts))
        if seconds <= LONGEST_GAP:
            self._since = self._since + np.where(np.isnan(mean), 0.0, mean * seconds)
        self._watts = watts
        fresh = ~np.isnan(meters.energy) & (meters.energy_at > self._counted_at)
        if fresh.any():
            same = fresh & (self._slot == meters.energy_slot) & ~np.isnan(self._counter)
            # A counter that fell was reset, and has counted from 0.
            grown = np.where(meters.energy >= self._counter, meters.energy - self._counter, meters.energy)  # fmt: skip
            part = np.where(same, grown, self._since)
            self._sure = np.where(fresh, self._sure + part, self._sure)
            self._since = np.where(fresh, 0.0, self._since)
            self._counter = np.where(fresh, meters.energy, self._counter)
            self._counted_at = np.where(fresh, meters.energy_at, self._counted_at)
            self._slot = np.where(fresh, meters.energy_slot, self._slot)
        self.joules = np.maximum(self.joules, self._sure + self._since)

    def restore(self, row: int, joules: float) -> None:
        """Go on from what was told before a restart."""
        self.joules[row] = self._sure[row] = joules
