"""`kilowatch plan` and `kilowatch power`: plan, check and import circuits."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from api.power import PlanRequest, PlanResult
from kilowatch.cli.aggregator import ca_option, web_address
from kilowatch.cli.arguments import json_option
from kilowatch.cli.output import echo, print_json
from kilowatch.clients.api import ApiClient, read_token
from kilowatch.clients.netbox import NetBox
from kilowatch.text.plan import plan_lines
from power.netbox import translate, write
from power.plan.plan import Suppose, make
from power.site.config import PowerConfig
from power.site.decode import decode, section
from power.site.layout import lay_out
from telemetry.errors import ConfigError
from telemetry.settings import read_toml


def read_site(path: Path) -> PowerConfig:
    """Return the electrical configuration of a TOML file. Raises `ConfigError`."""
    return decode(str(path), read_toml(path))


def _section(where: str, tree: dict[str, Any]) -> dict[str, Any]:
    inner = section(where, tree)
    if not inner:
        raise ConfigError(f"{where}: power", "there is nothing in it", "Write [power.circuits.office] and breaker = 15.")  # fmt: skip
    return inner


STATUSES = ("active", "planned", "offline", "failed")
"""Statuses of feeds in NetBox."""

_config = click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file with circuits, at the top or in a [power] section.",
)
_http = click.option(
    "--http",
    metavar="HOST:PORT",
    help="From the present load of a running cluster, instead of --config.",
)
_token = click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the aggregator's token, where it requires one.",
)


@click.command()
@_config
@_http
@_token
@ca_option
@click.option("--watts", multiple=True, metavar="NODE=W", help="A node draws this at the wall.")
@click.option("--add", multiple=True, metavar="MODEL[:N]", help="Add GPUs or systems; needs --on.")
@click.option("--on", multiple=True, metavar="CIRCUIT", help="Circuit for the preceding --add.")
@click.option("--cap", type=click.FloatRange(min=0, min_open=True), metavar="W", help="Power limit per GPU.")  # fmt: skip
@click.option(
    "--lose", multiple=True, metavar="FEED", help="A circuit, panel or source loses power."
)
@click.option("--move", multiple=True, metavar="NODE=CIRCUIT", help="Plug a node in elsewhere.")
@click.option("--preload", type=click.FloatRange(0, 2), default=0.0, metavar="RATIO", help="Load over rating that the breakers carried for hours before. [default: cold]")  # fmt: skip
@json_option
def plan(
    config: Path | None,
    http: str | None,
    token_file: Path | None,
    watts: tuple[str, ...],
    add: tuple[str, ...],
    on: tuple[str, ...],
    cap: float | None,
    lose: tuple[str, ...],
    move: tuple[str, ...],
    preload: float,
    as_json: bool,
) -> None:
    """Plan a change: load, limits and time to trip of every circuit. Nodes draw as much as they may, or
    --watts; with --http what they draw now, and breakers have their present heat."""
    if (config is None) == (http is None):
        raise click.UsageError("Name a file with --config, or a running cluster with --http.")
    if http is not None and preload:
        raise click.UsageError("--preload is for --config: a running cluster knows its breakers.")
    if len(add) != len(on):
        raise click.UsageError("Each --add needs its --on CIRCUIT.")
    asked = PlanRequest(
        watts={node: _watts(node, value) for node, value in map(_pair, watts)},
        add=tuple(zip(add, on, strict=True)),
        cap=cap,
        lose=lose,
        move=dict(map(_pair, move)),
    )
    if config is not None:
        answer = _planned(config, Suppose(**asdict(asked), preload=preload))
    else:
        api = ApiClient(web_address(str(http)), read_token(token_file))
        answer = api.post("/api/v1/power/plan", asked, PlanResult)
    if as_json:
        print_json(answer)
    else:
        echo("\n".join(plan_lines(answer)))


def _planned(path: Path, suppose: Suppose) -> PlanResult:
    """Return the plan of a file, by the shipped rules and those of its `[aggregator] rules`."""
    from alerts.engine.instant import firing_ids  # noqa: PLC0415 - loads the engine
    from alerts.rules.rule import load  # noqa: PLC0415

    tree = read_toml(path)
    aggregator = tree.get("aggregator")
    files = aggregator.get("rules") if isinstance(aggregator, dict) else None
    own = [Path(str(file)) for file in files] if isinstance(files, list) else []
    return make(str(path), decode(str(path), tree), suppose, partial(firing_ids, load(own)))


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left or not right:
        raise click.UsageError(f"{text!r} is no pair. Write NODE=VALUE.")
    return left, right


def _watts(node: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise click.UsageError(f"--watts {node}: {text!r} is no power. Write {node}=2500.")
    return value


@click.group()
def power() -> None:
    """Circuits, meters and budgets: check their settings, or import them."""


@power.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Check circuits, meters and budgets in FILE; exit code 2 when they are wrong.

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


@power.group("import")
def import_group() -> None:
    """Import circuits from another system; nothing is changed there or here."""


@import_group.command()
@click.argument("url")
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), help="File with an API token alone; reading is enough.")  # fmt: skip
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), default=("active",), help="Feeds of this status; again for more. [default: active]")  # fmt: skip
@click.option("--site", metavar="SLUG", help="Of one site alone.")
@click.option("--draws", is_flag=True, help="Take each device's draw in NetBox as its watts, for devices without a collector.")  # fmt: skip
@click.option("--ca-file", type=click.Path(dir_okay=False, path_type=Path), help="Certificates to trust in addition to those of this machine.")  # fmt: skip
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
        raise ConfigError(source.base, f"it has no power feed that is {' or '.join(statuses)}", "Draw feeds in NetBox first, or choose --status and --site otherwise.")  # fmt: skip
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
