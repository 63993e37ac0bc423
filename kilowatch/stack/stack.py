"""The whole of kilowatch in one process: embedded broker, collectors, aggregator.

`run` uses it with one real collector, `demo` with a simulated cluster. The parts are the same as in
a cluster and use the same bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from aggregator.config import AggregatorConfig
from aggregator.load.controller import ShedStep
from aggregator.service import Aggregator
from collector.config import CollectorConfig
from collector.service import Linger, run_collector
from collector.source import Source
from kilowatch.stack.broker import EmbeddedBroker
from kilowatch.stack.signals import on_hangup
from telemetry.errors import KilowattError
from telemetry.tasks import TaskGroup, first_error

log = logging.getLogger(__name__)

LONGEST_QUIET_SECONDS = 8.0
"""Seconds without a newly stored frame after which the frames that are still missing are given up."""
LONGEST_SHEDDING_SECONDS = 60.0
"""The same while the machine is so busy that the aggregator puts history off."""

LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StackPart:
    """Settings of a collector, and its source unless the settings name it."""

    config: CollectorConfig
    source: Source | None = None


class StackOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a run; `kilowatch demo --json` prints it."""

    scenario: str
    seconds: float
    nodes: int
    gpus: int
    frames_published: int
    """Frames that the collectors sampled."""
    frames_stored: int
    frames_lost: int
    """Frames that were sampled but not stored."""
    frames_backfilled: int
    ticks_skipped: int
    events: int
    alerts: int
    """Alerts that fired."""
    http: str
    data: str


async def run_stack(
    parts: Sequence[StackPart],
    aggregator_config: AggregatorConfig,
    folder: Path,
    *,
    stop: asyncio.Event,
    scenario: str = "",
    seconds: float | None = None,
    reread: Callable[[], AggregatorConfig] | None = None,
    reloaded: Callable[[], None] = lambda: None,
) -> StackOutcome:
    """Run all parts until `stop` is set or `seconds` are over; then drain, stop, and count. `reloaded` is
    called after each reload of the aggregator."""
    broker_config = aggregator_config.broker
    broker = EmbeddedBroker(broker_config.host, broker_config.port, folder)
    await asyncio.to_thread(broker.start)
    loop = asyncio.get_running_loop()
    started = loop.time()
    aggregator = Aggregator(aggregator_config, reread=reread)

    def reload() -> None:
        aggregator.reload()
        reloaded()

    on_hangup(reload)
    collectors_stop, aggregator_stop = asyncio.Event(), asyncio.Event()
    lingers = [Linger() for _ in parts]
    try:
        async with TaskGroup() as group:
            group.create_task(aggregator.run(aggregator_stop), name="aggregator")
            tasks = [
                group.create_task(
                    run_collector(
                        part.config, stop=collectors_stop, source=part.source, linger=linger
                    ),
                    name=f"collector {part.config.node}",
                )
                for part, linger in zip(parts, lingers, strict=True)
            ]
            await _wait(stop, seconds)
            collectors_stop.set()
            await _drain(aggregator, lingers)
            for linger in lingers:
                linger.over.set()
            summaries = await asyncio.gather(*tasks)
            fired = aggregator.alerts_fired
            aggregator_stop.set()
    except BaseExceptionGroup as errors:
        if errors.subgroup(KilowattError) is None:
            raise
        raise first_error(errors) from errors
    finally:
        await asyncio.to_thread(broker.stop)
    published = sum(summary.frames for summary in summaries)
    stats = aggregator.stats
    return StackOutcome(
        scenario=scenario,
        seconds=round(loop.time() - started, 1),
        nodes=len(parts),
        gpus=len(aggregator.fleet.by_uuid),
        frames_published=published,
        frames_stored=stats.frames_stored,
        frames_lost=published - stats.frames_stored,
        frames_backfilled=stats.frames_backfilled,
        ticks_skipped=sum(summary.ticks_skipped for summary in summaries),
        events=stats.events_stored,
        alerts=fired,
        http=aggregator_config.listen,
        data=str(aggregator_config.data_dir),
    )


async def _wait(stop: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


async def _drain(aggregator: Aggregator, lingers: Sequence[Linger]) -> None:
    """Wait until every frame that the collectors sampled is stored, or none has come for a while.

    The while is counted in looks, so that it is the longer the more this process is held up.
    """
    seen, looks = None, 0
    while True:
        frames = [linger.frames for linger in lingers]
        missing = sum(one or 0 for one in frames) - aggregator.stats.frames_stored
        if None not in frames and missing <= 0:
            return
        if (state := (frames.count(None), aggregator.stats.frames_stored)) != seen:
            seen, looks = state, 0
        shedding = aggregator.shedding.step > ShedStep.NOTHING
        longest = LONGEST_SHEDDING_SECONDS if shedding else LONGEST_QUIET_SECONDS
        if looks * LOOK_SECONDS > longest:
            log.warning("%d frames are still missing", max(0, missing))
            return
        looks += 1
        await asyncio.sleep(LOOK_SECONDS)
