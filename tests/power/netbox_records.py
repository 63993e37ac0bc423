"""NetBox's records as its REST API says them, for tests."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
Pages = dict[str, list[Record]]


def brief(number: int, name: str) -> Record:
    return {"id": number, "url": "x", "display": name, "name": name}


def feed(number: int, name: str, panel: int = 1, **more: Any) -> Record:
    """NetBox's own defaults: 120 V, 15 A, 80 %."""
    choices = {"status": "active", "type": "primary", "supply": "ac", "phase": "single-phase"}
    choices |= {key: more.pop(key) for key in list(more) if key in choices}
    return {
        "id": number, "name": name, "power_panel": brief(panel, "P"), "rack": None, "voltage": 120,
        "amperage": 15, "max_utilization": 80, "connected_endpoints": None, "connected_endpoints_type": None,
        **{key: {"value": value, "label": value.title()} for key, value in choices.items()}, **more,
    }  # fmt: skip


def inlet(
    number: int, device: tuple[int, str], name: str, far: tuple[str, int] | None, *, old: bool = False, **draw: Any
) -> Record:
    ends: Record = {"connected_endpoints": None, "connected_endpoints_type": None}
    if far is not None:
        ends = {"connected_endpoints": [brief(far[1], "x")], "connected_endpoints_type": far[0]}
        if old:  # before 3.3
            ends = {"connected_endpoint": brief(far[1], "x"), "connected_endpoint_type": far[0]}
    return {"id": number, "device": brief(*device), "name": name, "maximum_draw": None, "allocated_draw": None, **draw, **ends}  # fmt: skip


def outlet(number: int, device: tuple[int, str], port: int | None, leg: str | None = None) -> Record:
    chosen = None if leg is None else {"value": leg, "label": leg}
    return {"id": number, "device": brief(*device), "name": f"out{number}", "power_port": port and brief(port, "in"), "feed_leg": chosen}  # fmt: skip


def pages(
    feeds: list[Record],
    ports: list[Record] | None = None,
    outlets: list[Record] | None = None,
    panels: list[Record] | None = None,
) -> Pages:
    return {
        "power-panels": panels if panels is not None else [{**brief(1, "PP1"), "site": brief(1, "HQ")}],
        "power-feeds": feeds,
        "power-ports": ports or [],
        "power-outlets": outlets or [],
    }
