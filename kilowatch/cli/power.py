"""`kilowatch fit`, `cap` and `power`: find room, cap, check and import circuits."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal

import click

from aggregator.electrical.energy_sampler import zone_of
from aggregator.http.config import is_loopback
from api.power import CapPlan, CapRequest, FitRequest, FitResult
from kilowatch.cli.aggregator import address_argument, ca_option, web_address
from kilowatch.cli.arguments import json_option
from kilowatch.clients.api import ApiClient, read_token
from kilowatch.clients.netbox import NetBox
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from kilowatch.text.caps import cap_lines
from kilowatch.text.fit import fit_lines
from power.meters.base import MqttConfig
from power.netbox import translate, write
from power.plan.caps import plan_caps
from power.plan.fit import fit as find_places
from power.plan.fit import parse_watts
from power.site.attach import attach
from power.site.config import PowerConfig
from power.site.decode import decode, section
from power.site.layout import lay_out
from telemetry.errors import ConfigError
from telemetry.text.settings import read_toml


def read_site(path: Path) -> PowerConfig:
    """Return the electrical configuration of a TOML file. Raises `ConfigError`."""
    return site_in(path, read_toml(path))


def site_in(path: Path, tree: dict[str, Any]) -> PowerConfig:
    """Return the electrical configuration of parsed TOML. Raises `ConfigError`."""
    site = decode(str(path), tree)
    zone_of(str(path), site.site.timezone)
    return site


def _section(where: str, tree: dict[str, Any]) -> dict[str, Any]:
    inner = section(where, tree)
    if not inner:
        raise ConfigError(
            f"{where}: power", "there is nothing in it", "Write [power.circuits.office] and breaker = 15."
        )
    return inner


CODES = {True: ExitCode.CLEAN, False: ExitCode.TICKET, None: ExitCode.UNJUDGED}
"""Exit code by whether it holds; None is not known."""
STATUSES = ("active", "planned", "offline", "failed")
"""Statuses of feeds in NetBox."""

config_option = click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file with circuits, at the top or in a [power] section.",
)
http_option = click.option(
    "--http", metavar="HOST:PORT", help="From the present load of a running cluster, instead of --config."
)
token_option = click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the aggregator's token, where it requires one.",
)


class _Negative(click.Command):
    """A command whose argument may begin with a sign: `-3kW` is a wrong number and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [re.sub(r"^(?=-\d)", " ", text) for text in args])


@click.command(cls=_Negative)
@click.argument("what")
@address_argument
@config_option
@http_option
@token_option
@ca_option
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="How many: on the same circuits, or else spread over several. [1]",
)
@click.option("--feeds", type=int, metavar="N", help="Cords of each: 1, 2 or 4. [by its supplies]")
@click.option("--host-watts", type=float, metavar="W", help="All but the GPUs, inside the case. [250]")
@click.option("--top", type=click.IntRange(min=1), default=10, metavar="N", help="Places to show. [10]")
@json_option
def fit(
    what: str,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
    count: int,
    feeds: int | None,
    host_watts: float | None,
    top: int,
    as_json: bool,
) -> None:
    """Find circuits for new machines: WHAT is a system (dgx-h100), GPUs (rtx-5090:4) or watts (3.5kW).

    Places are ranked by what is left in normal state and after the worst loss of any one circuit, panel
    or source, when every node draws as much as it may. Exit code 0 when one takes them all, or several do, 1 when
    they have no room, 3 when that is not known.
    """
    if (config is None) == (http is None):
        raise click.UsageError("Name a file with --config, or a running cluster with --http.")
    asked = FitRequest(what=what.strip(), count=count, feeds=feeds, host_watts=host_watts, top=top)
    if config is not None:
        answer = find_places(str(config), read_site(config), asked)
    else:
        api = ApiClient(web_address(str(http)), read_token(token_file))
        answer = api.post("/api/v1/power/fit", asked, FitResult)
    if as_json:
        print_json(answer)
    else:
        echo("\n".join(fit_lines(answer)))
    sys.exit(_fit_code(answer))


def _fit_code(answer: FitResult) -> ExitCode:
    found = {place.fits for place in answer.places}
    if True in found or sum(one.count for one in answer.spread) == answer.count:
        return ExitCode.CLEAN
    return ExitCode.UNJUDGED if None in found else ExitCode.TICKET


@click.command()
@address_argument
@click.option("--circuit", required=True, metavar="NAME", help="A circuit, panel or other element.")
@click.option("--below", required=True, metavar="POWER", help="Power to stay below: 40kW, 12500W.")
@click.option(
    "--by",
    type=click.Choice(["ratio", "priority", "job"]),
    default="ratio",
    help="All GPUs at one ratio of their default limits, nodes of lower priority first, or job by job, that which draws most first. [ratio]",
)
@click.option("--margin", default="0%", metavar="MARGIN", help="Part of that power, or watts, to leave: 5%, 2kW. [0%]")
@config_option
@http_option
@token_option
@ca_option
@json_option
def cap(
    circuit: str,
    below: str,
    by: Literal["ratio", "priority", "job"],
    margin: str,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Plan power limits of single GPUs that hold a circuit below a power; nothing is applied.

    The commands are printed for a person to run. The throughput that a limit costs is known where busy
    GPUs of the model were measured at such a power. The first line says whether what is left is more than
    the error of the figures. Exit code 0 when the caps are enough, with the margin that was asked for, 1 when they
    are not, 3 when a node on the circuit has an unknown draw.
    """
    if (config is None) == (http is None):
        raise click.UsageError("Name a file with --config, or a running cluster with --http.")
    watts = parse_watts(below)
    if watts is None:
        raise click.UsageError(f"--below: {below!r} is no power. Write 40kW or 12500W.")
    percent = re.fullmatch(r"(\d+(?:\.\d*)?) ?%", margin.strip())
    left = float(percent[1]) / 100 * watts if percent else parse_watts(margin)
    if left is None:
        raise click.UsageError(f"--margin: {margin!r} is no margin. Write 5% or 2kW.")
    asked = CapRequest(circuit=circuit, below_watts=watts, by=by, margin_watts=left)
    if config is not None:
        answer = plan_caps(str(config), read_site(config), asked)
    else:
        api = ApiClient(web_address(str(http)), read_token(token_file))
        answer = api.post("/api/v1/power/cap", asked, CapPlan)
    if as_json:
        print_json(answer)
    else:
        echo("\n".join(cap_lines(answer)))
    sys.exit(CODES[answer.met])


@click.group()
def power() -> None:
    """Circuits, meters and budgets: check their settings, or import them."""


@power.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Check circuits, meters and budgets in FILE; exit code 64 when they are wrong.

    Notes name settings that are allowed but probably wrong.
    """
    from aggregator.electrical.site_loader import load_site  # noqa: PLC0415 - loads all that reads meters

    loaded = load_site(str(file), _section(str(file), read_toml(file)))
    config, layout = loaded.config, loaded.layout
    counts = {
        "circuits": len(config.circuits),
        "panels": len(config.panels),
        "nodes": len(config.nodes) if layout is None else len(layout.machines),
        "things metered": len(loaded.metered),
        "budgets": len(config.budgets),
        "UPS": len(config.ups),
    }
    echo(f"{file}: ok: " + ", ".join(f"{what} {n}" for what, n in counts.items() if n))
    for notice in () if layout is None else layout.notices:
        echo(f"note (E24): {notice}")
    if names := _on_own_broker(file, config):
        echo(
            f"note: {', '.join(names)}: no broker is named, so that they must publish to kilowatch's own; that of `kilowatch run` "
            "takes devices on the network with --meters-port, and else none"
        )


def _on_own_broker(file: Path, config: PowerConfig) -> list[str]:
    """Return the meters that publish to kilowatch's own broker, where that is one of this machine alone."""
    broker = read_toml(file).get("broker")
    host = broker.get("host", "") if isinstance(broker, dict) else ""
    if config.meter_broker is not None or (host and not is_loopback(host)):
        return []
    meters = attach(str(file), config)
    return [f"meters.{one.name}" for one in meters if isinstance(one.config, MqttConfig) and one.config.broker is None]


@power.group("import")
def import_group() -> None:
    """Import circuits from another system; nothing is changed there or here."""


@import_group.command()
@click.argument("url")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with an API token alone; reading is enough.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    default=("active",),
    help="Feeds of this status; again for more. [default: active]",
)
@click.option("--site", metavar="SLUG", help="Of one site alone.")
@click.option(
    "--draws", is_flag=True, help="Take each device's draw in NetBox as its watts, for devices without a collector."
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificates to trust in addition to those of this machine.",
)
@click.option("--insecure", is_flag=True, help="Do not check the certificate.")
def netbox(
    url: str,
    token_file: Path | None,
    statuses: tuple[str, ...],
    site: str | None,
    draws: bool,
    ca_file: Path | None,
    insecure: bool,
) -> None:
    """Print NetBox's panels, feeds and cords as a [power] section.

    Comments name what NetBox lacks, and what kilowatch does not use.
    """
    source = NetBox(url, read_token(token_file), ca_file=ca_file, verify=not insecure)
    pages = source.pages(statuses, site)
    if not pages["power-feeds"]:
        raise ConfigError(
            source.base,
            f"it has no power feed that is {' or '.join(statuses)}",
            "Draw feeds in NetBox first, or choose --status and --site otherwise.",
        )
    text = write(translate(source.base, pages, draws=draws), source.base)
    echo(text, nl=False)
    try:
        laid_out = lay_out("imported", decode("imported", tomllib.loads(text)))
    except ConfigError as error:
        # NetBox allows impossible circuits; the text is still the place to correct them.
        echo(f"Correct this before you use it: {error}", err=True)
        return
    for notice in laid_out.notices:
        echo(f"note (E24): {notice}", err=True)
