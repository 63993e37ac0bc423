"""Nodes that fall silent together: the breaker above them has probably tripped.

One line is suspected for all of them: the highest whose nodes are all gone, else the lowest that
holds those that are.
"""

from __future__ import annotations

import numpy as np

from power.live.inputs import PowerInputs
from power.live.loads import CircuitLoads, CircuitMeters
from power.live.walls import SILENT_INTERVALS, SILENT_LEAST, WallPower
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.network.wiring import Flags, Floats

TOGETHER = 5.0
"""Seconds within which nodes of one dead breaker are last heard."""
LOADED = 0.7
"""Of the continuous limit: what a breaker carried that trips."""
_ALIVE_WATTS = 10.0
"""A silent node whose meter says more than this has power."""
_CARRIES = 0.1
"""Of the continuous limit: a line whose meter says more has not tripped."""


class Trips:
    """What each line carried while all of its nodes were heard, and which are suspected now."""

    def __init__(self, fixed: SiteTopology) -> None:
        lines = len(fixed.network.names)
        self._fixed = fixed
        self.before: Floats = np.full(lines, np.nan)
        """Highest pole's amps when all nodes below were last heard."""
        self.suspected: Flags = np.zeros(lines, dtype=bool)
        self.off: Flags = np.zeros(lines, dtype=bool)
        """Suspected, and nothing on it is heard: its breaker cools."""

    def update(
        self, tick: PowerInputs, walls: WallPower, carried: CircuitLoads, meters: CircuitMeters
    ) -> None:
        """Find the lines whose breaker has probably tripped."""
        fixed, count = self._fixed, len(self._fixed.network.names)
        lines, machines, _ = fixed.below
        runs = ~walls.described & np.isfinite(tick.silent_seconds)
        quiet = runs & (tick.silent_seconds > 2 * tick.interval)
        restless = np.bincount(lines, quiet[machines], count) > 0
        steady = (~restless & ~self.suspected) | np.isnan(self.before)
        self.before = np.where(steady & ~np.isnan(carried.watts), _highest(carried), self.before)

        gone = walls.silent & runs & ~(walls.metered > _ALIVE_WATTS)
        self.suspected, self.off = meters.tripped.copy(), meters.tripped.copy()
        if not gone.any() and not meters.tripped.any():
            return
        limit = LOADED * fixed.network.continuous
        carries = carried.metered > _CARRIES * fixed.network.continuous * fixed.volts
        may = np.bincount(lines[fixed.whole], gone[machines[fixed.whole]], count) > 0
        may &= (self.before > limit) & ~carries
        # Where nobody else reports, it may be we who are deaf.
        reports = runs & ~walls.silent
        near = np.bincount(lines, reports[machines], count)
        may &= reports.sum() - near > 0
        all_gone: list[int] = []
        some_gone: list[int] = []
        for line in np.flatnonzero(may):
            found = self._judge(int(line), tick, gone, runs)
            if found is not None:
                (all_gone if found else some_gone).append(int(line))
        self._choose(all_gone, some_gone, meters.tripped)

    def _judge(self, line: int, tick: PowerInputs, gone: Flags, runs: Flags) -> bool | None:
        """Return whether all nodes of a line went together, False for several, None for neither."""
        fixed = self._fixed
        below = fixed.machines_below(line)
        whole = fixed.whole[fixed.starts[line] : fixed.starts[line + 1]]
        own = below[whole & runs[below]]
        cluster = _cluster(tick.silent_seconds[own[gone[own]]])
        # Until the last of them would have crossed the line, nobody knows how many there are.
        patience = max(SILENT_LEAST, SILENT_INTERVALS * float(tick.interval[own].max(initial=0.0)))
        if not len(cluster) or cluster.max() < patience + TOGETHER:
            return None
        if len(cluster) == len(own):
            return True
        return False if len(cluster) >= 2 else None

    def _choose(self, all_gone: list[int], some_gone: list[int], tripped: Flags) -> None:
        """Name one line for nodes that went together. Parents stand before their children."""
        fixed = self._fixed
        for line in all_gone:
            above = int(fixed.parent[line])
            if above < 0 or not self.off[above]:
                self.suspected[line] = self.off[line] = True
            elif not tripped[above] and len(fixed.machines_below(above)) == len(
                fixed.machines_below(line)
            ):
                # Both would explain it; the nearer breaker is the smaller one.
                self.suspected[above], self.suspected[line] = False, True
                self.off[line] = True
            else:
                self.off[line] = True
        for line in reversed(some_gone):
            children = np.flatnonzero(fixed.parent == line)
            inside = self.suspected[children].any() or self.off[children].any()
            self.suspected[line] |= not inside and not self._held(line)

    def _held(self, line: int) -> bool:
        """Whether something deeper than its children is suspected already."""
        fixed = self._fixed
        for other in np.flatnonzero(self.suspected):
            above = int(fixed.parent[other])
            while above >= 0:
                if above == line:
                    return True
                above = int(fixed.parent[above])
        return False


def _cluster(silent_seconds: Floats) -> Floats:
    """Return the largest set of these that were last heard within one span of `TOGETHER`."""
    times = np.sort(silent_seconds)
    ends = np.searchsorted(times, times + TOGETHER, "right")
    if not len(times):
        return times
    start: Ints = np.arange(len(times))
    best = int(np.argmax(ends - start))
    return times[best : ends[best]]


def _highest(carried: CircuitLoads) -> Floats:
    found: Floats = carried.amps.max(axis=1)
    return found
