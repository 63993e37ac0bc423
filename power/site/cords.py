"""Cords: the part of each machine's power that enters from each circuit, and its poles."""

from __future__ import annotations

import re
from dataclasses import dataclass

from power.network.wiring import POLES, Wiring
from power.site.circuit import Circuit, parse_poles
from power.site.config import CordConfig, PowerConfig
from telemetry.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Plugged:
    """A part of a machine's power that enters from one circuit."""

    machine: str
    circuit: str
    share: float
    poles: tuple[int, ...]
    supplies: int | None = None


def cords_of_site(
    where: str, site: PowerConfig, circuits: dict[str, Circuit]
) -> tuple[Plugged, ...]:
    listed: dict[str, list[str]] = {}
    for name, circuit in site.circuits.items():
        for node in circuit.nodes:
            if circuit.nodes.count(node) > 1:
                raise ConfigError(f"{where}: circuits.{name}.nodes", f"{node!r} is listed twice", "Name it once; two cords of one node into one circuit are written as its cords.")  # fmt: skip
            listed.setdefault(node, []).append(name)
    result: list[Plugged] = []
    for node, feeds in listed.items():
        place = f"{where}: nodes.{node}"
        if node in site.nodes and site.nodes[node].cords:
            raise ConfigError(place, f"it has cords and is in circuits.{feeds[0]}.nodes", "Keep one of both.")  # fmt: skip
        if site.nodes and node not in site.nodes and (near := did_you_mean(node, site.nodes)):
            raise ConfigError(f"{where}: circuits.{feeds[0]}.nodes", f"there is no node {node!r}", near)  # fmt: skip
        if len(feeds) > 1 and len({circuits[c].group for c in feeds} - {None}) != 1:
            raise ConfigError(place, f"it is in {' and '.join(feeds)}, which are not redundant", "Remove it from all but one, or give them a redundancy group.")  # fmt: skip
        result += [Plugged(node, c, 1 / len(feeds), circuits[c].poles) for c in feeds]
    for node, spec in site.nodes.items():
        result += _cords_of(f"{where}: nodes.{node}", node, spec.cords, site, circuits)
    return tuple(result)


def _cords_of(
    place: str,
    node: str,
    cords: tuple[CordConfig, ...],
    site: PowerConfig,
    circuits: dict[str, Circuit],
) -> list[Plugged]:
    for number, cord in enumerate(cords):
        if cord.circuit not in site.circuits:
            raise ConfigError(f"{place}.cords[{number}].circuit", f"there is no circuit {cord.circuit!r}", did_you_mean(cord.circuit, site.circuits) or f"Known: {', '.join(site.circuits)}.")  # fmt: skip
    shares: list[float]
    numbers = [_supplies(f"{place}.cords", cord.psu) for cord in cords]
    taken = [number for some in numbers if some for number in some]
    if len(set(taken)) < len(taken):
        twice = next(number for number in taken if taken.count(number) > 1)
        raise ConfigError(f"{place}.cords", f"supply {twice} has two cords", "Give each supply one cord: psu = \"1-3\" and psu = \"4-6\".")  # fmt: skip
    supplies = [None if some is None else len(some) for some in numbers]
    if cords and all(cord.share is not None for cord in cords):
        shares = [float(cord.share or 0) for cord in cords]
        if abs(sum(shares) - 1) > 0.001 or min(shares) < 0:
            raise ConfigError(f"{place}.cords", f"the shares add up to {sum(shares):g}", "Make them add up to 1.")  # fmt: skip
    elif any(cord.share is not None for cord in cords):
        raise ConfigError(f"{place}.cords", "some cords have a share and some have none", "Write share on all of them, adding up to 1.")  # fmt: skip
    elif cords and all(count is not None for count in supplies):
        counts = [count or 0 for count in supplies]
        shares = [count / sum(counts) for count in counts]
    else:
        shares = [1 / len(cords) for _ in cords]
    return [
        Plugged(node, cord.circuit, share, _cord_poles(place, cord, circuits), count)
        for cord, share, count in zip(cords, shares, supplies, strict=True)
    ]


def _cord_poles(place: str, cord: CordConfig, circuits: dict[str, Circuit]) -> tuple[int, ...]:
    circuit = circuits[cord.circuit]
    if cord.phase is None:
        return circuit.poles
    poles = parse_poles(f"{place}.cords.phase", cord.phase)
    if not set(poles) <= set(circuit.poles) or (circuit.wiring is Wiring.DELTA and len(poles) == 1):
        raise ConfigError(f"{place}.cords.phase", f"{cord.circuit} has no such outlet: {cord.phase}", f"It has {'-'.join(POLES[p] for p in circuit.poles)}, {circuit.wiring.value}.")  # fmt: skip
    return poles


def _supplies(place: str, psu: str | int | None) -> range | None:
    if psu is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(psu).strip())
    if not match or (match[2] and int(match[2]) < int(match[1])):
        raise ConfigError(f"{place}.psu", f"{psu!r} names no supplies", 'Write 1 or "1-3".')
    return range(int(match[1]), int(match[2] or match[1]) + 1)
