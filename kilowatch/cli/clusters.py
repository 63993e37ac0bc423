"""`kilowatch demo`: a simulated cluster, through a real bus into a real store."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilowatch.cli.arguments import AddressParam, DurationParam, write_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from kilowatch.stack.foreground import announce, start_reports, watch_with_dashboard
from kilowatch.stack.open_files import allow_open_files
from kilowatch.stack.parent import ParentPipe
from kilowatch.stack.ports import free_port, pick_address
from kilowatch.stack.signals import stop_on_signals
from telemetry.text import counted

if TYPE_CHECKING:
    from kilowatch.stack.stack import StackOutcome


@click.command()
@click.option("--scenario", default="desktop-4x5090", show_default=True, help="desktop-4x5090 | two-dgx-h100 | fleet")
@click.option("--nodes", type=click.IntRange(1, 20000), help="Nodes, for the scenario `fleet`.")
@click.option("--gpus", type=click.IntRange(1, 72), help="GPUs per node, for `fleet`.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same values.")
@click.option("--faults", help="Instead of the scenario's: xid79@dgx-01/3+30s, hung@dgx-02/0+10s; `none`.")
@click.option("--no-ui", is_flag=True, help="Without the dashboard; Ctrl-C ends it.")
@write_option
@click.option("--for", "seconds", type=DurationParam(), help="End by itself after this time.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON at the end.")
@click.option("--http", type=AddressParam(), help="Where to serve HTTP. [default: a free port]")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Folder of the data. [default: removed at the end]"
)
@click.option("--until-eof", is_flag=True, hidden=True, help="End when standard input ends.")
def demo(
    scenario: str,
    nodes: int | None,
    gpus: int | None,
    seed: int,
    faults: str | None,
    no_ui: bool,
    write: bool,
    seconds: float | None,
    as_json: bool,
    http: tuple[str, int] | None,
    data: Path | None,
    until_eof: bool,
) -> None:
    """Run a simulated cluster: real broker, collectors and aggregator, simulated GPUs.

    The header has the address of the web pages.
    """
    parent = ParentPipe() if until_eof else None  # first: from now on it ends with its parent
    host, port = pick_address(http, given=True) if http else ("127.0.0.1", free_port())
    if not no_ui and sys.stdout.isatty():
        from collector.simulated import scenario as simulated  # noqa: PLC0415 - keep --help quick

        cluster = simulated(scenario, nodes=nodes, gpus=gpus, seed=seed, faults=faults)
        allow_open_files(len(cluster.nodes))
        what = f"SIMULATED data: {scenario}, {counted(len(cluster.nodes), 'node')}"
        arguments = [*sys.argv[1:], "--no-ui", "--http", f"{host}:{port}"]
        watch_with_dashboard(arguments, host, port, what, write=write)
        return
    from kilowatch.stack.demo import run_demo  # noqa: PLC0415 - loads DuckDB

    async def main() -> StackOutcome:
        with start_reports(to_parent=until_eof) as report:
            return await run_demo(
                scenario,
                nodes=nodes,
                gpus=gpus,
                seed=seed,
                faults=faults,
                http=(host, port),
                data=data,
                seconds=seconds,
                stop=stop_on_signals(parent),
                announce=announce,
                report=report,
            )

    outcome = asyncio.run(main())
    if as_json:
        print_json(outcome)
    else:
        echo(
            f"{outcome.nodes} nodes, {outcome.gpus} GPUs, {outcome.seconds} s: "
            f"{outcome.frames_stored} of {outcome.frames_published} frames stored, "
            f"{outcome.frames_lost} lost, {outcome.events} events, {outcome.alerts} alerts",
            err=until_eof,  # the parent reads the progress of the start there
        )
    if outcome.frames_lost:
        sys.exit(ExitCode.TICKET)
