"""A job that was known by less than its name before: one job, whoever names it, and nothing of it counted twice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aggregator.config import StoreConfig
from aggregator.jobs.aliases import without_aliases
from aggregator.jobs.ledger import JobLedger
from aggregator.jobs.stored import JobQuery
from aggregator.store.embedded import EmbeddedStore
from api.jobs import JobPhase, JobRow
from telemetry.devices import Event
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs, Precision
from tests.aggregator.test_jobs_usage import Site

SECOND = 10**9
START = 1_790_000_000 * SECOND
BARE, RUN, AGAIN = (JobKey("slurm", "", "7"), JobKey("slurm", "loop", "7"), JobKey("slurm", "loop", "7", 1))
UID, POD = JobKey("kubernetes", "", "0fba-5f6e"), JobKey("kubernetes", "", "team/train-0")


def at(seconds: float) -> int:
    return START + int(seconds * SECOND) if seconds else 0


def given(key: JobKey, begin: float, end: float = 0, gpu: str = "a") -> Allocation:
    """What a prolog, or the kubelet, says."""
    how = Precision.HOOK
    return Allocation(job=key, gpu=gpu, begin=at(begin), end=at(end), begin_from=how, end_from=how)


def used(key: JobKey, begin: float, end: float = 0, gpu: str = "a") -> Allocation:
    """What a process shows."""
    kind = AllocationKind.USED
    return Allocation(job=key, gpu=gpu, kind=kind, begin=at(begin), end=at(end))


class Lists:
    """Lists of nodes, and the ledger that gets them."""

    def __init__(self) -> None:
        self.ledger, self.version = JobLedger(), 0

    def send(self, seconds: float, *allocations: Allocation, node: str = "n1", jobs: tuple[Job, ...] = ()) -> None:
        self.version += 1
        message = NodeJobs(session=1, version=self.version, at=at(seconds), allocations=allocations, jobs=jobs)
        self.ledger.apply(node, message)

    def rows(self, key: JobKey) -> list[tuple[str, float, float | None, bool]]:
        """Kind, begin, end and whether it was lost, of each allocation of a job."""
        return [
            (row.kind.value, (row.begin - START) / SECOND, None if row.end is None else (row.end - START) / SECOND, row.lost)
            for row in self.ledger.jobs[key].allocations
        ]  # fmt: skip


def test_a_cgroup_s_number_beside_its_hook_is_no_second_job() -> None:
    lists = Lists()
    lists.send(2, given(RUN, 1), used(BARE, 1.5))
    assert set(lists.ledger.jobs) == {RUN}
    lists.send(3, given(RUN, 1), used(RUN, 1.5))
    assert lists.rows(RUN) == [("allocated", 1, None, False), ("used", 1.5, None, False)]


def test_a_job_is_renamed_where_its_name_comes_later() -> None:
    lists = Lists()
    lists.send(2, used(BARE, 1.5), jobs=(Job(key=BARE, user="ada"),))
    lists.send(3, given(RUN, 1), used(RUN, 1.5), jobs=(Job(key=RUN, account="physics"),))
    assert set(lists.ledger.jobs) == {RUN}
    assert lists.rows(RUN) == [("used", 1.5, None, False), ("allocated", 1, None, False)]
    assert lists.ledger.jobs[RUN].replaces == {BARE}
    lists.send(9, given(RUN, 1, 8), used(RUN, 1.5, 7))
    assert lists.ledger.jobs[RUN].phase is JobPhase.ENDED


def test_a_process_that_ended_before_its_job_was_named_was_its_job_s() -> None:
    lists = Lists()
    lists.send(2, used(BARE, 1.5, 1.9))
    lists.send(3, given(RUN, 1), used(BARE, 1.5, 1.9))
    assert set(lists.ledger.jobs) == {RUN}
    assert lists.rows(RUN) == [("used", 1.5, 1.9, False), ("allocated", 1, None, False)]


def test_a_job_that_is_renamed_while_another_process_has_the_name_is_one_allocation() -> None:
    lists = Lists()
    lists.send(2, used(BARE, 1.5))
    lists.send(3, used(BARE, 1.5), used(RUN, 2.5))
    lists.send(4, used(RUN, 2.5))
    assert set(lists.ledger.jobs) == {RUN}
    assert lists.rows(RUN) == [("used", 1.5, None, False)]


def test_each_run_of_a_job_has_what_it_used_itself() -> None:
    lists = Lists()
    lists.send(2, used(BARE, 1.5))
    lists.send(20, given(RUN, 1, 10), given(AGAIN, 15), used(BARE, 1.5, 9), used(BARE, 16))
    assert lists.rows(RUN) == [("used", 1.5, 9, False), ("allocated", 1, 10, False)]
    assert lists.rows(AGAIN) == [("allocated", 15, None, False), ("used", 16, None, False)]


def test_another_gpu_another_time_and_another_node_are_not_renamed() -> None:
    """Nothing says that these are the same run."""
    lists = Lists()
    lists.send(2, used(BARE, 1.5, gpu="b"))
    lists.send(2, used(BARE, 1.5), node="n2")
    lists.send(3, given(RUN, 1), used(BARE, 1.5, gpu="b"))
    assert lists.ledger.jobs[BARE].nodes == ["n1", "n2"]
    lists.send(4, given(RUN, 1), node="n2")
    assert (lists.ledger.jobs[BARE].nodes, lists.ledger.jobs[RUN].nodes) == (["n1"], ["n1", "n2"])
    assert not lists.ledger.jobs[RUN].replaces, "a part of it is still known by its number alone"
    lists.send(90, given(AGAIN, 80, gpu="b"), used(BARE, 1.5, 60, gpu="b"))
    assert BARE in lists.ledger.jobs


def test_a_pod_is_one_job_with_its_uid() -> None:
    lists = Lists()
    lists.send(2, used(UID, 1.5))
    lists.send(4, given(POD, 3), used(POD, 1.5), jobs=(Job(key=POD, aliases=(UID.id,)),))
    assert set(lists.ledger.jobs) == {POD}
    assert lists.rows(POD) == [("used", 1.5, None, False), ("allocated", 3, None, False)]


def test_a_pod_is_found_by_its_uid_and_says_so(tmp_path: Path) -> None:
    site, uid = Site(), "0fba5f6e-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
    message = NodeJobs(
        session=7,
        version=1,
        at=site.wall,
        jobs=(Job(key=POD, aliases=(uid,)),),
        allocations=(site.held(POD, 0, site.wall),),
    )
    site.jobs.receive("n0", msgspec.json.encode(message), {site.uuid(0)}, site.wall)
    store = EmbeddedStore(StoreConfig(), tmp_path)
    store.write_jobs([site.jobs.stored(POD, site.wall)])
    for name, wanted in {uid: [POD.id], POD.id: [POD.id], uid[:8]: [], uid[:-1] + "c": []}.items():
        query = JobQuery(id=name)
        found = [*store.find_jobs(query), *site.jobs.matching(query, site.wall)]
        assert [row.id for row in found] == wanted * 2, name
        assert all(row.renamed_from == [uid] and query.matches(row) for row in found)
    store.close()


def test_what_was_counted_and_stored_of_an_alias_is_its_job_s(tmp_path: Path) -> None:
    site = Site()
    begin = site.wall
    site.send("n0", site.held(BARE, 0, begin, kind=AllocationKind.USED))
    site.run(60)
    site.jobs.faults.note(Event(id="x", node="n0", gpu=site.uuid(0), at=begin + SECOND, kind="xid", data={"xid": 31}))
    store = EmbeddedStore(StoreConfig(), tmp_path)
    due = site.jobs.due(site.now, site.wall)
    assert [each.record.job.key for each in due] == []  # until it is known what the store has of it
    site.jobs.absorb((), [BARE])
    due = site.jobs.due(site.now, site.wall)
    store.write_jobs(due)
    site.jobs.written(due, site.now, site.wall)
    assert [row.cluster for row in store.find_jobs(JobQuery(id="7"))] == [""]
    process = GpuProcess(gpu=site.uuid(0), pid=42, started=begin, job=BARE)
    both = site.held(RUN, 0, begin), site.held(BARE, 0, begin, kind=AllocationKind.USED)
    site.send("n0", *both, processes=(process,))
    assert [each.job for each in site.jobs.lists["n0"].processes] == [RUN]
    site.run(40)
    (row,) = site.jobs.matching(JobQuery(id="7"), site.wall)
    named = Site()
    named.send("n0", named.held(RUN, 0, begin))
    named.run(100)
    (other,) = named.jobs.matching(JobQuery(), named.wall)
    assert row.summary is not None
    assert other.summary is not None
    assert row.summary.energy_joules == pytest.approx(other.summary.energy_joules)
    assert row.summary.gpu_hours == pytest.approx(other.summary.gpu_hours)
    assert row.summary.faults == {"xid 31": 1}
    site.jobs.absorb((), [RUN])
    due = site.jobs.due(site.now, site.wall)
    store.write_jobs(due)
    site.jobs.written(due, site.now, site.wall)
    assert [(row.cluster, row.phase) for row in store.find_jobs(JobQuery(id="7"))] == [("loop", JobPhase.RUNNING)]
    assert site.jobs.stored(RUN, site.wall).replaces == []
    store.close()


def test_a_job_that_an_older_release_stored_twice_is_listed_once() -> None:
    named = JobRow(scheduler="slurm", cluster="loop", id="7", begin=at(1), end=at(60), nodes=["n1"])
    alias = msgspec.structs.replace(named, cluster="", begin=at(2), end=at(3))
    earlier = msgspec.structs.replace(alias, begin=at(0.2), end=at(0.5))
    elsewhere = msgspec.structs.replace(alias, nodes=["n2"])
    rows = [named, alias, earlier, elsewhere]
    assert without_aliases(rows) == [named, earlier, elsewhere]
