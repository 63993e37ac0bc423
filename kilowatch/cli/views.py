"""`kilowatch top` and `status`: a running aggregator on a terminal, and in a pipe."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kilowatch.cli.aggregator import HOME, ca_option, home, named, web_address
from kilowatch.cli.arguments import AddressParam, write_option
from kilowatch.output import echo, echo_json
from telemetry.errors import ConfigError
from telemetry.files.secrets import read_token
from telemetry.text.connection_faults import NOBODY, UNTRUSTED, ConnectionFault

if TYPE_CHECKING:
    from tui.frame.start_line import OwnAggregator

VIEWS = ("overview", "nodes", "gpus", "circuits", "alerts", "pools", "energy", "jobs")
_token = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the aggregator's token, where it requires one.",
)


def _aggregator(command: Callable[..., None]) -> Callable[..., None]:
    """Add an argument ADDRESS and the option `--http`, which mean the same."""

    @click.argument("url", required=False, metavar="[ADDRESS]")
    @click.option("--http", metavar="HOST:PORT", help="The same as ADDRESS.")
    @functools.wraps(command)
    def either(url: str | None, http: str | None, **rest: object) -> None:
        where = named(url, http) or (HOME if rest.get("replay") else home())  # a recording asks nobody
        command(url=web_address(where), **rest)

    return either


def _possible(command: Callable[..., None]) -> Callable[..., None]:
    """Refuse options of `top` that exclude each other, before an aggregator is looked for."""

    @functools.wraps(command)
    def checked(**given: object) -> None:
        replay, user = given["replay"], given["user"]
        if replay is None and (given["config"] or given["serve"]):
            raise ConfigError("--config", "it belongs to --replay", "A cluster has settings of its own.")
        if user is not None and not user:
            raise ConfigError("--user", "it is empty", "Write a name, or `me`.")
        if user is not None and (given["write"] or replay is not None):
            raise ConfigError(
                "--user", "it shows the jobs of now and changes nothing", "Leave --write and --replay out."
            )
        command(**given)

    return checked


def _secret(token_file: Path | None) -> str | None:
    return read_token("--token-file", token_file) if token_file else None


@click.command()
@_possible
@_aggregator
@_token
@ca_option
@write_option
@click.option("--who", default="", help="A name beside that of the token. [default: the login name]")
@click.option("--theme", type=click.Choice(["dark", "light", "contrast", "mono", "sixteen"]), help="Colours. [default: dark; mono with NO_COLOR; sixteen on a console]")  # fmt: skip
@click.option("--ascii", "ascii_only", is_flag=True, help="ASCII characters only.")
@click.option("--every", type=click.FloatRange(0.2, 60), help="Seconds between two updates. [default: 1; 2 over ssh]")
@click.option("--view", type=click.Choice(VIEWS), default="overview", help="First view.")
@click.option(
    "--user", help="Only the jobs of this user; `me`: of the token's user, else of the login name. Read-only."
)
@click.option(
    "--replay",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Show a recording (`kilowatch record FILE`) from its beginning, instead of a cluster.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --replay: settings with circuits and rules.",
)
@click.option("--serve", type=AddressParam(), hidden=True, help="Only serve the recording, there.")
@click.option("--until-eof", is_flag=True, hidden=True, help="End when standard input ends.")
def top(
    url: str,
    token_file: Path | None,
    write: bool,
    who: str,
    theme: str | None,
    ascii_only: bool,
    every: float | None,
    view: str,
    user: str | None,
    replay: Path | None,
    config: Path | None,
    serve: tuple[str, int] | None,
    until_eof: bool,
) -> None:
    """Show a running cluster live. ADDRESS is the aggregator's. [default: the one that you run here]

    With --replay it shows a recording: space plays it, + and - change the speed.
    """
    if replay is not None and serve is not None:
        from kilowatch.replay.server import serve_recording  # noqa: PLC0415 - loads DuckDB

        serve_recording(replay, config, serve, until_eof=until_eof)
        return
    if user is not None:
        from tui.top import run_own_jobs  # noqa: PLC0415 - Textual takes a while to load

        run_own_jobs(url, _secret(token_file), user, theme=theme, ascii_only=ascii_only, every=every)
        return
    from tui.top import run_top  # noqa: PLC0415 - as above

    def show(where: str, own: OwnAggregator | None = None) -> None:
        run_top(
            where,
            _secret(token_file),
            write=write and replay is None,
            who=who,
            theme=theme,
            ascii_only=ascii_only,
            every=every,
            view=view,
            recorded=replay is not None,
            own=own,
        )

    if replay is None:
        show(url)
        return
    from kilowatch.replay.server import watch_recording  # noqa: PLC0415

    watch_recording(replay, config, show)


_REMEDIES = {
    NOBODY: "Is it running? kilowatch aggregate",
    UNTRUSTED: "Name the certificate of its authority: --ca FILE.",
}
"""Cures in words of the command line, by the fault; those of all others are in words of the settings."""


def _remedy(fault: ConnectionFault) -> str:
    if "Bearer" in fault.what:
        return "Name the file that it is in: --token-file FILE."
    if fault.what.endswith("?"):  # something else listens there
        return "Name the address of one."
    return _REMEDIES.get(fault.what) or fault.cure or _REMEDIES[NOBODY]


@click.command()
@_aggregator
@_token
@ca_option
@click.option("--watch", is_flag=True, help="Again every two seconds, until Ctrl-C.")
@click.option("--json", "json_", is_flag=True, help="As JSON.")
def status(url: str, token_file: Path | None, watch: bool, json_: bool) -> None:
    """Print the cluster on one screen of text. The exit code is the worst unacknowledged severity, as
    in Nagios: 0 none, 1 a ticket, 2 a page, 3 unknown."""
    from tui.status import as_json, once, severity, text_lines  # noqa: PLC0415 - loads NumPy

    while True:
        state, age, fault = once(url, _secret(token_file))
        if json_:
            found = as_json(state, age) | ({"fault": fault.what} if fault else {})
            text = msgspec.json.format(msgspec.json.encode(found)).decode()
        elif fault:
            what = fault.what if fault.what.endswith("?") else f"{fault.what.rstrip('.')}."
            text = f"KILOWATCH UNKNOWN: {url}: {what} {_remedy(fault)}"
        else:
            text = "\n".join(text_lines(state, age))
        if json_:
            echo_json(text)
        else:
            echo(text, clear=watch and sys.stdout.isatty())
        if not watch:
            sys.exit(severity(state, age))
        time.sleep(2.0)
