"""What people write on the command line: durations, addresses, and where the settings are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class DurationParam(click.ParamType[float]):
    """`30s`, `10m`, `2h`, `1.5d`, or a plain number of seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip())
        if not match or (match[2] or "s") not in _UNITS:
            self.fail(f"{value!r} is no duration. Write 30s, 10m, 2h or 1d.", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "s"]


class AddressParam(click.ParamType[tuple[str, int]]):
    """`127.0.0.1:9400`, `[::1]:9400`, or a bare port."""

    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdigit() or not 0 <= int(port) < 65536:
            self.fail(f"{value!r} is no address. Write 127.0.0.1:9400.", param, ctx)
        return host, int(port)


def settings_option(command: Command) -> Command:
    """Add `--config FILE`."""
    return click.option(
        "--config",
        "config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Settings file; else ./kilowatch.toml, else /etc/kilowatch/kilowatch.toml.",
    )(command)


def broker_option(command: Command) -> Command:
    """Add `--broker HOST:PORT`."""
    return click.option(
        "--broker", type=AddressParam(), help="MQTT broker, instead of the one in the settings."
    )(command)
