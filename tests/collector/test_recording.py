"""Recordings: written from a bus and from a source, read whole, cut and damaged, and replayed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from collector.commands.recorder import record_bus, record_source
from collector.config import CollectorConfig
from collector.recording.file import RecordedMessage, RecordingHeader, RecordingWriter, read, read_header
from collector.recording.replay import RecordingSource, translated
from collector.sampling.sampler import BOTH, FAST
from telemetry.devices import PORT_PREFIX, Event, MigInstance, Port
from telemetry.errors import ConfigError, KilowattError, SourceError
from telemetry.gap import Gap, reason_of
from telemetry.wire import frame
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, INSTANCE_SLOW, PORT_SLOW, SCHEMA, Block, Schema
from telemetry.wire.topics import Topic
from tests.brokers import Mosquitto
from tests.collector.bus import collecting, config_of
from tests.fakes import FakeSource
from tests.kit.waiting import until

SECOND = 1_000_000_000


def entry(number: int, node: str = "n1", size: int = 100) -> RecordedMessage:
    payload = (b"%d " % number).ljust(size, b"x")
    return RecordedMessage(number * SECOND, Topic.FRAME, node, payload)


def write(path: Path, entries: list[RecordedMessage], **header: object) -> None:
    writer = RecordingWriter(path, RecordingHeader(**header))  # type: ignore[arg-type]
    for one in entries:
        writer.write(*one)
    writer.close()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    entries = [entry(number, f"n{number % 3}", 4000) for number in range(300)]
    path = tmp_path / "a.kwrec"
    write(path, entries, source="fake", kilowatch="2026.1", made_at=7)
    assert list(read(path)) == entries
    assert read_header(path).source == "fake"
    assert path.stat().st_size < 300 * 4000 / 10
    with pytest.raises(FileExistsError):
        RecordingWriter(path, RecordingHeader())


def test_a_recording_that_was_cut_off_reads_up_to_there(tmp_path: Path) -> None:
    entries = [entry(number) for number in range(30)]  # a block every two seconds
    path = tmp_path / "a.kwrec"
    write(path, entries)
    whole = path.read_bytes()
    counts = []
    first = 12 + len(msgspec.json.encode(RecordingHeader()))
    for size in range(first, len(whole), 7):
        path.write_bytes(whole[:size])
        found = list(read(path))
        assert found == entries[: len(found)]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] >= 25


def test_damage_costs_its_block_only(tmp_path: Path) -> None:
    entries = [entry(number) for number in range(30)]
    path = tmp_path / "a.kwrec"
    write(path, entries)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(whole))
    found = list(read(path))
    assert 24 <= len(found) < 30
    assert all(one in entries for one in found)
    assert found[0] == entries[0]
    assert found[-1] == entries[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read: No such file"),
        (b"", "is no recording"),
        (b"<?xml version='1.0'?>" * 10, "is no recording"),
        (b"kwrec\r\n\x1a\x05\x00\x00\x00{oops", "header of the recording is damaged"),
        (b'kwrec\r\n\x1a\x2d\x00\x00\x00{"version":99,"kilowatch":"2031.4","extra":1}', "2031.4"),
    ],
)
async def test_a_bad_file_is_a_clear_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        await RecordingSource(path).open()
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def value(tick: int, row: int, column: int) -> float:
    return tick + row * 100 + column / 8  # exact in a float32


def sample(session: int, tick: int, schema: Schema = SCHEMA, slow: bool = False) -> frame.Frame:
    """A frame of two GPUs."""
    blocks = []
    for number in (GPU_FAST, GPU_SLOW) if slow else (GPU_FAST,):
        width = len(schema.blocks[number].names)
        rows = [[value(tick, row, column) for column in range(width)] for row in range(2)]
        blocks.append(frame.pack(number, rows, schema))
    return frame.Frame(schema.id, session, tick, tick * SECOND, tuple(blocks))


def stock(gpus: int = 2, schema: Schema = SCHEMA) -> bytes:
    found = FakeSource(gpus).inventory
    return messages.encode(msgspec.structs.replace(found, node="n1", schema=schema))


def event(number: int, at: int) -> bytes:
    return messages.encode(Event(id=f"s-{number}", node="n1", at=at, kind="xid", gpu="GPU-0001"))


def record(path: Path, ticks: int = 10, node: str = "n1", schema: Schema = SCHEMA) -> None:
    entries = [RecordedMessage(0, Topic.INVENTORY, node, stock(schema=schema))]
    for tick in range(ticks):
        found = sample(5, tick, schema, slow=tick % 5 == 0)
        if tick == 4:
            entries.append(RecordedMessage(tick * SECOND - 1, Topic.EVENT, node, event(1, tick)))
            found = msgspec.structs.replace(found, events=(event(1, tick), event(2, tick)))
        entries.append(RecordedMessage(tick * SECOND, Topic.FRAME, node, frame.encode(found)))
    write(path, entries)


async def play(source: RecordingSource, ticks: range) -> list[float]:
    """Return the first reading of the second GPU at each tick."""
    return [(await source.read(FAST, tick, 0, 1.0))[GPU_FAST][1][0] for tick in ticks]


async def test_a_replay_gives_frame_after_frame_and_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "a.kwrec"
    record(path)
    source = RecordingSource(path)
    await source.open()
    assert [gpu.uuid for gpu in source.inventory.gpus] == ["GPU-0000", "GPU-0001"]
    assert source.inventory.source == "recording:a.kwrec"
    rows = await source.read(BOTH, 1000, 0, 1.0)
    assert rows[GPU_SLOW][1][3] == value(0, 1, 3)
    assert await play(source, range(1001, 1010)) == [value(tick, 1, 0) for tick in range(1, 10)]
    events = source.drain_events()
    assert [(event.kind, event.gpu) for event in events] == [("xid", "GPU-0001")] * 2
    assert await play(source, range(1010, 1014)) == [value(tick, 1, 0) for tick in range(4)]
    await source.close()


async def test_a_node_with_ports_and_parts_of_gpus_lives_again(tmp_path: Path) -> None:
    """Without rows of ports and instances every slow reading of the node was a gap."""
    path = tmp_path / "a.kwrec"
    what = msgspec.structs.replace(
        FakeSource(2).inventory,
        node="n1",
        nvml_version="13.580",
        ports=(Port(id=f"{PORT_PREFIX}n1:0000:19:00.0/1", adapter="mlx5_0", number=1),),
        instances=(MigInstance(uuid="MIG-1", gpu="GPU-0001", gpu_instance=1),),
    )
    counts = {GPU_FAST: 2, GPU_SLOW: 2, PORT_SLOW: 1, INSTANCE_SLOW: 1}
    blocks = [
        frame.pack(number, [[value(0, row, 0)] * len(SCHEMA.blocks[number].names) for row in range(rows)])
        for number, rows in counts.items()
    ]
    found = frame.Frame(SCHEMA.id, 5, 0, 0, tuple(blocks))
    write(
        path,
        [
            RecordedMessage(0, Topic.INVENTORY, "n1", messages.encode(what)),
            RecordedMessage(0, Topic.FRAME, "n1", frame.encode(found)),
        ],
    )
    source = RecordingSource(path)
    await source.open()
    rows = await source.read(BOTH, 1000, 0, 1.0)
    assert {number: [row[0] for row in rows[number]] for number in counts} == {
        GPU_FAST: [0.0, 100.0], GPU_SLOW: [0.0, 100.0], PORT_SLOW: [0.0], INSTANCE_SLOW: [0.0],
    }  # fmt: skip
    assert (source.inventory.ports, source.inventory.instances) == (what.ports, what.instances)
    assert source.inventory.nvml_version == "13.580"
    await source.close()


async def test_a_replay_at_tenfold_speed_skips_and_without_loop_ends_in_gaps(tmp_path: Path) -> None:
    path = tmp_path / "a.kwrec"
    record(path, ticks=31)
    source = RecordingSource(path, "n1", speed=10.0, loop=False)
    await source.open()
    first = await play(source, range(50, 54))
    assert first[0] == value(5, 1, 0)  # half a step of ten seconds
    assert first == sorted(first)
    ended = await source.read(FAST, 60, 0, 1.0)
    assert {reason_of(number) for row in ended[GPU_FAST] for number in row} == {Gap.STALE}


async def test_a_recording_of_another_release_is_read_by_names(tmp_path: Path) -> None:
    """A metric is missing, another no longer exists, and the order differs."""
    block = SCHEMA.blocks[GPU_FAST]
    gauges = ("gpu_of_yesterday_watts", *reversed(block.gauges[1:]))
    old = Schema((Block(block.table, block.lane, gauges, block.counters), *SCHEMA.blocks[1:]))
    path = tmp_path / "a.kwrec"
    record(path, schema=old)
    source = RecordingSource(path)
    await source.open()
    row = (await source.read(FAST, 7, 0, 1.0))[GPU_FAST][1]
    assert reason_of(row[0]) is Gap.NOT_SUPPORTED
    assert row[len(block.gauges) - 1] == value(0, 1, 1)
    assert row[-1] == value(0, 1, len(block.names) - 1)


async def test_a_table_of_a_newer_release_is_skipped(tmp_path: Path) -> None:
    newer = Schema((*SCHEMA.blocks, Block("switch", "slow", ("switch_up",), ())))
    packed = frame.pack(len(SCHEMA.blocks), [[1.0]], newer)
    assert translated(packed, newer) == (None, [])
    path = tmp_path / "a.kwrec"
    record(path, schema=newer)
    source = RecordingSource(path)
    await source.open()
    assert (await source.read(FAST, 7, 0, 1.0))[GPU_FAST][1][0] == value(0, 1, 0)


async def test_of_many_nodes_one_must_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.kwrec"
    entries = [
        RecordedMessage(at, kind, node, payload)
        for node in ("a", "b")
        for at, kind, payload in ((0, Topic.INVENTORY, stock()), (1, Topic.FRAME, frame.encode(sample(1, 0))))
    ]
    write(path, entries)
    with pytest.raises(ConfigError, match=r"holds 2 nodes.*#a.*Recorded are a, b"):
        await RecordingSource(path).open()
    with pytest.raises(ConfigError, match="holds no node 'c'"):
        await RecordingSource(path, "c").open()
    source = RecordingSource(path, "b")
    await source.open()
    assert source.node == "b"


async def test_a_recording_without_frames_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.kwrec"
    write(path, [RecordedMessage(0, Topic.INVENTORY, "n1", stock())])
    with pytest.raises(SourceError, match="holds no node with its inventory and frames"):
        await RecordingSource(path).open()


async def test_a_bus_is_recorded_and_lives_again(mosquitto: Mosquitto, tmp_path: Path) -> None:
    path = tmp_path / "bus.kwrec"
    source = FakeSource(gpus=3)
    stop = asyncio.Event()
    recording = asyncio.create_task(record_bus(mosquitto.config, "default", path, stop))
    async with collecting(config_of(mosquitto.config, tmp_path), source):
        await until(lambda: len(source.calls) >= 30)
        source.add_event("xid", 5, gpu="GPU-0002")
        await until(lambda: len(source.calls) >= 60)
    stop.set()
    assert (await recording).messages >= 30
    entries = list(read(path))
    assert {one.kind for one in entries} >= {Topic.FRAME, Topic.INVENTORY, Topic.STATUS, Topic.EVENT}
    recorded = [frame.decode(one.payload) for one in entries if one.kind is Topic.FRAME]
    replay = RecordingSource(path, interval=0.05)
    await replay.open()
    assert len(replay.inventory.gpus) == 3
    tick = 5000
    while not any(event.kind == "xid" for event in replay.drain_events()):
        rows = await replay.read(FAST, tick, 0, 1.0)
        tick += 1
        assert tick < 5000 + len(recorded) + 40
    known = {frame.unpack(one.blocks[0])[0][0] for one in recorded if one.blocks}
    assert rows[GPU_FAST][0][0] in known


async def test_a_source_is_recorded_without_a_broker(tmp_path: Path) -> None:
    config = CollectorConfig(
        node="n7", source="nvml", interval=0.05, state_dir=tmp_path, node_readings=False, kernel_log=None
    )
    path, source, stop = tmp_path / "s.kwrec", FakeSource(), asyncio.Event()
    recording = asyncio.create_task(record_source(config, path, stop, source))
    await until(lambda: len(source.calls) >= 5)
    stop.set()
    written = (await recording).messages
    assert source.closed
    entries = list(read(path))
    assert len(entries) == written >= 5
    assert entries[0].kind is Topic.INVENTORY
    found = messages.decode(entries[0].payload, Inventory)
    assert (found.node, len(found.gpus)) == ("n7", 2)
    with pytest.raises(ConfigError, match="is there already"):
        await record_source(config, path, stop, source)
    with pytest.raises(KilowattError, match="can't be written"):
        await record_source(config, tmp_path / "no" / "x", stop, source)
