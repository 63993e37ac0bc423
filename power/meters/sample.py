"""Samples: values of one part of a meter at one moment, in base units, independent of its make."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from power.devices.wall_power import WallSource
from telemetry.errors import WireError

WHOLE = ""
"""The channel of a meter as a whole."""
POLES = ("L1", "L2", "L3")
TRIPPED, REVERSED, INPUT_LOST, OFFLINE = "tripped", "reversed", "input_lost", "offline"

MOST = {
    "watts": 1e8,
    "volt_amps": 1e8,
    "amps": 1e6,
    "neutral_amps": 1e6,
    "volts": 1e6,
    "power_factor": 1.0,
    "energy_joules": 1e18,
    "load_ratio": 100.0,
    "runtime_seconds": 1e8,
}
"""Largest plausible value of each quantity; above, the device or its mapping is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterSample:
    """Values of one part of a meter. Quantities that it does not report are None, never 0."""

    channel: str = WHOLE
    """Part of the meter: an outlet, a phase, a relay, named as its family does."""
    part_of: str | None = None
    """Channel of the whole, for the sample of one pole."""
    pole: str | None = None
    """`L1`, `L2`, `L3` where the meter itself knows it."""
    parts: int = 0
    """Number of alike parts that the whole is the sum of; on a circuit of as many poles each is a pole, in
    their order. 0 where `pole` is known."""
    source: WallSource | None = None
    """Source, where only the answer shows the kind of meter."""
    watts: float | None = None
    """Watts as reported: below 0 for a clamp around the wrong way."""
    volt_amps: float | None = None
    amps: float | None = None
    neutral_amps: float | None = None
    volts: float | None = None
    power_factor: float | None = None
    energy_joules: float | None = None
    load_ratio: float | None = None
    runtime_seconds: float | None = None
    flags: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the sample has no usable value."""
        return not self.flags and all(getattr(self, name) is None for name in MOST)


def filled(channel: str, quantities: Mapping[str, Any]) -> MeterSample:
    """Return a sample of quantities by name."""
    return MeterSample(channel=channel, **quantities)


def of_poles(parts: Sequence[MeterSample]) -> list[MeterSample]:
    """Return the alike parts of a whole meter as its poles, as far as there are that many."""
    if not 1 < len(parts) <= len(POLES):
        return list(parts)
    return [replace(one, part_of=WHOLE, pole=pole, parts=len(parts)) for one, pole in zip(parts, POLES, strict=False)]


def parse(payload: bytes) -> Any:
    """Return a JSON payload. Raises `WireError`."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("not_json", str(error)) from error


def table(value: object, what: str) -> dict[str, Any]:
    """Return a JSON object. Raises `WireError` for anything else."""
    if not isinstance(value, dict):
        raise WireError("no_object", f"{what} is {kind_of(value)}")
    return value


def number(value: object, quantity: str, scale: float = 1.0) -> float | None:
    """Return `value` x `scale` as that quantity; None where there is none (JSON null, or no key).

    Raises `WireError` for anything but a number, and for an implausible one.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError("no_number", f"{quantity} is {kind_of(value)}")
    try:
        found = float(value) * scale
    except OverflowError as error:  # JSON may have an integer of any length
        raise WireError("no_number", f"{quantity} has more digits than a number can") from error
    if not math.isfinite(found):
        raise WireError("no_number", f"{quantity} is {found}")
    if quantity == "power_factor":
        # Reversed clamps give a negative one; rounding gives 1.01.
        return min(1.0, abs(found)) if abs(found) <= 1.1 else None
    if abs(found) > MOST[quantity]:
        raise WireError("out_of_range", f"{quantity} is {found:g}")
    return found


def bare(payload: bytes, quantity: str, scale: float = 1.0) -> float | None:
    """Return the number that a payload consists of. Raises `WireError`."""
    text = payload.strip()
    try:
        found = float(text) if len(text) < 40 else math.nan
    except ValueError as error:
        raise WireError("no_number", f"{quantity} is {text[:40]!r}") from error
    return number(found, quantity, scale)


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None when one of the values is missing."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values, None without any: for volts, which parts share."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def kind_of(value: object) -> str:
    """Return what a JSON value is, for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"{value!r:.40}"
