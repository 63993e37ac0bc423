"""`kilowatch circuits`: the state of circuits, from a running aggregator."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from alerts.message.text import clean
from api.power import CircuitsReply, PlanRequest, PlanResult, PowerReply, RowsReply
from kilowatch.cli.aggregator import NEAREST, address_argument, ca_option, home, web_address
from kilowatch.cli.arguments import lose_option
from kilowatch.clients.api import ApiClient, read_token
from kilowatch.output import echo, echo_json, print_json
from kilowatch.text.circuits import circuit_lines, row_lines
from kilowatch.text.losses import loss_lines
from kilowatch.text.table import WIDTH
from present.circuit.outlook import ESTIMATE
from present.circuit.rules import NO_CIRCUITS
from present.circuit.set_aside import set_aside_lines
from present.units import watts
from telemetry.errors import KilowattError


@click.command()
@address_argument
@click.option("--http", metavar="HOST:PORT", help=f"The same as ADDRESS. [default: {NEAREST}]")
@ca_option
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the aggregator's token, where it requires one.",
)
@lose_option(
    "What the loss of circuits, panels, transformers, UPSs, transfer switches or sources puts on the others, from the present load."
)
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; null seconds mean never.")
def circuits(http: str | None, token_file: Path | None, lose: tuple[str, ...], watch: bool, as_json: bool) -> None:
    """Show every circuit: load, limits, headroom, heat of the breaker, and time to trip. ADDRESS is
    the aggregator's."""
    api = ApiClient(web_address(http or home()), read_token(token_file))
    if lose and watch:
        raise click.UsageError("--lose is asked once: leave --watch out.")
    if lose:
        answer = api.post("/api/v1/power/plan", PlanRequest(lose=lose), PlanResult)
        if as_json:
            print_json(answer)
        else:
            echo("\n".join(loss_lines(lose, answer)))
        return
    if not watch:
        if as_json:
            echo_json(_json(api))
        else:
            echo("\n".join(_lines(api)))
        return
    while True:
        try:
            text = _json(api) if as_json else "\n".join(_lines(api))
        except KilowattError as error:  # go on watching while the aggregator restarts
            text = str(error)
        if as_json:
            echo_json(text)
        else:
            echo(text, clear=sys.stdout.isatty())
        time.sleep(1.0)


def _json(api: ApiClient) -> str:
    found = {
        name: api.get(f"/api/v1/{path}", dict[str, Any])[key]
        for name, path, key in (
            ("circuits", "circuits", "circuits"),
            ("budgets", "budgets", "rows"),
            ("ups", "ups", "rows"),
        )
    }
    found["power"] = api.get("/api/v1/power", dict[str, Any])
    return msgspec.json.format(msgspec.json.encode(found)).decode()


def _lines(api: ApiClient) -> list[str]:
    power = api.get("/api/v1/power", PowerReply)
    if not power.configured:
        return [*textwrap.wrap(NO_CIRCUITS, WIDTH, break_on_hyphens=False), "", "Three lines are enough:",
                "", "    [power.circuits.office]", "    breaker = 15", '    nodes = ["rig1"]']  # fmt: skip
    found = api.get("/api/v1/circuits", CircuitsReply)
    draw = "" if power.wall_watts is None else f"  {watts(power.wall_watts)} at the wall"
    lines = [f"cluster {clean(found.cluster)}{draw}", *_problems(power)]
    lines += circuit_lines(found.circuits)
    lines += row_lines("budget", api.get("/api/v1/budgets", RowsReply).rows)
    lines += row_lines("UPS", api.get("/api/v1/ups", RowsReply).rows)
    return [*lines, ESTIMATE]


def _problems(power: PowerReply) -> list[str]:
    lines = []
    if power.failure is not None:
        lines.append(f"! no circuit, budget or UPS is monitored: {clean(power.failure)}")
    lines += [f"! {clean(line)}" for line in set_aside_lines(power.set_aside)]
    if power.site_problem:
        lines.append(f"! {clean(power.site_problem)}")
    elif power.site_leader:
        lines.append(f"judged by {clean(power.site_leader)}")
    if power.configuration.error is not None:
        lines.append(f"! the newest configuration is refused: {clean(power.configuration.error)}")
    if power.nodes_unmapped:
        few = ", ".join(map(clean, power.nodes_unmapped[:5]))
        more = f" and {len(power.nodes_unmapped) - 5} more" if len(power.nodes_unmapped) > 5 else ""
        lines.append(f"note: on no circuit: {few}{more}")
    lines += [f"note (E24): {clean(notice)}" for notice in power.notices]
    lines += [f"! meter {clean(m.name)}: {clean(m.error or '')}" for m in power.meters if not m.ok]
    return lines
