"""Every task and thread of a collector is ended in turn: each is reported, an event, and started again."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from collector.assembly import CollectorAssembly
from collector.host.kernel_log import KernelLog
from collector.source import DeviceEvent
from telemetry.notations.kernel_log import KernelRecord
from telemetry.runtime.supervision import Supervisor
from telemetry.runtime.tasks import end
from telemetry.wire.frame import unpack
from telemetry.wire.schema import NODE_FAST, SCHEMA
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import Reader, collecting, config_of, reading
from tests.collector.test_page import ask, get
from tests.fakes import FakeSource
from tests.killing import end_thread, fail_all
from tests.kit.waiting import until

XID = "NVRM: Xid (PCI:0000:01:00): {}, pid=7, name=python3, something\n"
TASKS = {"jobs", "kernel log", "page", "publisher", "ring", "sampler"}
"""Tasks of a collector that live as long as it does; a new one belongs in here."""
COLUMN = SCHEMA.blocks[NODE_FAST].gauges.index("node_collector_tasks_failing")


@pytest.fixture
def assemblies(monkeypatch: pytest.MonkeyPatch) -> list[CollectorAssembly]:
    """The collectors that were started."""
    found: list[CollectorAssembly] = []
    begin = CollectorAssembly.__init__

    def noted(self: CollectorAssembly, *args: object) -> None:
        begin(self, *args)  # type: ignore[arg-type]
        self.supervisor._pauses = (0.01, 0.02)
        found.append(self)

    monkeypatch.setattr(CollectorAssembly, "__init__", noted)
    return found


async def test_each_task_that_ends_is_an_event_and_a_restart_and_costs_no_frame(
    mosquitto: Mosquitto, tmp_path: Path, assemblies: list[CollectorAssembly]
) -> None:
    kernel = tmp_path / "kern.log"
    kernel.write_text("")
    port = free_port()
    config = config_of(mosquitto.config, tmp_path / "n1", kernel_log=str(kernel), metrics_listen=f"127.0.0.1:{port}")
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()) as running:
        await until(lambda: len(reader.frames) >= 3)
        [parts] = assemblies
        await until(parts.started.is_set)
        assert parts.supervisor.states.keys() == TASKS
        for name in sorted(TASKS):
            state = parts.supervisor.states[name]
            await until(lambda state=state, name=name: state.running and fail_all(f"{name} n1"))  # type: ignore[misc]
            await until(lambda state=state: state.restarts == 1 and state.running)  # type: ignore[misc]
        await until(lambda: failed(reader) >= TASKS)
        await until(lambda: failing(reader) == len(TASKS))
        status, page = await ask(port, get("/metrics"))
        assert status == 200
        for name in TASKS:
            labels = f'{{cluster="default",node="n1",task="{name}"}}'
            assert f"kilowatch_collector_task_failing{labels} 1" in page.decode()
            assert f"kilowatch_collector_task_restarts_total{labels} 1" in page.decode()
        assert b"kernel log: InjectedError: injected" in (await ask(port, get("/healthz")))[1]
        with kernel.open("a") as file:  # the new thread reads on
            file.write(XID.format(79))
        await until(lambda: any(event.kind == "xid" for event in reader.events))
        frames = len(reader.frames)
        await until(lambda: len(reader.frames) > frames + 5)
        summary = await running.end()
    assert summary.frames_unkept == 0
    assert {one.seq for one in reader.frames} | set(range(5)) >= set(range(summary.frames - 5))


def failed(reader: Reader) -> set[object]:
    return {event.data["task"] for event in reader.events if event.kind == "task_failed"}


def failing(reader: Reader) -> float:
    """The newest number of failing tasks in a frame."""
    rows = [unpack(each) for each in reader.frames[-1].blocks if each.block == NODE_FAST]
    return rows[0][0][COLUMN] if rows else 0.0


async def test_a_thread_that_dies_is_started_again_and_reads_what_was_written_meanwhile(
    mosquitto: Mosquitto, tmp_path: Path, assemblies: list[CollectorAssembly]
) -> None:
    """No `except Exception` sees how it ends."""
    kernel = tmp_path / "kern.log"
    kernel.write_text("")
    config = config_of(mosquitto.config, tmp_path / "n1", kernel_log=str(kernel))
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()) as running:
        await until(lambda: len(reader.frames) >= 3)
        [parts] = assemblies
        for name, thread in (("kernel log", "kernel-log"), ("ring", "ring")):
            assert end_thread(thread)
            state = parts.supervisor.states[name]
            await until(lambda state=state: state.restarts == 1 and state.running)  # type: ignore[misc]
            assert "SystemExit" in state.reason
        with kernel.open("a") as file:
            file.write(XID.format(79))
        await until(lambda: any(event.kind == "xid" for event in reader.events))
        frames = len(reader.frames)
        await until(lambda: len(reader.frames) > frames + 5)
        summary = await running.end()
    assert summary.frames_unkept == 0


@pytest.mark.parametrize("kind", [ValueError, OSError, KeyError])
async def test_a_fault_of_the_kernel_logs_reader_is_a_state_and_costs_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    path = tmp_path / "kern.log"
    path.write_text("")
    monkeypatch.setattr("collector.host.kernel_log._FIRST_PAUSE", 0.3)
    log = KernelLog(path)
    task = asyncio.create_task(Supervisor().run("kernel log", log.run))
    await until(lambda: log.state == "reading")
    read = os.read

    def refuse(descriptor: int, count: int) -> bytes:
        if threading.current_thread().name == "kernel-log":
            raise kind("injected")
        return read(descriptor, count)

    monkeypatch.setattr("collector.host.kernel_log.os.read", refuse)
    await until(lambda: log.state == "failed")
    assert "injected" in log.message
    with path.open("a") as file:
        file.write(XID.format(48))
    monkeypatch.setattr("collector.host.kernel_log.os.read", read)
    found: list[DeviceEvent] = []

    def seen() -> bool:
        found.extend(log.drain())
        return any(event.kind == "xid" for event in found)

    await until(seen)
    assert log.state == "reading"
    # Again for each pause that was over before it could read.
    assert {event.data["state"] for event in found if event.kind == "driver_log"} == {"failed"}
    await end({task}, 5)
    log.close()


async def test_a_line_that_can_not_be_understood_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kern.log"
    path.write_text("")
    log = KernelLog(path)
    feed = log._assembler.feed

    def stumble(line: str) -> KernelRecord | None:
        if "stumble" in line:
            raise ValueError("invalid literal")
        return feed(line)

    monkeypatch.setattr(log._assembler, "feed", stumble)
    log.start()
    try:
        await until(lambda: log.state == "reading")
        with path.open("a") as file:
            file.write("NVRM: Xid (PCI:0000:01:00): stumble\n" + XID.format(79))
        found: list[DeviceEvent] = []

        def seen() -> bool:
            found.extend(log.drain())
            return len(found) == 2

        await until(seen)
        assert [event.kind for event in found] == ["driver_log", "xid"]
        assert "stumble" in str(found[0].data["line"])
        assert log.state == "reading"
    finally:
        log.close()


async def test_records_that_were_read_before_a_fault_are_not_read_again() -> None:
    log = KernelLog("/nowhere")
    records = [b"6,%d,1000,-;text" % number for number in (7, 8, 8, 7, 9)]
    assert [log._is_new(record) for record in records] == [True, True, False, False, True]
    log.close()


async def test_a_ring_whose_write_fails_by_a_bug_goes_on(
    mosquitto: Mosquitto, tmp_path: Path, assemblies: list[CollectorAssembly], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.ring.writer.RETRY_AFTER", 0.0)
    config = config_of(mosquitto.config, tmp_path / "n1")
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: len(reader.frames) >= 3)
        ring = assemblies[0].ring_writer
        assert ring is not None
        append = ring._ring.append
        calls = iter([KeyError("a bug")])

        def fail_once(session: int, seq: int, payload: bytes) -> None:
            for error in calls:
                raise error
            append(session, seq, payload)

        monkeypatch.setattr(ring._ring, "append", fail_once)
        await until(lambda: {"ring_down", "ring_up"} <= {event.kind for event in reader.events})
        assert ring.unkept == 1
