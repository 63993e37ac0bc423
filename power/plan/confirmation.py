"""Confirmation of places by the contingencies of the whole site: transfers, conversion, sides, supplies.

`power.plan.room` compares thousands of places by straight lines; it does not follow a transfer switch to its
other input, what a UPS or a transformer loses, what supplies draw once others are gone, or the loss of a
side. The best places are therefore evaluated once more, each with its machines in it, by the same code as
`kilowatch plan`. Room beyond them is taken to go on in a straight line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from power.network.contingency import LossKind, contingencies_of
from power.network.graph import build_graph
from power.network.outcome import Outcome, compute_outcome
from power.network.switching import switching_state
from power.network.topology import build_topology
from power.plan.room import Carrier, LimitKind
from power.site.circuit import ElementKind
from power.site.layout import Plugged, SiteLayout
from power.site.machine import Machine
from power.wiring import Floats

_GROWN = 1e-6
"""Amps, or part of a limit, from which a place loads an element."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The limit that the machines of a place reach first."""

    left: float
    """Watts beyond them; infinite where nothing binds."""
    kind: LimitKind | None = None
    where: str | None = None
    amps: float | None = None
    """Amps that are left; None where watts or volt-amperes bind."""
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class ConfirmedPlace:
    """Limits of a place, and which single elements feed all of it."""

    normal: Binding
    after: Binding
    fatal: frozenset[str]
    """Elements whose loss is the machine's; where there are none, sides whose loss is."""


def is_needed(layout: SiteLayout, machine: Machine) -> bool:
    """Return whether straight lines do not tell the whole truth about a site."""
    plain = {ElementKind.CIRCUIT, ElementKind.PANEL}
    rated = any(one.supply_watts is not None for one in (machine, *layout.machines.values()))
    sides: dict[tuple[str, str, str], int] = {}
    for circuit in layout.circuits.values():
        if circuit.group is not None:
            key = (circuit.kind, circuit.group, circuit.side or circuit.id)
            sides[key] = sides.get(key, 0) + 1
    return (
        rated
        or bool(layout.site.sources)
        or max(sides.values(), default=0) > 1
        or any(one.kind not in plain or len(one.inputs) > 1 for one in layout.circuits.values())
    )


class Confirmation:
    """Places with machines that are added to a site one place at a time."""

    def __init__(
        self,
        layout: SiteLayout,
        watts: Mapping[str, float],
        carriers: Sequence[Carrier],
        places: Sequence[tuple[tuple[str, ...], Machine]],
        count: int,
    ) -> None:
        names = [f"new machines {number}" for number in range(len(places))]
        machines = {name: _together(machine, name, count) for name, (_, machine) in zip(names, places, strict=True)}
        cords = tuple(
            Plugged(name, circuit, 1 / len(circuits), layout.circuits[circuit].poles)
            for name, (circuits, _) in zip(names, places, strict=True)
            for circuit in circuits
        )
        whole = replace(layout, machines=layout.machines | machines, cords=layout.cords + cords)
        topology = build_topology(whole)
        graph = build_graph(whole, topology)
        self._contingencies = contingencies_of(switching_state(graph))  # nothing is off now
        self._elements, self._modules = graph.elements, graph.limits.modules
        self._local = topology.network.other_watts
        self._first = len(layout.machines)
        self._drawn = np.array([m.committed_watts for m in machines.values()])
        self._base = np.zeros(len(whole.machines))
        self._base[: self._first] = [watts.get(name, 0.0) for name in layout.machines]
        self._rows = len(layout.circuits)
        self._carriers = carriers[: self._rows]
        self._limit = np.full(len(self._elements), np.inf)
        self._limit[: self._rows] = [one.limit for one in self._carriers]
        self._layout = layout
        self._before = self._outcome(self._base)

    def place(self, number: int) -> ConfirmedPlace:
        """Return what binds one place."""
        added = float(self._drawn[number])
        watts = self._base.copy()
        watts[self._first + number] = added
        found, before = self._outcome(watts), self._before
        count = len(self._limit)
        now, now_before = np.abs(found.now.currents).max(axis=1), np.abs(before.now.currents).max(axis=1)
        row = np.arange(count)
        nowhere = np.full(count, -1, dtype=np.int64)
        normal = self._least(added, row, nowhere, (now, now_before), (found.now_limit_ratio, before.now_limit_ratio))
        cases = self._least(
            added, found.row, found.case, (found.amps, before.amps), (found.limit_ratio, before.limit_ratio)
        )
        one_less = self._modules / np.maximum(self._modules - 1, 1)
        module = self._least(
            added,
            row,
            nowhere,
            (np.zeros(count), np.zeros(count)),
            (
                np.where(self._modules > 1, found.now_limit_ratio * one_less, 0.0),
                np.where(self._modules > 1, before.now_limit_ratio * one_less, 0.0),
            ),
        )
        if module.where is not None:
            module = replace(module, lost=f"a module of {module.where}")
        after = min((normal, cases, module), key=lambda one: one.left)
        unfed = [one for one in self._contingencies.cases if self._first + number in one.unfed]
        elements = frozenset(one.name for one in unfed if one.kind is LossKind.ELEMENT)
        sides = frozenset(one.name for one in unfed if one.kind is LossKind.SIDE)
        fatal = elements or sides
        return ConfirmedPlace(normal, after, fatal)

    def _outcome(self, watts: Floats) -> Outcome:
        return compute_outcome(self._contingencies, watts, self._local)

    def _least(
        self, added: float, row: np.ndarray, case: np.ndarray, amps: tuple[Floats, Floats], ratio: tuple[Floats, Floats]
    ) -> Binding:
        """Return the limit that is nearest among elements that the place loads. `amps`, `ratio`: with it, and
        without."""
        best = Binding(np.inf)
        for (after, before), limit, in_amps in ((amps, self._limit[row], True), (ratio, np.ones(len(row)), False)):
            grown = np.flatnonzero((after > before + _GROWN) & np.isfinite(limit))
            if not len(grown):
                continue
            left = (limit[grown] - after[grown]) / (after[grown] - before[grown]) * added
            at = grown[int(np.argmin(left))]
            if left.min() < best.left:
                best = self._binding(
                    float(left.min()), int(row[at]), int(case[at]), float(limit[at] - after[at]) if in_amps else None
                )
        return best

    def _binding(self, left: float, row: int, case: int, amps: float | None) -> Binding:
        name = self._elements[row]
        lost = None if case < 0 else self._contingencies.cases[case].name
        kind = self._carriers[row].kind if amps is not None else self._power_limit(row)
        return Binding(left, kind, name, None if amps is None else round(amps, 3), lost)

    def _power_limit(self, row: int) -> LimitKind:
        name = self._elements[row]
        if row < self._rows:
            kind = self._layout.circuits[name].kind
            return LimitKind.UPS if kind is ElementKind.UPS else LimitKind.TRANSFORMER
        return LimitKind.UPS if name in self._layout.site.ups else LimitKind.SOURCE


def _together(machine: Machine, name: str, count: int) -> Machine:
    """Return some machines of one kind as one, with the efficiency of each."""
    return replace(
        machine,
        id=name,
        gpus=machine.gpus * count,
        fixed_watts=machine.fixed_watts * count,
        host_watts=machine.host_watts * count,
        supply_watts=None if machine.supply_watts is None else machine.supply_watts * count,
        most_watts=None if machine.most_watts is None else machine.most_watts * count,
    )
