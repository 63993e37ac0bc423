"""Options of commands that talk to a running aggregator."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aggregator.config import AggregatorConfig
from kilowatch import settings
from kilowatch.cli.arguments import settings_option
from kilowatch.output import echo
from kilowatch.stack.ports import is_free
from telemetry.errors import ConfigError
from telemetry.files import local_token
from telemetry.text import counted

if TYPE_CHECKING:
    from kilowatch.clients.api import ApiClient

Command = TypeVar("Command", bound=Callable[..., Any])

HOME = "127.0.0.1:9400"
"""Address of an aggregator with default settings."""
NEAREST = f"the one that this user runs here, else {HOME}"
"""The aggregator that is asked where none is named."""


def home() -> str:
    """Return the address of the aggregator to ask where none is named. Raises `UsageError` where several could be
    meant."""
    host, _, port = HOME.rpartition(":")
    found = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in local_token.running()]
    if not found or HOME in found or not is_free(host, int(port)):  # of another user: a service
        return HOME
    if len(found) > 1:
        raise click.UsageError(f"Several aggregators run here: {', '.join(found)}. Name one.")
    echo(f"Asking the aggregator that runs here, {found[0]}.", err=True)
    return found[0]


def trust(ca: Path) -> None:
    """Trust the certificates of a file in every connection of this process. Raises `ConfigError`."""
    import ssl  # noqa: PLC0415 - a tenth of the start of most commands, which need none

    try:
        ssl.create_default_context(cafile=ca.expanduser())
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(str(ca), f"it holds no certificate: {error}", "Name a PEM file.") from error
    os.environ["SSL_CERT_FILE"] = str(ca.expanduser())


def ca_option(command: Command) -> Command:
    """Add `--ca FILE`."""
    return click.option(
        "--ca",
        type=click.Path(dir_okay=False, path_type=Path),
        expose_value=False,
        callback=lambda _context, _parameter, ca: None if ca is None else trust(ca),
        help="Certificates to trust for https://, instead of those of this machine.",
    )(command)


def aggregator_options(command: Command) -> Command:
    """Add `--http`, `--token-file`, `--ca` and `--config`."""
    for option in (
        settings_option,
        ca_option,
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File with the aggregator's token. [default: aggregator.token_file]",
        ),
        click.option(
            "--http", metavar="HOST:PORT", help=f"A running aggregator. [default: aggregator.listen, else {NEAREST}]"
        ),
    ):
        command = option(command)
    return command


def address_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Add an argument ADDRESS, an alternative to `--http`, behind those that the command has. For all that ask an
    aggregator, except where the last of those may be given any number of times."""

    @click.argument("address", required=False, callback=_checked)
    @functools.wraps(command)
    def either(address: str | None, http: str | None, **rest: object) -> None:
        command(http=named(address, http), **rest)

    return either


def _checked(_context: click.Context, _parameter: click.Parameter, address: str | None) -> str | None:
    """Refuse a word that is one too many: a second node, not an address."""
    if address and "://" not in address and ":" not in address and not address.isdigit():
        raise click.BadParameter(f"{address!r} is no address. Write HOST:PORT, a port or a URL.")
    return address


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
    if loaded.tls_ca is not None and "SSL_CERT_FILE" not in os.environ:
        trust(loaded.tls_ca)
    where = web_address(http) if http else _reachable(loaded)
    api = ApiClient(where, read_token(token_file or loaded.token_file))
    context = click.get_current_context(silent=True)
    if http is None and context is not None:
        context.call_on_close(lambda: _send_recorded(api))
    return api


def _send_recorded(api: ApiClient) -> None:
    """Send the steps of recoveries that were recorded here while the aggregator of the settings was away:
    it has just answered."""
    from kilowatch.recovery.record import record_folder, send_waiting  # noqa: PLC0415

    if api.answered and record_folder().is_dir():
        sent, _ = send_waiting(api)
        note_sent(sent)


def note_sent(sent: int) -> None:
    """Report recorded steps that the aggregator has now."""
    if sent:
        echo(f"Sent {counted(sent, 'step')} that had been recorded here while the aggregator was away.", err=True)


def _reachable(aggregator: AggregatorConfig) -> str:
    """Return the URL of an aggregator: its address in the settings, else one of this machine."""
    if aggregator.tls_cert is not None:  # a certificate is for a name
        return f"https://{aggregator.address or aggregator.listen}"
    if aggregator.listen == HOME:
        return web_address(home())
    host, _, port = aggregator.listen.rpartition(":")
    near = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104
    return f"http://{near}:{port}"
