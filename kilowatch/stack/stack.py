"""The whole of kilowatch in one process: embedded broker, collectors, aggregator.

`run` uses it with one real collector, `demo` with a simulated cluster. The parts are the same as in
a cluster and use the same bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from aggregator.config import AggregatorConfig
from aggregator.load.controller import ShedStep
from aggregator.service import Aggregator
from kilowatch.stack.broker import EmbeddedBroker
from kilowatch.stack.collectors import Collectors, Sampled
from kilowatch.stack.signals import on_hangup
from kilowatch.stack.start import StartReport, follow_start
from telemetry.errors import KilowattError
from telemetry.runtime.tasks import TaskGroup, first_error

log = logging.getLogger(__name__)

LONGEST_QUIET_SECONDS = 8.0
"""Seconds without a newly stored frame after which the frames that are still missing are given up."""
LONGEST_SHEDDING_SECONDS = 60.0
"""The same while the machine is so busy that the aggregator puts history off."""

LOOK_SECONDS = 0.05


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
    collectors: Sequence[Collectors],
    aggregator_config: AggregatorConfig,
    folder: Path,
    *,
    stop: asyncio.Event,
    scenario: str = "",
    seconds: float | None = None,
    reread: Callable[[], AggregatorConfig] | None = None,
    reloaded: Callable[[], None] = lambda: None,
    report: Callable[[StartReport], None] = lambda _: None,
    meters: EmbeddedBroker | None = None,
) -> StackOutcome:
    """Run all parts until `stop` is set or `seconds` are over; then drain, stop, and count. `reloaded` is
    called after each reload of the aggregator, `report` with the progress of the start. `meters`: a broker for
    meters alone."""
    report(StartReport("the broker is starting"))
    broker_config = aggregator_config.broker
    broker = EmbeddedBroker(broker_config.host, broker_config.port, folder)
    await asyncio.to_thread(broker.start)
    if meters is not None:
        try:
            await asyncio.to_thread(meters.start)
        except BaseException:
            await asyncio.to_thread(broker.stop)
            raise
    report(StartReport("the aggregator is starting"))
    loop = asyncio.get_running_loop()
    started = loop.time()
    aggregator = Aggregator(aggregator_config, reread=reread)

    def reload() -> None:
        aggregator.reload()
        reloaded()

    on_hangup(reload)
    aggregator_stop = asyncio.Event()

    async def collect() -> list[Sampled]:
        await aggregator.serving.wait()  # the screen first: collectors take what processors there are
        return await asyncio.gather(*(each.run() for each in collectors))

    try:
        async with TaskGroup() as group:
            group.create_task(aggregator.run(aggregator_stop), name="aggregator")
            following = group.create_task(follow_start(aggregator, collectors, report), name="progress of the start")
            collecting = group.create_task(collect(), name="collectors")
            await _wait(stop, seconds)
            following.cancel()
            for each in collectors:
                each.stop()
            await _drain(aggregator, collectors)
            for each in collectors:
                each.over()
            sampled = await collecting
            fired = aggregator.alerts_fired
            aggregator_stop.set()
    except BaseExceptionGroup as errors:
        if errors.subgroup(KilowattError) is None:
            raise
        raise first_error(errors) from errors
    finally:
        await asyncio.to_thread(broker.stop)
        if meters is not None:
            await asyncio.to_thread(meters.stop)
    stats = aggregator.stats
    # A process that was killed has not said how many it had.
    published = max(sum(each.frames for each in sampled), stats.frames_stored)
    return StackOutcome(
        scenario=scenario,
        seconds=round(loop.time() - started, 1),
        nodes=sum(each.nodes for each in collectors),
        gpus=len(aggregator.fleet.by_uuid),
        frames_published=published,
        frames_stored=stats.frames_stored,
        frames_lost=published - stats.frames_stored,
        frames_backfilled=stats.frames_backfilled,
        ticks_skipped=sum(each.ticks_skipped for each in sampled),
        events=stats.events_stored,
        alerts=fired,
        http=aggregator_config.listen,
        data=str(aggregator_config.data_dir),
    )


async def _wait(stop: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


async def _drain(aggregator: Aggregator, collectors: Sequence[Collectors]) -> None:
    """Wait until every frame that the collectors sampled is stored, or none has come for a while.

    The while is counted in looks, so that it is the longer the more this process is held up.
    """
    seen, looks = None, 0
    while True:
        frames = [each.frames for each in collectors]
        missing = sum(one or 0 for one in frames) - aggregator.stats.frames_stored
        if None not in frames and missing <= 0:
            return
        shedding = aggregator.shedding.step > ShedStep.NOTHING
        # With the end of shedding begins what it put off.
        if (state := (frames.count(None), aggregator.stats.frames_stored, shedding)) != seen:
            seen, looks = state, 0
        longest = LONGEST_SHEDDING_SECONDS if shedding else LONGEST_QUIET_SECONDS
        if looks * LOOK_SECONDS > longest:
            log.warning("%d frames are still missing", max(0, missing))
            return
        looks += 1
        await asyncio.sleep(LOOK_SECONDS)
