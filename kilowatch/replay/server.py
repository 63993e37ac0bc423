"""`kilowatch top --replay FILE`: a child process that serves the recording, and the dashboard."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from collector.recording.file import no_message, read, read_header
from kilowatch import settings
from kilowatch.stack.foreground import StartedAggregator, announce, start_reports, watch_with_dashboard
from kilowatch.stack.parent import ParentPipe
from kilowatch.stack.ports import free_port
from kilowatch.stack.signals import stop_on_signals
from kilowatch.stack.start import StartReport
from telemetry.text import counted

NAME = "recording"


def watch_recording(file: Path, config: Path | None, show: Callable[[str, StartedAggregator], None]) -> None:
    """Read FILE in a child process and show the dashboard. Raises `SourceError` for a file that is no
    recording, or is empty."""
    check(file)
    host, port = "127.0.0.1", free_port()
    arguments = ["top", "--replay", str(file), "--serve", f"{host}:{port}"]
    if config is not None:
        arguments += ["--config", str(config)]
    watch_with_dashboard(arguments, host, port, f"recording {file}", show)


def check(file: Path) -> None:
    """Raise `SourceError` for a file that is no recording, or is empty."""
    read_header(file)
    if next(read(file), None) is None:
        raise no_message(file)


def serve_recording(file: Path, config: Path | None, where: tuple[str, int], *, until_eof: bool) -> None:
    """Read FILE, and serve it until a signal ends it."""
    parent = ParentPipe() if until_eof else None  # first: from now on it ends with its parent
    from aggregator.config import (  # noqa: PLC0415 - the dashboard's process needs none of it
        AggregatorConfig,
        StoreConfig,
    )
    from kilowatch.replay.cluster import RecordedCluster  # noqa: PLC0415 - loads DuckDB

    check(file)
    loaded = settings.load(config).aggregator if config is not None else None

    async def main(folder: str, report: Callable[[StartReport], None]) -> None:
        stop = stop_on_signals(parent)
        usual = loaded or AggregatorConfig()
        given = msgspec.structs.replace(
            usual, cluster=usual.cluster if loaded else NAME, data_dir=Path(folder), store=StoreConfig()
        )
        report(StartReport(f"the recording {file} is read"))
        view = await asyncio.to_thread(RecordedCluster, file, read(file), given)
        announce(f"read {counted(view.messages, 'message')} of {file}")
        await view.serve(*where, stop, lambda: report(StartReport("", serving=True)))

    with (
        tempfile.TemporaryDirectory(prefix="kilowatch-replay-") as folder,
        start_reports(to_parent=until_eof) as report,
    ):
        asyncio.run(main(folder, report))
