"""The input that each transfer switch stands on, by the meters of its two inputs.

A switch that has moved takes its load with it: the meter of the input that it left is right to read next to
nothing, and the load belongs to the other input. Only a change at both inputs shows a move: a meter in a wrong unit, or
one that is late, reads too little beside an input that has always carried something else. A meter that falls silent while the other
rises by just that load is such a change: what it hangs on has lost its power.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from power.live.loads import CircuitLoads
from power.live.meter_faults import MeterFaults
from power.live.metering import CIRCUIT, Metering
from power.network.flow import inputs_of
from power.network.topology import SiteTopology
from power.site.circuit import ElementKind
from power.site.layout import SiteLayout
from power.wiring import Flags, Floats

_LEAST_WATTS = 100.0
"""Load of a switch from which its inputs are compared."""
_PART = 0.5
"""Part of that load by which the meters of both inputs must change when the switch moves."""
_ALIKE = 0.25
"""Part of that load by which the rise of an input may differ from it, where the other's meter fell silent: it has no power
either."""
_REMEMBERED_SECONDS = 120.0
"""Least age of the readings that they are compared with: longer than a meter's period."""


class TransferPositions:
    """Positions of the transfer switches that have two inputs in the tree."""

    def __init__(self, layout: SiteLayout, topology: SiteTopology) -> None:
        at = {name: number for number, name in enumerate(topology.network.names)}
        rows = [
            (at[circuit.id], *(at.get(name, -1) for name in inputs_of(circuit)))
            for circuit in layout.circuits.values()
            if circuit.kind is ElementKind.TRANSFER
        ]
        self._rows = np.array([row for row in rows if len(row) == 3 and min(row) >= 0], np.int64).reshape(-1, 3)
        self._count = len(topology.network.names)
        self._above = {row: _above(topology, row) for row in self._rows[:, 1:].flatten().tolist()}
        self.alternate: Flags = np.zeros(len(self._rows), dtype=bool)
        """Whether each switch stands on its alternate input."""
        self._before: Floats = np.full((len(self._rows), 2), np.nan)
        """Watts that both inputs read when each switch surely stood where it does, a while ago."""
        self._newer: Floats = self._before.copy()
        """The same, and not so long ago."""
        self._newer_at: Floats = np.full(len(self._rows), -np.inf)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def moved(self) -> frozenset[int]:
        """Return the rows of the switches that stand on their alternate input."""
        return frozenset(self._rows[self.alternate, 0].tolist())

    def left(self) -> Flags:
        """Return the inputs that a switch has left, and all that feeds them: they don't carry what hangs
        on the switch."""
        found = np.zeros(self._count, dtype=bool)
        for row in self._rows[self.alternate, 1].tolist():
            found[self._above[row]] = True
        return found

    def place(self, row: int) -> None:
        """Restore that the switch of a row stood on its alternate input."""
        self.alternate |= self._rows[:, 0] == row

    def update(
        self,
        now: float,
        loads: CircuitLoads,
        metering: Metering,
        faults: MeterFaults,
        outputs: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Follow the meters of the inputs: a switch has moved when one input has given its load away, and the
        other has taken it. That an input reads too little for its load is a fault of its meter until the other
        has risen. An input without a meter says nothing. `outputs`: circuits whose UPS measures them, and its
        watts."""
        inputs = self._rows[:, 1:]
        metered = _metered(now, metering, faults, outputs, self._count)[inputs]
        if np.isnan(metered).all():
            return
        load = np.nan_to_num(loads.watts[self._rows[:, 0]])
        switches = np.arange(len(load))
        here, there = self.alternate.astype(np.intp), 1 - self.alternate.astype(np.intp)
        rest = loads.modelled[inputs[switches, here]] - load
        before = self._before
        with np.errstate(invalid="ignore"):
            part = _PART * load
            stands = metered[switches, here] - rest >= part
            given = before[switches, here] - metered[switches, here] >= part
            # An input that was dead, and its meter with it, carried what its nodes draw.
            idle = np.where(
                np.isnan(before[switches, there]), loads.modelled[inputs[switches, there]], before[switches, there]
            )
            risen = metered[switches, there] - idle
            dead = np.isnan(metered[switches, here]) & ~np.isnan(before).any(axis=1)
            alike = np.abs(risen - load) <= _ALIKE * load
            moves = (load >= _LEAST_WATTS) & ~stands & ((given & (risen >= part)) | (dead & alike))
        self.alternate = self.alternate ^ moves
        self._remember(now, metered, stands | moves, moves)

    def _remember(self, now: float, metered: Floats, sure: Flags, moved: Flags) -> None:
        """Keep what the inputs read while each switch stood: for a while, since one meter may report long
        after the other."""
        self._before[moved] = self._newer[moved] = metered[moved]
        self._newer_at[moved] = now
        known = sure & ~np.isnan(metered).any(axis=1)
        first = known & np.isnan(self._before).any(axis=1)
        self._before[first] = metered[first]
        due = known & ~moved & (now - self._newer_at >= _REMEMBERED_SECONDS)
        older = due & ~np.isnan(self._newer).any(axis=1)
        self._before[older] = self._newer[older]
        self._newer[due], self._newer_at[due] = metered[due], now


def _metered(
    now: float, metering: Metering, faults: MeterFaults, outputs: Sequence[tuple[int, float]], count: int
) -> Floats:
    """Return what each circuit's meter says, else its UPS, believed or not; NaN without one that reports."""
    found = np.full(count, np.nan)
    for row, watts in outputs:
        found[row] = watts
    slots = np.flatnonzero((metering.whole("kind") == CIRCUIT) & metering.reporting(now))
    found[metering.whole("target")[slots]] = faults.sums(metering)[slots]
    return found


def _above(topology: SiteTopology, row: int) -> list[int]:
    """Return an element and all that feeds it."""
    found = {row}
    for step in topology.network.climbs:
        for child, parent in zip(step.children.tolist(), step.parents.tolist(), strict=True):
            if child in found:
                found.add(parent)
    return sorted(found)
