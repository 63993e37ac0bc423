"""`kilowatch command`: an operator's command to a collector."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import DurationParam, broker_flags, broker_option, settings_option
from kilowatch.output import echo
from telemetry.wire.inventory import CommandKind
from telemetry.wire.topics import check_name

KINDS = (CommandKind.RELEASE, CommandKind.RESUME, CommandKind.INVENTORY)
"""`resend` is the aggregator's."""


@click.command()
@settings_option
@broker_option
@click.argument("node")
@click.argument("kind", type=click.Choice([each.value for each in KINDS]))
@click.option("--timeout", "seconds", type=DurationParam(), default=30.0, help="How long to wait. [30s]")
def command(config: Path | None, broker: tuple[str, int] | None, node: str, kind: str, seconds: float) -> None:
    """Have a node's collector release its driver for an upgrade, resume it, or send its inventory.

    It needs a user that the broker lets send commands: the aggregator's."""
    from kilowatch.clients.command import send_command  # noqa: PLC0415

    loaded = settings.load(config, flags=broker_flags(broker))
    check_name("NODE", node)
    state = asyncio.run(send_command(loaded.broker, loaded.cluster, node, CommandKind(kind), seconds))
    echo(f"{node}: the driver is {state}")
