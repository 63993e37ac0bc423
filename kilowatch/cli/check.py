"""`kilowatch check`: whether this node is fit for work."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collector.sources import is_elsewhere
from kilowatch import settings
from kilowatch.cli.arguments import DurationParam, json_option, settings_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from telemetry.errors import ConfigError
from telemetry.text.printable import one_line

if TYPE_CHECKING:
    from kilowatch.check.verdict import CheckReply

_MARKS = {
    "fit": ("✓", "green"),
    "degraded": ("!", "yellow"),
    "unfit": ("✗", "red"),
    "not known": ("?", "magenta"),
    "left out": ("-", "bright_black"),
}
_CODES = {"fit": ExitCode.CLEAN, "degraded": ExitCode.TICKET, "unfit": ExitCode.PAGE, "not known": ExitCode.UNJUDGED}
_DETECTOR_CODES = {"fit": 0, "degraded": 0, "unfit": 1, "not known": 2}
"""Of custom plugins of node-problem-detector: OK, a problem, unknown."""
_DETECTOR_WIDTH = 80
"""Characters of a message that node-problem-detector keeps, unless it is set up otherwise."""


@click.command()
@settings_option
@click.option("--source", help="Where the readings come from. [default: collector.source]")
@click.option("--gpus", type=click.IntRange(0, 1024), help="GPUs that this node must have.")
@click.option(
    "--since",
    type=DurationParam(),
    default="1d",
    show_default=True,
    help="Age of the oldest line of the kernel log that counts.",
)
@click.option("--quick", is_flag=True, help="Wait for nothing: under two seconds.")
@click.option(
    "--full",
    is_flag=True,
    help="Measure too: memory bandwidth, GPUs over PCI Express and NVLink, a matrix product, dcgmi diag. Not on a "
    "node with a process on a GPU.",
)
@click.option(
    "--plugin",
    type=click.Choice(["slurm", "npd"]),
    help="As Slurm's HealthCheckProgram (drains and resumes the node), or as a custom plugin of node-problem-detector.",
)
@json_option
def check(
    config: Path | None,
    source: str | None,
    gpus: int | None,
    since: float,
    quick: bool,
    full: bool,
    plugin: str | None,
    as_json: bool,
) -> None:
    """Check whether this node is fit for work: driver, GPUs, kernel log, disk, clock.

    It reads once, runs nothing on the GPUs and changes nothing, except that --plugin slurm drains and resumes
    the node, and --full measures an idle node and keeps the results for the collector, so that the aggregator
    compares them with those of like nodes. docs/check.md says what is checked.

    Exit code 0: fit. 1: work may go on, but a person should look at it. 2: unfit. 3: not known, for a part
    could not be checked. With --plugin npd 0: no problem, 1: unfit, 2: not known.
    """
    from kilowatch.check.checks import CheckDepth, check_node  # noqa: PLC0415 - loads the rules
    from kilowatch.check.measurements import keep  # noqa: PLC0415

    if quick and full:
        raise ConfigError("--quick", "it measures nothing", "Leave --quick or --full out.")
    depth = CheckDepth.QUICK if quick else CheckDepth.FULL if full else CheckDepth.USUAL
    loaded = settings.load(config, flags={"collector.source": source}).collector
    if full and is_elsewhere(loaded.source):
        raise ConfigError("--full", f"{loaded.source} is not this machine", "Leave --full out.")
    reply = asyncio.run(check_node(loaded, gpus, since, depth=depth))
    if reply.measured and (why := keep(loaded.state_dir, reply, reply.measured)):
        echo(f"The results are not compared with those of other nodes: {why}.", err=True)
    if plugin == "npd":
        echo(_for_detector(reply))
        sys.exit(_DETECTOR_CODES[reply.verdict])
    if as_json:
        print_json(reply)
    else:
        _show(reply)
    if plugin == "slurm":
        from kilowatch.check.slurm import drain_or_resume  # noqa: PLC0415 - of Slurm's nodes alone

        echo(drain_or_resume(reply), err=True)
    sys.exit(_CODES[reply.verdict])


def _show(reply: CheckReply) -> None:
    for one in reply.results:
        mark, colour = _MARKS[one.verdict]
        echo(f" {one.check:12} {one_line(one.text)}", mark=mark, fg=colour)
        if one.action and one.verdict != "fit":
            echo(f"{'':15}→ {one_line(one.action)}")
    echo(f"{reply.node}: {reply.verdict}, checked in {reply.seconds:.1f} s")


def _for_detector(reply: CheckReply) -> str:
    """Return one line that fits; the reason is cut, never left out."""
    text = one_line(reply.reason) or "fit"
    return text if len(text) <= _DETECTOR_WIDTH else f"{text[: _DETECTOR_WIDTH - 1]}…"
