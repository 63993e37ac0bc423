"""`kilowatch doctor`: what is wrong with this machine's set-up, and the command that mends it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click
import msgspec

from kilowatch import settings
from kilowatch.cli.arguments import broker_option, settings_option

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@click.command()
@settings_option
@broker_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(config: Path | None, broker: tuple[str, int] | None, as_json: bool) -> None:
    """Check driver, permissions, broker, clock, disk and ports; exit code 1 on a fault."""
    from kilowatch.doctor import examine  # noqa: PLC0415 - loads the sources

    loaded = settings.load(
        config,
        flags={"broker.host": broker and broker[0], "broker.port": broker and broker[1]},
    )
    findings = asyncio.run(examine(loaded))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(findings), indent=2))
    else:
        for finding in findings:
            mark, colour = _MARKS[finding.level]
            click.echo(f"{click.style(mark, fg=colour)} {finding.subject:12} {finding.text}")
            if finding.cure:
                click.echo(f"{'':15}→ {finding.cure}")
    if any(finding.level == "fault" for finding in findings):
        sys.exit(1)
