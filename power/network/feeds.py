"""Redundant feeds: flows when some are off, and the worst loss of one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from power import thresholds
from power.network.flow import NO_SOURCE, Climb, Flow, Ints
from power.network.topology import SiteTopology
from power.wiring import Complex, Flags, Floats


def sum_by_circuit(circuits: Ints, values: Floats, count: int) -> Floats:
    """Return the sum of the values that belong to each circuit."""
    return np.bincount(circuits, values, count).astype(np.float64, copy=False)


def climb(step: Climb, weight: Floats, watts: Floats, currents: Complex) -> None:
    """Add what the children of a step carry, with its losses, to what feeds them."""
    into, above = step.lift(watts[step.children], currents[step.children])
    add_up(step.parents, into * weight, above * weight[:, None], watts, currents)


def add_up(rows: Ints, watts: Floats, currents: Complex, to: Floats, to_currents: Complex) -> None:
    """Add watts and currents to the rows of a total."""
    to += np.bincount(rows, watts, len(to))
    add_currents(rows, currents, to_currents)


def add_currents(rows: Ints, currents: Complex, to_currents: Complex) -> None:
    """Add currents to the rows of a total."""
    count = len(to_currents)
    for pole in range(3):
        to_currents[:, pole] += np.bincount(rows, currents[:, pole].real, count)
        to_currents[:, pole] += 1j * np.bincount(rows, currents[:, pole].imag, count)


def cord_flow(topology: SiteTopology, machine_watts: Floats, local_watts: Floats, shares: Floats, dead: Flags) -> Flow:
    """Return the flow of each circuit's own cords and loads, without its children."""
    network = topology.network
    at, count = topology.kind_circuit, len(network.names)
    local = np.where(dead, 0.0, local_watts)
    cords = machine_watts[network.cord_machine] * shares
    watts = sum_by_circuit(topology.cord_kind, cords, len(at))
    currents = topology.pattern * local[:, None]
    for pole in range(3):
        phasor = topology.kind_amps[:, pole]
        currents[:, pole] += np.bincount(at, watts * phasor.real, count)
        currents[:, pole] += 1j * np.bincount(at, watts * phasor.imag, count)
    return Flow(currents, local + sum_by_circuit(at, watts, count))


def carry(
    topology: SiteTopology,
    machine_watts: Floats,
    local_watts: Floats,
    shares: Floats,
    dead: Flags,
    weights: Sequence[Floats] | None = None,
) -> Flow:
    """Return the flow of every circuit: machines by the cords' `shares`, and each circuit's own loads.

    Dead circuits carry no loads of their own; `shares` has their machines' power elsewhere, and `weights`
    what enters by each line (`weights_without`), as when everything has power if None.
    """
    found = cord_flow(topology, machine_watts, local_watts, shares, dead)
    for number, step in enumerate(topology.network.climbs):
        climb(step, step.weight if weights is None else weights[number], found.watts, found.currents)
    return found


def dead_below(topology: SiteTopology, off: Flags) -> Flags:
    """Return the circuits that are off when those marked in `off` are: they and all that they feed."""
    dead = off.copy()
    for step in reversed(topology.network.climbs):
        fed = np.zeros(len(dead), dtype=bool)
        fed[step.children[~dead[step.parents]]] = True
        unfed = ~fed & (topology.network.source_order == NO_SOURCE)
        dead[step.children] |= unfed[step.children]
    return dead


def lost_by_load(topology: SiteTopology, amps: Floats, expected: Floats) -> Flags:
    """Return the feeds that carry next to nothing while another of their group carries a lot.

    `expected`: amps by the configured shares; a feed with standby cords alone carries nothing, and
    is not lost.
    """
    load, usual = amps / topology.network.rated, expected / topology.network.rated
    most = np.zeros(len(topology.groups) + 1)
    np.fmax.at(most, topology.group_of, load)
    most[-1] = 0.0  # circuits without a group
    busy = most[topology.group_of] > thresholds.FEED_THERE
    return busy & (load < thresholds.FEED_GONE) & (usual >= thresholds.FEED_GONE)


class Cords:
    """Machines with two cords into redundant feeds, and how unevenly the cords share."""

    def __init__(self, topology: SiteTopology) -> None:
        network = topology.network
        self._count = len(network.names)
        one, two = _pairs(topology).T
        share = network.cord_share
        both = (share[one] > 0) & (share[two] > 0)  # a standby cord is not uneven
        one, two = one[both], two[both]
        heavier = np.where(share[one] >= share[two], one, two)
        spread = np.abs(share[one] - share[two]) / (share[one] + share[two])
        # A circuit needs no more than the worst of each partner: as good as all of its machines.
        found: dict[tuple[int, int], float] = {}
        for heavy, a, b, part in zip(heavier, one, two, spread, strict=True):
            here = int(network.cord_circuit[heavy])
            there = int(network.cord_circuit[a]) + int(network.cord_circuit[b]) - here
            found[here, there] = max(found.get((here, there), 0.0), float(part))
        self._pairs: Ints = np.array(list(found), dtype=np.int64).reshape(-1, 2)
        self._spread: Floats = np.array(list(found.values()), dtype=float)
        alike = [
            group
            for group in topology.groups
            if len(group) == 2
            and len(topology.machines_below(int(group[0])))
            and np.array_equal(topology.machines_below(int(group[0])), topology.machines_below(int(group[1])))
        ]
        self._alike: Ints = np.array(alike, dtype=np.int64).reshape(-1, 2)
        """Feeds that carry the same machines, so that their meters can be compared."""

    @property
    def alike(self) -> Ints:
        """Return the pairs of feeds that carry the same machines; shape (pairs, 2)."""
        return self._alike

    def uneven(self, dead: Flags, metered_amps: Floats | None = None) -> Floats:
        """Return, on the heavier of two feeds, the largest difference over sum of one node's cords;
        NaN elsewhere. By the configured shares, and by meters where both feeds have one."""
        worst = np.full(self._count, np.nan)
        both = ~dead[self._pairs].any(axis=1)
        np.fmax.at(worst, self._pairs[both, 0], self._spread[both])
        if metered_amps is None or not len(self._alike):
            return worst
        amps = np.where(dead, np.nan, metered_amps)[self._alike]
        total = amps.sum(axis=1)
        known = total > 0
        circuits, amps, total = self._alike[known], amps[known], total[known]
        heavy = np.argmax(amps, axis=1)
        rows = np.arange(len(circuits))
        worst[circuits[rows, 1 - heavy]] = np.nan
        worst[circuits[rows, heavy]] = np.abs(amps[:, 0] - amps[:, 1]) / total
        return worst


def _pairs(topology: SiteTopology) -> Ints:
    """Return the cords of machines with exactly two into redundant feeds; shape (pairs, 2)."""
    network = topology.network
    grouped = np.zeros(len(network.names), dtype=bool)
    for group in topology.groups:
        grouped[group] = True
    cords = np.flatnonzero(grouped[network.cord_circuit])
    order = cords[np.argsort(network.cord_machine[cords], kind="stable")]
    machine = network.cord_machine[order]
    first = np.flatnonzero(np.diff(machine, prepend=-1))
    count = np.diff(np.append(first, len(machine)))
    starts = first[count == 2]
    return np.stack([order[starts], order[starts + 1]], axis=1) if len(starts) else np.zeros((0, 2), np.int64)
