"""Redundant feeds: flows when some are off, and the worst loss of one."""

from __future__ import annotations

import numpy as np

from power import thresholds
from power.network.flow import Flow, Ints, shares_without
from power.network.topology import SiteTopology
from power.network.wiring import Complex, Flags, Floats


def sum_by_circuit(circuits: Ints, values: Floats, count: int) -> Floats:
    """Return the sum of the values that belong to each circuit."""
    return np.bincount(circuits, values, count).astype(np.float64, copy=False)


def climb(currents: Complex, children: Ints, parents: Ints, ratio: Floats) -> None:
    """Add what children carry to their parents; `ratio` is child volts over parent volts."""
    for pole in range(3):
        part = currents[children, pole] * ratio
        currents[:, pole] += np.bincount(parents, part.real, len(currents))
        currents[:, pole] += 1j * np.bincount(parents, part.imag, len(currents))


def cord_flow(
    topology: SiteTopology, machine_watts: Floats, local_watts: Floats, shares: Floats, dead: Flags
) -> Flow:
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
    topology: SiteTopology, machine_watts: Floats, local_watts: Floats, shares: Floats, dead: Flags
) -> Flow:
    """Return the flow of every circuit: machines by the cords' `shares`, and each circuit's own loads.

    Dead circuits carry no loads of their own; `shares` has their machines' power elsewhere.
    """
    found = cord_flow(topology, machine_watts, local_watts, shares, dead)
    for children, parents, ratio in topology.network.climbs:
        found.watts[:] += sum_by_circuit(parents, found.watts[children], len(found.watts))
        climb(found.currents, children, parents, ratio)
    return found


def dead_below(topology: SiteTopology, off: Flags) -> Flags:
    """Return the circuits that are off when those marked in `off` are: they and all that they feed."""
    dead = off.copy()
    for children, parents, _ in reversed(topology.network.climbs):
        dead[children] |= dead[parents]
    return dead


class Losses:
    """The losses of one feed of a group, with the shares that the other feeds then carry.

    Groups do not share machines, so the n-th feed of all groups is lost at once: as many flows as
    the largest group has feeds. The shares are computed again only when another circuit is dead.
    """

    def __init__(self, topology: SiteTopology) -> None:
        self._topology = topology
        self._for: bytes | None = None
        self._cases: list[tuple[Flags, Flags, Floats]] = []
        self.shares: Floats = topology.network.cord_share
        """Shares with the present dead circuits."""
        members = np.zeros(len(topology.network.names), dtype=bool)
        for group in topology.groups:
            members[group] = True
        self.members: Flags = dead_below(topology, members)
        """Circuits of groups, and all that they feed."""

    def prepare(self, dead: Flags) -> None:
        """Compute the shares for these dead circuits."""
        key = dead.tobytes()
        if key == self._for:
            return
        self._for, self._cases = key, []
        topology, network = self._topology, self._topology.network
        self.shares = shares_without(network, dead) if dead.any() else network.cord_share
        for turn in range(max((len(group) for group in topology.groups), default=0)):
            off = dead.copy()
            off[[group[turn] for group in topology.groups if turn < len(group)]] = True
            gone = dead_below(topology, off)
            self._cases.append((gone, self.members & ~gone, shares_without(network, gone)))

    def survivors(self, machine_watts: Floats, local_watts: Floats) -> Floats:
        """Return the highest amps of each circuit after the worst loss; NaN outside groups."""
        worst = np.full(len(self._topology.network.names), np.nan)
        for gone, affected, shares in self._cases:
            after = carry(self._topology, machine_watts, local_watts, shares, gone)
            worst = np.where(affected, np.fmax(worst, after.highest), worst)
        return worst


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
            group for group in topology.groups
            if len(group) == 2 and len(topology.machines_below(int(group[0])))
            and np.array_equal(topology.machines_below(int(group[0])), topology.machines_below(int(group[1])))
        ]  # fmt: skip
        self._alike: Ints = np.array(alike, dtype=np.int64).reshape(-1, 2)
        """Feeds that carry the same machines, so that their meters can be compared."""

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
    return np.stack([order[starts], order[starts + 1]], axis=1) if len(starts) else np.zeros((0, 2), np.int64)  # fmt: skip
