"""Machines with the same cords, which are one load, and what their cords carry without some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from power.network.curves import EfficiencyCurves
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.site.layout import SiteLayout
from power.site.machine import Machine
from power.wiring import Complex, Flags, Floats


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines whose cords are on the same circuits, with the same shares, behind the same UPSs."""

    members: Ints
    rows: tuple[int, ...]
    """Circuit of each cord: a row of the network."""
    kinds: tuple[int, ...]
    """Kind of each cord, as the topology has it."""
    shares: tuple[float, ...]
    supplies: tuple[tuple[float, ...], ...]
    """Part of its supplies that is behind each cord, of every member."""
    gates: frozenset[int]
    """UPSs beside the tree that must have power."""
    ups: tuple[int, ...]
    """UPSs beside the tree whose load these machines are, because they name no circuit."""

    def working(self, gone: Collection[int]) -> Floats:
        """Return the part of each member's supplies that has power without some cords."""
        if not gone:
            return np.ones(len(self.members))
        left = [position for position in range(len(self.rows)) if position not in gone]
        return np.array([sum(mine[position] for position in left) for mine in self.supplies])


@dataclass(frozen=True, slots=True)
class MachineClasses:
    """Machines of a site by class, and what their supplies draw."""

    classes: tuple[MachineClass, ...]
    on_row: Mapping[int, Sequence[tuple[int, int]]]
    """Class and position of the cords on each row of the network."""
    gated: Mapping[int, Sequence[int]]
    """Classes by the UPS beside the tree that must have power."""
    machines: tuple[Machine, ...]
    curves: EfficiencyCurves
    """Of all machines."""
    rated: Flags
    """Machines with supplies of known rating."""
    most: Floats
    """Most watts at the wall that the maker allows each machine in any state; infinite without a limit."""

    def bounded(self, machines: Ints, wall: Floats, now: Floats) -> Floats:
        """Return wall watts, no higher than what the maker allows a system in any state."""
        bounded: Floats = np.fmin(wall, np.fmax(self.most[machines], now[machines]))
        return bounded


def classify(layout: SiteLayout, topology: SiteTopology, beside: Mapping[str, int]) -> MachineClasses:
    """Return the machines of a layout by class. `beside`: numbers of the UPSs beside the tree."""
    network = topology.network
    machines = tuple(layout.machines.values())
    cords: list[list[int]] = [[] for _ in network.machines]
    for number, machine in enumerate(network.cord_machine.tolist()):
        cords[machine].append(number)
    gates_of, ups_of = _behind_ups(layout, beside)
    members: dict[tuple[tuple[tuple[int, float], ...], frozenset[int], tuple[int, ...]], list[int]] = {}
    kinds, shares = topology.cord_kind.tolist(), network.cord_share.tolist()
    for machine, mine in enumerate(cords):
        fed = tuple((kinds[cord], shares[cord]) for cord in mine)
        gates, ups = frozenset(gates_of.get(machine, ())), tuple(ups_of.get(machine, ()))
        members.setdefault((fed, gates, ups), []).append(machine)
    supplies = _supplies(layout, topology).tolist()
    classes = tuple(
        MachineClass(
            members=np.array(mine, dtype=np.int64),
            rows=tuple(int(network.cord_circuit[cord]) for cord in cords[mine[0]]),
            kinds=tuple(kind for kind, _ in fed),
            shares=tuple(share for _, share in fed),
            supplies=tuple(tuple(supplies[cord] for cord in cords[machine]) for machine in mine),
            gates=gates,
            ups=ups,
        )
        for (fed, gates, ups), mine in members.items()
    )
    on_row: dict[int, list[tuple[int, int]]] = {}
    gated: dict[int, list[int]] = {}
    for number, each in enumerate(classes):
        for position, row in enumerate(each.rows):
            on_row.setdefault(row, []).append((number, position))
        for gate in each.gates:
            gated.setdefault(gate, []).append(number)
    return MachineClasses(
        classes,
        on_row,
        gated,
        machines,
        EfficiencyCurves(machines),
        np.array([m.supply_watts is not None for m in machines], dtype=bool),
        np.array([np.inf if m.most_watts is None else m.most_watts for m in machines]),
    )


def _behind_ups(layout: SiteLayout, beside: Mapping[str, int]) -> tuple[dict[int, set[int]], dict[int, list[int]]]:
    """Return by machine the UPSs beside the tree that name it: those that must have power, and those whose
    load it is, because they name no circuit."""
    machine_at = {name: number for number, name in enumerate(layout.machines)}
    gates: dict[int, set[int]] = {}
    loads: dict[int, list[int]] = {}
    for name, ups in layout.site.ups.items():
        if name not in beside:
            continue
        for machine in sorted({machine_at[n] for n in ups.nodes if n in machine_at}):
            if not ups.circuits:
                loads.setdefault(machine, []).append(beside[name])
            if not ups.bypass:
                gates.setdefault(machine, set()).add(beside[name])
    return gates, loads


def _supplies(layout: SiteLayout, topology: SiteTopology) -> Floats:
    """Return the part of its machine's supplies behind each cord."""
    at = topology.network.cord_machine
    count = np.array([m.supplies for m in layout.machines.values()], dtype=float)
    even = (count / np.maximum(np.bincount(at, minlength=len(count)), 1))[at]
    given = np.array([cord.supplies or 0 for cord in layout.cords], dtype=float)
    behind = np.where(given > 0, given, even)
    part: Floats = behind / np.bincount(at, behind, len(count))[at]
    return part


@dataclass(frozen=True, slots=True)
class ClassVariants:
    """Classes of machines without some of their cords."""

    count: int
    machine: Ints
    """Members of all variants."""
    variant: Ints
    """Variant of each of `machine`, ascending."""
    working: Floats
    """Part of the supplies of each of `machine` that has power."""
    cord_variant: Ints
    """Variant of each cord; its cords follow each other, and those that only a UPS beside the tree carries are among
    them."""
    cord_share: Floats
    cord_kind: Ints
    cord_row: Ints
    """Element that each cord loads."""

    def cord_flow(self, wall: Floats, kind_amps: Complex) -> tuple[Floats, Complex]:
        """Return watts, and amps per pole, of each cord. `wall`: watts of each of `machine`; `kind_amps`: amps per
        watt of each kind of cord."""
        by_variant = np.bincount(self.variant, wall, self.count)
        watts = by_variant[self.cord_variant] * self.cord_share
        return watts, kind_amps[self.cord_kind] * watts[:, None]


class VariantLists:
    """Variants of machine classes while they are collected."""

    def __init__(self, classes: Sequence[MachineClass], base: Iterable[frozenset[int]]) -> None:
        """`base`: positions of the cords that each class is without at present. Class and base variant have the same
        number."""
        self._classes = classes
        self._numbers: dict[tuple[int, frozenset[int]], int] = {}
        self._cords: list[range] = []
        self._variant: list[int] = []
        self._share: list[float] = []
        self._kind: list[int] = []
        self.cord_row: list[int] = []
        for number, gone in enumerate(base):
            self.number(number, gone)

    def number(self, of_class: int, gone: frozenset[int]) -> int:
        """Return the number of a class without some of its cords."""
        key = (of_class, gone)
        if key in self._numbers:
            return self._numbers[key]
        variant = self._numbers[key] = len(self._numbers)
        one, first = self._classes[of_class], len(self.cord_row)
        left = [position for position in range(len(one.rows)) if position not in gone]
        whole = sum(one.shares[position] for position in left)
        for position in left:
            part = one.shares[position] / whole if whole > 0 else 1 / len(left)
            # A UPS beside the tree carries what the cord does, and passes it on to nothing.
            for row in (one.rows[position], *one.ups):
                self._variant.append(variant)
                self._share.append(part)
                self._kind.append(one.kinds[position])
                self.cord_row.append(row)
        self._cords.append(range(first, len(self.cord_row)))
        return variant

    def cords(self, variant: int) -> range:
        """Return the cords of a variant; none where it is dark."""
        return self._cords[variant]

    def arrays(self) -> ClassVariants:
        """Return the variants so far."""
        members = [self._classes[number].members for number, _ in self._numbers]
        working = [self._classes[number].working(gone) for number, gone in self._numbers]
        return ClassVariants(
            len(members),
            np.concatenate(members) if members else np.zeros(0, np.int64),
            np.repeat(np.arange(len(members)), [len(mine) for mine in members]),
            np.concatenate(working) if working else np.zeros(0),
            np.array(self._variant, dtype=np.int64),
            np.array(self._share),
            np.array(self._kind, dtype=np.int64),
            np.array(self.cord_row, dtype=np.int64),
        )
