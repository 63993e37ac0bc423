"""What never changes while a configuration holds: the layout as arrays that a tick can use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from power.devices.breaker import MAGNETIC
from power.network.flow import Ints, Network, connect, has_neutral
from power.network.wiring import Complex, Flags, Floats, amps_per_watt
from power.site.layout import SiteLayout


@dataclass(frozen=True, slots=True)
class SiteTopology:
    """Arrays over lines, in the order of `network.names`, unless said otherwise."""

    network: Network
    parent: Ints
    """-1 for what nothing of ours feeds."""
    levels: tuple[Ints, ...]
    """Lines by depth, the deepest first; the last are the roots."""
    poles: Flags
    """Shape (lines, 3)."""
    volts: Floats
    """To neutral, as amps are reckoned with."""
    nominal_volts: Floats
    between: Floats
    """Volts between two poles over volts to neutral; 1 for a single pole."""
    power_factor: Floats
    pattern: Complex
    """Amps per watt of a load spread evenly over the line's own poles; shape (lines, 3)."""
    cord_kind: Ints
    """Of each cord: cords of one line and the same poles draw alike, and are added up first."""
    kind_line: Ints
    kind_amps: Complex
    """Amps per watt of each kind of cord; shape (kinds, 3)."""
    breakers: Flags
    """The physical rating is known, so that there is a time to trip."""
    magnetic_amps: Floats
    """Lowest peak that trips at once; NaN where the breaker is not known."""
    three: Flags
    neutral_rated: Floats
    """NaN without a neutral of its own."""
    plug_amps: Floats
    weak: Flags
    """Behind a UPS or a generator, which swings disturb."""
    below: tuple[Ints, Ints, Floats]
    """Line, machine, share of its power that comes through the line by the configuration; sorted by
    line, once for each pair."""
    starts: Ints
    """Where each line's part of `below` begins; one more entry than lines."""
    whole: Flags
    """For each pair of `below`: all cords of the machine come through the line."""
    single_feed: Ints
    """For each line, the only machine on it if it has no other cord and the line no other load;
    -1 else."""
    groups: tuple[Ints, ...]
    """Lines that stand in for each other."""
    group_of: Ints
    """The number of each line's group in `groups`; one more than there are where it has none."""
    other_below: Floats
    """Declared loads of a line and all below it, watts."""

    def machines_below(self, line: int) -> Ints:
        """Return the machines that have a cord below a line."""
        return self.below[1][self.starts[line] : self.starts[line + 1]]


def fix(layout: SiteLayout) -> SiteTopology:
    """Return the arrays of a layout."""
    network = connect(layout)
    lines = list(layout.lines.values())
    at = {name: number for number, name in enumerate(network.names)}
    parent = np.array([at[x.parent] if x.parent else -1 for x in lines], dtype=np.int64)
    below, whole = _below(network, parent)
    poles = np.zeros((len(lines), 3), dtype=bool)
    for number, line in enumerate(lines):
        poles[number, list(line.poles)] = True
    neutral = np.array([has_neutral(line.wiring, len(line.poles)) for line in lines])
    first, kind = _kinds(layout)
    by_group: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if line.group is not None:
            by_group.setdefault(line.group, []).append(number)
    groups = tuple(np.array(g, dtype=np.int64) for g in by_group.values() if len(g) > 1)
    group_of = np.full(len(lines), len(groups), dtype=np.int64)
    for number, group in enumerate(groups):
        group_of[group] = number
    return SiteTopology(
        network=network,
        parent=parent,
        levels=_levels(parent),
        poles=poles,
        volts=np.array([x.volts for x in lines]),
        nominal_volts=np.array([x.volts / x.sag for x in lines]),
        between=np.array([1.0 if len(x.poles) == 1 else x.outlet_ratio for x in lines]),
        power_factor=np.array([x.power_factor for x in lines]),
        pattern=np.array([
            amps_per_watt(x.poles, x.volts, x.power_factor, x.wiring) for x in lines
        ]).reshape(-1, 3),
        cord_kind=kind,
        kind_line=network.cord_line[first],
        kind_amps=network.cord_amps[first],
        breakers=np.array([x.curve is not None for x in lines]),
        magnetic_amps=np.array([
            x.rated_amps * MAGNETIC[x.curve][0] if x.curve is not None else np.nan for x in lines
        ]),
        three=np.asarray(poles.all(axis=1)),
        neutral_rated=np.where(neutral, [x.neutral_amps for x in lines], np.nan),
        plug_amps=np.array([np.nan if x.plug_amps is None else x.plug_amps for x in lines]),
        weak=_weak(layout),
        below=below,
        starts=np.searchsorted(below[0], np.arange(len(lines) + 1)),
        whole=whole,
        single_feed=_single_feed(network, below, whole),
        groups=groups,
        group_of=group_of,
        other_below=_climbed(network),
    )  # fmt: skip


def _kinds(layout: SiteLayout) -> tuple[Ints, Ints]:
    """Return the first cord of each kind, and each cord's kind."""
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    first: list[int] = []
    kinds: list[int] = []
    for number, cord in enumerate(layout.cords):
        key = (cord.line, cord.poles)
        if key not in numbers:
            numbers[key] = len(numbers)
            first.append(number)
        kinds.append(numbers[key])
    return np.array(first, dtype=np.int64), np.array(kinds, dtype=np.int64)


def _climbed(network: Network) -> Floats:
    watts = network.other_watts.copy()
    for children, parents, _ in network.climbs:
        np.add.at(watts, parents, watts[children])
    return watts


def _levels(parent: Ints) -> tuple[Ints, ...]:
    depth = np.zeros(len(parent), dtype=np.int64)
    for number, above in enumerate(parent):  # parents stand before their children
        depth[number] = depth[above] + 1 if above >= 0 else 0
    deepest = int(depth.max(initial=0))
    return tuple(np.flatnonzero(depth == level) for level in range(deepest, -1, -1))


def _below(network: Network, parent: Ints) -> tuple[tuple[Ints, Ints, Floats], Flags]:
    """Climb with every cord from its line to the top, and join the cords of one machine."""
    count = max(1, len(network.machines))
    keys, shares, line = [], [], network.cord_line
    machine, share = network.cord_machine, network.cord_share
    while len(line):
        keys.append(line * count + machine)
        shares.append(share)
        line = parent[line]
        up = line >= 0
        line, machine, share = line[up], machine[up], share[up]
    if not keys:
        return (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)), np.zeros(0, bool)
    found, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.bincount(inverse, np.concatenate(shares))
    cords = np.bincount(network.cord_machine, minlength=count)
    whole = np.bincount(inverse) == cords[found % count]
    return (found // count, found % count, total.astype(float)), np.asarray(whole)


def _single_feed(network: Network, below: tuple[Ints, Ints, Floats], whole: Flags) -> Ints:
    lines, machines, _ = below
    count = np.bincount(lines, minlength=len(network.names))
    found = np.full(len(network.names), -1, dtype=np.int64)
    # The nearest line to the machine alone: its cord hangs on that one.
    direct = set(zip(network.cord_line.tolist(), network.cord_machine.tolist(), strict=True))
    for pair in np.flatnonzero(whole & (count[lines] == 1)):
        line, machine = int(lines[pair]), int(machines[pair])
        if (line, machine) in direct and network.other_watts[line] == 0:
            found[line] = machine
    return found


def _weak(layout: SiteLayout) -> Flags:
    behind: set[str] = set()
    for ups in layout.site.ups.values():
        for circuit in ups.circuits:
            behind |= layout.below(circuit)
    return np.array([line.generator or line.id in behind for line in layout.lines.values()])
