"""When a collector ticks, and what it makes of what the source says."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.config import CollectorConfig
from collector.sampling.event_queue import MOST_IN_FRAME, MOST_PENDING, EventQueue
from collector.sampling.sampler import BOTH, FAST, Due, Sampler, next_tick, passed, rebase
from collector.source import DeviceEvent, Rows
from telemetry.devices import Event
from telemetry.gap import NOT_READ, Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire import frame
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CommandKind, Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, INSTANCE_SLOW, LINK_FAST, NODE_FAST, NODE_SLOW, PORT_SLOW, SCHEMA
from telemetry.wire.topics import phase_of
from tests.fakes import FakeSource
from tests.kit.waiting import until

# When to tick.


@pytest.mark.parametrize(
    ("now", "last", "due"),
    [
        pytest.param(100.30, 99, Due(100, 0.0, 0), id="just passed: now"),
        pytest.param(100.30, 100, Due(101, 0.95, 0), id="taken: the next"),
        pytest.param(100.20, 99, Due(100, 0.05, 0), id="not yet"),
        pytest.param(100.80, 99, Due(101, 0.45, 1), id="too late: skipped, never queued"),
        pytest.param(103.30, 99, Due(103, 0.0, 3), id="three were missed, the fourth is now"),
        pytest.param(97.00, 99, Due(100, 3.25, 0), id="ahead of the clock: waits"),
    ],
)
def test_the_next_tick(now: float, last: int, due: Due) -> None:
    found = next_tick(now, last, 1.0, 0.25)
    assert (found.tick, found.skipped) == (due.tick, due.skipped)
    assert found.wait == pytest.approx(due.wait)


@given(
    st.floats(1e9, 2e9),
    st.sampled_from([0.05, 0.1, 1.0, 2.5, 10.0, 60.0]),
    st.floats(0, 0.999),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30),
)
def test_ticks_rise_lie_on_the_grid_and_add_up(start: float, interval: float, phase: float, work: list[float]) -> None:
    """However long the readings take (in intervals), taken + skipped is what went by."""
    now, last = start, passed(start, interval, phase)
    first, skipped = last, 0
    for taken, length in enumerate(work, 1):
        while (due := next_tick(now, last, interval, phase)).wait > 0:
            now += due.wait + 1e-6 * interval
        late = now - (due.tick + phase) * interval
        assert -1e-6 <= late <= 0.51 * interval
        assert due.tick > last
        skipped += due.skipped
        last = due.tick
        assert last - first == taken + skipped
        now += length * interval


@given(st.floats(-1e6, 1e6), st.sampled_from([0.1, 1.0, 15.0]), st.floats(0, 0.999))
@example(1.9499999999999993, 0.1, 0.0)  # half an interval, to the last bit
def test_a_clock_that_is_set_skips_nothing(step: float, interval: float, phase: float) -> None:
    now = 1.7e9 + 0.3
    last = passed(now, interval, phase)
    due = next_tick(now + step, rebase(last, step, interval), interval, phase)
    assert due.skipped == 0
    assert due.wait <= 1.51 * interval


# What is made of a tick.


class Clock:
    """A clock that only the test advances."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.mono = 50.0

    def wall_ns(self) -> int:
        return int(self.now * 1e9)

    def monotonic(self) -> float:
        return self.mono

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.mono += seconds


class Host:
    """The machine around: its fast row is 5 everywhere but for what is the collector's own."""

    def __init__(self) -> None:
        self.fails = False

    def read(self, lanes: frozenset[Lane], now_ns: int) -> Rows:
        if self.fails:
            raise OSError("no /proc")
        rows: Rows = {NODE_FAST: [[5.0] * len(SCHEMA.blocks[NODE_FAST].names)]}
        rows[NODE_FAST][0][SCHEMA.blocks[NODE_FAST].names.index("node_gpus_answering")] = NOT_READ
        if Lane.SLOW in lanes:
            rows[NODE_SLOW] = [[NOT_READ] * len(SCHEMA.blocks[NODE_SLOW].names)]
        return rows

    def close(self) -> None:
        pass


class Taken:
    """A sink that decodes what it gets."""

    def __init__(self) -> None:
        self.frames: list[frame.Frame] = []
        self.inventories: list[Inventory] = []

    def frame(self, seq: int, payload: bytes) -> None:
        found = frame.decode(payload)
        frame.check(found, SCHEMA)
        assert found.seq == seq
        self.frames.append(found)

    def inventory(self, inventory: Inventory) -> None:
        self.inventories.append(inventory)

    def rows(self, block: int, number: int = -1) -> list[list[float]]:
        (packed,) = (packed for packed in self.frames[number].blocks if packed.block == block)
        return frame.unpack(packed)

    def value(self, block: int, name: str, row: int = 0, number: int = -1) -> float:
        return self.rows(block, number)[row][SCHEMA.blocks[block].names.index(name)]


class Bench:
    """A sampler on a bench: a scripted source, a clock that is wound by hand."""

    def __init__(self, source: FakeSource, tmp_path: Path, host: Host | None = None) -> None:
        self.config = CollectorConfig(node="n1", cluster="c", source="nvml", state_dir=tmp_path, interval=1.0)
        self.source, self.clock, self.sink = source, Clock(), Taken()
        self.sent: list[Event] = []
        self.journal = EventQueue("n1", 0xABC, lambda event, _: self.sent.append(event))
        self.sampler = Sampler(
            self.config,
            source,
            0xABC,
            self.journal,
            [self.sink],
            host,
            wall_ns=self.clock.wall_ns,
            monotonic=self.clock.monotonic,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two GPUs without a host."""
    return Bench(FakeSource(), tmp_path)


async def test_a_tick_is_a_frame_with_the_rows_of_the_source(bench: Bench) -> None:
    await bench.sampler.sample(123, BOTH)
    assert bench.sink.rows(GPU_FAST)[1][:3] == pytest.approx([124.0, 124.001, 124.002], rel=1e-6)
    found = bench.sink.frames[0]
    assert (found.session, found.seq, found.sampled_at) == (0xABC, 0, bench.clock.wall_ns())
    assert {packed.block for packed in found.blocks} == set(range(len(SCHEMA.blocks))) - {PORT_SLOW, INSTANCE_SLOW}
    assert bench.source.calls == [(123, BOTH, 0.8)]


async def test_numbers_count_up_and_the_fast_lane_is_small(bench: Bench) -> None:
    for tick in range(3):
        await bench.sampler.sample(tick, FAST)
    assert [found.seq for found in bench.sink.frames] == [0, 1, 2]
    assert {packed.block for packed in bench.sink.frames[2].blocks} == {GPU_FAST, LINK_FAST, NODE_FAST}


async def test_the_inventory_is_completed_and_sent_when_it_is_new(bench: Bench) -> None:
    for tick in range(3):
        await bench.sampler.sample(tick, FAST)
    (first,) = bench.sink.inventories
    assert (first.node, first.cluster, first.session, first.version) == ("n1", "c", 0xABC, 1)
    assert first.source == "fake"
    bench.source.lose(1)
    await bench.sampler.sample(3, FAST)
    assert [inventory.version for inventory in bench.sink.inventories] == [1, 2]
    assert [gpu.present for gpu in bench.sink.inventories[1].gpus] == [True, False]


async def test_a_lost_gpu_is_gaps_and_an_event_and_hides_nothing(bench: Bench) -> None:
    bench.source.lose(1, at=77)
    await bench.sampler.sample(5, BOTH)
    alive, dead = bench.sink.rows(GPU_FAST)
    assert alive[0] == pytest.approx(5.0)
    assert {reason_of(value) for value in dead} == {Gap.DEVICE_LOST}
    (payload,) = bench.sink.frames[0].events
    event = messages.decode(payload, Event)
    assert event == bench.sent[0]
    assert (event.id, event.kind, event.gpu) == ("000000000abc-0", "gpu_lost", "GPU-0001")
    assert bench.sink.value(NODE_FAST, "node_gpus_answering") == 1
    assert bench.sink.value(NODE_FAST, "node_gpus_expected") == 2


@pytest.mark.parametrize("fault", ["raises", "late", "shape", "width"])
async def test_a_source_at_fault_is_gaps_in_a_frame_on_time(
    bench: Bench, fault: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    source = bench.source
    expected = Gap.ERROR
    match fault:
        case "raises":
            source.fails = RuntimeError("boom")
        case "late":
            source.hung, expected = True, Gap.TIMED_OUT
        case "shape":
            source.values = lambda block, tick: []  # type: ignore[method-assign]
        case _:
            source.values = lambda block, tick: [[1.0], [2.0]]  # type: ignore[method-assign]
    for tick in range(2):
        await bench.sampler.sample(tick, FAST)
    assert bench.sampler.errors == 2
    assert {reason_of(value) for row in bench.sink.rows(GPU_FAST) for value in row} == {expected}
    assert len(bench.sink.rows(GPU_FAST)) == 2
    assert bench.sink.value(NODE_FAST, "node_gpus_answering") == 0
    troubles = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(troubles) == 1  # a change of state, not every tick
    source.fails, source.hung = None, False
    source.__dict__.pop("values", None)
    await bench.sampler.sample(2, FAST)
    assert bench.sink.rows(GPU_FAST)[0][0] == pytest.approx(2.0)


async def test_the_host_speaks_for_the_machine_and_the_collector_for_itself(tmp_path: Path) -> None:
    host = Host()
    bench = Bench(FakeSource(), tmp_path, host)
    await bench.sampler.sample(0, BOTH)
    assert bench.sink.value(NODE_FAST, "node_load_1m") == 5
    assert bench.sink.value(NODE_FAST, "node_gpus_answering") == 2
    assert bench.sink.value(NODE_SLOW, "node_collector_memory_bytes") > 1e6
    assert bench.sink.value(NODE_SLOW, "node_collector_cpu_seconds_total") > 0
    host.fails = True
    await bench.sampler.sample(1, FAST)
    assert reason_of(bench.sink.value(NODE_FAST, "node_load_1m")) is Gap.NOT_SUPPORTED
    assert bench.sink.value(NODE_FAST, "node_gpus_answering") == 2


async def test_a_simulated_node_that_is_down_sends_nothing(bench: Bench, tmp_path: Path) -> None:
    source = FakeSource()
    source.silent = lambda tick: tick == 1  # type: ignore[attr-defined]
    bench = Bench(source, tmp_path)
    for tick in range(3):
        await bench.sampler.sample(tick, FAST)
    assert [found.seq for found in bench.sink.frames] == [0, 1]
    assert [tick for tick, _, _ in source.calls] == [0, 2]


class PausableSource(FakeSource):
    """A source that remembers which GPUs it was told to leave alone."""

    def __init__(self) -> None:
        super().__init__()
        self.paused: list[tuple[str, str]] = []

    def pause(self, gpu: str, reason: str) -> None:
        """Remember it."""
        self.paused.append((gpu, reason))


@pytest.mark.parametrize("number", [119, 120])
async def test_a_gpu_whose_firmware_has_stopped_is_left_alone(tmp_path: Path, number: int) -> None:
    """By a line of the kernel's log; not by another XID, nor by a line of an hour ago."""
    source = PausableSource()
    bench = Bench(source, tmp_path)
    at = bench.clock.wall_ns()
    kernel = [
        DeviceEvent("xid", at - 3_600 * 10**9, pci="0000:00:00.0", data={"xid": number}),
        DeviceEvent("xid", at, pci="0000:00:00.0", data={"xid": 79}),
        DeviceEvent("xid", at, pci="0000:01:00.0", data={"xid": number, "source": "kernel"}),
    ]
    bench.sampler._others = [lambda: kernel]
    await bench.sampler.sample(0, FAST)
    assert source.paused == [("GPU-0001", f"XID {number}")]


async def test_an_xid_that_comes_by_two_ways_is_one_event_of_its_gpu(tmp_path: Path) -> None:
    source = FakeSource()
    bench = Bench(source, tmp_path)
    at = bench.clock.wall_ns()
    kernel = [DeviceEvent("xid", at, pci="0000:01:00.0", data={"xid": 79, "source": "kernel"})]
    bench.sampler._others = [lambda: kernel]
    source.add_event("xid", at + 1000, gpu="GPU-0001", xid=79, source="nvml")
    source._events[0].pci = "0000:01:00.0"
    await bench.sampler.sample(0, FAST)
    (event,) = bench.sent
    assert (event.kind, event.gpu, event.data["xid"]) == ("xid", "GPU-0001", 79)


async def test_last_words_take_events_along_and_nothing_else(bench: Bench) -> None:
    await bench.sampler.sample(0, FAST)
    bench.sampler.flush_events()
    assert len(bench.sink.frames) == 1
    bench.journal.add(DeviceEvent("collector_stopped", 1))
    bench.sampler.flush_events()
    assert bench.sink.frames[1].blocks == ()
    assert len(bench.sink.frames[1].events) == 1


async def test_running_it_ticks_on_the_grid_and_skips_what_is_late(tmp_path: Path) -> None:
    source, sink = FakeSource(), Taken()
    config = CollectorConfig(node="n1", interval=0.05, slow_interval=0.5, state_dir=tmp_path, source="nvml")
    events: list[Event] = []
    journal = EventQueue("n1", 1, lambda event, _: events.append(event))
    sampler = Sampler(config, source, 1, journal, [sink])
    task = asyncio.create_task(sampler.run())
    try:
        await until(lambda: len(sink.frames) >= 12)
        assert {packed.block for packed in sink.frames[0].blocks} >= {GPU_SLOW, GPU_FAST}
        ticks = [tick for tick, _, _ in source.calls]
        assert ticks == sorted(set(ticks))
        on_time = [
            found.sampled_at / 1e9 / 0.05 - tick - phase_of("n1")
            for found, tick in zip(sink.frames[1:], ticks[1:], strict=False)
        ]
        assert all(-0.05 <= late <= 0.55 for late in on_time), on_time
        slow = [number for number, call in enumerate(source.calls) if Lane.SLOW in call[1]]
        assert 1 <= len(slow) <= 1 + len(ticks) // 4
        before = sampler.skipped
        source.delay = 0.12  # no deadline makes it faster: the sampler gives it up and goes on
        await until(lambda: sampler.errors >= 2)
        source.delay = 0.0
        source.add_event("xid")
        await until(lambda: any(event.kind == "xid" for event in events))
        assert sampler.skipped >= before
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_commands_reach_the_source_between_ticks(tmp_path: Path) -> None:
    source, sink = FakeSource(), Taken()
    config = CollectorConfig(node="n1", interval=0.05, state_dir=tmp_path, source="nvml")
    sampler = Sampler(config, source, 1, EventQueue("n1", 1, lambda *_: None), [sink])
    task = asyncio.create_task(sampler.run())
    try:
        await until(lambda: len(sink.frames) >= 1)
        for kind in (CommandKind.RELEASE, CommandKind.RESUME, CommandKind.INVENTORY):
            sampler.command(kind)
        await until(lambda: len(sink.inventories) >= 2)
        assert (source.released, source.resumed) == (1, 1)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_driver_that_is_released_is_read_again_after_its_lease(tmp_path: Path) -> None:
    """Also where `release` is repeated meanwhile: it extends nothing; the next lease begins after a `resume`."""
    source, sink, passed = FakeSource(), Taken(), [0.0]
    config = CollectorConfig(node="n1", interval=0.05, state_dir=tmp_path, source="nvml", release_seconds=600)
    sent: list[Event] = []
    events = EventQueue("n1", 1, lambda event, _: sent.append(event))
    sampler = Sampler(
        config,
        source,
        1,
        events,
        [sink],
        monotonic=lambda: time.monotonic() + passed[0],
        wall_ns=lambda: time.time_ns() + round(passed[0] * 1e9),
    )
    task = asyncio.create_task(sampler.run())
    try:
        await until(lambda: len(sink.frames) >= 1)
        for lease in (1, 2):
            sampler.command(CommandKind.RELEASE)
            await until(lambda lease=lease: source.released == 2 * lease - 1)
            passed[0] += 400
            sampler.command(CommandKind.RELEASE)
            await until(lambda lease=lease: source.released == 2 * lease)
            assert source.resumed == lease - 1
            passed[0] += 201
            await until(lambda lease=lease: source.resumed == lease)
        assert [event.kind for event in sent].count("release_ended") == 2
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# The journal.


def test_a_storm_of_events_is_bounded_and_counted() -> None:
    sent: list[Event] = []
    journal = EventQueue("n", 5, lambda event, _: sent.append(event))
    for number in range(MOST_PENDING + 7):
        journal.add(DeviceEvent("xid", number))
    assert (journal.events, journal.dropped) == (MOST_PENDING, 7)
    taken: list[bytes] = []
    while events := journal.drain():
        assert len(events) <= MOST_IN_FRAME
        taken += events
    assert [messages.decode(payload, Event).at for payload in taken] == list(range(MOST_PENDING))
    assert len({event.id for event in sent}) == MOST_PENDING
    journal.add(DeviceEvent("xid", 9999))
    assert len(journal.drain()) == 1


def test_an_event_that_is_no_json_is_counted_and_dropped() -> None:
    journal = EventQueue("n", 5, lambda *_: None)
    journal.add(DeviceEvent("xid", 1, data={"what": object()}))
    assert (journal.events, journal.dropped, journal.drain()) == (0, 1, ())
