"""Parts of the electrical state that can't be computed, in words: each by itself, while the others go on."""

from __future__ import annotations

from collections.abc import Mapping

_KINDS = {"ups": "UPS"}


def set_aside_lines(parts: Mapping[str, str]) -> list[str]:
    """Return a line for each part, by its kind and name: `meter/plug`, or `circuits/trips` for a step of all circuits."""
    return [f"{_named(part)} can't be computed, and the others go on: {reason}" for part, reason in parts.items()]


def _named(part: str) -> str:
    kind, _, name = part.partition("/")
    return f"{name} of the circuits" if kind == "circuits" else f"{_KINDS.get(kind, kind)} {name}"
