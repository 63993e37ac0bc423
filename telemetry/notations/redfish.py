"""Shapes of Redfish resources (DSP0266): links, collections, types. Pure."""

from __future__ import annotations

import re
from typing import Any

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"
_TYPE = re.compile(r"#(\w+)\.")


def link(body: dict[str, Any], *keys: str) -> str | None:
    """Return the path of a link, if there is one and it stays within the service."""
    found: object = body
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    path = found.get("@odata.id") if isinstance(found, dict) else None
    good = isinstance(path, str) and path.startswith("/redfish/") and len(path) < 500
    return path.rstrip("/") if good else None  # type: ignore[union-attr]  # good means that it is text


def members(body: dict[str, Any]) -> list[str]:
    """Return the paths of a collection's members."""
    paths = [link({"it": one}, "it") for one in parts(body, "Members")]
    return [path for path in paths if path is not None]


def parts(body: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    found = body.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def part(body: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object of a resource; one without members where there is none."""
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def type_of(body: dict[str, Any]) -> str:
    """Return `Circuit` of `#Circuit.v1_8_0.Circuit`."""
    match = _TYPE.match(str(body.get("@odata.type", "")))
    return match[1] if match else ""


def session_path(location: str) -> str | None:
    """Return the path of a new session from the header `Location`, which may be a whole address: only the path
    counts, on the host that we know."""
    _, found, rest = location.partition("/redfish/")
    return f"/redfish/{rest}" if found else None
