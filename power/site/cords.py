"""Cords: the part of each machine's power that enters from each circuit, and its poles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from power.devices.breaker import Curve, default_curve
from power.devices.connectors import find_connector
from power.devices.supply import set_load
from power.site.circuit import Circuit, parse_poles
from power.site.config import CordConfig, PowerConfig
from power.site.machine import Machine
from power.wiring import POLES, Wiring, amps_per_watt
from present.units import amperes, percent, quoted
from telemetry.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Plugged:
    """A part of a machine's power that enters from one circuit."""

    machine: str
    circuit: str
    share: float
    poles: tuple[int, ...]
    supplies: int | None = None
    connector: str | None = None
    limit_amps: float | None = None
    """Most amps that its connectors carry for hours, of all its supplies together; None where not given."""


def cords_of_site(where: str, site: PowerConfig, circuits: dict[str, Circuit]) -> tuple[Plugged, ...]:
    listed: dict[str, list[str]] = {}
    for name, circuit in site.circuits.items():
        for node in circuit.nodes:
            if circuit.nodes.count(node) > 1:
                raise ConfigError(
                    f"{where}: circuits.{name}.nodes",
                    f"{node!r} is listed twice",
                    "Name it once; two cords of one node into one circuit are written as its cords.",
                )
            listed.setdefault(node, []).append(name)
    result: list[Plugged] = []
    for node, feeds in listed.items():
        place = f"{where}: nodes.{node}"
        if node in site.nodes and site.nodes[node].cords:
            raise ConfigError(place, f"it has cords and is in circuits.{feeds[0]}.nodes", "Keep one of both.")
        if site.nodes and node not in site.nodes and (near := did_you_mean(node, site.nodes)):
            raise ConfigError(f"{where}: circuits.{feeds[0]}.nodes", f"there is no node {node!r}", near)
        if len(feeds) > 1 and len({circuits[c].group for c in feeds} - {None}) != 1:
            raise ConfigError(
                place,
                f"it is in {' and '.join(feeds)}, which are not redundant",
                "Remove it from all but one, or give them a redundancy group.",
            )
        result += [Plugged(node, c, 1 / len(feeds), circuits[c].poles) for c in feeds]
    for node, spec in site.nodes.items():
        result += _cords_of(f"{where}: nodes.{node}", node, spec.cords, site, circuits)
    return tuple(result)


def _cords_of(
    place: str, node: str, cords: tuple[CordConfig, ...], site: PowerConfig, circuits: dict[str, Circuit]
) -> list[Plugged]:
    for number, cord in enumerate(cords):
        if cord.circuit not in site.circuits:
            raise ConfigError(
                f"{place}.cords[{number}].circuit",
                f"there is no circuit {cord.circuit!r}",
                did_you_mean(cord.circuit, site.circuits) or f"Known: {', '.join(site.circuits)}.",
            )
    shares: list[float]
    numbers = [supply_numbers(f"{place}.cords", cord.psu) for cord in cords]
    taken = [number for some in numbers if some for number in some]
    if len(set(taken)) < len(taken):
        twice = next(number for number in taken if taken.count(number) > 1)
        raise ConfigError(
            f"{place}.cords", f"supply {twice} has two cords", 'Give each supply one cord: psu = "1-3" and psu = "4-6".'
        )
    supplies = [None if some is None else len(some) for some in numbers]
    if cords and all(cord.share is not None for cord in cords):
        shares = [float(cord.share or 0) for cord in cords]
        if abs(sum(shares) - 1) > 0.001 or min(shares) < 0:
            raise ConfigError(f"{place}.cords", f"the shares add up to {sum(shares):g}", "Make them add up to 1.")
    elif any(cord.share is not None for cord in cords):
        raise ConfigError(
            f"{place}.cords",
            "some cords have a share and some have none",
            "Write share on all of them, adding up to 1.",
        )
    elif cords and all(count is not None for count in supplies):
        counts = [count or 0 for count in supplies]
        shares = [count / sum(counts) for count in counts]
    else:
        shares = [1 / len(cords) for _ in cords]
    return [
        Plugged(
            node,
            cord.circuit,
            share,
            _cord_poles(place, cord, circuits),
            count,
            cord.connector,
            _cord_limit(place, cord, circuits[cord.circuit], site, count or 1),
        )
        for cord, share, count in zip(cords, shares, supplies, strict=True)
    ]


def _cord_limit(place: str, cord: CordConfig, circuit: Circuit, site: PowerConfig, supplies: int) -> float | None:
    if cord.connector is None:
        return None
    found = find_connector(f"{place}.cords.connector", cord.connector)
    american = default_curve(round(circuit.nominal_volts), site.region) is Curve.UL489
    return supplies * found.limit_amps(american)


def cord_notices(
    circuits: Mapping[str, Circuit], machines: Mapping[str, Machine], cords: Sequence[Plugged]
) -> list[str]:
    """Return notices (E24) of cords whose connector carries less than the machine may draw through it, now
    or after the loss of another of its circuits."""
    by_machine: dict[str, list[Plugged]] = {}
    for cord in cords:
        by_machine.setdefault(cord.machine, []).append(cord)
    found = []
    for cord in cords:
        if cord.limit_amps is None:
            continue
        circuit = circuits[cord.circuit]
        per_watt = abs(amps_per_watt(cord.poles, circuit.volts, circuit.power_factor, circuit.wiring)).max()
        whole = float(per_watt) * machines[cord.machine].committed_watts
        now, after = whole * cord.share, whole * _worst_share(cord, by_machine[cord.machine])
        if max(now, after) > cord.limit_amps * 1.0001:
            lost = "" if now > cord.limit_amps * 1.0001 else " after the loss of another feed"
            amps = now if not lost else after
            found.append(
                f"nodes.{cord.machine}: it may draw {amperes(amps)}{lost} by its cord into {cord.circuit}, above the {quoted(cord.limit_amps, 'A')} of {cord.connector}"
            )
    return found


def supply_notices(
    circuits: Mapping[str, Circuit], machines: Mapping[str, Machine], cords: Sequence[Plugged]
) -> list[str]:
    """Return notices (E24) of machines on redundant feeds whose supplies can't carry them after the loss of one
    feed, or of the feeds of one side."""
    by_machine: dict[str, list[Plugged]] = {}
    for cord in cords:
        by_machine.setdefault(cord.machine, []).append(cord)
    found = []
    known: dict[Any, float] = {}  # a hall has thousands of equal machines
    for name, mine in by_machine.items():
        machine = machines[name]
        if machine.supply_watts is None or any(circuits[c.circuit].group is None for c in mine):
            continue
        even = machine.supplies / len(mine)
        behind = [even if cord.supplies is None else cord.supplies for cord in mine]
        loads = {}
        for lost in _lost_together(circuits, mine):
            left = sum(n for n, c in zip(behind, mine, strict=True) if c.circuit not in lost)
            if 0 < left < machine.supplies:
                drawn = machine.committed_watts
                key = machine.points, machine.supply_watts, machine.supplies, drawn
                inside = known[key] if key in known else known.setdefault(key, machine.dc(drawn))
                loads[lost] = set_load(inside, machine.supply_watts, round(left), machine.needed)
        worst = max(loads, key=lambda lost: loads[lost], default=())
        if worst and loads[worst] > 1.0:
            rest = " and ".join(dict.fromkeys(c.circuit for c in mine if c.circuit not in worst))
            found.append(
                f"nodes.{name}: after the loss of {' and '.join(worst)} its supplies on {rest} would be {percent(loads[worst])} loaded, and switch off"
            )
    return found


def _lost_together(circuits: Mapping[str, Circuit], cords: Sequence[Plugged]) -> list[tuple[str, ...]]:
    """Return what a machine's cords can lose at once: each circuit, and each side of a 2N or 2(N+1) group."""
    sides: dict[tuple[str | None, str | None], dict[str, None]] = {}
    for cord in cords:
        circuit = circuits[cord.circuit]
        if circuit.scheme in {"2N", "2(N+1)"}:
            sides.setdefault((circuit.group, circuit.side), {})[circuit.id] = None
    single = [(cord.circuit,) for cord in cords]
    return list(dict.fromkeys([*single, *(tuple(names) for names in sides.values())]))


def _worst_share(cord: Plugged, cords: Sequence[Plugged]) -> float:
    """Return the largest share of a cord after the loss of one other circuit of its machine."""
    shares = [cord.share]
    for lost in {other.circuit for other in cords} - {cord.circuit}:
        left = [other for other in cords if other.circuit != lost]
        whole = sum(other.share for other in left)
        shares.append(cord.share / whole if whole > 0 else 1 / len(left))
    return max(shares)


def _cord_poles(place: str, cord: CordConfig, circuits: dict[str, Circuit]) -> tuple[int, ...]:
    circuit = circuits[cord.circuit]
    if cord.phase is None:
        return circuit.poles
    poles = parse_poles(f"{place}.cords.phase", cord.phase)
    if not set(poles) <= set(circuit.poles) or (circuit.wiring is Wiring.DELTA and len(poles) == 1):
        raise ConfigError(
            f"{place}.cords.phase",
            f"{cord.circuit} has no such outlet: {cord.phase}",
            f"It has {'-'.join(POLES[p] for p in circuit.poles)}, {circuit.wiring.value}.",
        )
    return poles


def supply_numbers(place: str, psu: str | int | None) -> range | None:
    """Return the numbers of `1` or `1-3`. Raises `ConfigError`."""
    if psu is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(psu).strip())
    if not match or (match[2] and int(match[2]) < int(match[1])):
        raise ConfigError(f"{place}.psu", f"{psu!r} names no supplies", 'Write 1 or "1-3".')
    return range(int(match[1]), int(match[2] or match[1]) + 1)
