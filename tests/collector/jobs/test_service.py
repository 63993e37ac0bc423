"""Who uses the GPUs, on a real broker: processes of this machine, known to a scripted driver."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.jobs import service
from collector.jobs.config import JobsConfig
from collector.jobs.service import JobsService
from collector.jobs.source import JobsAnswer, JobsInput, JobSource, Ownership
from collector.nvml.source import NvmlSource
from collector.source import ListedProcess, ListedProcesses
from telemetry.wire import border
from telemetry.wire.jobs import Allocation, AllocationKind, JobKey, JobSourceState, NodeJobs, UserPrivacy
from tests.brokers import Mosquitto
from tests.collector.bus import collecting, config_of, reading
from tests.collector.jobs.given import allocated
from tests.fake_nvml import FakeDriver
from tests.fakes import FakeSource
from tests.kit.waiting import until

pytestmark = pytest.mark.systems
GIB = 1 << 30
JOBS = JobsConfig(interval=1.0, same_pids=True)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, gpus=2) as driver:
        driver.processes(0)
        driver.processes(1)
        yield driver


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def source_of(fake: FakeDriver) -> NvmlSource:
    return NvmlSource(interval=0.05, environment=fake.environment, open_wait=20.0)


def pids(message: NodeJobs) -> list[int]:
    return [process.pid for process in message.processes]


def open_ones(message: NodeJobs) -> list[Allocation]:
    return [each for each in message.allocations if not each.end]


async def test_a_process_is_on_the_bus_with_its_job_and_both_end(
    fake: FakeDriver, mosquitto: Mosquitto, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    config = config_of(mosquitto.config, tmp_path, jobs=JOBS)
    async with reading(mosquitto.config) as reader, collecting(config, source_of(fake)):
        await until(lambda: reader.jobs and reader.jobs[-1].sources[0].state == "reading")
        assert reader.jobs[-1].processes == ()
        fake.processes(1, compute={sleeper.pid: 3 * GIB}, busy={sleeper.pid: 25})
        await until(lambda: pids(reader.jobs[-1]) == [sleeper.pid])
        found = reader.jobs[-1]
        (process,) = found.processes
        assert (process.gpu, process.name) == (fake.uuid(1), "sleep")
        assert (process.memory_bytes, process.sm_ratio) == (3 * GIB, 0.25)
        (allocation,) = found.allocations
        assert (allocation.gpu, allocation.kind) == (fake.uuid(1), AllocationKind.USED)
        assert [job.key for job in found.jobs] == [allocation.job] == [process.job]
        assert found.jobs[0].user == process.user != ""
        fake.processes(1)
        await until(lambda: reader.jobs[-1].processes == ())
        (ended,) = reader.jobs[-1].allocations
        assert 0 < ended.begin == allocation.begin <= ended.end
    times = [message.at for message in reader.jobs]
    assert all(later - earlier > 0.9e9 for earlier, later in itertools.pairwise(times))
    assert [message.version for message in reader.jobs] == list(
        range(reader.jobs[0].version, reader.jobs[-1].version + 1)
    )


async def test_the_message_is_retained_and_comes_again_after_a_broker_has_lost_it(
    fake: FakeDriver, mosquitto: Mosquitto, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    fake.processes(0, compute={sleeper.pid: GIB})
    config = config_of(mosquitto.config, tmp_path, jobs=JOBS)
    async with collecting(config, source_of(fake)):
        async with reading(mosquitto.config) as reader:
            await until(lambda: reader.jobs and pids(reader.jobs[-1]) == [sleeper.pid])
        for lose in (False, True):
            if lose:
                mosquitto.kill()
                mosquitto.start()
            async with reading(mosquitto.config) as late:
                await until(lambda late=late: late.jobs and pids(late.jobs[-1]) == [sleeper.pid])  # type: ignore[misc]


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "601"])
    yield process
    process.kill()
    process.wait()


@contextlib.contextmanager
def collector(fake: FakeDriver, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a collector as a process of its own, and kill it at the end."""
    command = [sys.executable, "-m", "kilowatch", "collect", "--config", str(file)]
    process = subprocess.Popen(command, env=os.environ | fake.environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def test_a_collector_that_is_killed_goes_on_with_the_same_allocations(
    fake: FakeDriver,
    mosquitto: Mosquitto,
    sleeper: subprocess.Popen[bytes],
    other: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:
    file = tmp_path / "kilowatch.toml"
    file.write_text(
        f"[broker]\nport = {mosquitto.port}\n[jobs]\ninterval = 1\nsame_pids = true\n"
        f'[collector]\nnode = "n1"\nsource = "nvml"\nstate_dir = "{tmp_path / "state"}"\n'
        "node_readings = false\ninterval = 0.5\n"
    )
    fake.processes(0, compute={sleeper.pid: GIB})
    fake.processes(1, compute={other.pid: GIB})
    async with reading(mosquitto.config) as reader:
        with collector(fake, file):
            await until(lambda: reader.jobs and len(open_ones(reader.jobs[-1])) == 2)
            first = reader.jobs[-1]
            state = tmp_path / "state" / "jobs.json"
            await until(lambda: state.exists() and fake.uuid(1) in state.read_text())
        fake.processes(1)
        with collector(fake, file):
            await until(lambda: reader.jobs[-1].session != first.session)
            await until(lambda: len(open_ones(reader.jobs[-1])) == 1)
            second = reader.jobs[-1]
    begins = {each.gpu: each.begin for each in first.allocations}
    assert {each.gpu: each.begin for each in second.allocations} == begins, "none is doubled"
    (kept,) = open_ones(second)
    assert kept.gpu == fake.uuid(0)
    (ended,) = [each for each in second.allocations if each.end]
    assert begins[fake.uuid(1)] <= ended.end <= second.at
    started = {each.pid: each.started for each in first.processes}
    (process,) = second.processes
    assert started[process.pid] == process.started, "its identity is the same"


async def test_a_node_whose_settings_want_none_says_so_in_place_of_its_old_message(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    config = config_of(mosquitto.config, tmp_path, jobs=JobsConfig(enabled=False))
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: reader.jobs)
    assert [(each.name, each.state) for each in reader.jobs[-1].sources] == [("process", "absent")]
    assert "enabled = false" in reader.jobs[-1].sources[0].message


async def test_without_users_no_name_of_one_is_on_the_bus_or_on_disk(
    fake: FakeDriver, mosquitto: Mosquitto, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    fake.processes(0, compute={sleeper.pid: GIB})
    jobs = JobsConfig(interval=1.0, same_pids=True, users=UserPrivacy.OFF)
    config = config_of(mosquitto.config, tmp_path, jobs=jobs)
    async with reading(mosquitto.config) as reader, collecting(config, source_of(fake)):
        await until(lambda: reader.jobs and pids(reader.jobs[-1]) == [sleeper.pid])
        state = config.state_dir / "jobs.json"
        await until(lambda: state.exists() and fake.uuid(0) in state.read_text())
        text = state.read_text()
    (job,) = reader.jobs[-1].jobs
    assert (job.key.id, job.user, reader.jobs[-1].users) == ("hidden", "", UserPrivacy.OFF)
    assert reader.jobs[-1].processes[0].user == ""
    assert '"hidden"' in text


class Scheduler:
    """A source of jobs in the hands of a test."""

    name = "slurm"
    interval = 0.05

    def __init__(self) -> None:
        self.answer = JobsAnswer(state=JobSourceState(name="slurm"), allocations=(allocated(begin=0),))
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None
        self.given: list[JobsInput] = []
        self.closed = False

    def read(self, given: JobsInput) -> JobsAnswer:
        self.given.append(given)
        self.go.wait(60)
        if self.error is not None:
            raise self.error
        return self.answer

    def close(self) -> None:
        self.closed = True


@contextlib.asynccontextmanager
async def serving(*sources: JobSource, source: FakeSource | None = None) -> AsyncIterator[list[NodeJobs]]:
    """Run the jobs of a node with these schedulers, and yield its messages."""
    sent: list[NodeJobs] = []
    jobs = JobsService(
        JOBS, "n1", 7, source or FakeSource(), lambda payload: sent.append(border.decode_jobs(payload)), sources=sources
    )
    task = asyncio.create_task(jobs.run())
    try:
        yield sent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        jobs.close()


def state_of(messages: list[NodeJobs], name: str) -> str:
    """Return the state of a source in the newest message."""
    return next((each.state for each in messages[-1].sources if each.name == name), "")


async def test_a_scheduler_that_raises_or_hangs_is_a_state_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "LOOP_SECONDS", 0.02)
    monkeypatch.setattr(service, "HUNG_SECONDS", 0.1)
    broken, good = Scheduler(), Scheduler()
    good.name = "good"
    async with serving(broken, good) as sent:
        await until(lambda: sent and sent[-1].allocations and state_of(sent, "slurm") == "reading")
        good.answer = JobsAnswer(state=JobSourceState(name="good"))
        with caplog.at_level(logging.CRITICAL, "collector.jobs.service"):
            broken.error = ValueError("a bug")
            await until(lambda: state_of(sent, "slurm") == "failing")
        assert "ValueError: a bug" in {each.message for each in sent[-1].sources}
        assert [each.end for each in sent[-1].allocations] == [0]
        broken.error = None
        await until(lambda: state_of(sent, "slurm") == "reading")
        broken.go.clear()
        await until(lambda: state_of(sent, "slurm") == "failing")
        asked = len(good.given)
        await until(lambda: len(good.given) > asked)
        assert [each.end for each in sent[-1].allocations] == [0]
        broken.go.set()
        broken.answer = JobsAnswer(state=JobSourceState(name="slurm", state="absent"))
        await until(lambda: state_of(sent, "slurm") == "absent" and sent[-1].allocations[0].end)
    assert broken.closed
    assert good.closed


async def test_a_source_of_readings_without_processes_is_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOP_SECONDS", 0.02)
    async with serving() as sent:
        await until(lambda: sent)
        assert state_of(sent, "process") == "absent"
        assert "lists no processes" in sent[-1].sources[0].message


class Lister(FakeSource):
    """A source of readings that lists one process of this machine."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid

    def list_processes(self, seconds: float) -> None:
        """Nothing has to be prepared."""

    def listed_processes(self) -> dict[str, ListedProcesses]:
        """Return the process, read just now."""
        its = (ListedProcess(self._pid, "compute", GIB, None, None),)
        return {self.inventory.gpus[0].uuid: ListedProcesses(time.time_ns(), its)}


class Naming(Scheduler):
    """A scheduler that knows whose the process is, and is asked once a minute."""

    interval = 60.0

    def read(self, given: JobsInput) -> JobsAnswer:
        named = {each.id: Ownership(JobKey("slurm", "c", "7", 1)) for each in given.processes}
        return JobsAnswer(state=JobSourceState(name=self.name), owners=named)


async def test_a_new_process_is_shown_with_the_job_that_its_scheduler_names_from_the_first(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(service, "LOOP_SECONDS", 0.02)
    monkeypatch.setattr(service, "FIRST_SECONDS", 60.0)
    async with serving(Naming(), source=Lister(sleeper.pid)) as sent:
        await until(lambda: sent and sent[-1].processes)
        jobs = {each.job for message in sent for each in message.processes}
        jobs |= {each.job for message in sent for each in message.allocations}
        assert jobs == {JobKey("slurm", "c", "7", 1)}
        assert len(open_ones(sent[-1])) == 1


async def test_looked_at_once_a_process_is_found_that_the_scheduler_did_not_know_at_first(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """The scheduler answers before the owners of processes are read: it is asked again, and waited for."""
    scheduler = Naming()
    answered = threading.Event()
    read, find = scheduler.read, service.ProcReader.find

    def first_read(given: JobsInput) -> JobsAnswer:
        answer = read(given)
        answered.set()
        return answer

    def late_find(reader: service.ProcReader, listed: Any) -> Any:
        assert answered.wait(60)
        return find(reader, listed)

    monkeypatch.setattr(scheduler, "read", first_read)
    monkeypatch.setattr(service.ProcReader, "find", late_find)
    monkeypatch.setattr(service, "FIRST_SECONDS", 60.0)
    source = Lister(sleeper.pid)
    listed = source.listed_processes()
    monkeypatch.setattr(source, "listed_processes", lambda: listed)  # nobody reads again
    jobs = JobsService(JOBS, "n1", 7, source, lambda _: None, sources=[scheduler])
    try:
        found = await jobs.once(60.0)
    finally:
        jobs.close()
    assert [each.job for each in found.processes] == [JobKey("slurm", "c", "7", 1)]
