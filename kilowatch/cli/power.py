"""`kilowatch plan` and `kilowatch report`: the electrical side without a running cluster."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
import msgspec

from power.answer import CircuitPlan, Plan
from power.plan import Suppose, make
from power.report import Report, describe, times_cheaper
from power.roster import parts_of
from power.site import Site, decode
from telemetry.errors import ConfigError


def read_site(path: Path) -> Site:
    """Return the electrical configuration of a TOML file. Raises `ConfigError`."""
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(str(path), "there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"it can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), f"it is not TOML: {error}") from error
    return decode(str(path), tree)


_config = click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="TOML file with circuits, at the top or in a [power] section.",
)
_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.command()
@_config
@click.option("--watts", multiple=True, metavar="NODE=W", help="A node draws this at the wall.")
@click.option("--add", multiple=True, metavar="MODEL[:N]", help="Add GPUs or systems; needs --on.")
@click.option("--on", multiple=True, metavar="CIRCUIT", help="Where the --add before it goes.")
@click.option("--cap", type=click.FloatRange(min=0, min_open=True), metavar="W", help="Power limit per GPU.")  # fmt: skip
@click.option("--lose", multiple=True, metavar="FEED", help="A circuit, panel or source goes off.")
@click.option("--move", multiple=True, metavar="NODE=CIRCUIT", help="Plug a node in elsewhere.")
@click.option("--preload", type=click.FloatRange(0, 2), default=0.0, metavar="RATIO", help="Load over rating that the breakers carried for hours before. [default: cold]")  # fmt: skip
@_json
def plan(
    config: Path,
    watts: tuple[str, ...],
    add: tuple[str, ...],
    on: tuple[str, ...],
    cap: float | None,
    lose: tuple[str, ...],
    move: tuple[str, ...],
    preload: float,
    as_json: bool,
) -> None:
    """What if: load, limits and time to trip of every circuit. Nodes draw what they may, or --watts."""
    if len(add) != len(on):
        raise click.UsageError("Each --add needs its --on CIRCUIT.")
    suppose = Suppose(
        watts={node: _watts(node, value) for node, value in map(_pair, watts)},
        add=tuple(zip(add, on, strict=True)),
        cap=cap,
        lose=lose,
        move=dict(map(_pair, move)),
        preload=preload,
    )
    answer = make(str(config), read_site(config), suppose)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        click.echo("\n".join(plan_lines(answer)))


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


def plan_lines(answer: Plan) -> list[str]:
    """Return the plan for people."""
    lines = []
    for circuit in [*answer.panels, *answer.circuits]:
        amps = " ".join(f"{pole} {value:.1f} A" for pole, value in circuit.amps.items())
        alerts = " ".join(circuit.alerts) or "ok"
        lines.append(
            f"{circuit.id}: {circuit.watts:.0f} W, {amps} of {circuit.continuous_amps:g} A all day "
            f"and {circuit.rated_amps:g} A at most; {_trip(circuit)}; {alerts}"
        )
        if circuit.cap is not None:
            floor = circuit.cap.floor_watts
            lines.append(
                f"  a cap of {circuit.cap.watts_per_gpu} W per GPU clears it"
                if circuit.cap.reachable
                else f"  it would take {circuit.cap.watts_per_gpu} W per GPU"
                + (f", below the {floor:g} W floor of the card" if floor is not None else "")
            )
            lines += [f"  or: {way}" for way in circuit.cap.instead]
    lines += [f"{n.id}: supplies {n.supply_load or 0:.0%} loaded; E15" for n in answer.nodes if n.alerts]  # fmt: skip
    lines += [f"{b.id}: {b.kw:g} kW of {b.limit_kw:g}; E22" for b in answer.budgets if b.alerts]
    lines += [f"note (E24): {notice}" for notice in answer.notices]
    return [*lines, "Times are estimates; a breaker may trip earlier or later."]


def _trip(circuit: CircuitPlan) -> str:
    earliest, latest = circuit.trip_seconds["earliest"], circuit.trip_seconds["latest"]
    if earliest is None:
        return "no trip expected"
    return f"trip in {_time(earliest)} .. {_time(latest) if latest is not None else 'never'}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@click.command()
@_config
@click.option("--compare", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Another cluster beside it.")  # fmt: skip
@_json
def report(config: Path, compare: Path | None, as_json: bool) -> None:
    """What a configured cluster is: GPUs, memory, draw, price, and what that compares with."""
    reports = {str(path): _describe(path) for path in (config, compare) if path is not None}
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(reports)).decode())
        return
    for name, one in reports.items():
        click.echo("\n".join([name, *report_lines(one)]))
    if compare is not None:
        one, other = (reports[str(config)], reports[str(compare)])
        times = times_cheaper(one, other)
        if times is not None:
            click.echo(f"{compare} is {times:.1f} times cheaper than {config}")


def _describe(path: Path) -> Report:
    site = read_site(path)
    parts = parts_of(str(path), site)
    return describe(parts, home_watts=site.site.home_watts, ev_kwh=site.site.ev_kwh)


def report_lines(one: Report) -> list[str]:
    """Return a report for people."""
    pools = ", ".join(f"{gb:g} GB over {gpus} GPUs" for gpus, gb in one.pools)
    return [
        "  " + ", ".join(f"{count} x {model}" for model, count in one.gpus.items()),
        f"  {one.memory_gb:g} GB in pools of {pools}: a {one.verdict}",
        f"  {one.sustained_watts:.0f} W sustained, {one.peak_watts:.0f} W peak",
        f"  {one.homes:.2f} homes, {one.ev_hours:.2f} h to drain an electric car",
        f"  {one.price_usd:,.0f} USD" if one.price_usd is not None else "  price not known",
    ]
