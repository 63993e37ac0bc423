"""Options of commands that talk to a running aggregator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kilowatch import settings
from kilowatch.cli.arguments import settings_option

if TYPE_CHECKING:
    from kilowatch.clients.api import ApiClient

Command = TypeVar("Command", bound=Callable[..., Any])

HOME = "127.0.0.1:9400"
"""Address of an aggregator with default settings."""


def aggregator_options(command: Command) -> Command:
    """Add `--http`, `--token-file` and `--config`."""
    for option in (
        settings_option,
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File with the aggregator's token. [default: aggregator.token_file]",
        ),
        click.option(
            "--http",
            metavar="HOST:PORT",
            help="A running aggregator. [default: aggregator.listen]",
        ),
    ):
        command = option(command)
    return command


def address_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Add an argument ADDRESS, an alternative to `--http`, as `kilowatch top ADDRESS` has it."""

    @click.argument("address", required=False)
    @functools.wraps(command)
    def either(address: str | None, http: str | None, **rest: object) -> None:
        command(http=named(address, http), **rest)

    return either


def named(address: str | None, http: str | None) -> str | None:
    """Return the address of the argument or of `--http`. Raises `UsageError` for two."""
    if address and http and web_address(address) != web_address(http):
        raise click.UsageError(f"Two aggregators are named, {address} and {http}. Name one.")
    return address or http


def web_address(where: str) -> str:
    """Return the URL of an address: a URL, a host with its port, or a port alone."""
    if "://" in where:
        return where
    return f"http://127.0.0.1:{where}" if where.isdigit() else f"http://{where}"


def open_api(config: Path | None, http: str | None, token_file: Path | None) -> ApiClient:
    """Return a client of the aggregator in the options, else in the settings."""
    from kilowatch.clients.api import ApiClient, read_token  # noqa: PLC0415 - loads HTTP

    loaded = settings.load(config).aggregator
    where = web_address(http or _reachable(loaded.listen))
    return ApiClient(where, read_token(token_file or loaded.token_file))


def _reachable(listen: str) -> str:
    """Return an address of this machine for a listener on all addresses."""
    host, _, port = listen.rpartition(":")
    return f"127.0.0.1:{port}" if host in {"", "0.0.0.0", "[::]"} else listen  # noqa: S104
