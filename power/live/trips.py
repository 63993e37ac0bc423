"""Suspected trips: nodes that fall silent together probably hang on a tripped breaker.

One circuit is suspected for all of them: the highest whose nodes are all silent, else the lowest
that has all silent ones.
"""

from __future__ import annotations

import numpy as np

from power.live.inputs import PowerInputs
from power.live.loads import CircuitLoads, CircuitMeters
from power.live.wall_power import SILENT_INTERVALS, SILENT_LEAST, WallPower
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.wiring import Flags, Floats

TOGETHER = 5.0
"""Seconds within which nodes of one tripped breaker send their last frames."""
LOADED = 0.56
"""Part of the rating that a breaker must have carried to be suspected."""
_ALIVE_WATTS = 10.0
"""Watts of a silent node's meter from which the node has power."""
_CARRIES = 0.1
"""Part of the continuous limit: a circuit whose meter reads more has not tripped."""


class Trips:
    """Detector of tripped breakers, by silent nodes and by meters."""

    def __init__(self, topology: SiteTopology) -> None:
        circuits = len(topology.network.names)
        self._topology = topology
        lines = np.concatenate([step.children for step in topology.network.climbs] or [np.zeros(0, np.int64)])
        above = np.where(topology.parent < 0, np.arange(circuits), topology.parent)
        self._fed_alone: Flags = (np.bincount(lines, minlength=circuits) == 1) & (topology.weak == topology.weak[above])
        """Circuits that carry nothing once what feeds them is off: no other input, and no battery between."""
        self.before: Floats = np.full(circuits, np.nan)
        """Amps of the highest pole when all nodes below last reported."""
        self.suspected: Flags = np.zeros(circuits, dtype=bool)
        self.off: Flags = np.zeros(circuits, dtype=bool)
        """Suspected, and nothing on it reports: its breaker cools."""
        self.faults: dict[str, Exception] = {}
        """Exceptions of the last update, by the circuit that is not suspected for it."""

    def update(
        self, now: float, tick: PowerInputs, wall_power: WallPower, loads: CircuitLoads, meters: CircuitMeters
    ) -> None:
        """Find the circuits whose breaker has probably tripped."""
        self.faults = {}
        topology, count = self._topology, len(self._topology.network.names)
        circuits, machines, _ = topology.below
        runs = ~wall_power.described & np.isfinite(tick.silent_seconds)
        if tick.unheard is not None:  # their aggregator fell silent, not they
            runs &= ~tick.unheard
        quiet = runs & (tick.silent_seconds > 2 * tick.interval)
        restless = topology.count_below(quiet) > 0
        steady = (~restless & ~self.suspected) | np.isnan(self.before)
        self.before = np.where(steady & ~np.isnan(loads.watts), loads.highest, self.before)

        gone = wall_power.silent & runs & ~(wall_power.metered > _ALIVE_WATTS)
        self.suspected, self.off = meters.tripped.copy(), meters.tripped.copy()
        if not gone.any() and not meters.tripped.any():
            return
        limit = LOADED * topology.network.rated
        carries = loads.metered > _CARRIES * topology.network.continuous * topology.volts
        may = np.bincount(circuits[topology.whole], gone[machines[topology.whole]], count) > 0
        may &= (self.before > limit) & ~carries
        if may.any() and carries.any():
            may &= ~self._carries_below(
                carries & (meters.heard_at > now - tick.silent_seconds[gone].min(initial=np.inf) + TOGETHER)
            )
        # Where no other node reports, the aggregator itself may be cut off.
        reports = runs & ~wall_power.silent
        near = np.bincount(circuits, reports[machines], count)
        may &= reports.sum() - near > 0
        all_gone: list[int] = []
        some_gone: list[int] = []
        for circuit in np.flatnonzero(may):
            try:
                found = self._evaluate(int(circuit), tick, gone, runs)
            except Exception as error:  # noqa: BLE001 - kept by the circuit's name
                self.faults[topology.network.names[circuit]] = error
                continue
            if found is not None:
                (all_gone if found else some_gone).append(int(circuit))
        self._choose(all_gone, some_gone, meters.tripped)

    def _carries_below(self, carries: Flags) -> Flags:
        """Return the circuits below which a meter has read a load since the nodes fell silent."""
        found = carries.copy()
        for level in self._topology.levels:
            rows = level[self._fed_alone[level]]
            np.logical_or.at(found, self._topology.parent[rows], found[rows])
        return found

    def _evaluate(self, circuit: int, tick: PowerInputs, gone: Flags, runs: Flags) -> bool | None:
        """Return True if all nodes of a circuit fell silent together, False for several, None for fewer."""
        topology = self._topology
        below = topology.machines_below(circuit)
        whole = topology.whole[topology.starts[circuit] : topology.starts[circuit + 1]]
        own = below[whole & runs[below]]
        cluster = _cluster(tick.silent_seconds[own[gone[own]]])
        # Until the last of them counts as silent, their number is not known.
        silent_after = max(SILENT_LEAST, SILENT_INTERVALS * float(tick.interval[own].max(initial=0.0)))
        if not len(cluster) or cluster.max() < silent_after + TOGETHER:
            return None
        if len(cluster) == len(own):
            return True
        return False if len(cluster) >= 2 else None

    def _choose(self, all_gone: list[int], some_gone: list[int], tripped: Flags) -> None:
        """Select one circuit for nodes that fell silent together. Parents come before their children."""
        topology = self._topology
        for circuit in all_gone:
            above = int(topology.parent[circuit])
            if above < 0 or not self.off[above]:
                self.suspected[circuit] = self.off[circuit] = True
            elif not tripped[above] and len(topology.machines_below(above)) == len(topology.machines_below(circuit)):
                # Both would explain it; the nearer breaker is the more likely one.
                self.suspected[above], self.suspected[circuit] = False, True
                self.off[circuit] = True
            else:
                self.off[circuit] = True
        for circuit in reversed(some_gone):
            children = np.flatnonzero(topology.parent == circuit)
            inside = self.suspected[children].any() or self.off[children].any()
            self.suspected[circuit] |= not inside and not self._held(circuit)

    def _held(self, circuit: int) -> bool:
        """Return whether a circuit deeper than its children is already suspected."""
        topology = self._topology
        for other in np.flatnonzero(self.suspected):
            above = int(topology.parent[other])
            while above >= 0:
                if above == circuit:
                    return True
                above = int(topology.parent[above])
        return False


def _cluster(silent_seconds: Floats) -> Floats:
    """Return the largest set of times within `TOGETHER` seconds."""
    times = np.sort(silent_seconds)
    ends = np.searchsorted(times, times + TOGETHER, "right")
    if not len(times):
        return times
    start: Ints = np.arange(len(times))
    best = int(np.argmax(ends - start))
    return times[best : ends[best]]
