"""`kilowatch plan`: whether circuits bear what is supposed, of a breaker alone, a file or a running cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from api.power import PlanRequest, PlanResult
from kilowatch.cli.aggregator import address_argument, ca_option, web_address
from kilowatch.cli.arguments import json_option, lose_option
from kilowatch.cli.power import CODES, config_option, http_option, site_in, token_option
from kilowatch.clients.api import ApiClient, read_token
from kilowatch.output import echo, print_json
from kilowatch.text.plan import plan_lines
from power.plan.one_circuit import WHERE, BreakerQuestion, assumed, option_of, site_of
from power.plan.plan import Suppose, make
from power.site.config import PowerConfig
from telemetry.errors import ConfigError
from telemetry.text.settings import read_toml


@click.command()
@address_argument
@config_option
@http_option
@token_option
@ca_option
@click.option("--watts", multiple=True, metavar="NODE=W", help="A node draws this at the wall.")
@click.option(
    "--add",
    multiple=True,
    metavar="MODEL[:N][,...][@CORDS]",
    help="Add GPUs or systems: dgx-h100@R12-A+R12-B has a cord into each, rtx-4090:2,rtx-a6000@lab two models in one node.",
)
@click.option("--on", multiple=True, metavar="CORDS", help="Circuits for an --add without @.")
@click.option("--cap", type=click.FloatRange(min=0, min_open=True), metavar="W", help="Power limit per GPU.")
@lose_option("A circuit, panel or source loses power, or a supply fails: dgx-01.psu-3.")
@click.option("--move", multiple=True, metavar="NODE=CORDS", help="Plug a node in elsewhere: dgx-01=R12-A+R12-B.")
@click.option(
    "--preload",
    type=click.FloatRange(0, 2),
    default=0.0,
    metavar="RATIO",
    help="Load over rating that the breakers carried for hours before. [default: cold]",
)
@click.option(
    "--breaker", metavar="AMPS", help="Without a file: one machine on one breaker, by the number on its handle."
)
@click.option(
    "--gpus",
    multiple=True,
    metavar="GPUS",
    help="With --breaker: '4x RTX 5090', or a system as dgx-h100; again for another model.",
)
@click.option(
    "--region", metavar="CC", help="With --breaker: two letters of the country, for its voltage and breakers."
)
@click.option("--volts", type=float, metavar="V", help="With --breaker: of the outlet. [by region]")
@click.option("--host-watts", type=float, metavar="W", help="With --breaker: all of the machine but its GPUs. [250]")
@click.option(
    "--other-watts",
    type=float,
    default=0.0,
    metavar="W",
    help="With --breaker: all else on it, as a heater or a screen.",
)
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
    **typed: Any,
) -> None:
    """Plan a change: whether every circuit bears it, with load, limits and time to trip. Nodes draw as much as they
    may, or --watts; with --http what they draw now, and breakers have their present heat.

    Without a file: kilowatch plan --breaker 20 --gpus '4x RTX 5090' --region US. Exit code 0 when it holds, 1 when it
    does not, 3 when a load is not known.
    """
    question = _question(typed, add, [on, lose, move])
    if [config, http, question].count(None) != 2:
        raise click.UsageError(
            "Name a breaker with --breaker and --gpus, a file with --config, or a running cluster with --http."
        )
    if http is not None and preload:
        raise click.UsageError("--preload is for --config: a running cluster knows its breakers.")
    asked = PlanRequest(
        watts={node: _watts(node, value) for node, value in map(_pair, watts)},
        add=() if question else _added(add, on),
        cap=cap,
        lose=lose,
        move=dict(map(_pair, move)),
    )
    if http is not None:
        api = ApiClient(web_address(http), read_token(token_file))
        answer = api.post("/api/v1/power/plan", asked, PlanResult)
    else:
        answer = _answered(question, config, Suppose(**asdict(asked), preload=preload))
    if as_json:
        print_json(answer)
    else:
        echo("\n".join(plan_lines(answer, assumed(question) if question else "")))
    sys.exit(CODES[answer.holds])


def _question(typed: dict[str, Any], add: Sequence[str], others: Sequence[object]) -> BreakerQuestion | None:
    """Return what is asked without a file; None where no breaker is named. An --add is one more card in the machine."""
    if typed["breaker"] is None:
        if given := [name for name, value in typed.items() if value]:
            raise click.UsageError(f"--{given[0].replace('_', '-')} belongs to --breaker.")
        return None
    if not typed["gpus"]:
        raise click.UsageError("--breaker: with what on it? Add --gpus '4x RTX 5090'.")
    if any(others) or any("@" in text for text in add):
        raise click.UsageError(
            "--breaker has one circuit: --on, --lose, --move and an --add with @ need a file, and --config."
        )
    return BreakerQuestion(**{**typed, "gpus": (*typed["gpus"], *add)})


def _answered(asked: BreakerQuestion | None, file: Path | None, suppose: Suppose) -> PlanResult:
    if asked is None:
        assert file is not None  # noqa: S101 - one of both is given
        return _planned(file, suppose)
    try:
        return _made(WHERE, site_of(asked), suppose)
    except ConfigError as error:
        raise option_of(error) from None


def _planned(path: Path, suppose: Suppose) -> PlanResult:
    """Return the plan of a file, by the shipped rules and those of its `[aggregator] rules`."""
    tree = read_toml(path)
    aggregator = tree.get("aggregator")
    files = aggregator.get("rules") if isinstance(aggregator, dict) else None
    own = [Path(str(file)) for file in files] if isinstance(files, list) else []
    return _made(str(path), site_in(path, tree), suppose, own)


def _made(where: str, site: PowerConfig, suppose: Suppose, rules: Sequence[Path] = ()) -> PlanResult:
    from alerts.engine.instant import firing_ids  # noqa: PLC0415 - loads the engine
    from alerts.rules.rule import load  # noqa: PLC0415

    return make(where, site, suppose, partial(firing_ids, load(rules)))


def _added(add: tuple[str, ...], on: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return what is added with its cords: after its own `@`, else the next `--on`."""
    rest, pairs = list(on), []
    for text in add:
        what, at, cords = text.partition("@")
        if not at and not rest:
            raise click.UsageError(f"--add {text}: where? Write --add {text}@R12-A+R12-B, or --on CIRCUIT.")
        pairs.append((what, cords if at else rest.pop(0)))
    if rest:
        raise click.UsageError(f"--on {rest[0]} belongs to no --add.")
    return tuple(pairs)


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
