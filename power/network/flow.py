"""Amps on every pole of every line from watts of every machine: one sparse product and one climb.

For a fleet: build once, then `flow` per tick. The measured cost stands in docs/power.md.
"""

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
    """Arrays over lines (in the layout's order), cords and machines."""

    names: tuple[str, ...]
    machines: tuple[str, ...]
    cord_machine: Ints
    cord_line: Ints
    cord_share: Floats
    cord_amps: Complex
    """Amps on L1, L2, L3 per watt of the cord; shape (cords, 3)."""
    other_amps: Complex
    """Of declared loads; shape (lines, 3)."""
    other_watts: Floats
    climbs: tuple[tuple[Ints, Ints, Floats], ...]
    """Deepest first: children, their parents, and child volts over parent volts."""
    rated: Floats
    effective: Floats
    continuous: Floats
    element: Element


@dataclass(frozen=True, slots=True)
class Flow:
    """What flows in every line."""

    currents: Complex
    """Phasors, shape (lines, 3)."""
    watts: Floats

    @property
    def amps(self) -> Floats:
        """Amps per pole, shape (lines, 3)."""
        return np.abs(self.currents)

    @property
    def highest(self) -> Floats:
        """Amps of the pole that decides, shape (lines,)."""
        highest: Floats = self.amps.max(axis=1)
        return highest


def connect(layout: SiteLayout) -> Network:
    """Return the arrays of a layout."""
    names = tuple(layout.lines)
    machines = tuple(layout.machines)
    line_at = {name: i for i, name in enumerate(names)}
    machine_at = {name: i for i, name in enumerate(machines)}
    lines = list(layout.lines.values())
    other = np.array([line.other_watts for line in lines])
    kinds: dict[tuple[object, ...], Complex] = {}

    def per_watt(line_id: str, poles: tuple[int, ...]) -> Complex:
        line = layout.lines[line_id]
        key = (poles, line.volts, line.power_factor, line.wiring)
        if key not in kinds:
            kinds[key] = amps_per_watt(poles, line.volts, line.power_factor, line.wiring)
        return kinds[key]

    own = np.array([per_watt(line.id, line.poles) for line in lines]).reshape(-1, 3)
    cords: tuple[Plugged, ...] = layout.cords
    return Network(
        names,
        machines,
        np.array([machine_at[c.machine] for c in cords], dtype=np.int64),
        np.array([line_at[c.line] for c in cords], dtype=np.int64),
        np.array([c.share for c in cords], dtype=float),
        np.array([per_watt(c.line, c.poles) for c in cords], dtype=complex).reshape(-1, 3),
        own * other[:, None],
        other,
        _climbs(layout, line_at),
        np.array([line.rated_amps for line in lines]),
        np.array([line.effective_amps for line in lines]),
        np.array([line.continuous_amps for line in lines]),
        Element.of([line.band for line in lines]),
    )


def _climbs(layout: SiteLayout, line_at: dict[str, int]) -> tuple[tuple[Ints, Ints, Floats], ...]:
    depth: dict[str, int] = {}
    for line in layout.lines.values():
        depth[line.id] = depth[line.parent] + 1 if line.parent else 0
    steps = []
    for level in range(max(depth.values(), default=0), 0, -1):
        children = [line for line in layout.lines.values() if depth[line.id] == level]
        parents = [layout.lines[line.parent] for line in children if line.parent]
        ratio = [c.volts / p.volts for c, p in zip(children, parents, strict=True)]
        steps.append((
            np.array([line_at[c.id] for c in children], dtype=np.int64),
            np.array([line_at[p.id] for p in parents], dtype=np.int64),
            np.array(ratio),
        ))  # fmt: skip
    return tuple(steps)


def flow(network: Network, machine_watts: Floats, shares: Floats | None = None) -> Flow:
    """Return what flows when machines draw `machine_watts` at the wall; shape (machines,).

    `shares` stands in for the cords' own, as after the loss of a feed.
    """
    share = network.cord_share if shares is None else shares
    cord_watts = machine_watts[network.cord_machine] * share
    count = len(network.names)
    watts = network.other_watts + np.bincount(network.cord_line, cord_watts, count)
    currents = network.other_amps.copy()
    for pole in range(3):
        phasor = network.cord_amps[:, pole]
        currents[:, pole] += np.bincount(network.cord_line, cord_watts * phasor.real, count)
        currents[:, pole] += 1j * np.bincount(network.cord_line, cord_watts * phasor.imag, count)
    for children, parents, ratio in network.climbs:
        np.add.at(watts, parents, watts[children])
        np.add.at(currents, parents, currents[children] * ratio[:, None])
    return Flow(currents, watts)


def shares_without(network: Network, dead: npt.NDArray[np.bool_]) -> Floats:
    """Return the cords' shares when the lines marked in `dead` are off.

    A machine's other cords take over in proportion; a machine without another goes dark: its load
    is dropped, not moved. A standby cord (share 0) takes all.
    """
    alive = ~dead[network.cord_line]
    count = len(network.machines)
    left = np.bincount(network.cord_machine, network.cord_share * alive, count)
    cords = np.bincount(network.cord_machine, alive.astype(float), count)
    whole = left[network.cord_machine]
    standby = np.where(alive, 1 / np.maximum(cords[network.cord_machine], 1), 0.0)
    moved = np.divide(network.cord_share, whole, out=standby.copy(), where=whole > 0)
    return np.where(alive, moved, 0.0)


def has_neutral(wiring: Wiring, poles: int) -> bool:
    """Return whether a neutral of its own carries what the poles leave over."""
    return wiring in {Wiring.WYE, Wiring.SPLIT} and poles > 1
