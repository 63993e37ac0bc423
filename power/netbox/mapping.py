"""Mapping of NetBox's feeds, ports and outlets to circuits and nodes.

A feed is a circuit: `amperage` is its breaker, `max_utilization` its continuous part. Their product
is what NetBox calls available, so nothing is taken off a second time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from power.netbox.records import FEED, OUTLET, NetBoxFeed, NetBoxPort, NetBoxRecords, read
from present.units import quoted

_DEEP = 8
"""Most distribution units in a row; deeper is a loop."""


@dataclass(slots=True)
class MappedCircuit:
    """A table of the output: its keys, and comments for what could not be one."""

    values: dict[str, object] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Translated:
    """The translated tables."""

    panels: dict[str, MappedCircuit] = field(default_factory=dict)
    circuits: dict[str, MappedCircuit] = field(default_factory=dict)
    nodes: dict[str, MappedCircuit] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    """Comments on what belongs to no table."""


def translate(where: str, pages: Mapping[str, Sequence[object]], *, draws: bool = False) -> Translated:
    """Return circuits, panels and nodes. `draws` takes each device's draw in NetBox as its watts.

    Raises `ConfigError` for lists that are no NetBox's.
    """
    records = read(where, pages)
    found = Translated()
    names = _feed_names(records)
    circuits = {number: name for number, name in names.items() if not records.feeds[number].direct}
    for number, name in names.items():
        feed = records.feeds[number]
        if feed.direct:
            found.comments.append(
                f"feed {name}: direct current ({quoted(feed.volts, 'V')}, {quoted(feed.amperage, 'A')}) is not modelled"
            )
        else:
            found.circuits[name] = _circuit(feed, records)
    _panels(found, records, circuits)
    _redundancy(found, records, circuits)
    _nodes(found, records, circuits, draws=draws)
    return found


def _feed_names(records: NetBoxRecords) -> dict[int, str]:
    """Names are unique only within a panel: where two are the same, the panel's goes before."""
    count = Counter(feed.name for feed in records.feeds.values())
    taken = set(records.panels.values())
    result: dict[int, str] = {}
    for number, feed in sorted(records.feeds.items(), key=lambda item: (item[1].name, item[0])):
        panel = records.panels.get(feed.panel or 0)
        name = feed.name if count[feed.name] == 1 and feed.name not in taken else f"{panel or number}/{feed.name}"
        result[number] = name if name not in taken else f"{name} {number}"
        taken.add(result[number])
    return result


def _circuit(feed: NetBoxFeed, records: NetBoxRecords) -> MappedCircuit:
    entry = MappedCircuit({"breaker": feed.amperage, "continuous": feed.max_utilization / 100, "volts": feed.volts})
    if feed.three_phase:
        entry.values |= {"poles": 3, "wiring": "3ph-wye"}
        entry.comments.append("NetBox does not distinguish wye and delta")
        if feed.volts <= 240 and feed.volts not in {200, 208}:
            entry.comments.append(
                f"three-phase volts are between lines: is {feed.volts:g} to neutral? Then write {feed.volts * 3**0.5:.0f}"
            )
    if feed.rack is not None:
        entry.values["rack"] = feed.rack
    power = feed.volts * feed.amperage * feed.max_utilization / 100 * (1.732 if feed.three_phase else 1)
    entry.comments.append(f"available in NetBox: {quoted(round(power), 'W')} at power factor 1")
    if feed.available is not None and abs(feed.available - power) > 1:
        entry.comments.append(f"NetBox itself has {quoted(round(feed.available), 'W')}; save the feed there again")
    if feed.max_utilization == 100:
        entry.comments.append(
            "100 % as the continuous limit: right only where the amperage is derated already or the breaker is made for it"
        )
    if feed.status != "active":
        entry.comments.append(f"its status is {feed.status}")
    if feed.panel is not None and feed.panel not in records.panels:
        entry.comments.append(f"its panel (id {feed.panel}) is not among those imported")
    return entry


def _panels(found: Translated, records: NetBoxRecords, circuits: Mapping[int, str]) -> None:
    """Panels have no rating in NetBox; what they are follows from their feeds."""
    for number, name in sorted(records.panels.items(), key=lambda item: item[1]):
        fed = [
            (circuits[feed.id], feed) for feed in records.feeds.values() if feed.panel == number and feed.id in circuits
        ]
        if not fed:
            found.comments.append(f"panel {name}: no feed of it is imported")
            continue
        three = [feed for _, feed in fed if feed.three_phase]
        volts = Counter(feed.volts for feed in three or [feed for _, feed in fed]).most_common(1)[0][0]
        panel = found.panels[name] = MappedCircuit({"volts": volts, "wiring": "3ph-wye" if three else "single"})
        panel.comments.append("NetBox knows no rating of panels: write breaker, budget_kw and source")
        if not three:
            panel.comments.append("NetBox does not name the poles of its feeds: it has one here")
        for circuit, feed in fed:
            entry = found.circuits[circuit]
            if feed.three_phase == bool(three) and feed.volts == volts:
                entry.values["panel"] = name
            else:
                entry.comments.append(
                    f'it hangs on panel {name}, NetBox does not name the poles: write panel = "{name}" and phase = "L1"'
                )


def _redundancy(found: Translated, records: NetBoxRecords, circuits: Mapping[int, str]) -> None:
    """Primary and redundant feeds of one rack replace each other."""
    racks: dict[str, list[tuple[str, NetBoxFeed]]] = {}
    for number, name in circuits.items():
        feed = records.feeds[number]
        if feed.rack is not None:
            racks.setdefault(feed.rack, []).append((name, feed))
    for rack, feeds in sorted(racks.items()):
        primary = [name for name, feed in feeds if not feed.redundant]
        spare = [name for name, feed in feeds if feed.redundant]
        if len(primary) == len(spare):
            for place, pair in enumerate(zip(primary, spare, strict=True), start=1):
                group = rack if len(primary) == 1 else f"{rack}/{place}"
                _join(found, group, "2N", pair)
            if len(primary) > 1:
                found.comments.append(
                    f"rack {rack}: its feeds were paired by name: {', '.join(f'{a} with {b}' for a, b in zip(primary, spare, strict=True))}"
                )
        elif len(spare) == 1 and primary:
            _join(found, rack, "N+1", (*primary, *spare))
        elif spare or len(primary) > 1:
            found.comments.append(
                f"rack {rack}: {len(primary)} primary and {len(spare)} redundant feeds make no group; write redundancy where they replace each other"
            )


def _join(found: Translated, group: str, scheme: str, names: Sequence[str]) -> None:
    for role, name in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", names, strict=False):
        found.circuits[name].values["redundancy"] = {"group": group, "role": role, "scheme": scheme}


def _nodes(found: Translated, records: NetBoxRecords, circuits: Mapping[int, str], *, draws: bool) -> None:
    """A device with inlets that feeds nothing else is a node; each inlet is a cord."""
    units = {outlet.device for outlet in records.outlets.values() if outlet.port is not None}
    ports: dict[int, list[NetBoxPort]] = {}
    for port in records.ports.values():
        if port.device not in units:
            ports.setdefault(port.device, []).append(port)
    count = Counter(records.devices[device] for device in ports)
    for device, inlets in sorted(ports.items(), key=lambda item: records.devices[item[0]]):
        name = records.devices[device]
        name = name if count[name] == 1 else f"{name} {device}"
        entry = MappedCircuit()
        cords = []
        for place, port in enumerate(sorted(inlets, key=_natural), start=1):
            cord, problem = _cord(records, circuits, port)
            if cord is not None:
                cords.append({"psu": place, **cord})
            if problem:
                entry.comments.append(f"inlet {port.name}: {problem}")
        if not cords:
            found.comments.append(f"{name}: {'; '.join(entry.comments)}")
            continue
        entry.values["cords"] = cords
        _draws(entry, inlets, draws=draws)
        found.nodes[name] = entry


def _draws(entry: MappedCircuit, inlets: Sequence[NetBoxPort], *, draws: bool) -> None:
    drawn = [port.allocated if port.allocated is not None else port.maximum for port in inlets]
    if all(one is None for one in drawn):
        return
    watts = sum(one for one in drawn if one is not None)
    if draws:
        entry.values["watts"] = watts
    else:
        entry.comments.append(
            f"drawn in NetBox: {quoted(watts, 'W')} over {len(inlets)} inlets; where no collector runs, write watts = {watts:g}"
        )


def _cord(
    records: NetBoxRecords, circuits: Mapping[int, str], port: NetBoxPort
) -> tuple[dict[str, object] | None, str]:
    """Return the circuit behind an inlet, through units, and what is missing or not carried over."""
    legs: list[str] = []
    for _ in range(_DEEP):
        feeds = [number for kind, number in port.far if kind == FEED]
        feeds += [feed for feed, number in records.wires if number == port.id]
        if feeds:
            circuit = circuits.get(feeds[0])
            if circuit is None:
                return None, f"its feed (id {feeds[0]}) is not among those imported"
            return {"circuit": circuit}, _leg(legs, records.feeds[feeds[0]])
        outlet = next((records.outlets.get(number) for kind, number in port.far if kind == OUTLET), None)
        if outlet is None:
            return None, "it is connected to no feed" if port.far else "it has no cable"
        if outlet.leg:
            legs.append(outlet.leg)
        if outlet.port is None or outlet.port not in records.ports:
            return None, f"outlet {outlet.id} of {records.devices[outlet.device]} has no inlet"
        port = records.ports[outlet.port]
    return None, "the units before it feed each other"


def _leg(legs: Sequence[str], feed: NetBoxFeed) -> str:
    """Which lines a leg is, NetBox leaves open: of 208 V, A is usually L1-L2, of 400 V it is L1."""
    if not legs or not feed.three_phase:
        return ""
    line = "ABC".find(legs[0]) + 1
    pair = f"L{line}-L{line % 3 + 1}" if feed.volts <= 240 else f"L{line}"
    return f'it is on leg {legs[0]}: if that is {pair}, write phase = "{pair}" in its cord' if line else ""


def _natural(port: NetBoxPort) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", port.name)]
