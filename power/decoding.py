"""From what TOML holds to what the configuration means; what does not fit is said with its cure."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from power.breaker import Curve
from power.supply import Tier
from power.wiring import Wiring
from telemetry.errors import ConfigError, did_you_mean

T = TypeVar("T")
_CHOICES = {
    "wiring": [wiring.value for wiring in Wiring],
    "curve": [curve.value for curve in Curve],
    "scheme": ["2N", "N+1"],
    "tier": [tier.value for tier in Tier],
}


def convert(where: str, raw: object, kind: type[T]) -> T:
    """Return `raw` as a `kind` of the configuration. Raises `ConfigError` with place and cure."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at ")
        inside = at.strip("`").removeprefix("$")
        place = f"{where} {inside.lstrip('.')}" if where.endswith(":") else where + inside
        cure = _cure(problem, inside, kind.__struct_fields__)  # type: ignore[attr-defined]
        raise ConfigError(place, problem[0].lower() + problem[1:], cure) from error


def _cure(problem: str, inside: str, known: tuple[str, ...]) -> str:
    """Return what to write instead of what the decoder did not take."""
    unknown = re.search(r"unknown field `(.+)`", problem)
    if unknown:
        return did_you_mean(unknown[1], known)
    choices = _CHOICES.get(inside.rpartition(".")[2])
    if choices and "enum value" in problem:
        return f"Write {', '.join(choices[:-1])} or {choices[-1]}."
    if problem.startswith("Expected `array`"):
        return 'Write a list in brackets, as in ["rig1"].'
    return "Write a number." if problem.startswith(("Expected `float", "Expected `int")) else ""
