"""Energy of jobs and of nobody over an hour that crosses the edge of a month: it adds up in each month.

Frames of simulated nodes go through the real router and fleet, jobs into the real store, and the months are
asked of the API; the time is given.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest

from aggregator.assembly.jobs_loop import USE_SECONDS
from aggregator.electrical.service import ElectricalService
from aggregator.jobs import running
from aggregator.jobs.months import is_split, month_account
from aggregator.jobs.service import JobService
from aggregator.jobs.usage import SUMS, CountedMonth, GpuAccount
from aggregator.store.executor import StoreExecutor
from api.decoding import decode
from api.use import UseReply
from collector.simulated import scenario
from collector.simulated.source import SimulatedSource
from telemetry.metric import Lane, Table
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs, Precision
from telemetry.wire.topics import Topic
from tests.aggregator.fake_view import FakeView
from tests.aggregator.feed import Feed
from tests.aggregator.http_client import door

pytestmark = pytest.mark.systems
SECOND = 10**9
EDGE = int(datetime(2025, 12, 1, tzinfo=UTC).timestamp())
BEGIN = EDGE - 1800
LONG = JobKey("slurm", "lab", "long")
"""A job that holds two GPUs over the edge."""


@dataclass
class Hour:
    """Four nodes with four GPUs each and 200 jobs on them, driven by hand."""

    feed: Feed
    folder: Path
    jobs: JobService = field(default_factory=JobService)
    held: dict[str, dict[int, tuple[JobKey, int]]] = field(default_factory=dict)
    version: int = 0
    saved_at: float = 0.0

    def __post_init__(self) -> None:
        self.scene = scenario("fleet", nodes=4, gpus=4, seed=7, faults="", start_tick=BEGIN)
        self.sources = {name: SimulatedSource(self.scene, name) for name in self.scene.nodes}
        self.ended: dict[str, list[Allocation]] = {name: [] for name in self.sources}
        self.feed.wall = BEGIN * SECOND
        self.waiting = iter([JobKey("slurm", "lab", str(number)) for number in range(200)])
        self.chance = random.Random(3)
        for session, (node, source) in enumerate(self.sources.items(), 1000):
            status = CollectorStatus(state=NodeState.ONLINE, session=session)
            what = msgspec.structs.replace(source.inventory, node=node, session=session)
            self.feed.publish(node, Topic.STATUS, messages.encode(status))
            self.feed.publish(node, Topic.INVENTORY, messages.encode(what))
            self.held[node] = {}

    def frames(self, runner: asyncio.Runner, tick: int) -> None:
        """Deliver a frame of each node."""
        for session, (node, source) in enumerate(self.sources.items(), 1000):
            rows = runner.run(source.read(frozenset(Lane), tick, self.feed.wall, 0.0))
            frame = frames.build(session, (tick - BEGIN) // 5, self.feed.wall, rows, [])
            self.feed.publish(node, Topic.FRAME, frames.encode(frame))
        self.feed.flush()

    def change(self, node: str) -> None:
        """End or begin a job on a GPU of a node, and send its list."""
        now, held = self.feed.wall, self.held[node]
        gpu = self.chance.randrange(4)
        if gpu in held and held[gpu][0] != LONG:
            key, begin = held.pop(gpu)
            self.ended[node].append(self.allocation(node, gpu, key, begin, now - self.chance.randrange(3 * SECOND)))
        elif gpu not in held and (key := next(self.waiting, None)) is not None:
            held[gpu] = key, now - self.chance.randrange(2 * SECOND)
        self.send(node)

    def allocation(self, node: str, gpu: int, key: JobKey, begin: int, end: int = 0) -> Allocation:
        """What a node says of a job on a GPU."""
        uuid = self.sources[node].inventory.gpus[gpu].uuid
        return Allocation(
            job=key,
            gpu=uuid,
            begin=begin,
            end=max(begin, end) if end else 0,
            begin_from=Precision.HOOK,
            end_from=Precision.HOOK,
        )

    def send(self, node: str) -> None:
        """Send a node's complete list."""
        self.version += 1
        recent = [one for one in self.ended[node] if self.feed.wall - one.end < 300 * SECOND]
        lasting = [self.allocation(node, gpu, key, begin) for gpu, (key, begin) in self.held[node].items()]
        every = (*recent, *lasting)
        users = {one.job: Job(key=one.job, user=f"u{sum(map(ord, one.job.id)) % 7}") for one in every}
        message = NodeJobs(
            session=7, version=self.version, at=self.feed.wall, jobs=tuple(users.values()), allocations=every
        )
        gpus = {gpu.uuid for gpu in self.feed.fleet.nodes[node].inventory.gpus}
        self.jobs.receive(node, msgspec.json.encode(message), gpus, self.feed.wall)

    def count(self) -> None:
        """Let the service take a sample, and store what is due."""
        now, wall, fleet = self.feed.now, self.feed.wall, self.feed.fleet
        month = (
            CountedMonth("2025-12", EDGE * SECOND, "2025-11")
            if wall >= EDGE * SECOND
            else CountedMonth("2025-11", 0, "2025-10")
        )
        watts = {node: 1000.0 + 100 * place for place, node in enumerate(fleet.nodes)}
        for _ in self.jobs.steps(fleet, now, wall, watts, 0.2, month):
            pass
        asked = list(self.jobs.ledger.fresh)
        self.jobs.absorb(self.feed.store.jobs_of(asked), asked)
        due = self.jobs.due(now, wall)
        self.feed.store.write_jobs(due)
        self.jobs.written(due, now, wall)
        self.jobs.forget_ended(now, wall)
        if now >= self.saved_at + USE_SECONDS:
            self.saved_at = now
            running.save(self.folder, running.of_jobs(self.jobs.ledger, self.jobs.meter, self.jobs.aside, 0.0))

    def joules(self) -> np.ndarray:
        """The counters of all GPUs."""
        return self.feed.fleet.column("gpu_energy_joules_total", self.feed.now).copy()

    def restart(self) -> None:
        """Go on with what is stored alone, as after kill -9."""
        unheld = self.jobs.meter.unheld
        self.jobs = JobService()
        self.jobs.restore(self.feed.store.open_jobs(), running.load(self.folder))
        self.jobs.meter.unheld = unheld
        for node in self.sources:
            self.send(node)


@pytest.mark.parametrize("restart", [None, EDGE - 10, EDGE + 600])
async def test_jobs_and_nobody_are_the_energy_of_each_month_and_a_job_over_its_edge_is_split(
    tmp_path: Path, restart: int | None
) -> None:
    hour = Hour(Feed(tmp_path), tmp_path)
    feed = hour.feed
    first = next(iter(hour.sources))
    own: dict[int, np.ndarray] = {}

    def run() -> None:
        with asyncio.Runner() as runner:
            for tick in range(BEGIN, BEGIN + 3660, 5):
                hour.frames(runner, tick)
                if tick == BEGIN:
                    for node in hour.sources:
                        hour.send(node)
                    for gpu in (0, 1):
                        hour.held[first][gpu] = LONG, feed.wall
                    hour.send(first)
                own[tick] = hour.joules()
                if BEGIN < tick < BEGIN + 3600:
                    for node in hour.chance.sample(list(hour.sources), 2):
                        hour.change(node)
                hour.count()
                if tick == restart:
                    hour.restart()
                feed.now += 5
                feed.wall += 5 * SECOND

    await asyncio.to_thread(run)
    view = FakeView()
    view.fleet, view.jobs = feed.fleet, hour.jobs
    view.store = StoreExecutor(feed.store, feed.stats)
    view.electrical = ElectricalService({"site": {"timezone": "UTC"}}, tmp_path)
    view.monotonic = feed.now
    view.wall = lambda: feed.wall  # type: ignore[method-assign]
    replies = {}
    async with door(view) as client:
        for month in ("2025-11", "2025-12"):
            status, body, _ = await client.text(f"/api/v1/use?by=job&month={month}")
            assert status == 200, body
            replies[month] = decode(body.encode(), UseReply)
    jobs = {row.job for reply in replies.values() for row in reply.rows}
    assert len(jobs) > 200
    counted = BEGIN + 3655 - 15  # a sample waits for 15 s
    spans = {"2025-11": own[EDGE] - own[BEGIN], "2025-12": own[counted] - own[EDGE]}
    for month, reply in replies.items():
        assert reply.unreported is None or month == "2025-11"
        rows = [*reply.rows, *(row for row in (reply.unheld, reply.unreported) if row)]
        assert all(row.split_by_time == 0 for row in rows)
        total = sum(row.energy_joules or 0.0 for row in rows)
        # What free GPUs drew in the 20 s around a restart is not known.
        near = 0.005 if restart is None else 0.015
        assert total == pytest.approx(spans[month].sum(), rel=near), month
        (long,) = [row for row in rows if row.job == LONG.id]
        start = feed.fleet.nodes[first].rows[Table.GPU].start
        assert long.energy_joules == pytest.approx(spans[month][start : start + 2].sum(), rel=0.002), month
        wall = sum(row.wall_joules or 0.0 for row in rows)
        seconds = 1800 if month == "2025-11" else counted - EDGE
        assert wall == pytest.approx(sum(1000.0 + 100 * n for n in range(4)) * seconds, rel=2 * near)


def test_a_month_is_what_lies_between_its_edges() -> None:
    edges = {"2026-11": {"joules": 30.0}, "2027-01": {"joules": 70.0}}
    full = {month: dict.fromkeys(SUMS, 0.0) | sums for month, sums in edges.items()}
    account = GpuAccount(node="n", gpu="g", joules=100.0, first="2026-10", month="2027-01", edges=full)
    found = {
        month: month_account(account, month, after).joules
        for month, after in (
            ("2026-09", "2026-10"),
            ("2026-10", "2026-11"),
            ("2026-11", "2026-12"),
            ("2026-12", "2027-01"),
            ("2027-01", "2027-02"),
            ("2027-02", "2027-03"),
        )
    }
    assert found == {
        "2026-09": 0.0,
        "2026-10": 30.0,
        "2026-11": 40.0,  # the begin of December was not seen
        "2026-12": 0.0,
        "2027-01": 30.0,
        "2027-02": 0.0,
    }
    assert is_split([account, GpuAccount(node="n", gpu="h")])
    assert not is_split([GpuAccount(node="n", gpu="h", joules=1.0)]), "stored before edges were"
