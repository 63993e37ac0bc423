"""A publisher that is connected and sends nothing is noticed, started again, and else starves the watchdog."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from collector.assembly import SLOWEST_SEND, CollectorAssembly
from collector.publish.publisher import Publisher
from collector.service import _publish
from telemetry.runtime.supervision import ProgressMarks
from telemetry.wire.mqtt import BrokerConfig
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import collecting, config_of, reading
from tests.collector.test_page import ask, get
from tests.collector.test_supervision import assemblies  # noqa: F401 - a fixture
from tests.fakes import FakeSource
from tests.kit.waiting import until

HOURS = 7200.0


class Clocked:
    """A collector that is not started, and whose clock is given."""

    def __init__(self, folder: Path, **more: object) -> None:
        config = config_of(BrokerConfig(), folder, ring_enabled=False, **more)
        self.parts = CollectorAssembly(config, FakeSource(), None, None, {})
        self.now = 1000.0
        marks = self.parts.marks
        self.parts.marks = ProgressMarks(marks.limits, marks.vital, clock=lambda: self.now)
        self.parts.publisher_blocked()

    def connect(self) -> None:
        self.parts.publisher.connected = True
        self.parts.publisher.counters.connects += 1

    def wait(self, seconds: float) -> float | None:
        """Sample for a while, with a look each second."""
        found = None
        for _ in range(int(seconds)):
            self.now += 1.0
            self.parts.marks.mark("sample")
            self.parts.publisher.frame(0, b"frame")
            found = self.parts.publisher_blocked()
        return found

    def send(self) -> None:
        """Send what waits."""
        while self.parts.publisher.outbox.frames:
            self.parts.publisher.outbox.frames.popleft()
            self.parts.marks.mark("frame sent")


async def test_a_broker_that_is_away_for_hours_blocks_nothing(tmp_path: Path) -> None:
    collector = Clocked(tmp_path)
    assert collector.wait(HOURS) is None
    collector.connect()
    assert collector.wait(SLOWEST_SEND) is None  # the time counts from the connection
    assert collector.parts.marks.vital_blocked() == {}


async def test_frames_that_wait_at_a_connection_are_noticed_within_half_a_minute(tmp_path: Path) -> None:
    collector = Clocked(tmp_path)
    collector.connect()
    assert collector.wait(29) is not None
    assert collector.parts.marks.vital_blocked().keys() == {"frame sent"}
    collector.send()
    assert collector.parts.publisher_blocked() is None
    assert collector.parts.marks.vital_blocked() == {}


async def test_a_publisher_without_frames_is_not_blocked_by_a_driver_that_hangs(tmp_path: Path) -> None:
    collector = Clocked(tmp_path)
    collector.connect()
    collector.wait(1)
    collector.send()
    collector.now += HOURS
    assert collector.parts.publisher_blocked() is None


async def test_each_connection_has_its_own_time(tmp_path: Path) -> None:
    """A broker that ends each connection before it takes a frame is a fault of the broker."""
    collector = Clocked(tmp_path)
    for _ in range(10):
        collector.connect()
        assert collector.wait(15) is None


async def test_a_publisher_that_was_ended_owes_nothing_until_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the watchdog would end the collector in the pauses before it is started again."""
    monkeypatch.setattr("collector.service.LOOK_SECONDS", 0.0)
    collector = Clocked(tmp_path)
    collector.connect()
    assert collector.wait(29) is not None
    collector.parts.publisher.run = asyncio.Event().wait  # type: ignore[assignment, method-assign]
    with pytest.raises(ExceptionGroup):
        await _publish(collector.parts)
    collector.now += HOURS
    assert "frame sent" not in collector.parts.marks.vital_blocked()


async def test_a_broker_that_takes_nine_seconds_for_each_answer_is_no_fault_of_ours(tmp_path: Path) -> None:
    collector = Clocked(tmp_path)
    parts, publisher = collector.parts, collector.parts.publisher
    asked = []

    class SlowBroker:
        async def subscribe(self, topics: list[object]) -> list[int]:
            await self.publish("subscribe")
            return [0 for _ in topics]

        async def publish(self, topic: str, *_: object, **__: object) -> None:
            asked.append(topic.rpartition("/")[2])
            collector.now += 9.0
            parts.marks.mark("sample")
            assert parts.publisher_blocked() is None

    collector.connect()
    publisher._inventory, publisher._inventory_due = b"inventory", True
    publisher._jobs, publisher._jobs_due = b"jobs", True
    publisher._status_due = True
    collector.wait(1)
    publisher.close()
    await publisher._send(SlowBroker())  # type: ignore[arg-type]
    assert asked == ["subscribe", "inventory", "status", "frame", "jobs"]


async def test_a_collector_of_a_long_interval_has_three_of_them(tmp_path: Path) -> None:
    collector = Clocked(tmp_path, interval=30.0, slow_interval=30.0)
    collector.connect()
    assert collector.wait(90) is None
    assert collector.wait(2) is not None


@pytest.mark.parametrize("loses", [0, 2])
async def test_a_publisher_that_hangs_is_started_again_and_sends(
    mosquitto: Mosquitto,
    tmp_path: Path,
    assemblies: list[CollectorAssembly],  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
    loses: int,
) -> None:
    """Also where what hangs loses its first cancellations; the watchdog is not fed meanwhile."""
    monkeypatch.setattr("collector.assembly.SLOWEST_SEND", 0.3)
    monkeypatch.setattr("collector.service.LOOK_SECONDS", 0.05)
    hang, left = asyncio.Event(), loses
    blocked: set[str] = set()
    send = Publisher._send_frames

    async def hanging(self: Publisher, client: Any) -> None:
        nonlocal left
        while hang.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                [parts] = assemblies
                blocked.update(parts.marks.vital_blocked())
                if not left:
                    hang.clear()
                    raise
                left -= 1
        await send(self, client)

    monkeypatch.setattr(Publisher, "_send_frames", hanging)
    port = free_port()
    config = config_of(mosquitto.config, tmp_path / "n1", metrics_listen=f"127.0.0.1:{port}")
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: len(reader.frames) >= 3)
        hang.set()
        await until(lambda: not hang.is_set())
        [parts] = assemblies
        state = parts.supervisor.states["publisher"]
        await until(lambda: state.restarts >= 1 and state.running)
        assert "frames wait and none was sent" in state.reason
        frames = len(reader.frames)
        await until(lambda: len(reader.frames) > frames + 2)
        await until(lambda: any(each.kind == "task_failed" for each in reader.events))
        await until(lambda: parts.publisher_blocked() is None)
        assert (await ask(port, get("/healthz")))[0] == 200
    assert blocked == {"frame sent"}


async def test_the_page_is_unwell_while_nothing_is_sent(
    mosquitto: Mosquitto,
    tmp_path: Path,
    assemblies: list[CollectorAssembly],  # noqa: F811 - the fixture
) -> None:
    port = free_port()
    config = config_of(mosquitto.config, tmp_path / "n1", metrics_listen=f"127.0.0.1:{port}")
    async with collecting(config, FakeSource()):
        await until(lambda: assemblies and assemblies[0].started.is_set())
        [parts] = assemblies
        parts.marks.blocked = lambda: {"frame sent": 21.0}  # type: ignore[method-assign]
        status, text = await ask(port, get("/healthz"))
        assert (status, text) == (503, b"frames wait and none was sent for 21 s\n")
