"""NetBox's objects, read from its REST API of release 2.10 and later.

Since 3.3 a cable's far end is a list (`connected_endpoints`), before that one object
(`connected_endpoint`). Choices are objects of value and label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from telemetry.errors import ConfigError

Record = dict[str, Any]
ENDPOINTS = ("power-panels", "power-feeds", "power-ports", "power-outlets")
"""Endpoints that are read, below /api/dcim/."""
FEED, PORT, OUTLET = "dcim.powerfeed", "dcim.powerport", "dcim.poweroutlet"


@dataclass(frozen=True, slots=True)
class NetBoxFeed:
    """A power feed. `amperage` and `max_utilization` are as entered: nothing is taken off yet."""

    id: int
    name: str
    panel: int | None
    rack: str | None
    volts: float
    amperage: float
    max_utilization: float
    three_phase: bool = False
    redundant: bool = False
    direct: bool = False
    """Direct current."""
    status: str = "active"
    available: float | None = None
    """Available watts by NetBox itself, derated already; None where it has none."""


@dataclass(frozen=True, slots=True)
class NetBoxPort:
    """A device's inlet."""

    id: int
    name: str
    device: int
    allocated: float | None
    maximum: float | None
    far: tuple[tuple[str, int], ...]
    """Type and id of what it is connected to."""


@dataclass(frozen=True, slots=True)
class NetBoxOutlet:
    """A distribution unit's outlet."""

    id: int
    device: int
    port: int | None
    """The inlet of its own device that feeds it."""
    leg: str | None
    far: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NetBoxRecords:
    """Records read from NetBox, by id."""

    panels: dict[int, str] = field(default_factory=dict)
    feeds: dict[int, NetBoxFeed] = field(default_factory=dict)
    ports: dict[int, NetBoxPort] = field(default_factory=dict)
    outlets: dict[int, NetBoxOutlet] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    wires: tuple[tuple[int, int], ...] = ()
    """Pairs of feed and port, from the feed's side."""


def read(where: str, pages: Mapping[str, Sequence[object]]) -> NetBoxRecords:
    """Return the records of NetBox's lists. Raises `ConfigError` for malformed ones."""
    found = NetBoxRecords()
    names = _unique_panels([_record(where, "power-panels", one) for one in pages["power-panels"]])
    found.panels.update(names)
    wires: list[tuple[int, int]] = []
    for raw in pages["power-feeds"]:
        record = _record(where, "power-feeds", raw)
        feed = _feed(f"{where}: power-feeds/{record['id']}", record)
        found.feeds[feed.id] = feed
        wires += [(feed.id, number) for kind, number in far_ends(record) if kind == PORT]
    for raw in pages["power-ports"]:
        record = _record(where, "power-ports", raw)
        device = _device(f"{where}: power-ports/{record['id']}", record, found)
        found.ports[record["id"]] = NetBoxPort(
            record["id"],
            str(record.get("name", "")),
            device,
            _number(record.get("allocated_draw")),
            _number(record.get("maximum_draw")),
            far_ends(record),
        )
    for raw in pages["power-outlets"]:
        record = _record(where, "power-outlets", raw)
        device = _device(f"{where}: power-outlets/{record['id']}", record, found)
        port = record.get("power_port")
        found.outlets[record["id"]] = NetBoxOutlet(
            record["id"],
            device,
            port.get("id") if isinstance(port, dict) else None,
            choice(record.get("feed_leg")),
            far_ends(record),
        )
    return NetBoxRecords(found.panels, found.feeds, found.ports, found.outlets, found.devices, tuple(wires))


def _record(where: str, kind: str, raw: object) -> Record:
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), int):
        raise ConfigError(f"{where}: {kind}", "an entry has no id", "Is this NetBox's own API, and not a page of it?")
    return raw


def _unique_panels(records: Sequence[Record]) -> dict[int, str]:
    """Names are unique only within a site: where two are the same, the site's name goes before."""
    names = [str(one.get("name", "")) for one in records]
    return {
        one["id"]: name if names.count(name) == 1 else f"{_name(one.get('site')) or one['id']}/{name}"
        for one, name in zip(records, names, strict=True)
    }


def _feed(where: str, record: Record) -> NetBoxFeed:
    volts, amps, most = (_number(record.get(key)) for key in ("voltage", "amperage", "max_utilization"))
    if volts is None or amps is None or most is None or not volts or amps <= 0 or not 0 < most <= 100:
        raise ConfigError(
            where, f"voltage {volts}, amperage {amps}, max_utilization {most} is no feed", "Correct it in NetBox."
        )
    panel = record.get("power_panel")
    return NetBoxFeed(
        record["id"],
        str(record.get("name", "")),
        panel.get("id") if isinstance(panel, dict) else None,
        _name(record.get("rack")),
        abs(volts),
        amps,
        most,
        three_phase=choice(record.get("phase")) == "three-phase",
        redundant=choice(record.get("type")) == "redundant",
        direct=choice(record.get("supply")) == "dc",
        status=choice(record.get("status")) or "active",
        available=_number(record.get("available_power")),
    )


def _device(where: str, record: Record, found: NetBoxRecords) -> int:
    device = record.get("device")
    if not isinstance(device, dict) or not isinstance(device.get("id"), int):
        raise ConfigError(where, "it belongs to no device", "Is this NetBox's own API?")
    number: int = device["id"]
    found.devices[number] = _name(device) or f"device {number}"
    return number


def far_ends(record: Record) -> tuple[tuple[str, int], ...]:
    """Return type and id of what is at the other end of the cable, whatever the release."""
    several, kind = record.get("connected_endpoints"), record.get("connected_endpoints_type")
    if several is None:
        one = record.get("connected_endpoint")
        several, kind = [one] if one is not None else [], record.get("connected_endpoint_type")
    if not isinstance(several, list) or not isinstance(kind, str):
        return ()
    return tuple((kind, one["id"]) for one in several if isinstance(one, dict) and isinstance(one.get("id"), int))


def choice(value: object) -> str | None:
    """Return the value of a choice."""
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else None


def _name(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    found = value.get("name") or value.get("display") or value.get("display_name")
    return str(found) if found else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
