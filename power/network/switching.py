"""Switching state of a site: which elements are off, where its transfer switches stand, and the flow that follows."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from power.network.curves import EfficiencyCurves
from power.network.feeds import add_up, climb
from power.network.flow import Climb, Flow, shares_without
from power.network.graph import Candidates, Inputs, SiteGraph, chosen
from power.network.machine_classes import ClassVariants, VariantLists
from power.wiring import Complex, Flags, Floats


@dataclass(frozen=True, slots=True)
class Rerouting:
    """Effect of a loss on the graph."""

    dead: set[int]
    """Elements that go dark, those that are lost among them."""
    moved: dict[int, Inputs]
    """Inputs of elements that are fed in another way than before."""


@dataclass(frozen=True, slots=True)
class SwitchingState:
    """Elements of a graph that are off, and what feeds the others; see `switching_state` and `state_after`."""

    graph: SiteGraph
    off: frozenset[int]
    bypassed: frozenset[int]
    """UPSs that have failed into their bypass."""
    alternate: frozenset[int]
    """Transfer switches that stand on their alternate input."""
    candidates: Sequence[Candidates]
    """By row, in the order that the transfer switches prefer now."""
    inputs: Sequence[Inputs]
    """By row."""
    dead: Flags
    """Rows that are off."""
    shares: Floats
    """Of the cords."""
    line_weight: Floats
    """Part of its child's power that enters by each line."""
    weights: Sequence[Floats]
    """Parts of a child's power by line, of each of the network's climbs."""
    steps: Sequence[Climb]
    """The network's climbs, without the losses of UPSs in bypass."""
    lines: Climb
    """Lines of the graph, without the losses of UPSs in bypass."""
    variants: ClassVariants
    """Machine classes as they are fed; each has the number of its class."""
    working: Floats
    """Part of the supplies of each machine that has power."""

    @property
    def dark(self) -> Flags:
        """Return whether each machine has no power; a machine without cords has."""
        dark: Flags = self.working == 0
        return dark

    def gone(self, of_class: int) -> frozenset[int]:
        """Return the positions of a class's cords that give nothing: all of them where its UPS is off."""
        return _gone(self.graph, self.off, of_class)

    def feeding(self, row: int) -> Inputs:
        """Return what carries a row: its inputs, and UPSs beside the tree."""
        return (*self.inputs[row], *self.graph.watched[row])

    def reroute(self, lost: Collection[int], bypassed: Collection[int]) -> Rerouting:
        """Return the effect of a further loss; `bypassed`: all UPSs that have failed into their bypass then."""
        return _reroute(self.graph, self.candidates, self.inputs, self.off, lost, bypassed)

    def present_watts(self, machine_watts: Floats) -> Floats:
        """Return the watts at the wall of machines that draw `machine_watts` while all of their supplies have
        power."""
        classes, working = self.graph.classes, self.working
        again = np.flatnonzero((working < 1) & (working > 0) & classes.rated)
        inside = classes.curves.inside(machine_watts)[again]
        curves = EfficiencyCurves([classes.machines[machine] for machine in again])
        result = np.where(working > 0, machine_watts, 0.0)
        result[again] = classes.bounded(again, curves.wall(inside, working[again]), machine_watts)
        return result

    def flow(self, machine_watts: Floats, local_watts: Floats) -> Flow:
        """Return the flow of all elements, from the watts of machines at the wall and each circuit's own loads."""
        variants = self.variants
        cord_watts, cord_amps = variants.cord_flow(machine_watts[variants.machine], self.graph.topology.kind_amps)
        return self.carry(cord_watts, cord_amps, local_watts)[0]

    def carry(self, cord_watts: Floats, cord_amps: Complex, local_watts: Floats) -> tuple[Flow, Floats, Complex]:
        """Return the flow of all elements from that of the cords of `variants` and each circuit's own loads, and what
        enters by each line for the watts and currents of its child."""
        graph, lines = self.graph, self.lines
        rows, count = graph.rows, len(graph.elements)
        watts: Floats = np.zeros(count)
        currents: Complex = np.zeros((count, 3), dtype=complex)
        add_up(self.variants.cord_row, cord_watts, cord_amps, watts, currents)
        local = np.where(self.dead, 0.0, local_watts)
        watts[:rows] += local
        currents[:rows] += graph.topology.pattern * local[:, None]
        for step, weight in zip(self.steps, self.weights, strict=True):
            climb(step, weight, watts, currents)
        into, above = lines.lift(watts[lines.children], currents[lines.children])
        outer = slice(graph.tree_lines, None)
        weight = self.line_weight[outer]
        add_up(lines.parents[outer], into[outer] * weight, above[outer] * weight[:, None], watts, currents)
        return Flow(currents, watts), into, above


def switching_state(graph: SiteGraph, dead: Flags | None = None, alternate: Collection[int] = ()) -> SwitchingState:
    """Return the state in which some rows of the network are off, with what they feed, and some transfer switches
    stand on their alternate input. `dead`: none when None; what the rows feed must be among them."""
    off = frozenset() if dead is None else frozenset(np.flatnonzero(dead).tolist())
    return _state(graph, off, frozenset(), alternate)


def state_after(graph: SiteGraph, lost: Iterable[str]) -> SwitchingState:
    """Return the state after the loss of some elements while everything had power."""
    off, bypassed = lost_numbers(graph, lost)
    dead = _reroute(graph, graph.candidates, graph.usual, frozenset(), off, bypassed).dead
    return _state(graph, frozenset(dead), frozenset(bypassed - dead), ())


def lost_numbers(graph: SiteGraph, names: Iterable[str]) -> tuple[set[int], set[int]]:
    """Return the elements that go dark themselves when these are lost, and the UPSs that fail into their bypass."""
    numbers = {graph.numbers[name] for name in names}
    bypassed = numbers & graph.bypass.keys()
    return numbers - bypassed, bypassed


def _state(
    graph: SiteGraph, off: frozenset[int], bypassed: frozenset[int], alternate: Collection[int]
) -> SwitchingState:
    network = graph.topology.network
    candidates, inputs = list(graph.candidates), list(graph.usual)
    moved = graph.transfers.intersection(alternate)
    for row in moved:
        preferred, other = candidates[row]
        candidates[row] = ((*preferred[:3], 1), (*other[:3], 0))
        inputs[row] = chosen(candidates[row])
    for row, fed in _reroute(graph, candidates, inputs, frozenset(), off, bypassed).moved.items():
        inputs[row] = fed
    dead = np.zeros(graph.rows, dtype=bool)
    dead[[number for number in off if number < graph.rows]] = True
    line_weight = np.zeros(len(graph.lines.children))
    for row, fed in enumerate(inputs):
        if row not in off:
            for line, _, weight in (*fed, *graph.watched[row]):
                line_weight[line] = weight
    starts = np.cumsum([len(step.children) for step in network.climbs])
    steps, lines = network.climbs, graph.lines
    if bypassed:
        steps, lines = tuple(_lossless(step, bypassed) for step in steps), _lossless(lines, bypassed)
    classes = graph.classes.classes
    variants = VariantLists(classes, (_gone(graph, off, number) for number in range(len(classes)))).arrays()
    working = np.ones(len(graph.classes.machines))
    working[variants.machine] = variants.working
    return SwitchingState(
        graph=graph,
        off=off,
        bypassed=bypassed,
        alternate=moved,
        candidates=tuple(candidates),
        inputs=tuple(inputs),
        dead=dead,
        shares=shares_without(network, dead) if dead.any() else network.cord_share,
        line_weight=line_weight,
        weights=np.split(line_weight[: graph.tree_lines], starts[:-1]) if len(starts) else (),
        steps=steps,
        lines=lines,
        variants=variants,
        working=working,
    )


def _gone(graph: SiteGraph, off: Collection[int], of_class: int) -> frozenset[int]:
    one = graph.classes.classes[of_class]
    if not one.gates.isdisjoint(off):
        return frozenset(range(len(one.rows)))
    return frozenset(position for position, row in enumerate(one.rows) if row in off)


def _reroute(
    graph: SiteGraph,
    candidates: Sequence[Candidates],
    inputs: Sequence[Inputs],
    dead: Collection[int],
    lost: Collection[int],
    bypassed: Collection[int],
) -> Rerouting:
    """Return the effect of a loss where the elements of `dead` are off already."""
    change = Rerouting(set(), {})
    waiting = list(bypassed)
    heapq.heapify(waiting)

    def fall(number: int) -> None:
        change.dead.add(number)
        for child in graph.children.get(number, ()):
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
        if any(gate in change.dead or gate in dead for gate in graph.gates[row]):
            fall(row)
            continue
        only = graph.bypass[row] if row in bypassed else None
        found = chosen(candidates[row], change.dead, dead, only)
        if not found:
            fall(row)
        elif found != inputs[row] or only is not None:
            change.moved[row] = found
    return change


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
