"""Printed form of a measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def show(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a measurement: one JSON object, or a line for each figure."""
    if as_json:
        print(json.dumps(found))
        return
    for name, value in flat(found).items():
        print(f"{name:55} {text(value)}")


def flat(found: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return all figures by their dotted names."""
    lines: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            lines |= flat(value, f"{above}{name}.")
        else:
            lines[above + name] = value
    return lines


def text(value: object) -> str:
    """Return a figure with its significant digits."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
