"""Every task and thread of a collector is ended in turn: each is reported, an event, and started again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from collector.assembly import CollectorAssembly
from collector.host.kernel_log import KernelLog
from collector.service import facts_of, run_collector
from collector.source import DeviceEvent
from telemetry.frame import readings_of
from telemetry.schema import NODE_FAST, SCHEMA
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import Reader, collecting, config_of, reading
from tests.collector.test_page import ask, get
from tests.fakes import FakeSource, until
from tests.killing import end_thread, fail_all

TASKS = {"kernel log", "page", "publisher", "ring", "sampler"}
"""All tasks of a collector that live as long as it does; a new one belongs in here."""
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
    config = config_of(
        mosquitto.config, tmp_path / "n1", kernel_log=str(kernel),
        metrics_listen=f"127.0.0.1:{port}",
    )  # fmt: skip
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
            file.write("NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=x, GPU has fallen off the bus.\n")
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
    return next(
        (
            readings_of(one)[NODE_FAST][0][COLUMN]
            for one in reversed(reader.frames)
            if NODE_FAST in readings_of(one)
        ),
        0.0,
    )
