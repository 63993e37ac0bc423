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

LOOK_SECONDS, CALM_SECONDS = 0.25, 2.0
"""Seconds between two looks, while the start waits for something and afterwards."""
FEW_NODES = 32
"""Nodes that any machine carries."""
QUIET_SECONDS = 20.0
"""Seconds without another node that reports, after which the line says so."""
RATE_SECONDS = 10.0
"""Seconds over which frames are counted, to report how many nodes the machine carries."""
CARRIED_RATIO = 0.9
"""Frames that come, of those that are due, below which the machine carries fewer nodes, twice in a row."""

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
    """Progress of a start, by its figures; and afterwards whether the machine carries all nodes."""

    def __init__(self, nodes: int, now: float) -> None:
        """`nodes`: how many are to report, each once a second; `now`: seconds of any clock."""
        self._nodes = nodes
        self._most, self._since = 0, now
        """The most nodes that have reported at once, and since when."""
        self._complete = False
        self._counted: tuple[float, int] | None = None
        """When frames were counted last, and how many there were."""
        self._rates: tuple[float, ...] = ()
        """Frames a second, newest last."""

    def update(self, now: float, *, reporting: int, started: int, frames: int) -> StartReport:
        """Return what the start waits for. `started`: collectors that were started and have had the time to report;
        `frames`: all that have come."""
        if reporting > self._most:
            self._most, self._since = reporting, now
        quiet, all_started = now - self._since, started >= self._nodes
        if all_started and (reporting >= self._nodes or quiet > QUIET_SECONDS):
            self._complete = True  # nodes that are silent still are so by the scenario
        if all_started and self._nodes > FEW_NODES:
            self._count(now, frames)
        words = f"{reporting:,} of {counted(self._nodes, 'node')} report"
        if len(self._rates) == 2 and (rate := max(self._rates)) < CARRIED_RATIO * reporting:
            words += f": {CARRIES} about {rate:,.0f} at a reading a second, see --nodes"
        elif self._complete:
            words = ""
        elif quiet > QUIET_SECONDS:
            words += f", no other for {duration(int(quiet))}: the machine is busy"
        return StartReport(words, serving=True)

    def _count(self, now: float, frames: int) -> None:
        if self._counted is None:
            self._counted = now, frames
        elif (passed := now - self._counted[0]) >= RATE_SECONDS:
            self._rates = (*self._rates[-1:], (frames - self._counted[1]) / passed)
            self._counted = now, frames


async def follow_start(
    aggregator: Reporting, collectors: Sequence[Collectors], report: Callable[[StartReport], None]
) -> None:
    """Report the progress of a start, and later on where the machine carries fewer nodes, until cancelled."""
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
        if CARRIES in new.waits and CARRIES not in last.waits:
            log.warning("%s", new.waits)
        last = new
        await asyncio.sleep(LOOK_SECONDS if new.waits else CALM_SECONDS)
