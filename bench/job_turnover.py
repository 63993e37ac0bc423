"""Cost of jobs in an aggregator: a fleet on which jobs come and go, with the store and a history of jobs in it.

    python -m bench.job_turnover [--gpus 10000] [--jobs-a-minute 500] [--stored 100000] [--minutes 3] [--json]

The service, the meter and the store as the aggregator has them, driven by hand: each second the lists of the
nodes where a job began or ended, every five seconds a step, the counters at the edges of jobs from the store, and a
write where that is due; each minute the use of all that runs is saved. The store folds its log as it does in the
aggregator, and another one that has the same readings and no jobs; what the first one takes more is part of the writes. The CPU
time of these four, all threads, is given in percent of a core; making messages and readings, and storing readings, is not in it. All GPUs are held, by jobs of two.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from aggregator.assembly.job_edges import count_edges
from aggregator.assembly.jobs_loop import USE_SECONDS
from aggregator.config import StoreConfig
from aggregator.jobs import running
from aggregator.jobs.edges import COUNTER
from aggregator.jobs.ledger import JobRecord
from aggregator.jobs.service import MOST_AT_ONCE, STEP_SECONDS, JobService
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.jobs.usage import GpuAccount
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.executor import StoreExecutor
from aggregator.store.jobs import MOVED_AT_ONCE
from aggregator.store.protocol import CollectorRun, FleetPast, StoredDevice
from api.jobs import AllocationRow, EnergyFrom, JobPhase, JobRow, JobSummary
from bench.report import show
from bench.store_ticks import BLOCK, Tick, batch_of
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs
from telemetry.wire.schema import GPU_FAST
from tests.aggregator.fake_view import inventory

SECOND = 10**9
START = 1_763_700_000 * SECOND
GPUS_A_NODE = 8
GPUS_A_JOB = 2
LISTED_SECONDS = 300


class Turnover:
    """A fleet all of whose GPUs are held, with the service that counts it."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder, self.saved = folder, 0.0
        self.store = EmbeddedStore(StoreConfig(), folder)
        (folder / "readings").mkdir()
        self.without = EmbeddedStore(StoreConfig(), folder / "readings")
        """Store with the same readings and no jobs: its folds are not theirs."""
        self.jobs = JobService(lambda: "EUR")
        self.fleet, self.now, self.spent = (
            Fleet(),
            1000.0,
            dict.fromkeys(("lists", "steps", "edges", "writes", "folds", "folds of readings"), 0.0),
        )
        self.names = [f"n{number:05}" for number in range(gpus // GPUS_A_NODE)]
        for name in self.names:
            self.fleet.place(inventory(name, gpus=GPUS_A_NODE, links=0))
        self.joules = np.zeros(self.fleet.size(Table.GPU))
        self.numbers = itertools.count()
        self.versions = dict.fromkeys(self.names, 0)
        self.held: dict[str, list[tuple[JobKey, int]]] = {}
        self.ended: dict[str, list[Allocation]] = {name: [] for name in self.names}
        for name in self.names:
            self.held[name] = [(self.key(), self.wall) for _ in range(GPUS_A_NODE // GPUS_A_JOB)]
        self.next = itertools.cycle(itertools.product(range(GPUS_A_NODE // GPUS_A_JOB), self.names))

    @property
    def wall(self) -> int:
        """ns since 1970."""
        return START + round((self.now - 1000.0) * SECOND)

    def key(self) -> JobKey:
        """A new job."""
        return JobKey("slurm", "lab", str(next(self.numbers)))

    @contextmanager
    def counted(self, part: str) -> Iterator[None]:
        """Count the CPU time of a part."""
        began = time.process_time()
        yield
        self.spent[part] += time.process_time() - began

    def change(self) -> str:
        """End a job and begin another in its place; return the node."""
        place, name = next(self.next)
        key, begin = self.held[name][place]
        self.ended[name] += self.allocations(name, place, key, begin, self.wall)
        self.held[name][place] = (self.key(), self.wall)
        return name

    def allocations(self, name: str, place: int, key: JobKey, begin: int, end: int = 0) -> list[Allocation]:
        """The GPUs of a job."""
        gpus = self.fleet.nodes[name].inventory.gpus[place * GPUS_A_JOB : (place + 1) * GPUS_A_JOB]
        return [Allocation(job=key, gpu=gpu.uuid, begin=begin, end=end, source="slurm") for gpu in gpus]

    def message(self, name: str) -> bytes:
        """The list of a node."""
        self.versions[name] += 1
        self.ended[name] = [each for each in self.ended[name] if self.wall - each.end < LISTED_SECONDS * SECOND]
        rows = [
            *self.ended[name],
            *(
                row
                for place, (key, begin) in enumerate(self.held[name])
                for row in self.allocations(name, place, key, begin)
            ),
        ]
        jobs = {row.job: Job(key=row.job, user=f"u{int(row.job.id) % 40}", state="RUNNING") for row in rows}
        return msgspec.json.encode(
            NodeJobs(
                session=7, version=self.versions[name], at=self.wall, jobs=tuple(jobs.values()), allocations=tuple(rows)
            )
        )

    def receive(self, names: set[str]) -> None:
        """Send the lists of nodes."""
        messages = [(name, self.message(name)) for name in names]
        known = {name: {gpu.uuid for gpu in self.fleet.nodes[name].inventory.gpus} for name in names}
        with self.counted("lists"):
            for name, message in messages:
                self.jobs.receive(name, message, known[name], self.wall)

    def read(self) -> None:
        """Bring a second of readings into the fleet."""
        matrix, count = self.fleet.matrices[GPU_FAST], self.fleet.size(Table.GPU)
        self.joules += 500.0
        matrix.seen[:count] = self.now
        for name, value in {
            "gpu_power_watts": 500.0,
            "gpu_utilization_ratio": 0.9,
            "gpu_memory_used_bytes": 6e10,
            "gpu_sm_active_ratio": 0.8,
            "gpu_tensor_active_ratio": 0.4,
            "gpu_dram_active_ratio": 0.3,
        }.items():
            matrix.gauges[:count, matrix.columns[name]] = value
        at = matrix.columns["gpu_energy_joules_total"] - len(matrix.block.gauges)
        matrix.counters[:count, at] = self.joules
        for node in self.fleet.nodes.values():
            node.seen, node.sampled_at, node.session = self.now, self.wall, 7
        self.keep()

    def keep(self) -> None:
        """Store the second."""
        count, number = len(self.joules), round(self.now) - 1000
        counters = np.zeros((count, len(BLOCK.counters)))
        counters[:, BLOCK.names.index(COUNTER) - len(BLOCK.gauges)] = self.joules
        tick = Tick(self.wall, np.zeros((count, len(BLOCK.gauges)), np.float32), counters)
        batch = batch_of([tick], number, named=not number)
        if not number:
            batch.runs = [CollectorRun(run, name, 7) for run, name in enumerate(self.names)]
            entries = [entry for entry in self.fleet.gpus if entry is not None]
            batch.devices = [
                StoredDevice(row, name, gpu.uuid, gpu.index, "") for row, (name, gpu) in enumerate(entries)
            ]
        self.store.write(batch)
        self.without.write(batch)

    async def past(self, *query: Any) -> FleetPast:
        """Return what the store has, as its executor does."""
        return self.store.past(*query)

    def step(self) -> None:
        """Count, and write what is due."""
        watts = dict.fromkeys(self.names, 5000.0)
        with self.counted("steps"):
            for _ in self.jobs.steps(self.fleet, self.now, self.wall, watts, 0.3):
                pass
        with self.counted("edges"):
            store = cast("StoreExecutor", self)
            asyncio.run(count_edges(self.jobs, store, self.wall, _no_turn))
        with self.counted("writes"):
            if self.jobs.writes.begin(len(self.jobs.ledger.jobs), self.now):
                self.write()
            if self.now >= self.saved + USE_SECONDS:
                self.saved = self.now
                jobs = self.jobs
                running.save(self.folder, running.of_jobs(jobs.ledger, jobs.meter, jobs.aside, self.now))
            self.jobs.forget_ended(self.now, self.wall)
        with self.counted("folds"):
            self.store.tidy()
        with self.counted("folds of readings"):
            self.without.tidy()

    def write(self) -> None:
        """Write what is due."""
        if asked := list(self.jobs.ledger.fresh):
            self.jobs.absorb(self.store.jobs_of(asked), asked)
        while due := self.jobs.due(self.now, self.wall):
            self.store.write_jobs(due)
            self.jobs.written(due, self.now, self.wall)
            if len(due) < MOST_AT_ONCE:
                break

    def remember(self, count: int) -> None:
        """Store jobs that have ended long ago, as the upkeep of a month leaves them."""
        for first in range(0, count, 5000):
            self.store.write_jobs([_old(number) for number in range(first, min(count, first + 5000))])
        for _ in range(0, count, MOVED_AT_ONCE):  # to where no change to others writes them anew
            self.store.maintain(self.wall)
        self.store.tidy()


async def _no_turn() -> None:
    """Give the turn to nobody: the bench is alone."""


def _old(number: int) -> StoredJob:
    job = Job(key=JobKey("slurm", "lab", f"old-{number}"), user=f"u{number % 40}", state="COMPLETED")
    begin = START - 30 * 86_400 * SECOND + number * SECOND
    rows = [
        AllocationRow(
            node=f"n{number % 1000:05}", gpu=f"GPU-{number % 1000}-{gpu}", begin=begin, end=begin + 600 * SECOND
        )
        for gpu in range(GPUS_A_JOB)
    ]
    summary = JobSummary(gpu_hours=0.3, coverage=1.0, partial=False, utilization_ratio=0.8, energy_joules=6e5)
    row = JobRow(
        scheduler="slurm",
        cluster="lab",
        id=job.key.id,
        user=job.user,
        begin=begin,
        end=begin + 600 * SECOND,
        phase=JobPhase.ENDED,
        nodes=[rows[0].node],
        gpus=2,
        summary=summary,
    )
    accounts = [GpuAccount(node=each.node, gpu=each.gpu, known=600, busy=500) for each in rows]
    return StoredJob(row=row, record=JobRecord(job=job, allocations=rows), summary=summary, accounts=accounts)


def measure(gpus: int, jobs_a_minute: float, stored: int, minutes: float) -> dict[str, Any]:
    """Run, after as long without being counted as lists keep what has ended."""
    with tempfile.TemporaryDirectory() as folder:
        turnover = Turnover(Path(folder), gpus)
        turnover.remember(stored)
        turnover.keep()  # what the first jobs begin with
        turnover.receive(set(turnover.names))
        left, seconds = 0.0, round(60 * minutes)
        for second in range(LISTED_SECONDS + seconds):
            if second == LISTED_SECONDS:
                turnover.spent = dict.fromkeys(turnover.spent, 0.0)
            turnover.now += 1.0
            turnover.read()
            left += jobs_a_minute / 60
            changed = {turnover.change() for _ in range(int(left))}
            left -= int(left)
            turnover.receive(changed)
            if second % STEP_SECONDS == 0:
                turnover.step()
        rows = turnover.store.find_jobs(JobQuery(since=START, running=False, limit=1_000_000))
        by_counters = sum(one.summary.energy_from is EnergyFrom.COUNTERS for one in rows if one.summary)
        written = len(turnover.store.find_jobs(JobQuery(since=START, limit=1_000_000)))
        turnover.store.close()
        turnover.without.close()
    spent = turnover.spent
    spent["writes"] += spent.pop("folds") - spent.pop("folds of readings")
    found = {f"{part}_percent": 100 * spent / seconds for part, spent in turnover.spent.items()}
    return {
        "gpus": gpus, "jobs_a_minute": jobs_a_minute, "jobs_stored": stored, "jobs_begun": next(turnover.numbers), "jobs_written": written,
        "jobs_by_counters": by_counters,
        "cpu_percent": sum(found.values()), **found,
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.job_turnover", description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--jobs-a-minute", type=float, default=500)
    parser.add_argument("--stored", type=int, default=100_000, help="jobs of the past in the store")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.gpus, options.jobs_a_minute, options.stored, options.minutes), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
