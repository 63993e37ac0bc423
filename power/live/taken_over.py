"""Feeds whose meter fell silent because the feed was lost: the meter of their partner shows both loads.

A distribution unit's meter dies with its feed. Its silence alone says nothing; that the other feed of the
same machines now carries what both did, while the machines draw what they drew, does.
"""

from __future__ import annotations

import numpy as np

from power.live.loads import CircuitMeters
from power.live.wall_power import WallPower
from power.network.feeds import Cords
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.wiring import Flags, Floats

_LEAST_PART = 0.25
"""Part of both loads that a feed must have carried for its loss to show at its partner."""
_TAKEN, _GIVEN_BACK = 0.7, 0.3
"""Parts of a feed's load from which its partner carries it, and below which it does not any more."""
_TOGETHER_SECONDS = 5.0
"""Most time between two readings that are compared."""
_MEAN_SECONDS = 60.0
"""Time constant of the usual parts."""


class TakenOver:
    """The usual load of each feed of a pair with the same machines, over what those machines draw."""

    def __init__(self, topology: SiteTopology, cords: Cords) -> None:
        self._pairs: Ints = cords.alike
        self._count = len(topology.network.names)
        below = [topology.machines_below(int(one)) for one, _ in self._pairs]
        self._machines: Ints = np.concatenate(below) if below else np.zeros(0, np.int64)
        self._starts: Ints = np.cumsum([0, *map(len, below)])[:-1]
        """Position of the first machine of each pair; each has some."""
        self._usual: Floats = np.full(self._pairs.shape, np.nan)
        self._age: Floats = np.zeros(self._pairs.shape)
        """Longest age of a reading while both meters reported."""
        self._at = -np.inf

    def update(self, now: float, wall_power: WallPower, meters: CircuitMeters) -> tuple[Flags, Flags]:
        """Return the feeds that their partner has taken over, and those that it has given back."""
        lost, back = np.zeros(self._count, dtype=bool), np.zeros(self._count, dtype=bool)
        if not len(self._pairs):
            return lost, back
        drawn = np.add.reduceat(wall_power.modelled[self._machines], self._starts)
        watts, age = meters.watts[self._pairs], now - meters.heard_at[self._pairs]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = watts / np.where(drawn > 0, drawn, np.nan)[:, None]
            gone = np.isnan(watts) | (age > _TOGETHER_SECONDS + 2 * self._age)
            both = ~gone.any(axis=1) & (np.abs(age[:, 0] - age[:, 1]) <= _TOGETHER_SECONDS)
        self._learn(now, both, part, age)
        usual, theirs, other = self._usual, part[:, ::-1], self._usual[:, ::-1]
        with np.errstate(invalid="ignore"):
            enough = usual >= _LEAST_PART * usual.sum(axis=1, keepdims=True)
            silent = gone & ~gone[:, ::-1]
            lost[self._pairs[silent & enough & (theirs >= other + _TAKEN * usual)]] = True
            back[self._pairs[silent & (theirs < other + _GIVEN_BACK * usual)]] = True
        return lost, back

    def _learn(self, now: float, both: Flags, part: Floats, age: Floats) -> None:
        """Follow the usual parts slowly: a partner's meter rises before the other counts as silent."""
        weight = 1 - np.exp(-max(now - self._at, 0.0) / _MEAN_SECONDS)
        self._at = now
        known = both[:, None] & np.isfinite(part)
        moved = self._usual + weight * (part - self._usual)
        self._usual = np.where(known, np.where(np.isnan(self._usual), part, moved), self._usual)
        self._age = np.where(known, np.fmax(self._age, age), self._age)
