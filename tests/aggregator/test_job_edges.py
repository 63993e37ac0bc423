"""Counters at the edges of jobs as the store has them, whatever the distance of the readings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aggregator.assembly.job_edges import count_edges
from aggregator.jobs.edges import COUNTER, SETTLED_SECONDS
from aggregator.jobs.service import JobService
from aggregator.store.executor import StoreExecutor
from api.stats import Stats
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.feed import Feed
from tests.aggregator.node import START, payload, value

SECOND = 10**9
GPU = "GPU-a-0"


@pytest.mark.parametrize("second_after", [0.03, 0.2, 0.6, 1.0])
async def test_a_job_that_was_there_at_the_first_reading_of_its_gpu_is_counted_from_it(
    tmp_path: Path, second_after: float
) -> None:
    """Also where the next reading is of the same second."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    begin = START + int(0.31 * SECOND)
    times = [begin, *(begin + int((second_after + number) * SECOND) for number in range(5))]
    for seq, at in enumerate(times):
        feed.publish("a", Topic.FRAME, payload("a", 2, 1, seq, at=at))
    feed.commit()
    jobs = JobService()
    before = begin - int(0.2 * SECOND)
    jobs.energy.edges.want("a", GPU, {before, begin, times[2]})
    executor = StoreExecutor(feed.store, Stats())
    await count_edges(jobs, executor, int(times[2] + SETTLED_SECONDS * SECOND), lambda: asyncio.sleep(0))
    column = SCHEMA.blocks[GPU_FAST].names.index(COUNTER)
    found = jobs.energy.edges.known(GPU, [before, begin, times[2]])
    assert found == {begin: value("a", 0, column, 0), times[2]: value("a", 0, column, 2)}
    await executor.close()
