"""`kilowatch doctor`: faults in the set-up of this machine, and their remedies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import (
    broker_flags,
    broker_option,
    json_option,
    settings_option,
)
from kilowatch.cli.output import echo, print_json

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@click.command()
@settings_option
@broker_option
@json_option
def doctor(config: Path | None, broker: tuple[str, int] | None, as_json: bool) -> None:
    """Check driver, permissions, broker, clock, disk and ports; exit code 1 on a fault."""
    from kilowatch.doctor.checks import run_checks  # noqa: PLC0415 - loads the sources

    loaded = settings.load(
        config,
        flags=broker_flags(broker),
    )
    findings = asyncio.run(run_checks(loaded))
    if as_json:
        print_json(findings)
    else:
        print_findings(
            [(each.level, f"{each.subject:12} {each.text}", each.cure) for each in findings], 15
        )
    if any(finding.level == "fault" for finding in findings):
        sys.exit(1)


def print_findings(findings: Iterable[tuple[str, str, str]], indent: int) -> None:
    """Print level, text and remedy of each finding; remedies are indented."""
    for level, text, cure in findings:
        mark, colour = _MARKS[level]
        echo(f" {text}", mark=mark, fg=colour)
        if cure:
            echo(f"{'':{indent}}→ {cure}")
