"""`kilowatch doctor`: faults in the set-up of this machine, and their remedies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import broker_flags, broker_option, json_option, settings_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@click.command()
@settings_option
@broker_option
@click.option(
    "--role", type=click.Choice(["auto", "collector", "aggregator", "both", "viewer"]), default="auto",
    show_default=True, help="What this machine is for. auto follows its units, settings and driver.",
)  # fmt: skip
@json_option
def doctor(config: Path | None, broker: tuple[str, int] | None, role: str, as_json: bool) -> None:
    """Check what this machine needs for its role: driver, broker and rights, clock, disk, ports.

    The last line is the verdict. Exit code 0: no fault. 1: a fault, with its remedy."""
    from kilowatch.doctor.checks import run_checks  # noqa: PLC0415 - loads the sources
    from kilowatch.doctor.role import MachineRole, as_the_units_run, role_of  # noqa: PLC0415

    loaded = settings.load(config, flags=broker_flags(broker))
    of_machine, why = role_of(config, loaded) if role == "auto" else (MachineRole(role), "--role")
    findings = asyncio.run(run_checks(as_the_units_run(loaded), of_machine, why))
    if as_json:
        print_json(findings)
    else:
        print_findings([(each.level, f"{each.subject:12} {each.text}", each.cure) for each in findings], 15)
    if any(finding.level == "fault" for finding in findings):
        sys.exit(ExitCode.TICKET)


def print_findings(findings: Iterable[tuple[str, str, str]], indent: int) -> None:
    """Print level, text and remedy of each finding; remedies are indented."""
    for level, text, cure in findings:
        mark, colour = _MARKS[level]
        echo(f" {text}", mark=mark, fg=colour)
        if cure:
            echo(f"{'':{indent}}→ {cure}")
