"""Which rules the plain state of every line breaks: no history, no hold times.

E02 replaces its own early warning E01; E03 and E04 say other things and stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from power.layout import Layout
from power.network import Flow, Network, flow, has_neutral, shares_without
from power.thermal import Heat, cold, seconds_to_trip
from power.wiring import Floats, imbalance, neutral_amps

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class State:
    """What flows, what could, and what follows; arrays over lines."""

    now: Flow
    committed: Flow
    survivor_amps: Floats
    """Highest amps after the worst loss of one feed of its group; NaN outside groups."""
    neutral: Floats
    trip_seconds: Floats
    """Shape (lines, 3), estimates; inf is never, NaN where the breaker is not known."""
    alerts: tuple[tuple[str, ...], ...]


def evaluate(
    layout: Layout,
    network: Network,
    machine_watts: Floats,
    committed_watts: Floats,
    *,
    lost: frozenset[str] = frozenset(),
    heat: Heat | None = None,
) -> State:
    """Return the state of every line when machines draw `machine_watts` at the wall.

    `lost` names lines that are off. `heat` is what the breakers carry over; cold when None.
    """
    dead = _dead(network, lost)
    shares = shares_without(network, dead) if lost else network.cord_share
    alive = np.where(dead, 0.0, 1.0)
    now = _masked(network, flow(network, machine_watts, shares), dead)
    committed = _masked(network, flow(network, committed_watts, shares), dead)
    survivor = _survivors(layout, network, machine_watts, dead)
    ratio = now.highest / network.effective * alive
    seconds = seconds_to_trip(heat or cold(len(network.names)), ratio, network.element)
    breakers = np.array([line.curve is not None for line in layout.lines.values()])
    seconds = np.where(breakers[:, None], seconds, np.nan)
    neutral = neutral_amps(now.currents)
    rules = _rules(layout, network, now, committed, survivor, seconds, neutral, dead)
    found: list[list[str]] = [[] for _ in network.names]
    for rule in sorted(rules):
        for index in np.flatnonzero(rules[rule]):
            found[index].append(rule)
    return State(now, committed, survivor, neutral, seconds, tuple(tuple(f) for f in found))


def _rules(
    layout: Layout, network: Network, now: Flow, committed: Flow, survivor: Floats,
    seconds: Floats, neutral: Floats, dead: Flags,
) -> dict[str, Flags]:  # fmt: skip
    lines = list(layout.lines.values())
    amps, limit = now.highest, network.continuous
    poles = [list(line.poles) for line in lines]
    three = np.array([len(p) == 3 for p in poles])
    spread = imbalance(now.amps)
    neutrals = np.array([has_neutral(line.wiring, len(line.poles)) for line in lines])
    neutral_rated = np.array([line.neutral_amps for line in lines])
    plugs = np.array([np.inf if line.plug_amps is None else line.plug_amps for line in lines])
    breakers = np.array([line.curve is not None for line in lines])
    known = np.array([machine.known for machine in layout.machines.values()], dtype=float)
    could = flow(network, known).watts - network.other_watts > 0
    with np.errstate(invalid="ignore"):
        return {
            "E01": (amps >= 0.9 * limit) & (amps <= limit),
            "E02": amps > limit,
            "E03": (amps > network.effective) & breakers,
            "E04": seconds[:, 0] < 300,
            "E07": (committed.highest > limit) & could,
            "E08": survivor > limit,
            "E09": _redundancy_lost(layout, network, now),
            "E10": _uneven_cords(layout, network, dead),
            "E11": three & (spread > 0.10) & (now.amps.mean(axis=1) > 0.3 * network.rated),
            "E12": neutrals & (neutral > 0.8 * neutral_rated),
            "E16": amps > 0.9 * plugs,
        }


def _masked(network: Network, flowing: Flow, dead: Flags) -> Flow:
    """Take what a dead line no longer carries (its declared loads) off all that feed it."""
    if not dead.any():
        return flowing
    other = np.where(dead, 0.0, 1.0)
    watts, currents = network.other_watts * (1 - other), network.other_amps * (1 - other)[:, None]
    for children, parents, ratio in network.climbs:
        np.add.at(watts, parents, watts[children])
        np.add.at(currents, parents, currents[children] * ratio[:, None])
    return Flow(flowing.currents - currents, flowing.watts - watts)


def _dead(network: Network, lost: frozenset[str]) -> Flags:
    dead = np.array([name in lost for name in network.names])
    for children, parents, _ in reversed(network.climbs):
        dead[children] |= dead[parents]
    return dead


def _groups(layout: Layout) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for line in layout.lines.values():
        if line.group is not None:
            groups.setdefault(line.group, []).append(line.id)
    return {name: members for name, members in groups.items() if len(members) > 1}


def _survivors(layout: Layout, network: Network, watts: Floats, dead: Flags) -> Floats:
    """Lose the n-th feed of every group at once, for each n: groups do not share machines."""
    groups = list(_groups(layout).values())
    worst = np.full(len(network.names), np.nan)
    for turn in range(max((len(members) for members in groups), default=0)):
        losing = frozenset(members[turn] for members in groups if turn < len(members))
        gone = _dead(network, losing) | dead
        after = _masked(network, flow(network, watts, shares_without(network, gone)), gone)
        affected = _dead(network, frozenset(m for members in groups for m in members)) & ~gone
        worst = np.where(affected, np.fmax(worst, after.highest), worst)
    return worst


def _redundancy_lost(layout: Layout, network: Network, now: Flow) -> Flags:
    """A feed below 2 % of its rating while another of its group carries more than 10 %."""
    load = dict(zip(network.names, now.highest / network.rated, strict=True))
    silent = {
        member
        for members in _groups(layout).values()
        for member in members
        if load[member] < 0.02 and max(load[other] for other in members) > 0.10
    }
    return np.array([name in silent for name in network.names])


def _uneven_cords(layout: Layout, network: Network, dead: Flags) -> Flags:
    """Of a machine with two cords into one group, the line that carries far more."""
    position = {name: index for index, name in enumerate(network.names)}
    heavy = np.zeros(len(network.names), dtype=bool)
    pairs: dict[str, list[tuple[float, str]]] = {}
    for cord in layout.cords:
        if layout.lines[cord.line].group is not None and not dead[position[cord.line]]:
            pairs.setdefault(cord.machine, []).append((cord.share, cord.line))
    for cords in pairs.values():
        if len(cords) == 2 and abs(cords[0][0] - cords[1][0]) > 0.20 and min(cords)[0] > 0:
            heavy[position[max(cords)[1]]] = True
    return heavy
