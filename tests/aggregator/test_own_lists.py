"""Listings that are compared with few of the nodes: the same comes out as of a comparison with all of them."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from aggregator.jobs.service import JobService
from aggregator.scheduler.listed import JobListing, ListedJob
from aggregator.scheduler.squeue import SqueueReader
from api.jobs import JobAccount
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs
from tests.aggregator.test_scheduled_jobs import GPUS, Scene, at, hooked, listed, used
from tests.aggregator.test_scheduler_forms import record

NODES = ("n1", "n2.lab.example", "n3")


class Chance:
    """A small cluster whose jobs come, move, end and are requeued by chance, and what its nodes see of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 10.0
        self.jobs: dict[JobKey, ListedJob] = {}
        self.seen: dict[str, list[Allocation]] = {node: [] for node in NODES}
        self.versions = dict.fromkeys(NODES, 0)

    def step(self) -> list[tuple[Any, ...]]:
        """Return what happens next: lists of nodes, listings, accounts."""
        self.now += self.random.choice((1, 5, 15, 70))
        for _ in range(self.random.randrange(3)):
            self._change()
        found: list[tuple[Any, ...]] = []
        for node in NODES:
            if self.random.random() < 0.4:
                self.versions[node] += 1
                found.append(("list", node, self._list(node)))
        if self.random.random() < 0.7:
            jobs = list(self.jobs.values())
            listing = JobListing(at=at(self.now), cluster="lab", jobs=tuple(jobs))
            found.append(("listing", listing))
        if self.random.random() < 0.2:
            found.append(("accounts", self._accounts()))
        return found

    def _change(self) -> None:
        number = str(self.random.randrange(1, 6))
        of_it = [key for key in self.jobs if key.id == number]
        key = max(of_it, default=JobKey("slurm", "lab", number))
        what = self.random.choice(("begin", "end", "requeue", "forget", "see", "see", "unsee", "name"))
        if what == "begin" and key not in self.jobs:
            self.jobs[key] = self._begun(key)
        elif what == "end" and key in self.jobs and self.jobs[key].holds:
            ended = listed(key=key, state="COMPLETED", begin=1, end=self.now)
            self.jobs[key] = ended
        elif what == "requeue" and key in self.jobs:
            again = JobKey("slurm", "lab", number, key.restart + 1)
            self.jobs.pop(key)
            self.jobs[again] = self._begun(again)
        elif what == "forget":
            self.jobs.pop(key, None)
        elif what == "name" and key in self.jobs:
            self.jobs[key] = listed(0, key=key, name=f"job {self.random.randrange(9)}")
        node = self.random.choice(NODES)
        rows = self.seen[node]
        if what == "see":
            gpu = self.random.choice(GPUS).uuid
            bare = JobKey("slurm", "", number)
            row = hooked(gpu, key=key) if self.random.random() < 0.5 else used(gpu, key=bare)
            rows.append(msgspec.structs.replace(row, begin=at(self.now - self.random.random())))
        elif what == "unsee" and rows:
            row = rows.pop(self.random.randrange(len(rows)))
            if not row.end:
                rows.append(msgspec.structs.replace(row, end=at(self.now)))

    def _begun(self, key: JobKey) -> ListedJob:
        numbers = tuple(self.random.sample(range(4), self.random.randrange(3)))
        job = listed(key=key, begin=self.now - 1).job
        node = self.random.choice(NODES).partition(".")[0]
        return ListedJob(job=job, holds=True, gpus={node: numbers} if numbers else {})

    def _list(self, node: str) -> bytes:
        rows = tuple(self.seen[node])
        jobs = tuple(Job(key=key) for key in sorted({row.job for row in rows}))
        return msgspec.json.encode(
            NodeJobs(session=1, version=self.versions[node], at=at(self.now), allocations=rows, jobs=jobs)
        )

    def _accounts(self) -> dict[JobKey, JobAccount]:
        account = JobAccount(state="COMPLETED", begin=at(1), end=at(self.now))
        keys = [JobKey("slurm", "lab", str(n), run) for n in range(1, 6) for run in range(3)]
        return dict.fromkeys(self.random.sample(keys, 4), account)


def play(jobs: JobService, happened: tuple[Any, ...], now: float, *, all_nodes: bool) -> None:
    """Tell a service of something."""
    match happened:
        case "list", str(node), bytes(payload):
            jobs.receive(node, payload, {gpu.uuid for gpu in GPUS}, at(now))
        case "listing", JobListing() as listing:
            if all_nodes:
                jobs._own.disturb(NODES)
            for _ in jobs.hear(listing, now, at(now)):
                pass
        case (_, accounts):
            jobs.settle(accounts)
        case _:
            raise AssertionError(happened)


@pytest.mark.parametrize("seed", range(30))
def test_what_comes_out_is_that_of_a_comparison_with_all_nodes(seed: int) -> None:
    chance = Chance(seed)
    few, every = Scene().jobs, Scene().jobs
    for _ in range(60):
        for happened in chance.step():
            for jobs in (few, every):
                play(jobs, happened, chance.now, all_nodes=jobs is every)
        assert few.lists == every.lists
        assert {key: its.record() for key, its in few.ledger.jobs.items()} == {
            key: its.record() for key, its in every.ledger.jobs.items()
        }
        assert few.unlisted.problems() == every.unlisted.problems()


def compared(jobs: JobService, listing: JobListing, seconds: float) -> int:
    """Return with how many nodes a listing was compared."""
    return sum(1 for _ in jobs.hear(listing, seconds, at(seconds)))


def test_a_listing_is_compared_with_the_nodes_that_it_may_change_alone() -> None:
    jobs = Scene().jobs
    for number in range(40):
        key = JobKey("slurm", "lab", str(number))
        message = NodeJobs(session=1, at=at(2), allocations=(hooked("GPU-0", key=key),), jobs=(Job(key=key),))
        jobs.receive(f"n{number}", msgspec.json.encode(message), {"GPU-0"}, at(2))
    every = {number: listed(key=JobKey("slurm", "lab", str(number))) for number in range(40)}
    listing = [JobListing(at=at(5 + 15 * n), cluster="lab", jobs=tuple(every.values())) for n in range(9)]
    assert compared(jobs, listing[0], 5) == 40
    assert compared(jobs, listing[1], 20) == 40  # whether the first one was all
    assert compared(jobs, listing[2], 35) == 2  # by turns
    every[7] = listed(key=every[7].key, name="renamed")
    every[8] = listed(key=every[8].key, state="COMPLETED", end=40)
    other = JobListing(at=at(50), cluster="lab", jobs=tuple(every.values()))
    assert compared(jobs, other, 50) == 4
    assert jobs.ledger.jobs[every[7].key].facts.name == "renamed"
    assert compared(jobs, other, 65) == 4
    assert compared(jobs, other, 80) == 2
    ends = [row.end for row in jobs.ledger.jobs[every[8].key].allocations]
    assert ends == [None]
    assert compared(jobs, other, 125) == 3  # no epilog wrote its end for a minute
    ends = [row.end for row in jobs.ledger.jobs[every[8].key].allocations]
    assert ends == [at(40)]


def test_a_job_whose_text_is_the_same_is_the_same_object() -> None:
    reader = SqueueReader()
    records = [record(job_id=number) for number in range(1, 4)]
    first = reader.listing_of(json.dumps({"jobs": records}).encode(), at(0))
    records[1]["name"] = "renamed"
    second = reader.listing_of(json.dumps({"jobs": [*records[1:], record(job_id=9)]}).encode(), at(15))
    before = {each.key.id: each for each in first.jobs}
    assert [before.get(each.key.id) is each for each in second.jobs] == [False, True, False]
    assert second.jobs[0].job.name == "renamed"
    assert [each.key.id for each in second.jobs] == ["2", "3", "9"]
