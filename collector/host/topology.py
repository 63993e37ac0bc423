"""Which switch each port is cabled to, from a file that another program writes. Pure.

Three forms are read, told apart by what is in them: the JSON of `lldpcli show neighbors -f json`, by interface; the
lines of `iblinkinfo -l` (one link a line), by GUID of the adapter; and a table of blanks or tabs, `PORT SWITCH PORT`,
where the first word is a GUID, an interface, an adapter, or one of these behind `NODE:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from telemetry.devices import Port


class FarEnd(NamedTuple):
    """The port of a switch."""

    switch: str
    port: str


MOST = 200_000
"""Entries that are kept of a file: the links of a large fabric."""
_IB = re.compile(
    r'0x(?P<guid>[0-9a-f]{16})\s+"(?P<name>[^"]*)"\s+(?P<lid>\d+)\s+(?P<port>\d+)\[[^\]]*\]\s+==\(.*?\)==>\s+'
    r'0x(?P<far_guid>[0-9a-f]{16})\s+(?P<far_lid>\d+)\s+(?P<far_port>\d+)\[[^\]]*\]\s+"(?P<far_name>[^"]*)"'
)
_GUID = re.compile(r"(?:0x)?([0-9a-f]{4}:?[0-9a-f]{4}:?[0-9a-f]{4}:?[0-9a-f]{4})", re.IGNORECASE)


def read_topology(text: str) -> dict[str, FarEnd]:
    """Return the far end of each port that a file names, by `guid`, `name` or `node:name`. Raises `ValueError` for a
    file of no known form."""
    if text.lstrip().startswith("{"):
        found = _lldp(text)
    elif "==>" in text:
        found = _links(text)
    else:
        found = _table(text)
    if text.strip() and not found:
        raise ValueError("no link is named in it")
    return found


def far_end(port: Port, node: str, known: Mapping[str, FarEnd]) -> FarEnd | None:
    """Return the far end of a port, where it is known."""
    names = [name for name in (port.interface, port.adapter) if name]
    keys = [_guid(port.guid)] if port.guid else []
    keys += [f"{node}:{name}" for name in names] + names
    return next((known[key] for key in keys if key in known), None)


def _guid(text: str) -> str:
    match = _GUID.fullmatch(text.strip())
    return match[1].replace(":", "").lower() if match else text


def _table(text: str) -> dict[str, FarEnd]:
    found: dict[str, FarEnd] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2:
            raise ValueError(f"no `PORT SWITCH PORT`: {line.strip()[:80]!r}")
        if len(found) < MOST:
            found[_guid(words[0])] = FarEnd(words[1], words[2] if len(words) > 2 else "")
    return found


def _links(text: str) -> dict[str, FarEnd]:
    found: dict[str, FarEnd] = {}
    for match in _IB.finditer(text):
        own, far = match["name"], match["far_name"]
        # a line names both ends; adapters call themselves `host mlx5_0`
        if not _is_switch(own) and len(found) < MOST:
            found[match["guid"]] = FarEnd(_switch(far, match["far_guid"]), match["far_port"])
        elif not _is_switch(far) and len(found) < MOST:
            found[match["far_guid"]] = FarEnd(_switch(own, match["guid"]), match["port"])
    return found


def _is_switch(name: str) -> bool:
    return re.search(r"\b(?:mlx\d+_\w+|HCA-\d+|mlx4_\w+)\s*$", name) is None


def _switch(name: str, guid: str) -> str:
    """Return the name of a switch; `MF0;leaf-7:MQM9700/U1` is what managed ones call themselves."""
    match = re.match(r"\s*(?:MF0;)?([^:;]+?)(?::[^:]*)?\s*$", name)
    return match[1].strip() if match else guid


def _lldp(text: str) -> dict[str, FarEnd]:
    try:
        raw: Any = msgspec.json.decode(text)
        listed = raw["lldp"]["interface"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ValueError("no JSON of `lldpcli show neighbors -f json`") from error
    entries = listed if isinstance(listed, list) else [listed]
    found: dict[str, FarEnd] = {}
    for entry in entries:
        for name, facts in entry.items() if isinstance(entry, dict) else ():
            chassis, port = _only(facts, "chassis"), _only(facts, "port")
            switch = next((key for key in chassis if key not in {"id", "descr", "mgmt-ip", "capability"}), "")
            switch = switch or str(_only(chassis, "id").get("value", ""))
            number = str(_only(port, "id").get("value", "") or port.get("descr", ""))
            if switch and len(found) < MOST:
                found[str(name)] = FarEnd(switch, number)
    return found


def _only(facts: Any, key: str) -> dict[str, Any]:
    value = facts.get(key) if isinstance(facts, dict) else None
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, dict) else {}
