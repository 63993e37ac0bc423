"""`kilowatch who`: who uses the GPUs, now."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import AddressParam, broker_flags, json_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json


@click.command()
@click.argument("what", required=False, metavar="[NODE|GPU]")
@address_argument
@click.option("--broker", type=AddressParam(), help="Ask this MQTT broker, where no aggregator runs.")
@click.option("--source", help="Source of the GPUs of this machine, as for `kilowatch collect`.")
@json_option
@aggregator_options
def who(
    what: str | None,
    broker: tuple[str, int] | None,
    source: str | None,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Show the processes on each GPU with user, job, memory and use (docs/jobs.md).

    Without an argument, or with the index, UUID or PCI address of a GPU: of this machine, read now, without
    a broker. With the name of a NODE: what its collector published last, from an aggregator.
    """
    from collector.commands.jobs_once import jobs_once  # noqa: PLC0415 - keep --help quick
    from kilowatch.clients.node_jobs import node_jobs, published_jobs  # noqa: PLC0415
    from kilowatch.text.who import find_gpu, is_gpu, troubled, who_lines  # noqa: PLC0415

    flags = {"collector.source": source, **broker_flags(broker)}
    loaded = settings.load(config, flags=flags)
    elsewhere = what is not None and not is_gpu(what)
    if http is not None and not elsewhere:
        raise click.UsageError("Of which node? An aggregator knows nodes: kilowatch who NODE ADDRESS.")
    if what is not None and http is not None:
        inventory, found = node_jobs(open_api(config, http, token_file), what)
    elif not elsewhere or what in {None, loaded.collector.node}:
        inventory, found = asyncio.run(jobs_once(loaded.collector))
    elif broker is not None:
        inventory, found = asyncio.run(published_jobs(loaded.broker, loaded.cluster, str(what)))
    else:
        inventory, found = node_jobs(open_api(config, None, token_file), str(what))
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
