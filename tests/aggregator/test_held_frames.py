"""Frames that are taken together end as they would one by one: each once, in the fleet and in the batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aggregator.config import AggregatorConfig
from aggregator.ingest import held_frames, router
from aggregator.ingest.batcher import Batcher
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.joined_frames import JoinedFrames
from aggregator.ingest.router import MessageRouter
from aggregator.ingest.template import FrameTemplate
from aggregator.load.controller import ShedStep
from aggregator.load.shedding import Shedding
from aggregator.store.protocol import Batch, LostFrames, StoredState
from api.stats import Stats
from telemetry.devices import Event
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import CollectorStatus, CommandReply, FrameSpan, NodeState
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic, shard_of, topic
from tests.aggregator.node import START, gpu_rows, inventory, node_rows, sampled_at, value

SECOND = 10**9
NODES = "a", "b", "c", "d"
TOGETHER, ONE_BY_ONE = 0, 1_000_000
"""`FEW_NODES`."""


class Inside:
    """Ingest without a store; it remembers every row of every batch."""

    def __init__(self, folder: Path, few: int) -> None:
        self._few = few
        self.fleet, self.stats, self.shedding = Fleet(), Stats(), Shedding()
        config = AggregatorConfig(data_dir=folder)
        letters = DeadLetters(folder / "quarantine", config.quarantine_bytes)
        self.ingest = MessageRouter(config, self.fleet, self.stats, IdRegistry(StoredState()), letters, self.shedding)
        self.now, self.wall = 100.0, START + SECOND
        self.rows: list[tuple[Any, ...]] = []
        self.runs: dict[int, tuple[str, int]] = {}
        self.devices: dict[int, str | None] = {}
        self.many = 0
        """`MANY_FRAMES`."""
        self.commands: list[object] = []
        self.batches: list[Batch] = []

    @contextmanager
    def _as_told(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(router, "FEW_NODES", self._few)
            patch.setattr(held_frames, "FEW_FRAMES", 0)
            patch.setattr(held_frames, "MANY_FRAMES", self.many)
            yield

    def publish(self, node: str, kind: Topic, body: bytes) -> None:
        with self._as_told():
            self.ingest.receive(topic("default", node, kind), body, self.now, self.wall)

    def hello(self, node: str, gpus: int, version: int = 0, session: int = 1, taken_at: int = START - 1) -> None:
        status = CollectorStatus(state=NodeState.ONLINE, session=session)
        self.publish(node, Topic.STATUS, messages.encode(status))
        made = msgspec.structs.replace(inventory(node, gpus, session, version), taken_at=taken_at)
        self.publish(node, Topic.INVENTORY, messages.encode(made))

    def flush(self, most: int | None = None) -> None:
        with self._as_told():
            self.ingest.flush(self.now, self.wall, most)

    def expire(self) -> None:
        with self._as_told():
            self.ingest.expire(self.now)

    def remove(self, node: str) -> None:
        with self._as_told():
            self.ingest.remove(node)

    def refill(self, lost: LostFrames) -> None:
        with self._as_told():
            self.ingest.refill([lost], self.now)

    def confirm(self, shard: str, accounted: dict[tuple[str, int], IntervalSet]) -> None:
        with self._as_told():
            self.ingest.confirm(shard, accounted, self.now)

    def commit(self) -> None:
        self.flush()
        with self._as_told():
            self.commands += [repr(each) for each in self.ingest.drain_commands(self.now)]
        batch = self.ingest.drain_batch(self.wall)
        self.ingest.stored()
        self.batches.append(batch)
        self.runs |= {run.id: (run.node, run.session) for run in batch.runs}
        self.devices |= {device.id: device.key for device in batch.devices}
        found = batch.frames
        ids = [
            (self.runs[run], seq, at, received, late)
            for run, seq, at, received, late in zip(
                found.run.tolist(),
                found.seq.tolist(),
                found.sampled_at.tolist(),
                found.received_at.tolist(),
                found.backfilled.tolist(),
                strict=True,
            )
        ]
        self.rows += ids
        for block in batch.blocks:
            for at, device, gauges, counters in zip(
                block.frame.tolist(), block.device.tolist(), block.gauges, block.counters, strict=True
            ):
                self.rows.append((ids[at], block.block, self.devices[device], gauges.tobytes(), counters.tobytes()))

    def everything(self) -> dict[str, Any]:
        """Return what others see of it; of a cluster in which messages came in the same order it is the same."""
        fleet = self.fleet
        for node in self.ingest.nodes.values():
            self.ingest.held.steady.bring_back(node)
        return {
            "rows": sorted(self.rows, key=repr),
            "commands": sorted(map(str, self.commands)),
            "counters": {
                name: found for name, found in msgspec.to_builtins(self.stats).items() if name not in {"lag", "flush"}
            },
            "lag": (self.stats.lag.count, round(self.stats.lag.total, 6), round(self.stats.lag.highest, 6)),
            "nodes": {
                name: (
                    (node.seq, node.slow_seq, node.session, node.online, node.last_frame, node.last_frame_wall),
                    (node.frames, node.lost, node.claimed, sorted(node.superseded), len(node.waiting)),
                    [(each.session, list(each.have), each.end, each.missing) for each in node.accounts.values()],
                )
                for name, node in self.ingest.nodes.items()
            },
            "fleet": {
                name: (node.seq, node.session, node.sampled_at, node.seen, node.online, node.clock_offset)
                for name, node in fleet.nodes.items()
            },
            "matrices": [
                (
                    matrix.gauges[: fleet.size(block.table)].tobytes(),
                    matrix.counters[: fleet.size(block.table)].tobytes(),
                )
                for block, matrix in zip(SCHEMA.blocks, fleet.matrices, strict=True)
                if block.table in {SCHEMA.blocks[GPU_FAST].table, SCHEMA.blocks[NODE_FAST].table}
            ],
        }


def body(
    node: str, gpus: int, session: int, seq: int, *, at: int = 0, slow: bool = False, events: Sequence[bytes] = ()
) -> bytes:
    """The bytes of a frame. `at`: ns by which its clock is off."""
    readings: dict[int, list[list[float]]] = {GPU_FAST: gpu_rows(node, gpus, seq), NODE_FAST: node_rows(node, seq)}
    if slow:
        width = len(SCHEMA.blocks[GPU_SLOW].names)
        readings[GPU_SLOW] = [[value(node, row, column, seq) for column in range(width)] for row in range(gpus)]
    return frames.encode(frames.build(session, seq, sampled_at(seq) + at, readings, events))


def damaged(made: bytes, kind: str, number: int) -> bytes:
    """A frame of which a bit is flipped, or the end is missing; others are left as they are."""
    place = number * len(made) // 256
    match kind:
        case "flipped":
            return made[:place] + bytes([made[place] ^ (1 << number % 8)]) + made[place + 1 :]
        case "cut":
            return made[:place]
        case _:
            return made


class Sender:
    """The nodes: what each sends next. Both insides get the same bytes."""

    def __init__(self, insides: Sequence[Inside]) -> None:
        self._insides = insides
        self._seq = dict.fromkeys(NODES, -1)
        self._session = dict.fromkeys(NODES, 1)
        self._gpus = {name: 2 + (name == "d") for name in NODES}
        self._version = 0
        for name in NODES:
            for one in insides:
                one.hello(name, self._gpus[name])

    def each(self, act: Callable[[Inside], None]) -> None:
        for inside in self._insides:
            act(inside)

    def act(self, kind: str, node: str, number: int) -> None:
        """Do one thing; `number`: of 0 to 255, which means what the kind makes of it."""
        session, skew, slow = self._session[node], 0, False
        events: tuple[bytes, ...] = ()
        if kind in {"next", "slow", "event", "early"}:
            self._seq[node] += 1
            slow = kind == "slow"
            skew = 2 * 3600 * SECOND * (kind == "early")
            if kind == "event":
                event = Event(id=f"{session}-{self._seq[node]}", node=node, at=sampled_at(self._seq[node]), kind="xid")
                events = (messages.encode(event),)
        elif kind == "foreign":
            self._seq[node] += 1
            session += 1 + number % 3
        elif kind == "skip":
            self._seq[node] += 1 + number % 4
        elif kind == "session":
            self._session[node] = session = session + 1
            self._seq[node] = 0
        seq = max(0, self._seq[node] - number % 5) if kind in {"again", "ring"} else max(0, self._seq[node])
        made = body(node, self._gpus[node], session, seq, at=skew, slow=slow, events=events)
        made = damaged(made, kind, number)
        match kind:
            case "ring":
                self.each(lambda one: one.publish(node, Topic.BACKFILL, frames.encode_many([made])))
            case "gone":
                reply = CommandReply(about=session, first=0, last=number % 8, gone=(FrameSpan(session, 0, number % 8),))
                self.each(lambda one: one.publish(node, Topic.REPLY, messages.encode(reply)))
            case "status":
                state = NodeState.OFFLINE if number % 4 == 0 else NodeState.ONLINE
                ring = (FrameSpan(session, 0, seq + number % 3),)
                status = CollectorStatus(state=state, session=session, ring=ring, reason="lost")
                self.each(lambda one: one.publish(node, Topic.STATUS, messages.encode(status)))
            case "inventory":
                self._gpus[node] = 1 + number % 3
                self._version += 1
                taken_at = sampled_at(seq) + (number // 3 % 3 - 1) * SECOND
                self.each(lambda one: one.hello(node, self._gpus[node], self._version, session, taken_at))
            case "lost":
                self.each(lambda one: one.refill(LostFrames(node, session, max(0, seq - number % 5), seq)))
            case "settled":
                known = {(node, session): IntervalSet([(0, seq + number % 2)])}
                self.each(lambda one: one.confirm(shard_of(node), known))
            case "remove":
                self.each(lambda one: one.remove(node))
                self.each(lambda one: one.hello(node, self._gpus[node], self._version, session))
            case _:
                self.each(lambda one: one.publish(node, Topic.FRAME, made))

    def tick(self, kind: str, number: int) -> None:
        """Do what concerns no node; time goes on."""
        for one in self._insides:
            one.now += number / 64
            one.wall += number * SECOND // 64
            match kind:
                case "flush":
                    one.flush()
                case "a few":
                    one.flush(1 + number % 2)  # those taken together are not taken apart for it: a few more
                    one.flush()
                case "commit":
                    one.commit()
                case "shed":
                    step = STEPS_OF_SHEDDING[number % len(STEPS_OF_SHEDDING)]
                    if step or one.shedding.step is not ShedStep.FRAMES:
                        one.flush()  # what came before is shed, or not, as it comes where it is not held
                    one.shedding.step = step
                case _:
                    one.expire()


ACTS = ("next",) * 12 + (
    "slow", "event", "early", "skip", "session", "foreign", "again", "ring", "gone", "status", "inventory", "inventory",
    "lost", "settled", "remove", "flipped", "cut",
)  # fmt: skip
TICKS = "flush", "flush", "a few", "commit", "expire", "shed"
STEPS_OF_SHEDDING = (
    ShedStep.NOTHING,
    ShedStep.NOTHING,
    ShedStep.NOTHING,
    ShedStep.HALF_HISTORY,
    ShedStep.HISTORY,
    ShedStep.FRAMES,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ACTS), st.sampled_from(NODES), st.integers(0, 255)),
        st.tuples(st.just("all"), st.just(""), st.integers(0, 255)),
        st.tuples(st.sampled_from(TICKS), st.just(""), st.integers(0, 255)),
    ),
    max_size=60,
)


ALL = ("all", "", 0)


@example([("next", "a", 0), ("early", "a", 0)], 0)
@example([("early", "a", 0), ALL], 0)
@example([ALL, ALL, ALL, ("remove", "b", 0)], 0)
@example([ALL, ALL, ("lost", "a", 0)], 0)
@example([("slow", "a", 0), ("slow", "a", 0)], 0)
@example([ALL, ("shed", "", 52), ALL], 0)
@example([("next", "a", 0), ("shed", "", 89), ("next", "b", 0), ALL], 0)
@example([ALL, ("shed", "", 137), ALL, ("ring", "a", 1)], 0)
@given(STEPS, st.sampled_from([0, 4]))
def test_frames_taken_together_end_as_they_would_one_by_one(steps: list[tuple[str, str, int]], many: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        together, apart = Inside(Path(folder) / "t", TOGETHER), Inside(Path(folder) / "o", ONE_BY_ONE)
        together.many = many
        sender = Sender([together, apart])
        for kind, node, number in steps:
            if kind == "all":  # as a fleet does: every node its next frame
                for name in NODES:
                    sender.act("next", name, number)
            elif node:
                sender.act(kind, node, number)
            else:
                sender.tick(kind, number)
        sender.tick("commit", 0)
        assert together.everything() == apart.everything()
        for one in (together, apart):
            assert one.ingest.ledger.missing == sum(account.missing for account in one.ingest.ledger)


@pytest.fixture
def fleet_of_nodes(tmp_path: Path) -> Inside:
    """Twelve nodes of which two frames came, and the second ones were taken together."""
    inside = Inside(tmp_path, TOGETHER)
    for name in NAMES:
        inside.hello(name, 2)
    for seq in range(2):
        send_all(inside, seq)
        inside.flush()
    inside.commit()
    return inside


NAMES = [f"n{number}" for number in range(12)]


def send_all(inside: Inside, seq: int) -> None:
    for name in NAMES:
        inside.publish(name, Topic.FRAME, body(name, 2, 1, seq))


def newest(inside: Inside) -> set[int]:
    return {node.seq for node in inside.fleet.nodes.values()}


def test_a_fleet_that_runs_has_no_frame_decoded_by_itself(
    fleet_of_nodes: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    single: list[bytes] = []
    monkeypatch.setattr("telemetry.wire.border.decode_frame", single.append)
    send_all(fleet_of_nodes, 2)
    send_all(fleet_of_nodes, 3)  # before a flush
    fleet_of_nodes.commit()
    assert single == []
    assert newest(fleet_of_nodes) == {3}
    assert len(fleet_of_nodes.batches[-1].frames) == 2 * len(NAMES)
    assert fleet_of_nodes.stats.frames_received == 4 * len(NAMES)


def test_frames_that_can_not_be_joined_are_processed_one_by_one(fleet_of_nodes: Inside) -> None:
    """A fault of ours, before they were accounted for or after it."""

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    def fail_joined(batcher: Batcher, arrival: object) -> None:
        if isinstance(arrival, JoinedFrames):
            fail()
        add(batcher, arrival)  # type: ignore[arg-type]

    add = Batcher.add
    for name, planted in ((f"{FrameTemplate.__module__}.FrameTemplate.heads", fail), ("", fail_joined)):
        with pytest.MonkeyPatch.context() as patch:
            if name:
                patch.setattr(name, planted)
            else:
                patch.setattr(Batcher, "add", planted)
            send_all(fleet_of_nodes, 2 if name else 3)
            fleet_of_nodes.commit()
        assert len(fleet_of_nodes.batches[-1].frames) == len(NAMES)
    assert all(node.accounts[1].missing == 0 for node in fleet_of_nodes.ingest.nodes.values())


def test_a_node_whose_frames_can_not_be_flushed_costs_the_others_nothing(fleet_of_nodes: Inside) -> None:
    store = Fleet.store
    (bad,) = {fleet_of_nodes.fleet.by_uuid["GPU-n7-0"]}

    def fail_one(fleet: Fleet, block: int, places: Any, *rest: Any) -> None:
        if block == GPU_FAST and bad in places:
            raise RuntimeError("planted")
        store(fleet, block, places, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fleet, "store", fail_one)
        send_all(fleet_of_nodes, 2)
        fleet_of_nodes.commit()
    nodes = fleet_of_nodes.ingest.nodes
    assert [name for name, node in nodes.items() if node.accounts[1].missing] == ["n7"]
    assert {name for name, node in fleet_of_nodes.fleet.nodes.items() if node.seq == 2} == set(NAMES) - {"n7"}
    assert len(fleet_of_nodes.batches[-1].frames) == len(NAMES) - 1


def test_frames_whose_nodes_change_before_the_flush_are_read_by_what_they_were_made_with(
    fleet_of_nodes: Inside,
) -> None:
    """Two GPUs have become three, and the frame of the two is history."""
    send_all(fleet_of_nodes, 2)
    fleet_of_nodes.publish("n0", Topic.FRAME, body("n0", 2, 1, 3))  # has all before it joined
    fleet_of_nodes.publish("n3", Topic.INVENTORY, messages.encode(inventory("n3", 3, 1, 1)))
    fleet_of_nodes.commit()
    assert fleet_of_nodes.fleet.nodes["n3"].seq == 1
    stored = [row for row in fleet_of_nodes.rows if len(row) == 5 and row[2] == "GPU-n3-1" and row[1] == GPU_FAST]
    wanted = [
        np.array(gpu_rows("n3", 2, seq)[1]).astype("<f4")[: len(SCHEMA.blocks[GPU_FAST].gauges)] for seq in range(3)
    ]
    assert [row[3] for row in stored] == [each.tobytes() for each in wanted]


def test_a_frame_of_before_an_inventory_is_of_the_devices_of_before(fleet_of_nodes: Inside) -> None:
    """Boards were replaced by others of their kind, and the node's clock was then set back: by its time the frame is of
    the old ones."""
    new = inventory("n3", 2, 1, 1)
    boards = tuple(msgspec.structs.replace(gpu, uuid=f"GPU-new-{gpu.index}") for gpu in new.gpus)
    new = msgspec.structs.replace(new, gpus=boards, taken_at=sampled_at(2))
    fleet_of_nodes.publish("n3", Topic.INVENTORY, messages.encode(new))
    send_all(fleet_of_nodes, 2)
    fleet_of_nodes.commit()
    for name in NAMES:
        fleet_of_nodes.publish(name, Topic.FRAME, body(name, 2, 1, 3, at=-2 * SECOND))
    fleet_of_nodes.commit()
    stored = {row[0][1]: row[2] for row in fleet_of_nodes.rows if row[2] in {"GPU-new-1", "GPU-n3-1"}}
    assert stored == {0: "GPU-n3-1", 1: "GPU-n3-1", 2: "GPU-new-1", 3: "GPU-n3-1"}


def test_frames_of_unusual_bytes_have_no_template() -> None:
    made = body("a", 2, 1, 5)
    frame = frames.decode(made)
    template = FrameTemplate(made, frame)
    assert template.size == len(made)
    event = body("a", 2, 1, 5, events=[b"{}"])
    signed = made.replace(
        b"\xcf" + frame.sampled_at.to_bytes(8, "big"), b"\xd3" + frame.sampled_at.to_bytes(8, "big"), 1
    )
    longer = b"\x97" + made[1:] + b"\xc0"  # a field that this release does not know
    for unusual in (event, signed, longer):
        with pytest.raises(ValueError, match="a frame "):
            FrameTemplate(unusual, frames.decode(unusual))


@pytest.mark.parametrize(
    ("session", "seq"), [(1, 0), (127, 127), (128, 128), (1 << 40, 70_000), ((1 << 63) - 1, 1 << 30)]
)
def test_a_template_reads_the_numbers_of_any_length(session: int, seq: int) -> None:
    made = body("a", 2, session, seq)
    heads = FrameTemplate(made, frames.decode(made)).heads(np.frombuffer(2 * made, np.uint8).reshape(2, -1))
    assert heads.right.tolist() == [True, True]
    assert (heads.session.tolist(), heads.seq.tolist()) == ([session] * 2, [seq] * 2)
    assert heads.sampled_at.tolist() == [sampled_at(seq)] * 2


def test_a_damaged_frame_is_refused_and_the_others_are_joined(fleet_of_nodes: Inside) -> None:
    """A bit of how many bytes follow, which no value would show."""
    made = body("n4", 2, 1, 2)
    at = made.index(b"\xc4") + 1
    wrong = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
    for name in NAMES:
        fleet_of_nodes.publish(name, Topic.FRAME, wrong if name == "n4" else body(name, 2, 1, 2))
    fleet_of_nodes.commit()
    assert {name for name, node in fleet_of_nodes.fleet.nodes.items() if node.seq == 2} == set(NAMES) - {"n4"}
    assert fleet_of_nodes.stats.dropped == {"malformed": 1}


def test_every_byte_that_is_no_value_is_that_of_the_template() -> None:
    """A frame in which one is another is none of the template; in one in which a value is another, nothing else is."""
    made = body("a", 2, 1 << 40, 70_000)
    frame = frames.decode(made)
    template = FrameTemplate(made, frame)
    flipped = np.frombuffer(made, np.uint8) ^ np.eye(len(made), dtype=np.uint8)
    right = template.heads(flipped).right
    for at, row in enumerate(flipped):
        try:
            other = frames.decode(row.tobytes())
            same = other.schema == frame.schema and not other.events and shape(other) == shape(frame)
        except WireError:
            same = False
        assert bool(right[at]) == same, at
    assert np.count_nonzero(right) == 8 + 4 + 8 + sum(len(each.gauges) + len(each.counters) for each in frame.blocks)


def shape(frame: frames.Frame) -> list[tuple[int, int, int, int]]:
    return [(each.block, each.rows, len(each.gauges), len(each.counters)) for each in frame.blocks]


def test_what_has_no_room_or_no_number_any_more_is_decided_frame_by_frame(
    fleet_of_nodes: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batcher, "full", lambda *_: True)
    send_all(fleet_of_nodes, 2)
    fleet_of_nodes.flush()
    assert fleet_of_nodes.stats.dropped == {"no_room": len(NAMES)}
    monkeypatch.undo()
    send_all(fleet_of_nodes, 3)
    fleet_of_nodes.commit()
    assert newest(fleet_of_nodes) == {3}
    single: list[bytes] = []
    monkeypatch.setattr("telemetry.wire.border.decode_frame", single.append)
    monkeypatch.setattr(held_frames, "FRAMES_END", 4)
    send_all(fleet_of_nodes, 4)
    fleet_of_nodes.flush()
    assert len(single) == len(NAMES)
