"""Undeclared load: metered power beyond the sum of the nodes, and where it goes when a feed is lost."""

from __future__ import annotations

import numpy as np

from power import thresholds
from power.live.loads import CircuitLoads
from power.live.wall_power import WallPower
from power.network.feeds import sum_by_circuit
from power.network.topology import SiteTopology
from power.wiring import Floats

HELD_SECONDS = 15.0
"""Seconds for which a past excess still counts: a meter falls before its nodes count as silent."""


def undeclared(topology: SiteTopology, wall_power: WallPower, loads: CircuitLoads) -> Floats:
    """Return the excess of each circuit's meter over the sum below it; NaN without a meter.

    The meter of a circuit with one node is compared with the node's own readings.
    """
    reported = np.where(np.isnan(loads.metered), np.nan, loads.unknown)
    only = topology.single_feed
    if not len(wall_power.modelled):
        return reported
    return np.where(only >= 0, loads.metered - wall_power.modelled[only], reported)


class UndeclaredLoad:
    """Load of each circuit that its nodes and declared loads do not explain.

    The part within the model's error is attributed to the nodes and moves with them; the rest is
    undeclared load and stays on its circuit.
    """

    def __init__(self, topology: SiteTopology) -> None:
        self._topology = topology
        none: Floats = np.zeros(len(topology.network.names))
        self._before, self._lately = none, none
        """Highest of the last span and of this one."""
        self._turned = -np.inf

    def of(self, now: float, wall_power: WallPower, loads: CircuitLoads) -> tuple[Floats, Floats]:
        """Return the undeclared watts of each circuit and of each machine; 0 where a meter reads less."""
        network, count = self._topology.network, len(self._lately)
        held = self._hold(now, wall_power, np.maximum(loads.unknown, 0.0))
        if not held.any():
            return held, np.zeros(len(network.machines))
        at, machine = network.cord_circuit, network.cord_machine
        cords = np.nan_to_num(wall_power.held)[machine] * network.cord_share
        drawn = sum_by_circuit(at, cords, count)
        may = np.maximum(thresholds.DEVIATION_RATIO * drawn, thresholds.DEVIATION_WATTS)
        theirs = np.where(drawn > 0, np.minimum(held, may), 0.0)
        part = np.divide(theirs, drawn, out=np.zeros(count), where=drawn > 0)
        return held - theirs, sum_by_circuit(machine, part[at] * cords, len(network.machines))

    def _hold(self, now: float, wall_power: WallPower, unknown: Floats) -> Floats:
        if now - self._turned >= HELD_SECONDS:
            # A silent node will draw again, and the undeclared load beside it, too.
            hushed = np.zeros(len(unknown), dtype=bool)
            circuits, machines, _ = self._topology.below
            hushed[circuits[wall_power.silent[machines]]] = True
            self._before = np.where(hushed, np.fmax(self._before, self._lately), self._lately)
            self._lately, self._turned = unknown, now
        self._lately = np.fmax(self._lately, unknown)
        return np.fmax(self._before, self._lately)
