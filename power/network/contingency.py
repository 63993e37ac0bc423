"""Contingencies: the loss of every single element up to the sources, and what the rest must carry then.

The structure of all cases is worked out once for a state of the site (which elements are off, which input
each transfer switch is on). A tick then computes all cases at once, because it follows only what a loss
changes: cords that take over, and what feeds them, depth by depth.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from power.network.curves import EfficiencyCurves
from power.network.feeds import add_up, climb, dead_below
from power.network.flow import Climb, Flow, Ints, LossCurves, input_shares, inputs_of, shares_without
from power.network.topology import SiteTopology
from power.site.circuit import Circuit, ElementKind
from power.site.layout import SiteLayout
from power.wiring import Complex, Flags, Floats, amps_per_watt, highest_of_three

GROWTH = 1.001
"""Load after a loss over the load now from which the loss puts something on an element."""


class LossKind(StrEnum):
    """Kind of what is lost in a case."""

    ELEMENT = "element"
    SIDE = "side"
    """Members of one side of a redundancy group, together."""
    SIDE_AND_ONE = "side and one"
    """A side, and one element of another."""


@dataclass(frozen=True, slots=True)
class Contingency:
    """A case: elements that are lost together."""

    lost: tuple[str, ...]
    """Circuits, panels, transformers, UPSs, transfer switches or sources."""
    kind: LossKind = LossKind.ELEMENT
    unfed: tuple[int, ...] = ()
    """Machines that have power now and none then."""

    @property
    def name(self) -> str:
        """Name for people: `RPP1-A`, or `R12-A1 + R12-A2`."""
        return " + ".join(self.lost)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Loads after every case. Entries are pairs of a case and an element that it changes, sorted by
    element; arrays over entries."""

    case: Ints
    row: Ints
    """Elements: the rows of the network, then sources and UPSs beside the tree."""
    amps: Floats
    """Of the highest pole."""
    watts: Floats
    volt_amps: Floats
    limit_ratio: Floats
    """Over the limits in watts and volt-amperes; 0 without one."""
    grown: Flags
    """Whether the highest pole of the element carries more than now."""
    limit_grown: Flags
    """Whether the element is loaded more than now over its limits in watts and volt-amperes: what comes
    onto another pole counts there, too."""
    now: Flow
    """Present flow of all elements."""
    now_limit_ratio: Floats
    """Over elements."""

    def worst_of(self, row: int) -> int:
        """Return the case that puts most amps on an element; -1 where none puts more on it."""
        start, end = np.searchsorted(self.row, [row, row + 1])
        amps = np.where(self.grown[start:end], self.amps[start:end], -np.inf)
        return int(self.case[start + np.argmax(amps)]) if np.isfinite(amps).any() else -1

    def worst(self, values: Floats, grown: Flags, count: int) -> tuple[Floats, Ints]:
        """Return the highest of the values of entries that have `grown` for each element, and its case; NaN
        and -1 where none has."""
        found, case = np.full(count, np.nan), np.full(count, -1, dtype=np.int64)
        use = np.flatnonzero(grown)
        if len(use):
            row, value = self.row[use], values[use]
            start = np.flatnonzero(np.diff(row, prepend=-1))
            most = np.maximum.reduceat(value, start)
            found[row[start]] = most
            length = np.diff(np.append(start, len(row)))
            first = np.flatnonzero(value == np.repeat(most, length))[::-1]
            case[row[first]] = self.case[use[first]]
        return found, case


Inputs = list[tuple[int, int, float]]
"""Line, parent and weight of what feeds an element."""


@dataclass(frozen=True, slots=True)
class _Rerouting:
    """Effect of a loss on the tree."""

    dead: set[int]
    """Elements that go dark, those that are lost among them."""
    moved: dict[int, Inputs]
    """Inputs of elements that are fed in another way than now."""


@dataclass(slots=True)
class _Lists:
    """Index lists of all cases while they are built."""

    case: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    minus_entry: list[int] = field(default_factory=list)
    minus_line: list[int] = field(default_factory=list)
    own_entry: list[int] = field(default_factory=list)
    own_cord: list[int] = field(default_factory=list)
    own_sign: list[float] = field(default_factory=list)
    up_from: list[int] = field(default_factory=list)
    up_to: list[int] = field(default_factory=list)
    up_line: list[int] = field(default_factory=list)
    up_weight: list[float] = field(default_factory=list)
    up_plain: list[bool] = field(default_factory=list)
    """Whether the line passes a failed UPS, without its losses."""


class Contingencies:
    """Cases of a site in its present state; `prepare` works them out anew when the state has changed."""

    def __init__(self, layout: SiteLayout, topology: SiteTopology) -> None:
        self._layout, self._topology = layout, topology
        network = topology.network
        self.elements: tuple[str, ...] = (*network.names, *_beside(layout))
        """Names of all elements; sources and UPSs beside the tree come after the rows of the network."""
        self._rows = len(network.names)
        self._at = {name: number for number, name in enumerate(network.names)}
        self._beside_at = {name: self._rows + number for number, name in enumerate(_beside(layout))}
        self._circuits = list(layout.circuits.values())
        self._machines = list(layout.machines.values())
        self._graph()
        self._classes()
        self._curves = EfficiencyCurves(self._machines)
        self.limit_watts, self.limit_volt_amps, self.modules = self._limits()
        members = np.zeros(self._rows, dtype=bool)
        for group in topology.groups:
            members[group] = True
        self.members: Flags = dead_below(topology, members)
        """Circuits of groups, and all that they feed."""
        self.cases: tuple[Contingency, ...] = ()
        self.shares: Floats = network.cord_share
        """Shares of the cords in the present state."""
        self.weights: Sequence[Floats] = ()
        """Weights of the network's lines in the present state."""
        self.dead: Flags = np.zeros(self._rows, dtype=bool)
        self._seen: bytes | None = None
        self.version = 0
        """Rises whenever other rows are off, or a transfer switch has moved."""
        self._built = False
        self._prepare(np.zeros(len(self.elements), dtype=bool))

    # -- The present state -----------------------------------------------------------------------

    def prepare(self, dead: Flags) -> None:
        """Take the network's rows in `dead` as off; what they feed must be among them."""
        self._prepare(np.concatenate([dead, np.zeros(len(self.elements) - self._rows, dtype=bool)]))

    def stand(self, rows: Collection[int]) -> None:
        """Take these transfer switches as standing on their alternate input, all others on the preferred
        one."""
        for row, inputs in enumerate(self._inputs):
            if self._circuits[row].kind is ElementKind.TRANSFER and len(inputs) == 2:
                first = 1 if row in rows else 0
                self._inputs[row] = [(*each[:3], int(number != first)) for number, each in enumerate(inputs)]
                self._usual[row] = self._chosen(row, ())
        self._seen = None

    def lose(self, names: Collection[str]) -> Flags:
        """Take elements as lost and return the rows of the network that are dark then."""
        off, bypassed = self._ids(names)
        state = self._change(off, bypassed, frozenset(), self._usual)
        flags = np.zeros(len(self.elements), dtype=bool)
        flags[list(state.dead)] = True
        self._prepare(flags, frozenset(bypassed - state.dead))
        return self.dead

    def knows(self, name: str) -> bool:
        """Return whether there is an element of this name."""
        return name in self._at or name in self._beside_at

    def _prepare(self, off: Flags, bypassed: frozenset[int] = frozenset()) -> None:
        key = off.tobytes() + repr(sorted(bypassed)).encode()
        if key == self._seen:
            return
        self._seen, self._built = key, False
        self.version += 1
        self._off = frozenset(np.flatnonzero(off).tolist())
        self._bypassed = bypassed
        network, dead = self._topology.network, off[: self._rows]
        self.dead = dead
        self.shares = shares_without(network, dead) if dead.any() else network.cord_share
        self._now = self._usual
        if self._off or bypassed:
            moved = self._change(self._off, bypassed, frozenset(), self._usual).moved
            self._now = [moved.get(row, inputs) for row, inputs in enumerate(self._usual)]
        weights = np.zeros(len(self._line_child))
        for row, inputs in enumerate(self._now):
            if row not in self._off:
                for line, _, weight in (*inputs, *self._watched[row]):
                    weights[line] = weight
        self._line_weight = weights
        starts = np.cumsum([len(step.children) for step in network.climbs])
        self.weights = np.split(weights[: self._tree_lines], starts[:-1]) if len(starts) else []
        self._steps, self._now_lines = network.climbs, self._lines
        if bypassed:
            self._steps = tuple(_lossless(step, bypassed) for step in network.climbs)
            self._now_lines = _lossless(self._lines, bypassed)

    # -- What never changes ----------------------------------------------------------------------

    def _graph(self) -> None:
        """Collect the lines of the tree, and those to sources and UPSs beside it."""
        topology, layout = self._topology, self._layout
        steps = topology.network.climbs
        children = [int(c) for step in steps for c in step.children]
        parents = [int(p) for step in steps for p in step.parents]
        self._tree_lines = len(children)
        known = {(c, p): number for number, (c, p) in enumerate(zip(children, parents, strict=True))}
        ratio = [float(r) for step in steps for r in step.ratio]
        volts = list(topology.volts) + [0.0] * (len(self.elements) - self._rows)
        self._inputs: list[list[tuple[int, int, float, int]]] = []
        """By row: line, parent, part, order."""
        watch: list[list[int]] = [[] for _ in range(self._rows)]
        self._gates: list[list[int]] = [[] for _ in range(self._rows)]
        """By row: UPSs beside the tree that must have power."""

        def line(child: int, parent: int) -> int:
            if (child, parent) not in known:
                volts[parent] = volts[parent] or volts[child]
                known[child, parent] = len(children)
                children.append(child)
                parents.append(parent)
                ratio.append(volts[child] / volts[parent])
            return known[child, parent]

        for number, circuit in enumerate(self._circuits):
            shares = input_shares(circuit, layout.circuits)
            found = []
            for order, name in enumerate(inputs_of(circuit)):
                parent = self._at[name] if name in self._at else self._beside_at[name]
                rank = 0 if circuit.parallel else order
                found.append((line(number, parent), parent, shares[order] if circuit.parallel else 1.0, rank))
            self._inputs.append(found)
        for name, ups in layout.site.ups.items():
            gate = self._beside_at.get(name)
            if gate is None:
                continue
            for circuit_name in ups.circuits:
                number = self._at[circuit_name]
                watch[number].append(line(number, gate))
                if not ups.bypass:
                    self._gates[number].append(gate)
        self._children: dict[int, list[int]] = {}
        for number, inputs in enumerate(self._inputs):
            for above in (*(parent for _, parent, _, _ in inputs), *self._gates[number]):
                self._children.setdefault(above, []).append(number)
        self._line_child = np.array(children, dtype=np.int64)
        self._line_parent = np.array(parents, dtype=np.int64)
        beside = [(n, self._circuits[c]) for n, c in enumerate(children) if n >= self._tree_lines]
        self._lines = _joined(steps, children, parents, ratio, beside)
        self._volts: Floats = np.array(volts)
        self._depth = [0] * len(self.elements)
        for number, inputs in enumerate(self._inputs):
            self._depth[number] = max((self._depth[p] + 1 for _, p, _, _ in inputs), default=0)
        self._usual: list[Inputs] = [self._chosen(row, ()) for row in range(self._rows)]
        """By row, while everything has power."""
        self._watched: list[Inputs] = [[(each, parents[each], 1.0) for each in mine] for mine in watch]

    def _behind_ups(self) -> tuple[dict[int, set[int]], dict[int, list[int]]]:
        """Return by machine the UPSs beside the tree that name it: those that must have power, and those whose
        load it is, because they name no circuit."""
        machine_at = {name: number for number, name in enumerate(self._topology.network.machines)}
        gates: dict[int, set[int]] = {}
        loads: dict[int, list[int]] = {}
        for name, ups in self._layout.site.ups.items():
            if name not in self._beside_at:
                continue
            for machine in sorted({machine_at[n] for n in ups.nodes if n in machine_at}):
                if not ups.circuits:
                    loads.setdefault(machine, []).append(self._beside_at[name])
                if not ups.bypass:
                    gates.setdefault(machine, set()).add(self._beside_at[name])
        return gates, loads

    def _classes(self) -> None:
        """Group the machines with the same cords: they are one load."""
        topology, network = self._topology, self._topology.network
        cords: list[list[int]] = [[] for _ in network.machines]
        for number, machine in enumerate(network.cord_machine.tolist()):
            cords[machine].append(number)
        gates_of, ups_of = self._behind_ups()
        keys: dict[Any, int] = {}
        self._class_cords: list[list[int]] = []
        self._class_gates: list[frozenset[int]] = []
        self._class_ups: list[tuple[int, ...]] = []
        self._gated: dict[int, list[int]] = {}
        """Classes by the UPS beside the tree that must have power."""
        self._class_members: list[list[int]] = []
        kinds, share = topology.cord_kind.tolist(), network.cord_share.tolist()
        for machine, mine in enumerate(cords):
            gates, beside = frozenset(gates_of.get(machine, ())), tuple(ups_of.get(machine, ()))
            key = tuple((kinds[c], share[c]) for c in mine), gates, beside
            if key not in keys:
                keys[key] = number = len(self._class_cords)
                self._class_cords.append(mine)
                self._class_members.append([])
                self._class_gates.append(gates)
                self._class_ups.append(beside)
                for gate in gates:
                    self._gated.setdefault(gate, []).append(number)
                for each in beside:
                    if mine and not self._volts[each]:
                        self._volts[each] = self._volts[int(network.cord_circuit[mine[0]])]
            self._class_members[keys[key]].append(machine)
        self._class_rows = [[int(network.cord_circuit[c]) for c in mine] for mine in self._class_cords]
        self._on_row: dict[int, list[tuple[int, int]]] = {}
        for number, rows in enumerate(self._class_rows):
            for position, row in enumerate(rows):
                self._on_row.setdefault(row, []).append((number, position))
        at = network.cord_machine
        count = np.array([m.supplies for m in self._machines], dtype=float)
        even = (count / np.maximum(np.bincount(at, minlength=len(count)), 1))[at]
        given = np.array([c.supplies or 0 for c in self._layout.cords], dtype=float)
        behind = np.where(given > 0, given, even)
        self._cord_working: Floats = behind / np.bincount(at, behind, len(count))[at]
        """Part of its machine's supplies behind each cord."""
        self._cords_of = cords
        self._rated = np.array([m.supply_watts is not None for m in self._machines], dtype=bool)
        self._most = np.array([np.inf if m.most_watts is None else m.most_watts for m in self._machines])

    def _limits(self) -> tuple[Floats, Floats, Ints]:
        watts = np.full(len(self.elements), np.inf)
        volt_amps, modules = watts.copy(), np.ones(len(self.elements), dtype=np.int64)
        for number, circuit in enumerate(self._circuits):
            watts[number], volt_amps[number] = circuit.limit_watts, circuit.limit_volt_amps
            modules[number] = circuit.modules
        for name, number in self._beside_at.items():
            source, ups = self._layout.site.sources.get(name), self._layout.site.ups.get(name)
            if source is not None:
                watts[number] = np.inf if source.kw is None else 1000 * source.kw
                volt_amps[number] = np.inf if source.kva is None else 1000 * source.kva
            elif ups is not None:
                watts[number], modules[number] = ups.watts, ups.modules
                volt_amps[number] = ups.volt_amps or ups.watts / 0.9
        limited = np.isfinite(np.minimum(watts, volt_amps))
        self._limited = [
            (row, element)
            for row, circuit in enumerate(self._circuits)
            for element in [row, *(parent for _, parent, _, _ in self._inputs[row] if parent >= self._rows)]
            if limited[element] and circuit.kind is not ElementKind.UPS
        ]
        """Rows of the network, with the transformer or source whose limits show there."""
        return watts, volt_amps, modules

    def _ids(self, names: Iterable[str]) -> tuple[set[int], set[int]]:
        """Return the elements that go dark themselves, and the UPSs that fail into their bypass."""
        off: set[int] = set()
        bypassed: set[int] = set()
        for name in names:
            number = self._number(name)
            fails = number < self._rows and self._circuits[number].bypass is not None
            (bypassed if fails else off).add(number)
        return off, bypassed

    def _number(self, name: str) -> int:
        return self._at[name] if name in self._at else self._beside_at[name]

    def _chosen(self, row: int, gone: Collection[int], also: Collection[int] = (), only: int | None = None) -> Inputs:
        """Return the inputs that feed an element without those that are gone; none where it goes dark."""
        inputs = [
            each
            for each in self._inputs[row]
            if each[1] not in gone and each[1] not in also and (only is None or each[1] == only)
        ]
        if not inputs:
            return []
        first = min(order for *_, order in inputs)
        use = [each for each in inputs if each[3] == first]
        whole = sum(part for _, _, part, _ in use)
        return [(line, parent, part / whole) for line, parent, part, _ in use]

    def _change(
        self, lost: Collection[int], bypassed: Collection[int], dead: Collection[int], now: Sequence[Inputs]
    ) -> _Rerouting:
        """Return the effect of a loss where the elements of `dead` are off already."""
        change = _Rerouting(set(), {})
        waiting = list(bypassed)
        heapq.heapify(waiting)

        def fall(number: int) -> None:
            change.dead.add(number)
            for child in self._children.get(number, ()):
                heapq.heappush(waiting, child)

        for number in lost:
            if number not in dead:
                fall(number)
        done: set[int] = set()
        # What feeds has a lower number than what it feeds, but for sources, which are lost at once.
        while waiting:
            row = heapq.heappop(waiting)
            if row in done or row in dead or row in change.dead:
                continue
            done.add(row)
            if any(gate in change.dead or gate in dead for gate in self._gates[row]):
                fall(row)
                continue
            only = self._number(self._circuits[row].bypass or "") if row in bypassed else None
            found = self._chosen(row, change.dead, dead, only)
            if not found:
                fall(row)
            elif found != now[row] or only is not None:
                change.moved[row] = found
        return change

    # -- The cases -------------------------------------------------------------------------------

    def _supposed(self) -> list[Contingency]:
        cases: dict[frozenset[str], Contingency] = {}

        def add(kind: LossKind, names: Iterable[str]) -> None:
            lost = tuple(dict.fromkeys(n for n in names if not self._is_off(n)))
            if lost:
                cases.setdefault(frozenset(lost), Contingency(lost, kind))

        for name in self.elements:
            add(LossKind.ELEMENT, [name])
        for sides, scheme in self._sides():
            if scheme not in {"2N", "2(N+1)"}:
                continue
            for side, members in sides.items():
                add(LossKind.SIDE, members)
                if scheme == "2(N+1)":
                    others = [one for other, names in sides.items() if other != side for one in names]
                    for one in others:
                        add(LossKind.SIDE_AND_ONE, [*members, one])
        return list(cases.values())

    def _is_off(self, name: str) -> bool:
        number = self._number(name)
        return number in self._off or number in self._bypassed

    def _sides(self) -> list[tuple[dict[str, list[str]], str]]:
        groups: dict[tuple[str, str], dict[str, list[str]]] = {}
        schemes: dict[tuple[str, str], str] = {}

        def put(kind: str, name: str, group: str, side: str, scheme: str) -> None:
            groups.setdefault((kind, group), {}).setdefault(side, []).append(name)
            schemes[kind, group] = scheme

        for circuit in self._circuits:
            if circuit.group is not None:
                put(circuit.kind, circuit.id, circuit.group, circuit.side or circuit.id, circuit.scheme)
        for name, source in self._layout.site.sources.items():
            if source.redundancy is not None and name in self._beside_at:
                one = source.redundancy
                put("source", name, one.group, one.side or one.role, one.scheme)
        return [(sides, schemes[key]) for key, sides in groups.items()]

    def _build(self) -> None:
        """Work out the cases of the present state."""
        self._built = True
        self._variants: dict[tuple[int, frozenset[int]], int] = {}
        self._variant_cords: list[list[int]] = []
        self._cord_variant: list[int] = []
        self._cord_share: list[float] = []
        self._cord_kind: list[int] = []
        self._cord_row: list[int] = []
        self._base = [self._variant(number, self._without_power(number)) for number in range(len(self._class_rows))]
        self._base_cords = len(self._cord_variant)
        lists = _Lists()
        cases: list[Contingency] = []
        for case in self._supposed():
            lost, bypassed = self._ids(case.lost)
            unfed = self._case(len(cases), lost, bypassed, lists)
            cases.append(Contingency(case.lost, case.kind, unfed))
        self.cases = tuple(cases)
        self._freeze(lists)

    def _without_power(self, number: int) -> frozenset[int]:
        """Return the positions of a class's cords that give nothing now: all of them where its UPS is off."""
        rows = self._class_rows[number]
        if self._class_gates[number] & self._off:
            return frozenset(range(len(rows)))
        return frozenset(position for position, row in enumerate(rows) if row in self._off)

    def _variant(self, number: int, gone: frozenset[int]) -> int:
        """Return the number of a class of machines without some of its cords."""
        key = (number, gone)
        if key in self._variants:
            return self._variants[key]
        variant = self._variants[key] = len(self._variants)
        cords, share = self._class_cords[number], self._topology.network.cord_share
        left = [position for position in range(len(cords)) if position not in gone]
        whole = sum(float(share[cords[p]]) for p in left)
        mine = []
        for position in left:
            part = float(share[cords[position]]) / whole if whole > 0 else 1 / len(left)
            # A UPS beside the tree carries what the cord does, and passes it on to nothing.
            for row in (self._class_rows[number][position], *self._class_ups[number]):
                mine.append(len(self._cord_variant))
                self._cord_variant.append(variant)
                self._cord_share.append(part)
                self._cord_kind.append(int(self._topology.cord_kind[cords[position]]))
                self._cord_row.append(row)
        self._variant_cords.append(mine)
        return variant

    def _case(self, case: int, lost: set[int], bypassed: set[int], lists: _Lists) -> tuple[int, ...]:
        """Append one case to the lists; return the machines that go dark."""
        failed = bypassed | self._bypassed
        change = self._change(lost, failed, self._off, self._now)
        own, unfed = self._moved_cords(lost, change)
        dead = change.dead | self._off if self._off else change.dead
        entries: dict[int, int] = {}
        stack = [row for row, _, _ in own if row not in dead] + list(change.moved)
        minus: list[tuple[int, int]] = []
        for row in change.dead:
            if row >= self._rows:
                continue
            for line, parent, _ in (*self._now[row], *self._watched[row]):
                if parent not in dead:
                    minus.append((parent, line))
                    stack.append(parent)
        ups: list[tuple[int, int, int, float, bool]] = []
        while stack:
            row = stack.pop()
            if row in entries:
                continue
            entries[row] = len(lists.case)
            lists.case.append(case)
            lists.row.append(row)
            if row >= self._rows:
                continue
            for line, parent, _ in (*self._now[row], *self._watched[row]):
                if parent not in dead:
                    minus.append((parent, line))
                    stack.append(parent)
            plain = row in failed
            after = change.moved.get(row, self._now[row])
            for line, parent, weight in (*after, *self._watched[row]):
                if parent not in dead:
                    ups.append((row, parent, line, weight, plain))
                    stack.append(parent)
        for row, cord, sign in own:
            if row in entries:
                lists.own_entry.append(entries[row])
                lists.own_cord.append(cord)
                lists.own_sign.append(sign)
        for parent, line in minus:
            lists.minus_entry.append(entries[parent])
            lists.minus_line.append(line)
        for row, parent, line, weight, plain in ups:
            lists.up_from.append(entries[row])
            lists.up_to.append(entries[parent])
            lists.up_line.append(line)
            lists.up_weight.append(weight)
            lists.up_plain.append(plain)
        return tuple(dict.fromkeys(unfed))

    def _moved_cords(self, lost: set[int], change: _Rerouting) -> tuple[list[tuple[int, int, float]], list[int]]:
        """Return row, cord and sign of the cords that give up or take over load, and the machines that go
        dark."""
        gone: dict[int, set[int]] = {}
        for row in change.dead:
            for number, position in self._on_row.get(row, ()):
                gone.setdefault(number, set()).add(position)
        for gate in lost & self._gated.keys():
            for number in self._gated[gate]:
                gone.setdefault(number, set()).update(range(len(self._class_rows[number])))
        unfed: list[int] = []
        own: list[tuple[int, int, float]] = []
        for number, positions in gone.items():
            base = self._base[number]
            variant = self._variant(number, self._without_power(number) | positions)
            if not self._variant_cords[variant] and self._variant_cords[base]:
                unfed += self._class_members[number]
            own += [(self._cord_row[c], c, -1.0) for c in self._variant_cords[base]]
            own += [(self._cord_row[c], c, 1.0) for c in self._variant_cords[variant]]
        return own, unfed

    def _freeze(self, lists: _Lists) -> None:
        """Turn the lists into arrays, with the entries sorted by element."""
        row = np.array(lists.row, dtype=np.int64)
        order = np.argsort(row, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))

        def entry(values: list[int]) -> Ints:
            return place[np.array(values, dtype=np.int64)]

        self._row, self._case_of = row[order], np.array(lists.case, dtype=np.int64)[order]
        self._minus = entry(lists.minus_entry), np.array(lists.minus_line, dtype=np.int64)
        self._minus_weight = self._line_weight[self._minus[1]]
        self._own = (entry(lists.own_entry), np.array(lists.own_cord, dtype=np.int64), np.array(lists.own_sign))
        source, target = entry(lists.up_from), entry(lists.up_to)
        line = np.array(lists.up_line, dtype=np.int64)
        weight, plain = np.array(lists.up_weight), np.array(lists.up_plain, dtype=bool)
        depth = np.array(self._depth, dtype=np.int64)[self._row[source]] if len(source) else source
        self._ups = []
        for level in sorted(set(depth.tolist()), reverse=True):
            mine = np.flatnonzero(depth == level)
            self._ups.append((source[mine], target[mine], line[mine], weight[mine], plain[mine]))
        variants = sorted(self._variants.items(), key=lambda each: each[1])
        machines = [np.array(self._class_members[number], dtype=np.int64) for (number, _), _ in variants]
        self._v_machine = np.concatenate(machines) if machines else np.zeros(0, np.int64)
        self._v_variant = np.repeat(np.arange(len(machines)), [len(m) for m in machines])
        self._v_working = (
            np.concatenate(
                [
                    self._working(number, members, gone)
                    for ((number, gone), _), members in zip(variants, machines, strict=True)
                ]
            )
            if machines
            else np.zeros(0)
        )
        self._v_base = np.isin(self._v_variant, self._base)
        chosen = np.flatnonzero(~self._v_base & (self._v_working > 0) & self._rated[self._v_machine])
        self._v_again = chosen
        self._v_curves = EfficiencyCurves([self._machines[m] for m in self._v_machine[chosen]])
        self._now_working = np.ones(len(self._machines))
        self._now_working[self._v_machine[self._v_base]] = self._v_working[self._v_base]
        self._cords = (
            np.array(self._cord_variant, dtype=np.int64),
            np.array(self._cord_share),
            np.array(self._cord_kind, dtype=np.int64),
            np.array(self._cord_row, dtype=np.int64),
        )

    def _working(self, number: int, members: Ints, gone: frozenset[int]) -> Floats:
        if not gone:
            return np.ones(len(members))
        left = [p for p in range(len(self._class_cords[number])) if p not in gone]
        return np.array([sum(float(self._cord_working[self._cords_of[m][p]]) for p in left) for m in members])

    # -- A tick ----------------------------------------------------------------------------------

    def present_watts(self, machine_watts: Floats) -> Floats:
        """Return the watts at the wall in the present state of machines that draw `machine_watts` while all
        of their supplies have power."""
        if not self._built:
            self._build()
        working = self._now_working
        again = np.flatnonzero((working < 1) & (working > 0) & self._rated)
        inside = self._curves.inside(machine_watts)[again]
        curves = EfficiencyCurves([self._machines[m] for m in again])
        result = np.where(working > 0, machine_watts, 0.0)
        result[again] = self._bounded(again, curves.wall(inside, working[again]), machine_watts)
        return result

    def _bounded(self, machines: Ints, wall: Floats, now: Floats) -> Floats:
        """Return wall watts, no higher than what the maker allows a system in any state."""
        bounded: Floats = np.fmin(wall, np.fmax(self._most[machines], now[machines]))
        return bounded

    def dark(self) -> Flags:
        """Return whether each machine has no power in the present state; a machine without cords has."""
        if not self._built:
            self._build()
        dark: Flags = self._now_working == 0
        return dark

    def flow(self, machine_watts: Floats, local_watts: Floats) -> Flow:
        """Return the present flow of all elements, from the watts of machines at the wall and each circuit's
        own loads."""
        if not self._built:
            self._build()
        variant, share, kind, row = self._cords
        base_cords = slice(0, self._base_cords)
        variant, share, kind, row = (variant[base_cords], share[base_cords], kind[base_cords], row[base_cords])
        base = self._v_base
        by_variant = np.bincount(self._v_variant[base], machine_watts[self._v_machine[base]], len(self._variants))
        cord_watts = by_variant[variant] * share
        return self._carry(row, cord_watts, self._topology.kind_amps[kind] * cord_watts[:, None], local_watts)[0]

    def _carry(
        self, row: Ints, cord_watts: Floats, cord_amps: Complex, local_watts: Floats
    ) -> tuple[Flow, Floats, Complex]:
        """Return the present flow, and what enters by each line for the watts and currents of its child."""
        rows, count = self._rows, len(self.elements)
        watts: Floats = np.zeros(count)
        currents: Complex = np.zeros((count, 3), dtype=complex)
        add_up(row, cord_watts, cord_amps, watts, currents)
        local = np.where(self.dead, 0.0, local_watts)
        watts[:rows] += local
        currents[:rows] += self._topology.pattern * local[:, None]
        for step, weight in zip(self._steps, self.weights, strict=True):
            climb(step, weight, watts, currents)
        child = self._line_child
        into, above = self._now_lines.enter(np.arange(len(child)), watts[child], currents[child])
        outer = slice(self._tree_lines, None)
        weight = self._line_weight[outer]
        add_up(self._line_parent[outer], into[outer] * weight, above[outer] * weight[:, None], watts, currents)
        return Flow(currents, watts), into, above

    def outcome(self, machine_watts: Floats, local_watts: Floats) -> Outcome:
        """Return the loads after every case, from the watts of machines at the wall and each circuit's own
        loads in the present state."""
        if not self._built:
            self._build()
        wall = machine_watts[self._v_machine]
        again = self._v_again
        if len(again):
            inside = self._curves.inside(machine_watts, np.maximum(self._now_working, 1e-9))
            machines = self._v_machine[again]
            wall[again] = self._bounded(
                machines, self._v_curves.wall(inside[machines], self._v_working[again]), machine_watts
            )
        by_variant = np.bincount(self._v_variant, wall, len(self._variants))
        variant, share, kind, row = self._cords
        cord_watts = by_variant[variant] * share
        cord_amps = self._topology.kind_amps[kind] * cord_watts[:, None]
        base = slice(0, self._base_cords)
        now, into, above = self._carry(row[base], cord_watts[base], cord_amps[base], local_watts)
        watts, currents = now.watts, now.currents
        # After.
        after, after_currents = watts[self._row], currents[self._row]
        entry, line = self._minus
        factor = -self._minus_weight
        add_up(entry, into[line] * factor, above[line] * factor[:, None], after, after_currents)
        entry, cord, sign = self._own
        add_up(entry, cord_watts[cord] * sign, cord_amps[cord] * sign[:, None], after, after_currents)
        for source, target, lines, factor, plain in self._ups:
            w, i = after[source], after_currents[source]
            more, higher = self._lines.enter(lines, w, i)
            if plain.any():
                more = np.where(plain, w, more)
                higher = np.where(plain[:, None], i * self._lines.ratio[lines, None], higher)
            add_up(target, more * factor, higher * factor[:, None], after, after_currents)
        amps, now_amps = np.abs(after_currents), np.abs(currents)
        volt_amps = amps.sum(axis=1) * self._volts[self._row]
        now_volt_amps = now_amps.sum(axis=1) * self._volts
        highest, now_highest = highest_of_three(amps), highest_of_three(now_amps)
        ratio = np.maximum(after / self.limit_watts[self._row], volt_amps / self.limit_volt_amps[self._row])
        now_ratio = np.maximum(watts / self.limit_watts, now_volt_amps / self.limit_volt_amps)
        return Outcome(
            self._case_of,
            self._row,
            highest,
            after,
            volt_amps,
            ratio,
            highest > GROWTH * now_highest[self._row] + 1e-6,
            ratio > GROWTH * now_ratio[self._row] + 1e-9,
            now,
            now_ratio,
        )

    def survivors(self, machine_watts: Floats, local_watts: Floats) -> Floats:
        """Return the highest amps of each circuit after the worst loss; NaN where no loss puts more on it
        and it is in no group."""
        return self.survivor_amps(self.outcome(machine_watts, local_watts))

    MODULE = -2
    """Case of an element that is worst after the loss of one of its own modules."""

    def survivor_limits(self, outcome: Outcome) -> tuple[Floats, Ints]:
        """Return each element's highest load over its limits in watts and volt-amperes after a case, and the
        case: -1 with NaN where none puts more on it, `MODULE` for one of its own modules."""
        worst, case = outcome.worst(outcome.limit_ratio, outcome.limit_grown, len(self.elements))
        # With one module less, the rest of the rating carries the present load.
        less = outcome.now_limit_ratio * self.modules / np.maximum(self.modules - 1, 1)
        module = (self.modules > 1) & ~(worst >= less)
        return np.where(module, less, worst), np.where(module, self.MODULE, case)

    def circuit_limits(self, outcome: Outcome) -> dict[str, Floats]:
        """Return `circuit_limit_ratio` and `circuit_survivor_limit_ratio`: of transformers, and on the circuits
        that a source feeds directly, of that source. UPSs have quantities of their own."""
        now = np.full(self._rows, np.nan)
        then = np.full(self._rows, np.nan)
        worst, _ = self.survivor_limits(outcome)
        for row, element in self._limited:
            now[row] = np.fmax(now[row], outcome.now_limit_ratio[element])
            then[row] = np.fmax(then[row], worst[element])
        return {"circuit_limit_ratio": now, "circuit_survivor_limit_ratio": then}

    def survivor_amps(self, outcome: Outcome) -> Floats:
        """Return the highest amps of each circuit after the worst case of an outcome."""
        worst, _ = outcome.worst(outcome.amps, outcome.grown, len(self.elements))
        rest = np.where(self.members & ~self.dead, outcome.now.highest[: self._rows], np.nan)
        return np.where(np.isnan(worst[: self._rows]), rest, worst[: self._rows])


def _beside(layout: SiteLayout) -> list[str]:
    """Return the names of sources and of UPSs beside the tree."""
    used = [name for circuit in layout.circuits.values() for name in inputs_of(circuit) if name not in layout.circuits]
    beside = [name for name in layout.site.ups if name not in layout.circuits and name not in used]
    return [*dict.fromkeys(used), *beside]


def _lossless(step: Climb, rows: Collection[int]) -> Climb:
    """Return a climb without the losses of some children."""
    keep = ~np.isin(step.children[step.lossy], list(rows))
    return replace(
        step,
        lossy=step.lossy[keep],
        curve=step.curve[keep],
        rated=step.rated[keep],
        pattern=step.pattern[keep],
        delta=step.delta[keep],
        even=step.even[keep],
    )


def _joined(
    steps: Sequence[Climb],
    children: Sequence[int],
    parents: Sequence[int],
    ratio: Sequence[float],
    beside: Sequence[tuple[int, Circuit]],
) -> Climb:
    """Return all lines as one climb. `beside`: number and child of those that lead out of the tree."""
    losses = steps[0].losses if steps else LossCurves()
    own = [(number, child) for number, child in beside if child.points and not child.on_bypass]
    start, lossy = 0, []
    for step in steps:
        lossy.append(step.lossy + start)
        start += len(step.children)
    outer = [amps_per_watt(child.poles, child.volts, child.power_factor, child.wiring) for _, child in own]

    def joined(name: str, more: Sequence[Any], kind: type) -> Any:
        return np.concatenate([*(getattr(step, name) for step in steps), np.array(more, dtype=kind)])

    blank = np.zeros(len(children))
    return Climb(
        np.array(children, dtype=np.int64),
        np.array(parents, dtype=np.int64),
        np.array(ratio),
        blank,
        blank.astype(np.int64),
        np.concatenate([*lossy, np.array([n for n, _ in own], dtype=np.int64)]),
        joined("curve", [losses.row(child.points) for _, child in own], np.int64),
        joined("rated", [min(c.limit_watts, c.limit_volt_amps) for _, c in own], float),
        np.concatenate([*(step.pattern for step in steps), np.array(outer, dtype=complex).reshape(-1, 3)]),
        joined("delta", [False] * len(own), bool),
        joined("even", [False] * len(own), bool),
        losses,
    )
