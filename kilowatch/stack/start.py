"""The progress of a start: what a stack waits for, in a line.

There is no limit of time: a start waits for as long as it takes, and says what for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from telemetry.text import counted, duration

if TYPE_CHECKING:
    from kilowatch.stack.collectors import Collectors

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
QUIET_SECONDS = 20.0
"""Seconds without another node that reports, after which the line says so."""
RATE_SECONDS = 10.0
"""Seconds over which frames are counted, to tell how many nodes the machine carries."""
CARRIED_RATIO = 0.9
"""Frames that come, of those that are due, below which the machine carries fewer nodes."""

CARRIES = "this machine carries"


class StartReport(msgspec.Struct, frozen=True):
    """State of a start."""

    waits: str
    """Unfinished part of the start; "" when it is complete."""
    serving: bool = False
    """Whether HTTP listens."""


class Reporting(Protocol):
    """Figures of an aggregator that starts: `aggregator.service.Aggregator`."""

    serving: asyncio.Event

    def nodes_reporting(self) -> int:
        """Return how many nodes are online."""

    def frames_received(self) -> int:
        """Return how many frames have come."""


class StartProgress:
    """Progress of a start, by its figures."""

    def __init__(self, nodes: int, now: float) -> None:
        """`nodes`: how many are to report; `now`: seconds of any clock."""
        self._nodes = nodes
        self._most, self._since = 0, now
        """The most nodes that have reported at once, and since when."""
        self._counted: tuple[float, int] | None = None
        """When frames were counted last, and how many there were."""
        self._rate: float | None = None
        """Frames a second, while all collectors are started."""

    def update(self, now: float, *, reporting: int, started: int, frames: int) -> StartReport:
        """Return what the start waits for. `started`: collectors that were started and have had the time to report;
        `frames`: all that have come."""
        if reporting > self._most:
            self._most, self._since = reporting, now
        all_started = started >= self._nodes
        if all_started:
            self._count(now, frames)
        quiet, rate = now - self._since, self._rate
        words = f"{reporting:,} of {counted(self._nodes, 'node')} report"
        if rate is not None and rate < CARRIED_RATIO * self._nodes:
            words += f": {CARRIES} about {rate:,.0f} at a reading a second, see --nodes"
        elif reporting >= self._nodes or (rate is not None and quiet > QUIET_SECONDS):
            words = ""  # nodes that are still silent are so by the scenario
        elif quiet > QUIET_SECONDS:
            words += f", no other for {duration(int(quiet))}: the machine is busy"
        return StartReport(words, serving=True)

    def _count(self, now: float, frames: int) -> None:
        if self._counted is None:
            self._counted = now, frames
        elif (passed := now - self._counted[0]) >= RATE_SECONDS:
            self._rate = (frames - self._counted[1]) / passed
            self._counted = now, frames


async def follow_start(
    aggregator: Reporting, collectors: Sequence[Collectors], report: Callable[[StartReport], None]
) -> None:
    """Report the progress of a start until it is complete."""
    await aggregator.serving.wait()
    clock = asyncio.get_running_loop().time
    progress = StartProgress(sum(each.nodes for each in collectors), clock())
    last = StartReport("")
    while True:
        new = progress.update(
            clock(),
            reporting=aggregator.nodes_reporting(),
            started=sum(each.started for each in collectors),
            frames=aggregator.frames_received(),
        )
        if new != last:
            report(new)
        if not new.waits:
            return
        if CARRIES in new.waits and CARRIES not in last.waits:
            log.warning("%s", new.waits)
        last = new
        await asyncio.sleep(LOOK_SECONDS)
