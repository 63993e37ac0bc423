"""Any device that publishes JSON or a bare number: where the number is, and in which unit."""

from __future__ import annotations

import re

import msgspec

from power.meters.base import Decoder, MqttConfig
from power.meters.sample import WHOLE, MeterSample, bare, filled, number, parse
from telemetry.errors import ConfigError, WireError, did_you_mean

UNITS: dict[str, tuple[str, float]] = {
    "W": ("watts", 1.0),
    "kW": ("watts", 1e3),
    "mW": ("watts", 1e-3),
    "VA": ("volt_amps", 1.0),
    "kVA": ("volt_amps", 1e3),
    "A": ("amps", 1.0),
    "mA": ("amps", 1e-3),
    "V": ("volts", 1.0),
    "mV": ("volts", 1e-3),
    "pf": ("power_factor", 1.0),
    "kWh": ("energy_joules", 3.6e6),
    "Wh": ("energy_joules", 3.6e3),
    "MWh": ("energy_joules", 3.6e9),
    "J": ("energy_joules", 1.0),
    "%": ("load_ratio", 0.01),
    "s": ("runtime_seconds", 1.0),
}
"""Quantity of each unit, and the factor to base units."""
_STEP = re.compile(r'\.?([^.\[\]"]+)|\[(\d{1,4})\]|\["([^"]+)"\]')
ABSENT = {b"unavailable", b"unknown", b"none", b"null", b""}
"""Payloads of home automation for a missing number."""

Path = tuple[str | int, ...]


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of a payload: its path and unit."""

    path: str = ""
    """`ENERGY.Power[0]`, `["switch.0"].w`; empty where the payload is the number."""
    unit: str = "W"
    """Unit in which it is written: `W`, `kW`, `A`, `V`, `kWh` and others."""
    scale: float = 1.0
    """Factor in addition to the unit's: 0.1 for tenths."""


class Json(MqttConfig, frozen=True, tag="json"):
    """A JSON or plain number: `path`, `unit` and `scale` of one, or `values` for several of a payload."""

    path: str = ""
    """Path of the number within the payload: `power.total`, `[0].w`. [the payload is the number]"""
    unit: str = "W"
    """Unit of the number."""
    scale: float = 1.0
    """Factor on the number."""
    values: tuple[Value, ...] = ()
    """Several numbers of one payload, each with `path`, `unit` and `scale`."""

    @property
    def wanted(self) -> tuple[Value, ...]:
        """The configured numbers."""
        return self.values or (Value(path=self.path, unit=self.unit, scale=self.scale),)

    def check(self, where: str) -> None:
        """Raise `ConfigError` for what can't work."""
        super().check(where)
        if self.values and self.path:
            raise ConfigError(where, "it has path and values", "Keep one: values has path, unit and scale of each.")
        if self.map:
            raise ConfigError(
                f"{where}.map", "a json meter has no parts", "Make each part a meter of its own with its own path."
            )
        seen: set[str] = set()
        for place, value in enumerate(self.wanted):
            here = f"{where}.values[{place}]" if self.values else where
            check_value(here, value)
            quantity = UNITS[value.unit][0]
            if quantity in seen:
                raise ConfigError(f"{here}.unit", f"{quantity} is configured twice", "Configure each quantity once.")
            seen.add(quantity)

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        return JsonDecoder(self.topic, self.wanted)


def check_value(where: str, value: Value) -> None:
    """Raise `ConfigError` for an unknown unit, a path that is none, a scale of 0."""
    if value.unit not in UNITS:
        raise ConfigError(
            f"{where}.unit",
            f"{value.unit!r} is no unit",
            did_you_mean(value.unit, UNITS) or f"Known: {', '.join(UNITS)}.",
        )
    if value.scale == 0:
        raise ConfigError(f"{where}.scale", "0 makes nothing of every reading", "Write 1, or 0.1 for tenths.")
    steps_of(f"{where}.path", value.path)


def steps_of(where: str, text: str) -> Path:
    """Return the keys and places of a path. Raises `ConfigError`."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ConfigError(
                where,
                f"{text!r} is no path from place {at + 1} on",
                "Write keys with dots and places in brackets: ENERGY.Power[0].",
            )
        steps.append(int(match[2]) if match[2] else match[1] or match[3])
        at = match.end()
    return tuple(steps)


def pick(tree: object, path: Path) -> object:
    """Return the value at a path; None where there is none."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(tree, list) or step >= len(tree):
                return None
            tree = tree[step]
        else:
            if not isinstance(tree, dict):
                return None
            tree = tree.get(step)
    return tree


class JsonDecoder(Decoder):
    """Decoder of complete JSON messages; with `partial`, some have no power reading."""

    def __init__(self, topic: str, values: tuple[Value, ...], *, partial: bool = False) -> None:
        self._topic = topic
        self._partial = partial
        self._values = [
            (steps_of("", value.path), UNITS[value.unit][0], UNITS[value.unit][1] * value.scale) for value in values
        ]

    def filters(self) -> tuple[str, ...]:
        """Return the meter's topic."""
        return (self._topic,)

    def samples(self, topic: str, payload: bytes) -> list[MeterSample]:
        """Return the sample of a message, if any."""
        del topic
        if payload.strip().lower() in ABSENT:
            return []
        if all(not path for path, _, _ in self._values):
            found = {quantity: bare(payload, quantity, scale) for _, quantity, scale in self._values}
        else:
            tree = parse(payload)
            found = {quantity: number(_value(tree, path), quantity, scale) for path, quantity, scale in self._values}
            if all(value is None for value in found.values()):
                if self._partial:
                    return []
                raise WireError("no_number", "there is nothing at the path")
        return [filled(WHOLE, found)]


def _value(tree: object, path: Path) -> object:
    """Return the value at a path; numbers in text ("230.1") are converted."""
    found = pick(tree, path)
    if isinstance(found, str):
        return None if found.lower().encode() in ABSENT else float_of(found)
    return found


def float_of(text: str) -> float | str:
    """Return the number that a text is, or the text."""
    try:
        return float(text) if len(text) < 40 else text
    except ValueError:
        return text
