"""The network of a site as arrays: circuits, cords and machines, and the flow of power in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from power.devices.supply import Points, wall_watts
from power.devices.thermal import Element
from power.site.circuit import Circuit, InputCurrent
from power.site.layout import Plugged, SiteLayout
from power.wiring import Complex, Flags, Floats, Wiring, amps_per_watt, highest_of_three

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Climb:
    """The lines from all elements of one depth to what feeds them; an element with several inputs has a
    line to each. Arrays over lines."""

    children: Ints
    parents: Ints
    ratio: Floats
    """Child volts over parent volts."""
    weight: Floats
    """Part of the child's power that enters by the line while everything has power."""
    order: Ints
    """0: the input in use; others take over in this order. Inputs in parallel are all 0."""
    lossy: Ints
    """Lines with losses or currents of their own: numbers of lines, ascending."""
    curve: Ints
    """Row of `LossCurves` for each of `lossy`."""
    rated: Floats
    """Rating of each of `lossy`, watts."""
    pattern: Complex
    """Amps per watt at the input of each of `lossy`, spread evenly over its poles; shape (lossy, 3)."""
    delta: Flags
    """Which of `lossy` are windings between lines."""
    even: Flags
    """Which of `lossy` draw evenly from all poles."""
    losses: LossCurves

    def lift(self, watts: Floats, currents: Complex) -> tuple[Floats, Complex]:
        """Return what enters by each line for watts and currents of its child."""
        return self.enter(np.arange(len(self.children)), watts, currents)

    def enter(self, lines: Ints, watts: Floats, currents: Complex) -> tuple[Floats, Complex]:
        """Return what enters by some lines for watts and currents of their children."""
        above = currents * self.ratio[lines, None]
        if not len(self.lossy):
            return watts, above
        at = np.minimum(np.searchsorted(self.lossy, lines), len(self.lossy) - 1)
        mine = np.flatnonzero(self.lossy[at] == lines)
        at = at[mine]
        lost = self.losses.watts(self.curve[at], watts[mine], self.rated[at])
        turned = above[mine]
        windings = (turned - turned[:, [2, 0, 1]]) * _WINDING
        turned = np.where(self.delta[at, None], windings, turned)
        turned = np.where(self.even[at, None], self.pattern[at] * watts[mine, None], turned)
        above[mine] = turned + self.pattern[at] * lost[:, None]
        watts = watts.copy()
        watts[mine] += lost
        return watts, above


class LossCurves:
    """Losses by load of devices with the same efficiency points, in one table."""

    _STEP, _MOST = 0.005, 4.0

    def __init__(self) -> None:
        self._rows: dict[Points, int] = {}
        self._table: list[Floats] = []
        self._all: Floats = np.zeros((0, 0))

    def row(self, points: Points) -> int:
        """Return the row of these points; none lose nothing."""
        if points not in self._rows:
            loads = np.arange(0, self._MOST + self._STEP / 2, self._STEP)
            lost = [wall_watts(float(x), points, 1.0) - x for x in loads] if points else 0 * loads
            self._rows[points] = len(self._table)
            self._table.append(np.array(lost))
            self._all = np.array(self._table)
        return self._rows[points]

    def watts(self, rows: Ints, watts: Floats, rated: Floats) -> Floats:
        """Return the watts lost at an output of `watts`."""
        load = np.clip(watts / rated, 0.0, self._MOST) / self._STEP
        low = np.minimum(load.astype(np.int64), self._all.shape[1] - 2)
        part = load - low
        lost: Floats = (self._all[rows, low] * (1 - part) + self._all[rows, low + 1] * part) * rated
        return lost


_WINDING = np.exp(1j * np.pi / 6) / 3**0.5
"""A winding between L1 and L2 has the phase of the secondary's L1: 30 degrees ahead of L1 to neutral."""


@dataclass(frozen=True, slots=True)
class Network:
    """Arrays over circuits (in the layout's order), cords and machines."""

    names: tuple[str, ...]
    machines: tuple[str, ...]
    cord_machine: Ints
    cord_circuit: Ints
    cord_share: Floats
    cord_amps: Complex
    """Amps on L1, L2, L3 per watt of the cord; shape (cords, 3)."""
    other_watts: Floats
    climbs: tuple[Climb, ...]
    """Lines to what feeds, the deepest first."""
    source_order: Ints
    """Place of a source among each element's inputs; `NO_SOURCE` where none is."""
    rated: Floats
    effective: Floats
    continuous: Floats
    element: Element
    """Over `effective`."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Power and currents of every circuit."""

    currents: Complex
    """Phasors, shape (circuits, 3)."""
    watts: Floats

    def first(self, count: int) -> Flow:
        """Return the flow of the first circuits."""
        return Flow(self.currents[:count], self.watts[:count])

    def rows(self, numbers: Ints) -> Flow:
        """Return the flow of some circuits."""
        return Flow(self.currents[numbers], self.watts[numbers])

    @property
    def amps(self) -> Floats:
        """Amps per pole, shape (circuits, 3)."""
        return np.abs(self.currents)

    @property
    def highest(self) -> Floats:
        """Amps of the pole with the highest current, shape (circuits,)."""
        return highest_of_three(self.amps)


def connect(layout: SiteLayout) -> Network:
    """Return the arrays of a layout."""
    names = tuple(layout.circuits)
    machines = tuple(layout.machines)
    circuit_at = {name: i for i, name in enumerate(names)}
    machine_at = {name: i for i, name in enumerate(machines)}
    circuits = list(layout.circuits.values())
    other = np.array([circuit.other_watts for circuit in circuits])
    kinds: dict[tuple[object, ...], Complex] = {}

    def per_watt(circuit_id: str, poles: tuple[int, ...]) -> Complex:
        circuit = layout.circuits[circuit_id]
        key = (poles, circuit.volts, circuit.power_factor, circuit.wiring)
        if key not in kinds:
            kinds[key] = amps_per_watt(poles, circuit.volts, circuit.power_factor, circuit.wiring)
        return kinds[key]

    cords: tuple[Plugged, ...] = layout.cords
    return Network(
        names,
        machines,
        np.array([machine_at[c.machine] for c in cords], dtype=np.int64),
        np.array([circuit_at[c.circuit] for c in cords], dtype=np.int64),
        np.array([c.share for c in cords], dtype=float),
        np.array([per_watt(c.circuit, c.poles) for c in cords], dtype=complex).reshape(-1, 3),
        other,
        _climbs(layout, circuit_at),
        np.array([_source_order(circuit, layout.circuits) for circuit in circuits], dtype=np.int64),
        np.array([circuit.rated_amps for circuit in circuits]),
        np.array([circuit.effective_amps for circuit in circuits]),
        np.array([circuit.continuous_amps for circuit in circuits]),
        Element.of([circuit.band for circuit in circuits]),
    )


NO_SOURCE = np.iinfo(np.int64).max


def _source_order(circuit: Circuit, circuits: Mapping[str, Circuit]) -> int:
    found = (order for order, name in enumerate(inputs_of(circuit)) if name not in circuits)
    return next(found, NO_SOURCE)


def _climbs(layout: SiteLayout, circuit_at: dict[str, int]) -> tuple[Climb, ...]:
    circuits = layout.circuits
    depth: dict[str, int] = {}
    for circuit in circuits.values():
        above = [depth[name] for name in inputs_of(circuit) if name in circuits]
        depth[circuit.id] = max(above) + 1 if above else 0
    losses = LossCurves()
    by_depth: dict[int, list[Circuit]] = {}
    for circuit in circuits.values():
        by_depth.setdefault(depth[circuit.id], []).append(circuit)
    return tuple(
        _climb(by_depth[level], circuits, circuit_at, losses) for level in range(max(by_depth, default=0), 0, -1)
    )


def inputs_of(circuit: Circuit) -> list[str]:
    """Return the elements and sources that can feed an element, the one in use first."""
    order = list(circuit.inputs) or ([circuit.parent] if circuit.parent else [])
    if not order and circuit.source is not None:
        order = [circuit.source]
    if circuit.on_bypass and circuit.bypass is not None:
        order.insert(0, circuit.bypass)
    return list(dict.fromkeys(order))


def input_shares(circuit: Circuit, circuits: Mapping[str, Circuit]) -> list[float]:
    """Return the part of an element's power that enters from each of its inputs: in parallel by their
    ratings, else all of it from the first."""
    inputs = inputs_of(circuit)
    if not circuit.parallel:
        return [float(order == 0) for order in range(len(inputs))]
    limits = [circuits[name].limit_watts if name in circuits else math.inf for name in inputs]
    if not all(map(math.isfinite, limits)):
        limits = [1.0] * len(inputs)
    return [limit / sum(limits) for limit in limits]


def _climb(
    children: Sequence[Circuit], circuits: Mapping[str, Circuit], at: Mapping[str, int], losses: LossCurves
) -> Climb:
    lines = []
    for child in children:
        # What is in use comes last, where the last one counts.
        for order, name in reversed(list(enumerate(inputs_of(child)))):
            if name in circuits:
                part = input_shares(child, circuits)[order]
                lines.append((child, circuits[name], part, 0 if child.parallel else order))
    lossy = [
        number
        for number, (child, _, _, _) in enumerate(lines)
        if (child.points or child.link is not InputCurrent.WIRE) and not child.on_bypass
    ]
    own = [lines[number][:2] for number in lossy]
    pattern = [
        amps_per_watt(parent.poles, parent.volts, _input_power_factor(child, parent), parent.wiring)
        for child, parent in own
    ]
    return Climb(
        np.array([at[child.id] for child, *_ in lines], dtype=np.int64),
        np.array([at[parent.id] for _, parent, _, _ in lines], dtype=np.int64),
        np.array([child.volts / parent.volts for child, parent, _, _ in lines]),
        np.array([part for _, _, part, _ in lines]),
        np.array([order for _, _, _, order in lines], dtype=np.int64),
        np.array(lossy, dtype=np.int64),
        np.array([losses.row(child.points) for child, _ in own], dtype=np.int64),
        np.array([min(child.limit_watts, child.limit_volt_amps) for child, _ in own]),
        np.array(pattern, dtype=complex).reshape(-1, 3),
        np.array([child.link is InputCurrent.DELTA_WYE for child, _ in own], dtype=bool),
        np.array([child.link is InputCurrent.CONVERTER for child, _ in own], dtype=bool),
        losses,
    )


def _input_power_factor(child: Circuit, parent: Circuit) -> float:
    return _RECTIFIER if child.link is InputCurrent.CONVERTER else parent.power_factor


_RECTIFIER = 0.99
"""Power factor of a double conversion UPS' input."""


def weights_without(network: Network, dead: Flags) -> tuple[Floats, ...]:
    """Return the lines' weights when the elements marked in `dead` are off: the next input with power takes
    over, inputs in parallel share by their weights, and nothing enters an element that is dead itself."""
    found = []
    for step in network.climbs:
        alive = ~dead[step.parents] & ~dead[step.children]
        count = len(dead)
        first = network.source_order.copy()
        np.minimum.at(first, step.children[alive], step.order[alive])
        use = alive & (step.order == first[step.children])
        weight = np.where(use, np.maximum(step.weight, step.order > 0), 0.0)
        total = np.bincount(step.children, weight, count)[step.children]
        found.append(np.divide(weight, total, out=np.zeros_like(weight), where=total > 0))
    return tuple(found)


def shares_without(network: Network, dead: npt.NDArray[np.bool_]) -> Floats:
    """Return the cords' shares when the circuits marked in `dead` are off.

    A machine's other cords take over in proportion; a machine without another goes dark: its load
    is dropped, not moved. A standby cord (share 0) takes all.
    """
    alive = ~dead[network.cord_circuit]
    count = len(network.machines)
    left = np.bincount(network.cord_machine, network.cord_share * alive, count)
    cords = np.bincount(network.cord_machine, alive.astype(float), count)
    whole = left[network.cord_machine]
    standby = np.where(alive, 1 / np.maximum(cords[network.cord_machine], 1), 0.0)
    moved = np.divide(network.cord_share, whole, out=standby.copy(), where=whole > 0)
    return np.where(alive, moved, 0.0)


def has_neutral(wiring: Wiring, poles: int) -> bool:
    """Return whether a circuit has a neutral that carries the difference of its poles."""
    return wiring in {Wiring.WYE, Wiring.SPLIT} and poles > 1
