"""The message of a node's jobs: bounded, and sent when it says something new."""

from __future__ import annotations

from collector.jobs.merge import MergedJobs
from collector.jobs.message import FIGURES_SECONDS, JobsMessage
from telemetry.wire import border
from telemetry.wire.jobs import MAX_MESSAGE_BYTES, Allocation, GpuProcess, Job, JobKey, JobSourceState, UserPrivacy
from tests.collector.jobs.given import GPU, at

SOURCES = (JobSourceState(name="process"),)


def process(pid: int, memory: int | None = None, busy: float | None = None) -> GpuProcess:
    return GpuProcess(gpu=GPU, pid=pid, name="python", memory_bytes=memory, sm_ratio=busy)


def merged(*processes: GpuProcess) -> MergedJobs:
    return MergedJobs((), (), processes)


def test_the_same_is_sent_once_and_figures_alone_once_a_minute() -> None:
    message = JobsMessage(7, UserPrivacy.NAMES)
    assert message.encoded(merged(process(1, 5, 0.1)), SOURCES, at(0)) is not None
    assert message.encoded(merged(process(1, 5, 0.1)), SOURCES, at(5)) is None
    assert message.encoded(merged(process(1, 6, 0.2)), SOURCES, at(10)) is None
    late = message.encoded(merged(process(1, 7, 0.2)), SOURCES, at(FIGURES_SECONDS))
    assert late is not None
    assert border.decode_jobs(late).processes[0].memory_bytes == 7
    assert message.encoded(merged(process(1, 7), process(2)), SOURCES, at(61)) is not None
    assert message.newest.version == 3
    failing = (JobSourceState(name="process", state="failing"),)
    assert message.encoded(merged(process(1, 7), process(2)), failing, at(62)) is not None


def test_processes_with_the_least_memory_are_left_out_first_and_counted() -> None:
    many = [process(pid, memory=pid << 20) for pid in range(1, 2001)]
    payload = JobsMessage(7, UserPrivacy.NAMES).encoded(merged(*many), SOURCES, at(0))
    assert payload is not None
    assert len(payload) <= MAX_MESSAGE_BYTES
    found = border.decode_jobs(payload)
    assert found.left_out == 2000 - len(found.processes) > 0
    kept = [each.pid for each in found.processes]
    assert kept == list(range(2001 - len(kept), 2001))
    assert len(kept) > 200, "no more than needed"


def test_the_oldest_ended_allocations_leave_before_those_that_last() -> None:
    keys = [JobKey("slurm", "lab", str(number)) for number in range(1000)]
    allocations = tuple(
        Allocation(job=key, gpu=GPU, begin=at(number), end=0 if number < 50 else at(number + 1))
        for number, key in enumerate(keys)
    )
    jobs = tuple(Job(key=key, name="train") for key in keys)
    message = JobsMessage(7, UserPrivacy.NAMES)
    payload = message.encoded(MergedJobs(jobs, allocations, ()), SOURCES, at(2000))
    assert payload is not None
    assert len(payload) <= MAX_MESSAGE_BYTES
    found = border.decode_jobs(payload)
    assert sum(not each.end for each in found.allocations) == 50
    ended = sorted(each.end for each in found.allocations if each.end)
    assert ended == sorted(each.end for each in allocations if each.end)[-len(ended) :]
    assert {job.key for job in found.jobs} == {each.job for each in found.allocations}


def test_what_ended_leaves_before_the_processes_that_run() -> None:
    """A node of many short jobs listed no process from 160 of them an hour on."""
    keys = [JobKey("slurm", "lab", str(number)) for number in range(1000)]
    allocations = tuple(
        Allocation(job=key, gpu=GPU, begin=at(number), end=at(number + 1) if number < 999 else 0)
        for number, key in enumerate(keys)
    )
    jobs = tuple(Job(key=key, name="train") for key in keys)
    processes = tuple(process(pid, pid << 20) for pid in range(1, 31))
    payload = JobsMessage(7, UserPrivacy.NAMES).encoded(MergedJobs(jobs, allocations, processes), SOURCES, at(2000))
    assert payload is not None
    assert len(payload) <= MAX_MESSAGE_BYTES
    found = border.decode_jobs(payload)
    assert (len(found.processes), found.left_out) == (30, 0)
    assert found.allocations[0].end == 0
    assert len(found.allocations) > 100, "as many of those that ended last as there is room for"


def test_a_pid_that_comes_twice_is_one_process() -> None:
    payload = JobsMessage(7, UserPrivacy.NAMES).encoded(merged(process(0), process(0), process(4)), SOURCES, at(0))
    assert payload is not None
    assert [each.pid for each in border.decode_jobs(payload).processes] == [0, 4]
