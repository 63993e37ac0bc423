"""The topology of a site: its layout as arrays, constant as long as a configuration is in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from power import thresholds
from power.devices.breaker import Curve, inrush_ratio
from power.network.flow import Ints, Network, connect, has_neutral
from power.site.circuit import Circuit, ElementKind
from power.site.layout import SiteLayout
from power.wiring import Complex, Flags, Floats, Wiring, amps_per_watt, imbalance


@dataclass(frozen=True, slots=True)
class SiteTopology:
    """Arrays over circuits, in the order of `network.names`, unless stated otherwise."""

    network: Network
    parent: Ints
    """Index of the feeding circuit; -1 without one."""
    levels: tuple[Ints, ...]
    """Circuits by depth, the deepest first; the last are the roots."""
    poles: Flags
    """Shape (circuits, 3)."""
    volts: Floats
    """Volts to neutral that amps are computed with."""
    nominal_volts: Floats
    between: Floats
    """Volts between two poles over volts to neutral; 1 for a single pole."""
    power_factor: Floats
    third_harmonic: Floats
    """Amps of the third harmonic over those of a pole: its own, or the highest below it."""
    pattern: Complex
    """Amps per watt of a load spread evenly over the circuit's own poles; shape (circuits, 3)."""
    cord_kind: Ints
    """Kind of each cord: cords of one circuit on the same poles are summed first."""
    kind_circuit: Ints
    kind_amps: Complex
    """Amps per watt of each kind of cord; shape (kinds, 3)."""
    breakers: Flags
    """Whether the physical rating is known, so that there is a trip time."""
    magnetic_amps: Floats
    """Lowest peak that trips at once; NaN where the breaker is not known."""
    three: Flags
    neutral_rated: Floats
    """NaN without a neutral of its own."""
    plug_amps: Floats
    weak: Flags
    """Whether a UPS or a generator, which swings disturb, feeds the circuit."""
    below: tuple[Ints, Ints, Floats]
    """Circuit, machine, share of its power that comes through the circuit by the configuration; sorted by
    circuit, once for each pair."""
    starts: Ints
    """Where each circuit's part of `below` begins; one more entry than circuits."""
    whole: Flags
    """For each pair of `below`: all cords of the machine come through the circuit."""
    single_feed: Ints
    """For each circuit, the only machine on it if it has no other cord and the circuit no other load;
    -1 else."""
    groups: tuple[Ints, ...]
    """Circuits of each redundancy group."""
    group_of: Ints
    """The number of each circuit's group in `groups`; one more than there are where it has none."""
    other_below: Floats
    """Declared loads of a circuit and all below it, watts."""

    def count_below(self, machines: Flags) -> Floats:
        """Return how many of the marked machines have a cord below each circuit."""
        if not machines.any():
            return np.zeros(len(self.starts) - 1)
        if machines.all():
            return np.diff(self.starts).astype(float)
        found = np.bincount(self.below[0], machines[self.below[1]], len(self.starts) - 1)
        return found.astype(np.float64, copy=False)

    def machines_below(self, circuit: int) -> Ints:
        """Return the machines that have a cord below a circuit."""
        return self.below[1][self.starts[circuit] : self.starts[circuit + 1]]

    def phase_imbalance(self, amps: Floats) -> Floats:
        """Return the largest difference of a pole from the mean, over the mean; 0 below 30 % load, NaN
        without three poles."""
        loaded = amps.mean(axis=1) > thresholds.PHASES_FROM * self.network.rated
        spread = np.where(loaded, imbalance(amps), 0.0)
        return np.where(self.three & ~np.isnan(amps.sum(axis=1)), spread, np.nan)


def _third_harmonic(circuits: Sequence[Circuit], parent: Ints) -> Floats:
    found = np.array([circuit.third_harmonic for circuit in circuits])
    for number in range(len(circuits) - 1, -1, -1):  # parents stand before children
        if parent[number] >= 0:
            found[parent[number]] = max(found[parent[number]], found[number])
    # Those of two poles half a turn apart cancel.
    wye = [circuit.wiring is Wiring.WYE and len(circuit.poles) > 1 for circuit in circuits]
    return np.where(wye, found, 0.0)


def build_topology(layout: SiteLayout) -> SiteTopology:
    """Return the arrays of a layout."""
    network = connect(layout)
    circuits = list(layout.circuits.values())
    at = {name: number for number, name in enumerate(network.names)}
    parent = np.array([at[x.parent] if x.parent else -1 for x in circuits], dtype=np.int64)
    below, whole = _below(network)
    poles = np.zeros((len(circuits), 3), dtype=bool)
    for number, circuit in enumerate(circuits):
        poles[number, list(circuit.poles)] = True
    neutral = np.array([has_neutral(circuit.wiring, len(circuit.poles)) for circuit in circuits])
    first, kind = _kinds(layout)
    by_group: dict[str, list[int]] = {}
    for number, circuit in enumerate(circuits):
        if circuit.group is not None and circuit.kind is ElementKind.CIRCUIT:
            by_group.setdefault(circuit.group, []).append(number)
    groups = tuple(np.array(g, dtype=np.int64) for g in by_group.values() if len(g) > 1)
    group_of = np.full(len(circuits), len(groups), dtype=np.int64)
    for number, group in enumerate(groups):
        group_of[group] = number
    return SiteTopology(
        network=network,
        parent=parent,
        levels=_levels(network),
        poles=poles,
        volts=np.array([x.volts for x in circuits]),
        nominal_volts=np.array([x.volts / x.sag for x in circuits]),
        between=np.array([1.0 if len(x.poles) == 1 else x.outlet_ratio for x in circuits]),
        power_factor=np.array([x.power_factor for x in circuits]),
        third_harmonic=_third_harmonic(circuits, parent),
        pattern=np.array([amps_per_watt(x.poles, x.volts, x.power_factor, x.wiring) for x in circuits]).reshape(-1, 3),
        cord_kind=kind,
        kind_circuit=network.cord_circuit[first],
        kind_amps=network.cord_amps[first],
        breakers=np.array([x.curve is not None for x in circuits]),
        magnetic_amps=np.array(
            [
                np.nan
                if x.curve is None
                # An electronic trip unit counts from its Ir, not from its frame.
                else (x.effective_amps if x.curve is Curve.LSI else x.rated_amps) * inrush_ratio(x.curve, x.band)
                for x in circuits
            ]
        ),
        three=np.asarray(poles.all(axis=1)),
        neutral_rated=np.where(neutral, [x.neutral_amps for x in circuits], np.nan),
        plug_amps=np.array([np.nan if x.plug_amps is None else x.plug_amps for x in circuits]),
        weak=_weak(layout),
        below=below,
        starts=np.searchsorted(below[0], np.arange(len(circuits) + 1)),
        whole=whole,
        single_feed=_single_feed(network, below, whole),
        groups=groups,
        group_of=group_of,
        other_below=_climbed(network),
    )


def _kinds(layout: SiteLayout) -> tuple[Ints, Ints]:
    """Return the first cord of each kind, and each cord's kind."""
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    first: list[int] = []
    kinds: list[int] = []
    for number, cord in enumerate(layout.cords):
        key = (cord.circuit, cord.poles)
        if key not in numbers:
            numbers[key] = len(numbers)
            first.append(number)
        kinds.append(numbers[key])
    return np.array(first, dtype=np.int64), np.array(kinds, dtype=np.int64)


def _climbed(network: Network) -> Floats:
    watts = network.other_watts.copy()
    for step in network.climbs:
        np.add.at(watts, step.parents, watts[step.children] * step.weight)
    return watts


def _levels(network: Network) -> tuple[Ints, ...]:
    """Return the elements by depth, in the order of `network.climbs`; the roots last."""
    found = [np.unique(step.children) for step in network.climbs]
    below = np.concatenate(found) if found else np.zeros(0, np.int64)
    return (*found, np.setdiff1d(np.arange(len(network.names)), below))


def _below(network: Network) -> tuple[tuple[Ints, Ints, Floats], Flags]:
    """Return circuit, machine and share for every circuit above each cord, with a machine's cords joined."""
    count, cords = max(1, len(network.machines)), len(network.cord_machine)
    empty = np.zeros(0, np.int64)
    lines = [(step.children, step.parents, step.weight) for step in network.climbs]
    child, parent, weight = (
        (np.concatenate(part) if part else empty for part in zip(*lines, strict=True))
        if lines
        else (empty, empty, empty)
    )
    use = np.flatnonzero(weight > 0)
    use = use[np.argsort(child[use], kind="stable")]
    child, parent, weight = child[use], parent[use], weight[use]
    first = np.searchsorted(child, np.arange(len(network.names) + 1))
    keys, shares = [], []
    circuit, cord, share = network.cord_circuit, np.arange(cords), network.cord_share
    while len(circuit):
        keys.append(circuit * cords + cord)
        shares.append(share)
        above = first[circuit + 1] - first[circuit]
        row = np.repeat(np.arange(len(circuit)), above)
        line = first[circuit][row] + np.arange(len(row)) - np.repeat(np.cumsum(above) - above, above)
        circuit, cord, share = parent[line], cord[row], share[row] * weight[line]
    if not keys:
        return (empty, empty, np.zeros(0)), np.zeros(0, bool)
    # A cord may reach one element by two lines.
    pairs, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    joined = np.bincount(inverse, np.concatenate(shares))
    found, inverse = np.unique(pairs // cords * count + network.cord_machine[pairs % cords], return_inverse=True)
    total = np.bincount(inverse, joined)
    all_cords = np.bincount(network.cord_machine, minlength=count)
    whole = np.bincount(inverse) == all_cords[found % count]
    return (found // count, found % count, total.astype(float)), np.asarray(whole)


def _single_feed(network: Network, below: tuple[Ints, Ints, Floats], whole: Flags) -> Ints:
    circuits, machines, _ = below
    count = np.bincount(circuits, minlength=len(network.names))
    found = np.full(len(network.names), -1, dtype=np.int64)
    # The nearest circuit to the machine alone: its cord hangs on that one.
    direct = set(zip(network.cord_circuit.tolist(), network.cord_machine.tolist(), strict=True))
    for pair in np.flatnonzero(whole & (count[circuits] == 1)):
        circuit, machine = int(circuits[pair]), int(machines[pair])
        if (circuit, machine) in direct and network.other_watts[circuit] == 0:
            found[circuit] = machine
    return found


def _weak(layout: SiteLayout) -> Flags:
    behind: set[str] = set()
    for ups in layout.site.ups.values():
        for circuit in ups.circuits:
            behind |= layout.below(circuit)
    return np.array([circuit.generator or circuit.id in behind for circuit in layout.circuits.values()])
