"""`run`, `collect`, `aggregate`: collector and aggregator as services."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.config import AggregatorConfig
from collector.config import CollectorConfig
from kilowatch import settings
from kilowatch.cli.arguments import (
    AddressParam,
    DurationParam,
    broker_flags,
    broker_option,
    log_format_option,
    settings_option,
    write_option,
)
from kilowatch.output import echo, echo_json
from kilowatch.stack.foreground import announce, start_reports, watch_with_dashboard
from kilowatch.stack.parent import ParentPipe
from kilowatch.stack.ports import pick_address
from kilowatch.stack.signals import on_hangup, stop_on_signals
from telemetry.errors import ConfigError
from telemetry.runtime.release import release
from telemetry.runtime.systemd import ServiceManager
from telemetry.text.service_log import log as service_log
from telemetry.text.service_log import log_refused, log_reload, log_start, logs_json

if TYPE_CHECKING:
    from kilowatch.stack.stack import StackOutcome


@click.command()
@settings_option
@log_format_option
@click.option("--source", help="Source of readings; `kilowatch collect --help` lists them.")
@click.option("--no-ui", is_flag=True, help="Without the dashboard; Ctrl-C ends it.")
@write_option
@click.option("--for", "seconds", type=DurationParam(), help="End by itself after this time.")
@click.option("--http", type=AddressParam(), help="Where to serve HTTP. [default: 127.0.0.1:9400]")
@click.option("--broker-port", type=int, help="Port of the embedded broker. [default: 1883]")
@click.option(
    "--meters-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Run a broker for smart plugs and meters too, on every address of this machine: docs/meters.md.",
)
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Folder of the data.")
@click.option("--until-eof", is_flag=True, hidden=True, help="End when standard input ends.")
def run(
    config: Path | None,
    source: str | None,
    no_ui: bool,
    write: bool,
    seconds: float | None,
    http: tuple[str, int] | None,
    broker_port: int | None,
    meters_port: int | None,
    data: Path | None,
    until_eof: bool,
) -> None:
    """Watch this machine: broker, collector, aggregator and dashboard in one.

    Without a GPU driver it shows a simulated desktop of four RTX 5090, marked as such. The header has the
    address of the web pages.
    """
    parent = ParentPipe() if until_eof else None  # first: from now on it ends with its parent

    def read() -> settings.Settings:
        from aggregator.electrical.site_loader import load_site  # noqa: PLC0415 - keep --help quick

        loaded = settings.load(config, flags={"collector.source": source})
        load_site(settings.where(config), loaded.aggregator.power)
        return loaded

    loaded = read()
    host, port = pick_address(http or _address(loaded.aggregator.listen), given=http is not None)
    if not no_ui and sys.stdout.isatty():
        arguments = [*sys.argv[1:], "--no-ui", "--http", f"{host}:{port}"]
        watch_with_dashboard(arguments, host, port, "this machine", write=write)
        return
    from kilowatch.stack.run import run_machine  # noqa: PLC0415 - loads DuckDB

    def reloaded() -> None:
        with contextlib.suppress(ConfigError):  # the aggregator's reload has logged it
            log_reload("collector", loaded.collector, read().collector, applied="")

    async def main() -> StackOutcome:
        with start_reports(to_parent=until_eof) as report:
            return await run_machine(
                loaded,
                reloaded=reloaded,
                reread=lambda: read().aggregator,
                http=(host, port),
                broker_port=broker_port,
                meters_port=meters_port,
                data=data,
                seconds=seconds,
                stop=stop_on_signals(parent),
                announce=service_log.info if logs_json() else announce,
                report=report,
            )

    outcome = asyncio.run(main())
    echo(
        f"stored {outcome.frames_stored} of {outcome.frames_published} frames in {outcome.data}",
        err=until_eof,  # the parent reads the progress of the start there
    )


def _log_aggregator(config: AggregatorConfig, address: tuple[str, int] | None) -> None:
    from kilowatch.stack.start_line import aggregator_facts  # noqa: PLC0415

    log_start("aggregator", release(), aggregator_facts(config, address))


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


@click.command()
@settings_option
@broker_option
@click.option(
    "--source",
    help="auto | nvml | amd | nvml+amd | nvidia-smi | nvidia-smi:FILE | simulated:SCENARIO[/NODE] | "
    "recording:FILE. auto takes NVML, else the nvidia-smi command.",
)
@click.option("--node", help="This node's name. [default: the host name]")
@click.option("--once", is_flag=True, help="Print one reading as JSON and exit; needs no broker.")
@click.option("--json", "as_json", is_flag=True, help="With --once: JSON (which it is anyway).")
@log_format_option
def collect(
    config: Path | None, broker: tuple[str, int] | None, source: str | None, node: str | None, once: bool, as_json: bool
) -> None:
    """Read this node's GPUs and publish the readings."""
    if as_json and not once:
        raise ConfigError("--json", "it belongs to --once", "Without --once frames go to the bus.")

    def read() -> CollectorConfig:
        flags = {"collector.source": source, "collector.node": node, **broker_flags(broker)}
        return settings.load(config, flags=flags).collector

    loaded = read()
    if once:
        from collector.commands.once import once as read_once  # noqa: PLC0415

        document = asyncio.run(read_once(loaded))
        echo_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        return
    from collector.service import main_loop  # noqa: PLC0415 - the collector loads no NumPy
    from kilowatch.stack.start_line import collector_facts  # noqa: PLC0415

    def reload() -> None:
        try:
            log_reload("collector", loaded, read(), applied="")
        except ConfigError as error:
            log_refused(error)

    manager = ServiceManager.of(os.environ)
    log_start("collector", release(), collector_facts(loaded))
    main_loop(loaded, manager=manager, hangup=functools.partial(manager.reload, reload))


@click.command()
@settings_option
@broker_option
@click.option("--http", type=AddressParam(), help="Where to serve HTTP. [default: 127.0.0.1:9400]")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Folder of the data.")
@log_format_option
def aggregate(
    config: Path | None, broker: tuple[str, int] | None, http: tuple[str, int] | None, data: Path | None
) -> None:
    """Receive and store the frames of all nodes, evaluate rules, notify, and serve HTTP."""
    gc.disable()  # until `aggregator.load.heap` turns it on: what modules make stays, and they load an eighth quicker
    from aggregator.electrical.site_loader import load_site  # noqa: PLC0415
    from aggregator.service import Aggregator  # noqa: PLC0415

    def read() -> AggregatorConfig:
        loaded = settings.load(
            config,
            flags={
                **broker_flags(broker),
                "aggregator.listen": http and f"{http[0]}:{http[1]}",
                "aggregator.data_dir": data and str(data),
            },
        )
        load_site(settings.where(config), loaded.aggregator.power)
        return loaded.aggregator

    loaded = read()

    async def main() -> None:
        aggregator, stop = Aggregator(loaded, reread=read), stop_on_signals()
        aggregator.when_serving = functools.partial(_log_aggregator, loaded)
        manager = ServiceManager.of(os.environ)
        on_hangup(functools.partial(manager.reload, aggregator.reload))
        await manager.accompany(aggregator.run(stop), stop, aggregator.serving, aggregator.marks, aggregator.status)

    asyncio.run(main())
