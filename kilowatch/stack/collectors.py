"""The collectors of a stack, started in stages.

Some are started at a time, and the next ones when these report: a thousand that connect at once would keep a
small machine from answering any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from collector.config import CollectorConfig
from collector.service import Linger, run_collector
from collector.source import Source
from telemetry.runtime.tasks import TaskGroup

AT_ONCE = 8
"""Collectors of a process that are started and do not report yet."""
SILENT_SECONDS = 5.0
"""Seconds after which another collector is started in place of one that does not report, as of a node that is
down."""


class Sampled(msgspec.Struct, frozen=True):
    """Counts of collectors that have ended."""

    frames: int = 0
    ticks_skipped: int = 0


class Collectors(Protocol):
    """Collectors of some nodes; to be run once."""

    @property
    def nodes(self) -> int:
        """Number of their nodes."""

    @property
    def started(self) -> int:
        """Number of collectors that were started and report, or have had the time to."""

    @property
    def frames(self) -> int | None:
        """Frames that were sampled; None until none is sampled any more."""

    async def run(self) -> Sampled:
        """Start them, and collect until `over`."""

    def stop(self) -> None:
        """Have them sample no more, and keep their connections."""

    def over(self) -> None:
        """Have them end: their frames have been received."""


@dataclass(frozen=True, slots=True)
class StackPart:
    """Settings of a collector, and what makes its source unless the settings name it."""

    config: CollectorConfig
    source: Callable[[], Source] | None = None


class LocalCollectors:
    """Collectors in this process."""

    def __init__(self, parts: Sequence[StackPart]) -> None:
        self._parts = parts
        self._lingers = [Linger() for _ in parts]
        self._stop, self._over = asyncio.Event(), False
        self.started = 0

    @property
    def nodes(self) -> int:
        """Number of their nodes."""
        return len(self._parts)

    @property
    def frames(self) -> int | None:
        """Frames that were sampled; None until none is sampled any more."""
        frames = [linger.frames for linger in self._lingers]
        return None if None in frames else sum(one or 0 for one in frames)

    async def run(self) -> Sampled:
        """Start them, and collect until `over`."""
        free = asyncio.Semaphore(AT_ONCE)
        tasks = []
        async with TaskGroup() as group:
            for part, linger in zip(self._parts, self._lingers, strict=True):
                await free.acquire()
                if self._stop.is_set():
                    linger.frames = 0
                    free.release()
                    continue
                reporting = asyncio.Event()
                work = run_collector(
                    part.config,
                    stop=self._stop,
                    source=None if part.source is None else part.source(),
                    linger=linger,
                    reporting=reporting,
                )
                tasks.append(group.create_task(work, name=f"collector {part.config.node}"))
                group.create_task(self._begun(reporting, free), name=f"start {part.config.node}")
        summaries = [task.result() for task in tasks]
        return Sampled(sum(each.frames for each in summaries), sum(each.ticks_skipped for each in summaries))

    async def _begun(self, reporting: asyncio.Event, free: asyncio.Semaphore) -> None:
        """Free the place of a collector among those that start, once it reports."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENT_SECONDS):
                waits = [asyncio.ensure_future(each.wait()) for each in (reporting, self._stop)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in waits:
                        each.cancel()
        self.started += 1
        free.release()

    def stop(self) -> None:
        """Have them sample no more, and keep their connections."""
        self._stop.set()

    def over(self) -> None:
        """Have them end: their frames have been received."""
        for linger in self._lingers:
            linger.over.set()
