"""The network of a site as arrays: circuits, cords and machines, and the flow of power in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from power.devices.thermal import Element
from power.network.wiring import Complex, Floats, Wiring, amps_per_watt
from power.site.layout import Plugged, SiteLayout

Ints = npt.NDArray[np.int64]


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
    climbs: tuple[tuple[Ints, Ints, Floats], ...]
    """Deepest first: children, their parents, and child volts over parent volts."""
    rated: Floats
    effective: Floats
    continuous: Floats
    element: Element


@dataclass(frozen=True, slots=True)
class Flow:
    """Power and currents of every circuit."""

    currents: Complex
    """Phasors, shape (circuits, 3)."""
    watts: Floats

    @property
    def amps(self) -> Floats:
        """Amps per pole, shape (circuits, 3)."""
        return np.abs(self.currents)

    @property
    def highest(self) -> Floats:
        """Amps of the pole with the highest current, shape (circuits,)."""
        highest: Floats = self.amps.max(axis=1)
        return highest


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
        np.array([circuit.rated_amps for circuit in circuits]),
        np.array([circuit.effective_amps for circuit in circuits]),
        np.array([circuit.continuous_amps for circuit in circuits]),
        Element.of([circuit.band for circuit in circuits]),
    )


def _climbs(
    layout: SiteLayout, circuit_at: dict[str, int]
) -> tuple[tuple[Ints, Ints, Floats], ...]:
    depth: dict[str, int] = {}
    for circuit in layout.circuits.values():
        depth[circuit.id] = depth[circuit.parent] + 1 if circuit.parent else 0
    steps = []
    for level in range(max(depth.values(), default=0), 0, -1):
        children = [circuit for circuit in layout.circuits.values() if depth[circuit.id] == level]
        parents = [layout.circuits[circuit.parent] for circuit in children if circuit.parent]
        ratio = [c.volts / p.volts for c, p in zip(children, parents, strict=True)]
        steps.append((
            np.array([circuit_at[c.id] for c in children], dtype=np.int64),
            np.array([circuit_at[p.id] for p in parents], dtype=np.int64),
            np.array(ratio),
        ))  # fmt: skip
    return tuple(steps)


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
