"""The collector's end of the bus, against real brokers: mosquitto and the embedded one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import aiomqtt
import pytest

from collector.config import CollectorConfig
from collector.publish.command_limits import CommandLimits
from collector.publish.publisher import ANSWER_SECONDS, Publisher
from collector.publish.queue import MOST_EVENTS, MOST_FRAMES, MOST_REQUESTS, PublishQueue, ResendRequests
from collector.publish.status_message import MOST_SPANS, status
from collector.ring.ring import Ring
from telemetry.errors import BusError
from telemetry.wire.frame import build, encode
from telemetry.wire.inventory import CollectorStatus, Command, CommandKind, FrameSpan, NodeState, decode
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, topic
from tests.brokers import Broker, Mosquitto, free_port
from tests.collector.bus import NODE, collecting, config_of, reading
from tests.fakes import FakeSource
from tests.kit.waiting import until


def resend(about: int, first: int, last: int) -> Command:
    return Command(kind=CommandKind.RESEND, about=about, first=first, last=last)


async def test_the_inventory_precedes_frames_and_a_planned_end_is_published(broker: Broker, tmp_path: Path) -> None:
    source = FakeSource(gpus=3)
    async with reading(broker.config) as reader:
        async with collecting(config_of(broker.config, tmp_path), source) as running:
            await until(lambda: len(reader.frames) >= 5)
            source.add_event("xid", 5, gpu="GPU-0001", code=79)
            await until(lambda: any(event.kind == "xid" for event in reader.events))
            summary = await running.end()
        await until(lambda: reader.statuses[-1].state is NodeState.OFFLINE)
    assert reader.order.index(Topic.INVENTORY) < reader.order.index(Topic.FRAME)
    assert [gpu.uuid for gpu in reader.inventories[0].gpus] == ["GPU-0000", "GPU-0001", "GPU-0002"]
    online, offline = reader.statuses[0], reader.statuses[-1]
    assert (online.state, online.interval, online.session) == ("online", 0.05, summary.session)
    assert (offline.reason, offline.session) == ("shutdown", summary.session)
    assert offline.ring == (FrameSpan(summary.session, 0, summary.frames - 1),)
    seqs = [frame.seq for frame in reader.frames]
    assert seqs == list(range(seqs[0], summary.frames))
    kinds = {event.kind for event in reader.events} - {"ticks_skipped"}  # by a busy machine
    assert kinds == {"collector_started", "xid", "collector_stopped"}
    in_frames = [payload for frame in reader.frames for payload in frame.events]
    assert any(b'"xid"' in payload for payload in in_frames)
    assert any(b'"collector_stopped"' in payload for payload in in_frames)


class ScriptedRing:
    """A ring that is read when the test says so."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()

    def spans(self) -> tuple[FrameSpan, ...]:
        return (FrameSpan(7, 0, 0),) if self.ready.is_set() else ()

    def waiting(self) -> int | None:
        return None

    async def settled(self, seconds: float) -> None: ...

    async def chunk(
        self, session: int, first: int, last: int, most_bytes: int, most_frames: int
    ) -> list[tuple[int, bytes]]:
        return []


@pytest.mark.parametrize("read", [True, False], ids=["ring-is-read", "ring-is-still-read"])
async def test_the_status_waits_for_the_ring_and_live_frames_do_not(broker: Broker, tmp_path: Path, read: bool) -> None:
    """Inventory, status, frames; while the ring is still read, the status comes after frames."""
    ring = ScriptedRing()
    config = config_of(broker.config, tmp_path)
    publisher = Publisher(config, 7, ring, lambda _: None, time.time_ns)
    publisher.inventory(FakeSource().inventory)
    publisher.frame(0, encode(build(7, 0, 1, {}, [])))
    if read:
        ring.ready.set()
    async with reading(broker.config) as reader:
        running = asyncio.create_task(publisher.run())
        await until(lambda: reader.frames)
        assert (Topic.STATUS in reader.order) is read
        ring.ready.set()
        await until(lambda: len(reader.order) == 3)
        publisher.close()
        await running
    first = [Topic.INVENTORY, Topic.STATUS, Topic.FRAME]
    assert reader.order[:3] == (first if read else [first[0], first[2], first[1]])
    assert reader.statuses[0].ring == (FrameSpan(7, 0, 0),)


async def test_frames_of_an_outage_are_in_the_ring_and_come_when_asked_for(broker: Broker, tmp_path: Path) -> None:
    """The broker dies with everything in it and comes back; nothing is lost."""
    source = FakeSource()
    async with collecting(config_of(broker.config, tmp_path), source) as running:
        async with reading(broker.config) as reader:
            await until(lambda: len(reader.frames) >= 5)
            session = reader.frames[0].session
            broker.kill()
            sampled = len(source.calls)
            await until(lambda: len(source.calls) >= sampled + 10)
        seen = reader.seqs(session)
        broker.start()
        async with reading(broker.config) as again:
            await until(lambda: len(again.frames) >= 3 and again.statuses)
            last = again.frames[-1].seq
            (span,) = again.statuses[-1].ring
            assert (span.session, span.first) == (session, 0)
            assert len(seen) < last  # there is a hole
            await again.command(resend(session, 0, last))
            await until(lambda: again.replies)
            reply = again.replies[0]
            assert (reply.about, reply.first, reply.last) == (session, 0, last)
            assert (reply.sent, reply.gone) == (last + 1, ())
            refilled = [frame.seq for frame in again.refilled]
            assert refilled == list(range(last + 1))
            assert again.inventories[-1].session == session
        summary = await running.end()
    assert summary.connects == 2
    assert summary.frames_resent == last + 1
    assert summary.frames_unkept == 0


async def test_what_the_ring_no_longer_has_is_answered_exactly(mosquitto: Mosquitto, tmp_path: Path) -> None:
    config = config_of(mosquitto.config, tmp_path, ring_bytes=64 * 1024)
    source = FakeSource(gpus=8)  # frames of 2 kB and more: the ring holds two dozen
    async with reading(mosquitto.config) as reader, collecting(config, source):
        await until(lambda: reader.frames and reader.frames[-1].seq >= 60)
        session, last = reader.frames[-1].session, reader.frames[-1].seq
        await reader.command(resend(session, 0, last + 1000))
        await until(lambda: reader.replies)
        (reply,) = reader.replies
        held = {frame.seq for frame in reader.refilled}
        (gone,) = reply.gone
        assert gone == FrameSpan(session, 0, min(held) - 1)
        assert held == set(range(min(held), max(held) + 1))
        assert max(held) >= last
        assert reply.sent == len(held)  # frames to come are not gone
        await reader.command(resend(12345, 3, 9))
        await until(lambda: len(reader.replies) == 2)
        assert reader.replies[1].gone == (FrameSpan(12345, 3, 9),)


async def test_a_ring_that_has_dropped_its_oldest_frames_is_announced(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.publish.publisher.STATUS_EVERY", 0.1)
    config = config_of(mosquitto.config, tmp_path, ring_bytes=64 * 1024)
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource(gpus=8)):
        await until(lambda: reader.statuses and reader.statuses[-1].ring)
        await until(lambda: reader.statuses[-1].ring[0].first > 0)
        assert {status.state for status in reader.statuses} == {NodeState.ONLINE}


async def test_frames_of_an_earlier_session_are_announced_and_sent(mosquitto: Mosquitto, tmp_path: Path) -> None:
    config = config_of(mosquitto.config, tmp_path)
    source = FakeSource()
    async with collecting(config, source) as running:
        await until(lambda: len(source.calls) >= 3)
        before = await running.end()
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: reader.statuses and reader.statuses[-1].state is NodeState.ONLINE)
        assert reader.statuses[-1].ring[0] == FrameSpan(before.session, 0, before.frames - 1)
        await reader.command(resend(before.session, 0, before.frames - 1))
        await until(lambda: reader.replies)
        assert reader.replies[0].gone == ()
        assert [frame.seq for frame in reader.refilled] == list(range(before.frames))


async def test_a_large_backfill_comes_in_small_messages_and_live_frames_go_on(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    config = config_of(mosquitto.config, tmp_path, backfill_bytes_per_second=500_000.0)
    old, frames, size = 4242, 600, 2000
    ring = Ring(tmp_path / "state" / "ring", config.ring_bytes)
    ring.open()
    for seq in range(frames):
        ring.append(old, seq, frame_of(old, seq, size))
    ring.close()
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: len(reader.frames) >= 2)
        began = len(reader.frames)
        for _ in range(5):  # an impatient aggregator asks again and again
            await reader.command(resend(old, 0, frames - 1))
        await reader.command(resend(old, 100, 200))
        await until(lambda: reader.replies)
        live = [frame.seq for frame in reader.frames[began:]]
        assert len(live) >= 10  # 1.2 MB at 0.5 MB/s are 2.4 s, or 48 ticks
        assert live == list(range(live[0], live[0] + len(live)))
        mixed = reader.order[reader.order.index(Topic.BACKFILL) : reader.order.index(Topic.REPLY)]
        assert mixed.count(Topic.FRAME) >= 5
    assert all(len(payload) <= 66 * 1024 for payload in reader.backfills)
    assert [frame.seq for frame in reader.refilled] == list(range(frames))
    assert len(reader.replies) == 1  # the duplicates were one request


def frame_of(session: int, seq: int, size: int) -> bytes:
    from telemetry.wire import frame

    return frame.encode(frame.build(session, seq, 0, {}, [b'"' + b"x" * size + b'"']))


async def test_commands_that_make_no_sense_are_counted_and_change_nothing(broker: Broker, tmp_path: Path) -> None:
    source = FakeSource()
    bad = [b"", b"{", b"\xff\xfe", b'{"kind":"explode"}', b"[]", b"{" * 100_000,
           b'{"kind":"resend","first":9,"last":3}', b'{"kind":"resend","first":-1,"last":3}']  # fmt: skip
    async with (
        reading(broker.config) as reader,
        collecting(config_of(broker.config, tmp_path, accept_commands=tuple(CommandKind)), source) as running,
    ):
        await until(lambda: reader.frames)
        for payload in bad:
            await reader.command(payload)
        await reader.command(Command(kind=CommandKind.RELEASE))
        await reader.command(Command(kind=CommandKind.RESUME))
        await until(lambda: source.released == 1 and source.resumed == 1)
        sent = len(reader.inventories)
        await reader.command(Command(kind=CommandKind.INVENTORY))
        await until(lambda: len(reader.inventories) > sent)
        summary = await running.end()
    assert summary.commands_malformed == len(bad)
    assert summary.commands == 3
    assert reader.replies == []


async def test_a_retained_command_is_not_obeyed(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Else a retained RELEASE would release the driver at every start."""
    source = FakeSource()
    async with reading(mosquitto.config) as reader:
        await reader.command(Command(kind=CommandKind.RELEASE), retain=True)
        config = config_of(mosquitto.config, tmp_path, accept_commands=tuple(CommandKind))
        async with collecting(config, source) as running:
            await until(lambda: len(reader.frames) > 3)
            summary = await running.end()
    assert source.released == 0
    assert summary.commands_malformed == 1


async def test_a_driver_is_not_released_for_anybody_on_the_bus(broker: Broker, tmp_path: Path) -> None:
    """A broker without access list lets everybody send commands; what they could do is resend."""
    source = FakeSource()
    async with reading(broker.config) as reader, collecting(config_of(broker.config, tmp_path), source) as running:
        await until(lambda: reader.frames)
        for _ in range(3):
            await reader.command(Command(kind=CommandKind.RELEASE))
        await reader.command(resend(reader.frames[0].session, 0, 0))
        await until(lambda: reader.replies)
        await until(lambda: any(event.kind == "command_refused" for event in reader.events))
        (event,) = [event for event in reader.events if event.kind == "command_refused"]
        assert "collector.accept_commands" in event.message
        summary = await running.end()
    assert source.released == 0
    assert (summary.commands, summary.commands_refused) == (4, 3)


async def test_a_flood_of_commands_costs_the_node_no_frame_and_few_readings(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    source = FakeSource()
    config = config_of(mosquitto.config, tmp_path, accept_commands=tuple(CommandKind))
    kinds = (CommandKind.INVENTORY, CommandKind.RELEASE, CommandKind.RESUME)
    async with reading(mosquitto.config) as reader, collecting(config, source) as running:
        await until(lambda: reader.frames)
        sent = len(reader.inventories)
        for number in range(1500):
            await reader.command(Command(kind=kinds[number % 3]))
        asked = 0
        while not reader.replies:  # they are served in order: the flood was before these
            await reader.command(resend(12345, 0, 0))
            asked += 1
            await asyncio.sleep(0.05)
        summary = await running.end()
    seqs = [frame.seq for frame in reader.frames]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert len(reader.inventories) <= sent + 2
    assert source.released <= 1 + summary.frames * config.interval
    assert summary.commands + summary.commands_refused == 1500 + asked


def test_commands_are_limited_by_kind_and_the_last_one_wins() -> None:
    limits = CommandLimits(CommandKind)
    release, resume, inventory = CommandKind.RELEASE, CommandKind.RESUME, CommandKind.INVENTORY
    assert limits.delay(release, 100.0) == 0.0
    assert limits.due(release, 100.0) is release
    assert limits.delay(resume, 100.25) == 0.75
    assert limits.delay(release, 100.5) is None
    assert limits.delay(resume, 100.75) is None
    assert limits.due(resume, 101.0) is resume
    assert limits.delay(inventory, 101.0) == 0.0
    assert limits.due(inventory, 101.0) is inventory
    assert limits.delay(inventory, 105.0) == 6.0


def test_commands_beyond_the_rate_are_not_even_decoded() -> None:
    limits = CommandLimits(CommandKind)
    assert [limits.spend(0.0) for _ in range(500)] == [True] * 400 + [False] * 100
    assert [limits.spend(1.0) for _ in range(200)] == [True] * 100 + [False] * 100
    assert limits.refused == 200


async def test_a_second_collector_of_one_name_is_an_event_and_throws_nobody_off(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (config_of(broker.config, tmp_path / name) for name in "12")
    async with reading(broker.config) as reader, collecting(one, FakeSource()) as first:
        await until(lambda: reader.frames)
        async with collecting(two, FakeSource()) as second:
            await until(lambda: any(event.kind == "name_in_use" for event in reader.events))
            assert "another collector uses the name" in caplog.text
            assert (await second.end()).connects == 1
        assert (await first.end()).connects == 1


async def test_the_last_will_of_an_earlier_process_does_not_leave_the_node_offline(
    broker: Broker, tmp_path: Path
) -> None:
    """After a power cut the broker sends that will when the new collector is online already."""
    config = config_of(broker.config, tmp_path)
    name = topic(config.cluster, NODE, Topic.STATUS)
    will = aiomqtt.Will(name, status(config, 7, 1, NodeState.OFFLINE, "lost"), 1, retain=True)
    async with contextlib.AsyncExitStack() as stack:
        old = await stack.enter_async_context(connect(broker.config, client_id(NODE), will))
        async with collecting(config, FakeSource()):
            async with reading(broker.config) as reader:
                await until(lambda: reader.statuses)
                assert reader.statuses[0].state is NodeState.ONLINE
                old._client.socket().shutdown(socket.SHUT_RDWR)
                with contextlib.suppress(aiomqtt.MqttError):
                    await anext(aiter(old.messages))
                await until(lambda: any(each.session == 7 for each in reader.statuses))
                await until(lambda: reader.statuses[-1].session != 7)
            async with reading(broker.config) as later:  # what is retained
                await until(lambda: later.statuses)
                assert later.statuses[0].state is NodeState.ONLINE
        with contextlib.suppress(BusError):
            await stack.aclose()


async def test_forged_statuses_cost_the_node_few_messages(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """On a broker without access list anybody may publish them."""
    config = config_of(mosquitto.config, tmp_path)
    name = topic(config.cluster, NODE, Topic.STATUS)
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()) as running:
        await until(lambda: reader.frames and reader.statuses)
        own = reader.statuses[0].session
        for number in range(300):
            state = (NodeState.OFFLINE, NodeState.ONLINE)[number % 2]
            await reader.client.publish(name, status(config, 1 + number, 1, state), qos=1)
        await reader.client.publish(name, status(config, 9, 1, NodeState.OFFLINE), qos=1)
        before = len(reader.frames)
        await until(lambda: reader.statuses[-1].session == own)
        await until(lambda: len(reader.frames) > before + 3)
        summary = await running.end()
    assert summary.connects == 1
    answers = [each for each in reader.statuses[1:] if each.session == own and each.state == "online"]
    assert 1 <= len(answers) <= 2 + summary.frames * config.interval / ANSWER_SECONDS
    assert len([event for event in reader.events if event.kind == "name_in_use"]) == 1


async def test_no_user_of_the_broker_can_guess_the_id_of_a_client_and_throw_it_off(
    broker: Broker, tmp_path: Path
) -> None:
    """Seen before: with the id `kilowatch-default-n1` 45 of 125 frames arrived."""
    guesses = ["kilowatch-default-n1", "kilowatch-n1", "n1", "default-n1", "kilowatch-tap", "test-reader-"]
    async with (
        reading(broker.config) as reader,
        collecting(config_of(broker.config, tmp_path), FakeSource()) as running,
    ):
        await until(lambda: reader.frames)
        for guess in guesses:
            async with connect(broker.config, guess):
                at = reader.frames[-1].seq
                await until(lambda at=at: reader.frames[-1].seq > at + 1)
        seqs = [frame.seq for frame in reader.frames]
        summary = await running.end()
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert summary.connects == 1


def test_a_client_id_has_128_bits_that_differ_each_time() -> None:
    ids = {client_id("dgx-07") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"dgx-07-[0-9a-f]{32}", each) for each in ids)


async def test_a_broker_that_is_not_there_at_first_is_found_later(mosquitto: Mosquitto, tmp_path: Path) -> None:
    mosquitto.kill()
    source = FakeSource()
    async with collecting(config_of(mosquitto.config, tmp_path), source) as running:
        await until(lambda: len(source.calls) >= 5)
        mosquitto.start()
        async with reading(mosquitto.config) as reader:
            await until(lambda: len(reader.frames) >= 3)
        summary = await running.end()
    assert summary.connects == 1
    assert summary.frames_unsent > 0
    assert summary.frames == summary.frames_published + summary.frames_unsent


async def test_a_broker_that_accepts_and_stays_silent_delays_neither_frames_nor_the_end(tmp_path: Path) -> None:
    """A blackhole behind a live TCP port: half of all load balancers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = config_of(BrokerConfig(host="127.0.0.1", port=server.getsockname()[1]), tmp_path)
        source = FakeSource()
        async with collecting(config, source) as running:
            await until(lambda: len(source.calls) >= 20)
            loop = asyncio.get_running_loop()
            began = loop.time()
            summary = await running.end()
            assert loop.time() - began < 2.0
    assert summary.connects == 0
    assert summary.frames_unkept == 0


COLLECTOR = """
import sys
import time
from pathlib import Path
from collector.service import main_loop
from telemetry.wire.mqtt import BrokerConfig
from tests.collector.bus import config_of
from tests.fakes import FakeSource
host, port, folder, fault = sys.argv[1:]
source = FakeSource()
source.hung = source.hangs_on_close = fault == "hung"
source.hangs_on_open = fault == "hung on open"
config = config_of(BrokerConfig(host=host, port=int(port)), Path(folder), interval=0.1)
main_loop(config, lambda summary: print("summary", summary.frames, flush=True), source)
"""


def start(port: int, folder: Path, fault: str = "none") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COLLECTOR, "127.0.0.1", str(port), str(folder), fault],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


async def test_kill_9_is_published_by_the_will_and_loses_no_frame(broker: Broker, tmp_path: Path) -> None:
    async with reading(broker.config) as reader:
        with start(broker.port, tmp_path) as process:
            await until(lambda: len(reader.frames) >= 10)
            process.send_signal(signal.SIGKILL)
            process.wait()
        await until(lambda: reader.statuses[-1].state is NodeState.OFFLINE)
        session = reader.frames[-1].session
        assert (reader.statuses[-1].reason, reader.statuses[-1].session) == ("lost", session)
        async with collecting(config_of(broker.config, tmp_path), FakeSource()):
            await until(lambda: reader.statuses[-1].state is NodeState.ONLINE)
            span = reader.statuses[-1].ring[0]
            assert (span.session, span.first) == (session, 0)
            await reader.command(resend(session, 0, span.last))
            await until(lambda: reader.replies)
            assert reader.replies[0].gone == ()
    newest = max(frame.seq for frame in reader.frames if frame.session == session)
    assert span.last >= newest - 1  # at most the frame that was on its way to the disk
    assert {frame.seq for frame in reader.refilled} == set(range(span.last + 1))


@pytest.mark.parametrize("fault", ["none", "hung", "hung on open"])
async def test_sigterm_ends_all_within_two_seconds_without_a_broker(tmp_path: Path, fault: str) -> None:
    with start(free_port(), tmp_path, fault) as process:
        try:
            lock = tmp_path / "state" / "collector.lock"
            await until(lambda: lock.exists() and lock.read_text().strip())
            if fault != "hung on open":
                ring = tmp_path / "state" / "ring"
                await until(lambda: any(path.stat().st_size > 100 for path in ring.glob("*.seg")))
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 2.5) == 0
            output, _ = process.communicate()
            assert output.startswith("summary")
        finally:
            process.kill()


async def test_sigterm_ends_it_while_a_thread_hangs_in_connecting(tmp_path: Path) -> None:
    """A broker's port that swallows SYNs: nothing can end the thread that waits in connect()."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):  # fill the queue of those who wait to be accepted
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        process = stack.enter_context(start(server.getsockname()[1], tmp_path))
        stack.callback(process.kill)
        ring = tmp_path / "state" / "ring"
        await until(lambda: any(path.stat().st_size > 100 for path in ring.glob("*.seg")))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 2.5) == 0
        output, _ = process.communicate()
        assert output.startswith("summary")


async def test_sigterm_with_a_hung_source_still_publishes_offline(mosquitto: Mosquitto, tmp_path: Path) -> None:
    async with reading(mosquitto.config) as reader:
        with start(mosquitto.port, tmp_path, "hung") as process:
            try:
                await until(lambda: len(reader.frames) >= 2)
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 2.5) == 0
            finally:
                process.kill()
        await until(lambda: reader.statuses[-1].state is NodeState.OFFLINE)
        assert reader.statuses[-1].reason == "shutdown"


async def test_a_cancelled_publisher_publishes_offline_too(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """As part of `kilowatch run`, a collector ends by cancellation when another part fails."""
    async with reading(mosquitto.config) as reader:
        async with collecting(config_of(mosquitto.config, tmp_path), FakeSource()) as running:
            await until(lambda: len(reader.frames) >= 2)
            running.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running.task
            running.task = asyncio.create_task(nothing())
        await until(lambda: reader.statuses[-1].state is NodeState.OFFLINE)
        assert reader.statuses[-1].reason == "shutdown"


async def nothing() -> None:
    """A collector that has ended."""


async def test_a_broker_that_is_frozen_delays_neither_frames_nor_the_end(mosquitto: Mosquitto, tmp_path: Path) -> None:
    source = FakeSource()
    async with reading(mosquitto.config) as reader:
        async with collecting(config_of(mosquitto.config, tmp_path), source) as running:
            await until(lambda: len(reader.frames) >= 2)
            mosquitto.signal(signal.SIGSTOP)
            try:
                seen = len(source.calls)
                source.add_event("xid")  # an event waits for an acknowledgement
                await until(lambda: len(source.calls) >= seen + 20)
                loop = asyncio.get_running_loop()
                began = loop.time()
                summary = await running.end()
                assert loop.time() - began < 2.0
            finally:
                mosquitto.signal(signal.SIGCONT)
        await until(lambda: any(status.reason for status in reader.statuses))
    assert summary.frames_unkept == 0
    assert summary.source_errors == 0


# What waits, without a broker.


async def test_a_slow_socket_drops_the_oldest_live_frame_from_the_wire_only() -> None:
    outbox = PublishQueue()
    for number in range(MOST_FRAMES + 3):
        outbox.frame(b"%d" % number)
    assert list(outbox.frames) == [b"%d" % number for number in range(3, MOST_FRAMES + 3)]
    assert outbox.unsent == 3
    for number in range(MOST_EVENTS + 2):
        outbox.event(b"%d" % number)
    assert (len(outbox.events), outbox.events_dropped) == (MOST_EVENTS, 2)


def test_a_ring_full_of_holes_is_published_as_outlines() -> None:
    spans = (FrameSpan(1, 0, 9), *(FrameSpan(2, 3 * n, 3 * n + 1) for n in range(MOST_SPANS)))
    config = CollectorConfig(node="n1")
    payload = status(config, 2, 0, NodeState.ONLINE, spans=spans)
    assert decode(payload, CollectorStatus).ring == (FrameSpan(1, 0, 9), FrameSpan(2, 0, 3 * MOST_SPANS - 2))
    payload = status(config, 2, 0, NodeState.ONLINE, spans=spans[:MOST_SPANS])
    assert decode(payload, CollectorStatus).ring == spans[:MOST_SPANS]


async def test_requests_are_merged_bounded_and_served_in_order() -> None:
    requests = ResendRequests()
    assert requests.add(resend(1, 0, 99))
    assert not requests.add(resend(1, 0, 99))
    assert not requests.add(resend(1, 10, 20))
    assert requests.add(resend(1, 50, 150))
    assert requests.add(resend(2, 0, 99))
    assert await requests.next() == resend(1, 0, 99)
    assert not requests.add(resend(1, 0, 5))  # it is being served
    assert await requests.next() == resend(1, 50, 150)
    assert requests.add(resend(1, 0, 5))  # and is no longer
    accepted = sum(requests.add(resend(9, 10 * n, 10 * n)) for n in range(MOST_REQUESTS + 10))
    assert accepted == MOST_REQUESTS - 2
    assert requests.refused == 12
