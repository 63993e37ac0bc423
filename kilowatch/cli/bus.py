"""`tap` and `record`: messages of the bus on the terminal, or in a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import DurationParam, SizeParam, broker_flags, broker_option, settings_option
from kilowatch.output import echo
from telemetry.text import counted
from telemetry.wire.topics import Topic


@click.command()
@settings_option
@broker_option
@click.option("--node", default="+", help="Only this node.")
@click.option("--kind", type=click.Choice([kind.value for kind in Topic]), help="Only this kind.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line, with all values.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
def tap(
    config: Path | None, broker: tuple[str, int] | None, node: str, kind: str | None, as_json: bool, count: int | None
) -> None:
    """Print messages of the bus as text, binary frames too."""
    from kilowatch.clients.tap import run_tap  # noqa: PLC0415
    from kilowatch.stack.signals import stop_on_signals  # noqa: PLC0415

    loaded = settings.load(config, flags=broker_flags(broker))

    async def main() -> None:
        await run_tap(
            loaded.broker,
            loaded.cluster,
            node,
            kind or "+",
            as_json=as_json,
            count=count,
            stop=stop_on_signals(),
            write=echo,
        )

    asyncio.run(main())


@click.command()
@settings_option
@broker_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--node", default="+", help="Only this node.")
@click.option("--source", help="Record a source of this machine instead of the bus: nvml, ...")
@click.option("--for", "seconds", type=DurationParam(), help="End by itself after this time.")
@click.option(
    "--max-size", type=SizeParam(), default="16G", show_default=True, help="End by itself at this size of FILE."
)
def record(
    config: Path | None,
    broker: tuple[str, int] | None,
    file: Path,
    node: str,
    source: str | None,
    seconds: float | None,
    max_size: int,
) -> None:
    """Write everything on the bus to FILE; `collect --source recording:FILE` plays it again."""
    from collector.commands.recorder import Recorded, record_bus, record_source  # noqa: PLC0415
    from kilowatch.stack.signals import stop_after, stop_on_signals  # noqa: PLC0415

    loaded = settings.load(config, flags={**broker_flags(broker), "collector.source": source})

    async def main() -> Recorded:
        stop = stop_after(stop_on_signals(), seconds)
        if source:
            return await record_source(loaded.collector, file, stop, max_size=max_size)
        return await record_bus(loaded.broker, loaded.cluster, file, stop, node, max_size)

    done = asyncio.run(main())
    echo(f"{done.messages} messages in {file}", err=True)
    if done.left_out:
        echo(f"{counted(done.left_out, 'message')} that no collector sends left out", err=True)
    if done.full:
        echo("It has reached its size and was ended: --max-size", err=True)
