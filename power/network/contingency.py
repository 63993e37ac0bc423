"""Contingencies: the loss of every single element up to the sources, and of every side that a scheme lets fail.

Cases are worked out once for a switching state of the site: what each of them changes is listed in advance, so that
`compute_outcome` follows only what a loss changes: cords that take over, and what feeds them, depth by depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from power.network.curves import EfficiencyCurves
from power.network.flow import Ints
from power.network.machine_classes import ClassVariants, VariantLists
from power.network.switching import Rerouting, SwitchingState, lost_numbers
from power.wiring import Flags, Floats


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
class Relieved:
    """Lines through which something flows now, and that the elements above them lose; arrays of equal length."""

    entry: Ints
    line: Ints
    factor: Floats
    """Part of the child's power that the entry loses: the line's weight, negative."""


@dataclass(frozen=True, slots=True)
class ReloadedCords:
    """Cords that an element loses or takes over; arrays of equal length."""

    entry: Ints
    cord: Ints
    """Number in the variants of all cases."""
    sign: Floats
    """-1: lost, 1: taken over."""


@dataclass(frozen=True, slots=True)
class Climbing:
    """Lines by which entries of one depth load those above them after a case; arrays of equal length."""

    source: Ints
    target: Ints
    line: Ints
    weight: Floats
    plain: Flags
    """Whether the line passes a failed UPS, without its losses."""


@dataclass(frozen=True, slots=True)
class Contingencies:
    """Cases of a switching state, and the entries that they change: pairs of a case and an element, sorted by
    element."""

    state: SwitchingState
    cases: tuple[Contingency, ...]
    case: Ints
    """Of each entry."""
    row: Ints
    """Element of each entry."""
    relieved: Relieved
    cords: ReloadedCords
    climbs: tuple[Climbing, ...]
    """The deepest first."""
    variants: ClassVariants
    """Machine classes as they are fed in any case; those of the state come first."""
    again: Ints
    """Members of `variants` whose efficiency differs from the present one, because fewer supplies have power."""
    curves: EfficiencyCurves
    """Of `again`."""


@dataclass(slots=True)
class _CaseLists:
    """Index lists of all cases while they are collected."""

    case: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    relieved_entry: list[int] = field(default_factory=list)
    relieved_line: list[int] = field(default_factory=list)
    cord_entry: list[int] = field(default_factory=list)
    cord: list[int] = field(default_factory=list)
    cord_sign: list[float] = field(default_factory=list)
    up_from: list[int] = field(default_factory=list)
    up_to: list[int] = field(default_factory=list)
    up_line: list[int] = field(default_factory=list)
    up_weight: list[float] = field(default_factory=list)
    up_plain: list[bool] = field(default_factory=list)


def contingencies_of(state: SwitchingState) -> Contingencies:
    """Return the cases of a state: the loss of each element that is on, and of sides."""
    classes = state.graph.classes
    variants = VariantLists(classes.classes, map(state.gone, range(len(classes.classes))))
    lists = _CaseLists()
    cases: list[Contingency] = []
    for case in _supposed(state):
        unfed = _append(len(cases), case.lost, state, variants, lists)
        cases.append(Contingency(case.lost, case.kind, unfed))
    return _frozen(state, tuple(cases), variants.arrays(), lists)


def _supposed(state: SwitchingState) -> list[Contingency]:
    graph, cases = state.graph, dict[frozenset[str], Contingency]()

    def add(kind: LossKind, names: Iterable[str]) -> None:
        lost = tuple(dict.fromkeys(name for name in names if not is_off(graph.numbers[name])))
        if lost:
            cases.setdefault(frozenset(lost), Contingency(lost, kind))

    def is_off(number: int) -> bool:
        return number in state.off or number in state.bypassed

    for name in graph.elements:
        add(LossKind.ELEMENT, [name])
    for group in graph.sides:
        if group.scheme not in {"2N", "2(N+1)"}:
            continue
        for side, members in group.members.items():
            add(LossKind.SIDE, members)
            if group.scheme == "2(N+1)":
                others = [one for other, names in group.members.items() if other != side for one in names]
                for one in others:
                    add(LossKind.SIDE_AND_ONE, [*members, one])
    return list(cases.values())


def _append(
    case: int, names: Sequence[str], state: SwitchingState, variants: VariantLists, lists: _CaseLists
) -> tuple[int, ...]:
    """Append one case to the lists; return the machines that go dark."""
    rows = state.graph.rows
    lost, bypassed = lost_numbers(state.graph, names)
    failed = bypassed | state.bypassed
    change = state.reroute(lost, failed)
    own, unfed = _moved_cords(lost, change, state, variants)
    dead = change.dead | state.off if state.off else change.dead
    entries: dict[int, int] = {}
    stack = [row for row, _, _ in own if row not in dead] + list(change.moved)
    relieved: list[tuple[int, int]] = []
    for row in change.dead:
        if row >= rows:
            continue
        for line, parent, _ in state.feeding(row):
            if parent not in dead:
                relieved.append((parent, line))
                stack.append(parent)
    ups: list[tuple[int, int, int, float, bool]] = []
    while stack:
        row = stack.pop()
        if row in entries:
            continue
        entries[row] = len(lists.case)
        lists.case.append(case)
        lists.row.append(row)
        if row >= rows:
            continue
        for line, parent, _ in state.feeding(row):
            if parent not in dead:
                relieved.append((parent, line))
                stack.append(parent)
        plain = row in failed
        after = change.moved.get(row, state.inputs[row])
        for line, parent, weight in (*after, *state.graph.watched[row]):
            if parent not in dead:
                ups.append((row, parent, line, weight, plain))
                stack.append(parent)
    for row, cord, sign in own:
        if row in entries:
            lists.cord_entry.append(entries[row])
            lists.cord.append(cord)
            lists.cord_sign.append(sign)
    for parent, line in relieved:
        lists.relieved_entry.append(entries[parent])
        lists.relieved_line.append(line)
    for row, parent, line, weight, plain in ups:
        lists.up_from.append(entries[row])
        lists.up_to.append(entries[parent])
        lists.up_line.append(line)
        lists.up_weight.append(weight)
        lists.up_plain.append(plain)
    return tuple(dict.fromkeys(unfed))


def _moved_cords(
    lost: set[int], change: Rerouting, state: SwitchingState, variants: VariantLists
) -> tuple[list[tuple[int, int, float]], list[int]]:
    """Return row, cord and sign of the cords that give up or take over load, and the machines that go dark."""
    classes = state.graph.classes
    gone: dict[int, set[int]] = {}
    for row in change.dead:
        for number, position in classes.on_row.get(row, ()):
            gone.setdefault(number, set()).add(position)
    for gate in lost & classes.gated.keys():
        for number in classes.gated[gate]:
            gone.setdefault(number, set()).update(range(len(classes.classes[number].rows)))
    unfed: list[int] = []
    own: list[tuple[int, int, float]] = []
    for number, positions in gone.items():
        before = variants.cords(number)
        after = variants.cords(variants.number(number, state.gone(number) | positions))
        if before and not after:
            unfed += classes.classes[number].members.tolist()
        own += [(variants.cord_row[cord], cord, -1.0) for cord in before]
        own += [(variants.cord_row[cord], cord, 1.0) for cord in after]
    return own, unfed


def _frozen(
    state: SwitchingState, cases: tuple[Contingency, ...], variants: ClassVariants, lists: _CaseLists
) -> Contingencies:
    """Return the lists as arrays, with the entries sorted by element."""
    row = np.array(lists.row, dtype=np.int64)
    order = np.argsort(row, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    row = row[order]

    def entry(values: list[int]) -> Ints:
        found: Ints = place[np.array(values, dtype=np.int64)]
        return found

    relieved_line = np.array(lists.relieved_line, dtype=np.int64)
    source, target = entry(lists.up_from), entry(lists.up_to)
    line = np.array(lists.up_line, dtype=np.int64)
    weight, plain = np.array(lists.up_weight), np.array(lists.up_plain, dtype=bool)
    depth = state.graph.depth[row[source]]
    climbs = []
    for level in sorted(set(depth.tolist()), reverse=True):
        mine = np.flatnonzero(depth == level)
        climbs.append(Climbing(source[mine], target[mine], line[mine], weight[mine], plain[mine]))
    classes = state.graph.classes
    present = variants.variant < len(classes.classes)
    again = np.flatnonzero(~present & (variants.working > 0) & classes.rated[variants.machine])
    return Contingencies(
        state=state,
        cases=cases,
        case=np.array(lists.case, dtype=np.int64)[order],
        row=row,
        relieved=Relieved(entry(lists.relieved_entry), relieved_line, -state.line_weight[relieved_line]),
        cords=ReloadedCords(
            entry(lists.cord_entry), np.array(lists.cord, dtype=np.int64), np.array(lists.cord_sign, dtype=float)
        ),
        climbs=tuple(climbs),
        variants=variants,
        again=again,
        curves=EfficiencyCurves([classes.machines[machine] for machine in variants.machine[again]]),
    )
