"""Shared options of commands: durations, addresses, settings, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from telemetry.text import parse_duration
from telemetry.text.service_log import log_as_json

Command = TypeVar("Command", bound=Callable[..., Any])
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


class DurationParam(click.ParamType[float]):
    """`30s`, `10m`, `2h`, `1.5d`, or a plain number of seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        seconds = parse_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no duration. Write 30s, 10m, 2h or 1d.", param, ctx)
        return seconds


class SizeParam(click.ParamType[int]):
    """`500M`, `2G`, `1.5 GiB`, or a plain number of bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None or (size := int(float(found[1]) * _UNITS[found[2].upper()])) < 1:
            self.fail(f"{value!r} is no size. Write 500M, 2G or 1048576.", param, ctx)
        return size


class AddressParam(click.ParamType[tuple[str, int]]):
    """`127.0.0.1:9400`, `[::1]:9400`, or a bare port."""

    name = "host:port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdigit() or not 0 <= int(port) < 65536:
            self.fail(f"{value!r} is no address. Write 127.0.0.1:9400.", param, ctx)
        return host, int(port)


def log_format_option(command: Command) -> Command:
    """Add `--log-format`, which is in force from then on."""

    def choose(_context: click.Context, _parameter: click.Parameter, form: str) -> None:
        if form == "json":
            log_as_json()

    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        expose_value=False,
        callback=choose,
        help="Log lines for people, or a JSON object a line.",
    )(command)


def settings_option(command: Command) -> Command:
    """Add `--config FILE`."""
    return click.option(
        "--config",
        "config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Settings file; else ./kilowatch.toml, else /etc/kilowatch/kilowatch.toml.",
    )(command)


def write_option(command: Command) -> Command:
    """Add `--write`."""
    return click.option("--write", is_flag=True, help="Allow to acknowledge and to silence; else read-only.")(command)


def max_size_option(command: Command) -> Command:
    """Add `--max-size SIZE`."""
    return click.option(
        "--max-size",
        type=SizeParam(),
        help="Bytes to which a file may expand: 500M, 4G. [default: in docs/security.md]",
    )(command)


def broker_option(command: Command) -> Command:
    """Add `--broker HOST:PORT`."""
    return click.option("--broker", type=AddressParam(), help="MQTT broker, instead of the one in the settings.")(
        command
    )


def broker_flags(broker: tuple[str, int] | None) -> dict[str, object]:
    """Return the settings that `--broker` replaces."""
    if broker is None:
        return {}
    return {"broker.host": broker[0], "broker.port": broker[1], "broker.hosts": []}


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="As JSON.")(command)


def lose_option(text: str) -> Callable[[Command], Command]:
    """Add `--lose ELEMENT[,ELEMENT]`, also given more than once; `text` is its help."""

    def names(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(name for one in given for part in one.split(",") if (name := part.strip()))
        if given and not found:
            raise click.BadParameter("it names nothing. Write --lose UPS-A,R01-B.")
        return found

    return click.option("--lose", multiple=True, metavar="ELEMENT[,ELEMENT]", callback=names, help=text)
