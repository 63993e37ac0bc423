"""`kilowatch who`: who uses the GPUs, now."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import broker_flags, broker_option, json_option, settings_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json


@click.command()
@settings_option
@broker_option
@click.option("--source", help="Source of the GPUs of this machine, as for `kilowatch collect`.")
@click.argument("what", required=False, metavar="[NODE|GPU]")
@json_option
def who(
    config: Path | None,
    broker: tuple[str, int] | None,
    source: str | None,
    what: str | None,
    as_json: bool,
) -> None:
    """Show the processes on each GPU with user, job, memory and use (docs/jobs.md).

    Without an argument, or with the index, UUID or PCI address of a GPU: of this machine, read now, without
    a broker. With the name of a NODE: what its collector published last.
    """
    from collector.commands.jobs_once import jobs_once  # noqa: PLC0415 - keep --help quick
    from kilowatch.clients.node_jobs import node_jobs  # noqa: PLC0415
    from kilowatch.text.who import find_gpu, is_gpu, troubled, who_lines  # noqa: PLC0415

    flags = {"collector.source": source, **broker_flags(broker)}
    loaded = settings.load(config, flags=flags)
    if what is None or is_gpu(what) or what == loaded.collector.node:
        inventory, found = asyncio.run(jobs_once(loaded.collector))
    else:
        inventory, found = asyncio.run(node_jobs(loaded.broker, loaded.cluster, what))
    gpus = inventory.gpus
    if what is not None and is_gpu(what):
        gpus = (find_gpu(gpus, what),)
    if as_json:
        print_json(found)
    else:
        for line in who_lines(inventory, gpus, found, time.time_ns()):
            echo(line)
    if troubled(inventory, found):
        sys.exit(ExitCode.UNJUDGED)
