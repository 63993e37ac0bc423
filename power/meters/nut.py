"""UPSs behind Network UPS Tools: variables of upsd's line protocol as samples.

Watts are the UPS' output; its own losses of a few percent come on top.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from power.devices.wall_power import WallSource
from power.meters.base import Kind, MeterConfig
from power.meters.sample import POLES, WHOLE, MeterSample, number
from telemetry.errors import ConfigError, WireError

PORT = 3493
_NAME = re.compile(r"[^\s\"]{1,64}")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


class Nut(MeterConfig, frozen=True, tag="nut"):
    """An upsd on `host`. Without `on` and `map` every UPS is its own target; `on` names the circuit or node
    that it feeds and makes it that one's wall meter, too."""

    host: str = "127.0.0.1"
    """Name or address of upsd."""
    port: int = PORT
    """Port of upsd."""
    ups: str | None = None
    """Name of one UPS of several. [all]"""
    username: str | None = None
    """User, with `password_file`."""
    password_file: str | None = None
    """A file with the password alone. Reading needs neither on most servers."""
    timeout: float = 5.0
    """Seconds for one whole round of requests."""

    period_default: ClassVar[float] = 5.0

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        super().check(where)
        if not self.host or not 1 <= self.port <= 65535:
            raise ConfigError(
                where, f"{self.host}:{self.port} is no address", "Write host, and port if it is not 3493."
            )
        for name in [self.ups] if self.ups is not None else self.map:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{where}.ups", f"{name!r} is no name of a UPS", "Write it as `upsc -l` shows it.")
        if (self.password_file is None) != (self.username is None):
            raise ConfigError(where, "a login needs username and password_file", "Write both or neither.")
        if not 0.1 <= self.timeout <= 60:
            raise ConfigError(f"{where}.timeout", f"{self.timeout:g} s is out of range", "Write 0.1 to 60.")

    def usual_source(self, kind: Kind) -> WallSource:
        """Return `UPS`."""
        del kind
        return WallSource.UPS


def words(line: str) -> list[str]:
    """Return the words of a line; quoted ones may hold blanks and escaped quotes."""
    return [re.sub(r"\\(.)", r"\1", match[1]) if match[2] is None else match[2] for match in _WORD.finditer(line)]


def of_variables(name: str, variables: Mapping[str, str]) -> list[MeterSample]:
    """Return one UPS and the poles of its input. Raises `WireError` for a number that is none."""
    status = variables.get("ups.status", "").split()[:16]
    if "WAIT" in status:
        return []  # its driver has just begun, and upsd knows nothing yet
    load = _value(variables, "ups.load", "load_ratio", 0.01)
    watts = _first(variables, "watts", "ups.realpower", "output.realpower")
    if watts is None:
        watts = _part_of(load, _value(variables, "ups.realpower.nominal", "watts"))
    volt_amps = _first(variables, "volt_amps", "ups.power", "output.power")
    if volt_amps is None:
        volt_amps = _part_of(load, _value(variables, "ups.power.nominal", "volt_amps"))
    whole = MeterSample(
        channel=name,
        watts=watts,
        volt_amps=volt_amps,
        amps=_value(variables, "input.current", "amps"),
        volts=_value(variables, "input.voltage", "volts"),
        power_factor=_first(variables, "power_factor", "output.powerfactor", "powerfactor"),
        load_ratio=load,
        runtime_seconds=_value(variables, "battery.runtime", "runtime_seconds"),
        flags=tuple(status),
    )
    poles = [
        MeterSample(channel=f"{name}.{pole}", part_of=name, pole=pole, amps=amps, volts=volts)
        for pole in POLES
        if (amps := _value(variables, f"input.{pole}.current", "amps")) is not None
        for volts in [_value(variables, f"input.{pole}-N.voltage", "volts")]
    ]
    return [whole, *poles]


def as_whole(samples: list[MeterSample]) -> list[MeterSample]:
    """Return the samples of the only UPS under the channel of the whole meter."""
    return [
        replace(
            one,
            channel=WHOLE if one.part_of is None else one.pole or "",
            part_of=None if one.part_of is None else WHOLE,
        )
        for one in samples
    ]


def _value(variables: Mapping[str, str], key: str, quantity: str, scale: float = 1.0) -> float | None:
    text = variables.get(key)
    if text is None or not text.strip():
        return None
    try:
        return number(float(text), quantity, scale)
    except ValueError as error:
        raise WireError("no_number", f"{key} is {text[:40]!r}") from error


def _first(variables: Mapping[str, str], quantity: str, *keys: str) -> float | None:
    return next((value for key in keys if (value := _value(variables, key, quantity)) is not None), None)


def _part_of(load: float | None, nominal: float | None) -> float | None:
    return None if load is None or nominal is None else load * nominal
