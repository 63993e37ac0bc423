"""Graph of a site: elements, with sources and UPSs beside the tree among them, and the lines that feed them.

It never changes while a configuration is in force. What is off, and where transfer switches stand, is a
`SwitchingState` of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from power.network.element_limits import ElementLimits, limits_of_elements
from power.network.feeds import dead_below
from power.network.flow import Climb, Ints, LossCurves, input_shares, inputs_of
from power.network.machine_classes import MachineClasses, classify
from power.network.topology import SiteTopology
from power.site.circuit import Circuit, ElementKind
from power.site.layout import SiteLayout
from power.wiring import Flags, Floats, amps_per_watt

Inputs = tuple[tuple[int, int, float], ...]
"""Line, parent and weight of what feeds an element."""
Candidates = tuple[tuple[int, int, float, int], ...]
"""Line, parent, part and order of what can feed an element: the lowest order that has power does."""


@dataclass(frozen=True, slots=True)
class RedundancySides:
    """Sides of a redundancy group of circuits, panels, UPSs or sources."""

    scheme: str
    members: Mapping[str, Sequence[str]]
    """Names by side."""


@dataclass(frozen=True, slots=True)
class SiteGraph:
    """Elements of a site, by number: the rows of the network, then sources and UPSs beside the tree."""

    topology: SiteTopology
    elements: tuple[str, ...]
    """Names."""
    numbers: Mapping[str, int]
    lines: Climb
    """Lines of the network's climbs, then those that lead out of the tree, as one climb."""
    tree_lines: int
    candidates: tuple[Candidates, ...]
    """By row, with transfer switches on their preferred input."""
    usual: tuple[Inputs, ...]
    """By row, while everything has power and transfer switches are on their preferred input."""
    watched: tuple[Inputs, ...]
    """By row: UPSs beside the tree that carry it, too."""
    gates: tuple[tuple[int, ...], ...]
    """By row: UPSs beside the tree that must have power."""
    children: Mapping[int, Sequence[int]]
    """Rows that an element feeds, or is a gate of."""
    transfers: frozenset[int]
    """Transfer switches with two inputs."""
    bypass: Mapping[int, int]
    """Element that feeds a UPS that has failed into its bypass."""
    depth: Ints
    """Longest way up to what nothing feeds; over elements."""
    volts: Floats
    """To neutral; over elements."""
    classes: MachineClasses
    limits: ElementLimits
    sides: tuple[RedundancySides, ...]
    grouped: Flags
    """Circuits of redundancy groups, and all that they feed; over rows."""

    @property
    def rows(self) -> int:
        """Number of rows of the network."""
        return len(self.candidates)


def chosen(
    candidates: Candidates, gone: Collection[int] = (), also: Collection[int] = (), only: int | None = None
) -> Inputs:
    """Return the inputs that feed an element without those that are gone; none where it goes dark. `only`: the sole
    input that may feed it."""
    left = [
        each for each in candidates if each[1] not in gone and each[1] not in also and (only is None or each[1] == only)
    ]
    if not left:
        return ()
    first = min(order for *_, order in left)
    use = [each for each in left if each[3] == first]
    whole = sum(part for _, _, part, _ in use)
    return tuple((line, parent, part / whole) for line, parent, part, _ in use)


def build_graph(layout: SiteLayout, topology: SiteTopology) -> SiteGraph:
    """Return the graph of a layout."""
    circuits, network = list(layout.circuits.values()), topology.network
    rows = len(circuits)
    beside = {name: rows + number for number, name in enumerate(_beside(layout))}
    elements = (*network.names, *beside)
    numbers = {name: number for number, name in enumerate(elements)}
    lines = _CollectedLines(topology, len(elements))
    candidates = tuple(_candidates(row, circuit, layout, numbers, lines) for row, circuit in enumerate(circuits))
    watched: list[list[tuple[int, int, float]]] = [[] for _ in circuits]
    gates: list[list[int]] = [[] for _ in circuits]
    for name, ups in layout.site.ups.items():
        gate = beside.get(name)
        if gate is None:
            continue
        for circuit_name in ups.circuits:
            row = numbers[circuit_name]
            watched[row].append((lines.number(row, gate), gate, 1.0))
            if not ups.bypass:
                gates[row].append(gate)
    children: dict[int, list[int]] = {}
    depth = np.zeros(len(elements), dtype=np.int64)
    for row, inputs in enumerate(candidates):
        for above in (*(parent for _, parent, _, _ in inputs), *gates[row]):
            children.setdefault(above, []).append(row)
        depth[row] = max((depth[parent] + 1 for _, parent, _, _ in inputs), default=0)
    classes = classify(layout, topology, beside)
    for each in classes.classes:
        for ups_number in each.ups:
            if each.rows:
                lines.volts[ups_number] = lines.volts[ups_number] or lines.volts[each.rows[0]]
    grouped = np.zeros(rows, dtype=bool)
    for group in topology.groups:
        grouped[group] = True
    sources = [[parent for _, parent, _, _ in inputs if parent >= rows] for inputs in candidates]
    return SiteGraph(
        topology=topology,
        elements=elements,
        numbers=numbers,
        lines=lines.joined(circuits),
        tree_lines=lines.in_tree,
        candidates=candidates,
        usual=tuple(chosen(inputs) for inputs in candidates),
        watched=tuple(map(tuple, watched)),
        gates=tuple(map(tuple, gates)),
        children=children,
        transfers=frozenset(
            row
            for row, inputs in enumerate(candidates)
            if circuits[row].kind is ElementKind.TRANSFER and len(inputs) == 2
        ),
        bypass={row: numbers[circuit.bypass] for row, circuit in enumerate(circuits) if circuit.bypass is not None},
        depth=depth,
        volts=np.array(lines.volts),
        classes=classes,
        limits=limits_of_elements(layout, circuits, beside, sources),
        sides=_sides(layout, circuits, beside),
        grouped=dead_below(topology, grouped),
    )


def _candidates(
    row: int, circuit: Circuit, layout: SiteLayout, numbers: Mapping[str, int], lines: _CollectedLines
) -> Candidates:
    found = []
    shares = input_shares(circuit, layout.circuits)
    for order, name in enumerate(inputs_of(circuit)):
        line = lines.number(row, numbers[name])
        part, rank = (shares[order], 0) if circuit.parallel else (1.0, order)
        found.append((line, numbers[name], part, rank))
    return tuple(found)


def _beside(layout: SiteLayout) -> list[str]:
    """Return the names of sources and of UPSs beside the tree."""
    used = [name for circuit in layout.circuits.values() for name in inputs_of(circuit) if name not in layout.circuits]
    beside = [name for name in layout.site.ups if name not in layout.circuits and name not in used]
    return [*dict.fromkeys(used), *beside]


def _sides(layout: SiteLayout, circuits: Sequence[Circuit], beside: Collection[str]) -> tuple[RedundancySides, ...]:
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    schemes: dict[tuple[str, str], str] = {}

    def put(kind: str, name: str, group: str, side: str, scheme: str) -> None:
        groups.setdefault((kind, group), {}).setdefault(side, []).append(name)
        schemes[kind, group] = scheme

    for circuit in circuits:
        if circuit.group is not None:
            put(circuit.kind, circuit.id, circuit.group, circuit.side or circuit.id, circuit.scheme)
    for name, source in layout.site.sources.items():
        if source.redundancy is not None and name in beside:
            one = source.redundancy
            put("source", name, one.group, one.side or one.role, one.scheme)
    return tuple(RedundancySides(schemes[key], sides) for key, sides in groups.items())


class _CollectedLines:
    """Lines while they are collected: those of the tree, and those to sources and UPSs beside it."""

    def __init__(self, topology: SiteTopology, elements: int) -> None:
        self._steps = topology.network.climbs
        self._children = [int(child) for step in self._steps for child in step.children]
        self._parents = [int(parent) for step in self._steps for parent in step.parents]
        self._ratio = [float(ratio) for step in self._steps for ratio in step.ratio]
        self.in_tree = len(self._children)
        pairs = zip(self._children, self._parents, strict=True)
        self._numbers = {pair: number for number, pair in enumerate(pairs)}
        self.volts = [*topology.volts.tolist(), *[0.0] * (elements - len(topology.volts))]
        """To neutral; a source or a UPS beside the tree has those of the first that it feeds, 0 before."""

    def number(self, child: int, parent: int) -> int:
        """Return the number of a line; one that leads out of the tree is added."""
        if (child, parent) not in self._numbers:
            self.volts[parent] = self.volts[parent] or self.volts[child]
            self._numbers[child, parent] = len(self._children)
            self._children.append(child)
            self._parents.append(parent)
            self._ratio.append(self.volts[child] / self.volts[parent])
        return self._numbers[child, parent]

    def joined(self, circuits: Sequence[Circuit]) -> Climb:
        """Return all lines as one climb."""
        steps, children = self._steps, self._children
        losses = steps[0].losses if steps else LossCurves()
        beside = [(number, circuits[child]) for number, child in enumerate(children) if number >= self.in_tree]
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
            np.array(self._parents, dtype=np.int64),
            np.array(self._ratio),
            blank,
            blank.astype(np.int64),
            np.concatenate([*lossy, np.array([number for number, _ in own], dtype=np.int64)]),
            joined("curve", [losses.row(child.points) for _, child in own], np.int64),
            joined("rated", [min(child.limit_watts, child.limit_volt_amps) for _, child in own], float),
            np.concatenate([*(step.pattern for step in steps), np.array(outer, dtype=complex).reshape(-1, 3)]),
            joined("delta", [False] * len(own), bool),
            joined("even", [False] * len(own), bool),
            losses,
        )
