"""Ingest: what is newest shows, what is old never covers it, and nothing stops it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from aggregator.config import BackfillConfig, StoreConfig
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.layout import fits_inventory, make_layout
from telemetry.devices import Event, Gpu
from telemetry.fleet import gaps_of
from telemetry.gap import Gap
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import CollectorStatus, CommandKind, CommandReply, FrameSpan, Inventory, NodeState
from telemetry.wire.schema import GPU_FAST, SCHEMA, Block, Schema
from telemetry.wire.topics import Topic
from tests.aggregator.feed import Feed
from tests.aggregator.node import GAP_COLUMN, START, expected, inventory, payload, sampled_at, value

NAMES = SCHEMA.blocks[GPU_FAST].names
GAUGES = SCHEMA.blocks[GPU_FAST].gauges


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """One node of two GPUs that said hello."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    return feed


def shown(feed: Feed, uuid: str, column: int = 0) -> float:
    return float(feed.fleet.column(NAMES[column], feed.now)[feed.fleet.by_uuid[uuid]])


def stored(feed: Feed, uuid: str) -> list[float | None]:
    return feed.store.history(uuid, GAUGES[0], 0, 1 << 62, 0).mean


def values(node: str, row: int, *seqs: int) -> list[float]:
    return [value(node, row, 0, seq) for seq in seqs]


def test_a_frame_shows_in_the_fleet_with_its_gaps(feed: Feed) -> None:
    feed.send("a", 7)
    feed.flush()
    for column in range(len(NAMES)):
        number = shown(feed, "GPU-a-1", column)
        wanted = expected("a", 1, [7])[0, column]
        assert number == wanted or (np.isnan(number) and np.isnan(wanted))
    matrix = feed.fleet.matrices[GPU_FAST]
    assert gaps_of(matrix.gauges)[0, GAP_COLUMN] == Gap.NOT_SUPPORTED
    node = feed.fleet.nodes["a"]
    assert (node.online, node.session, node.seq, node.sampled_at) == (True, 1, 7, sampled_at(7))


def test_an_older_frame_is_stored_and_does_not_cover_the_newest(feed: Feed) -> None:
    feed.send("a", 5, 3)
    feed.flush()
    feed.send("a", 4)
    feed.publish("a", Topic.BACKFILL, frames.encode_many([payload("a", 2, 1, 9)]))
    feed.commit()
    assert shown(feed, "GPU-a-0") == value("a", 0, 0, 5)
    assert stored(feed, "GPU-a-0") == values("a", 0, 3, 4, 5, 9)


def test_a_new_session_begins_anew_and_the_old_one_is_history(feed: Feed) -> None:
    feed.send("a", 100)
    feed.send("a", 0, session=2)
    feed.send("a", 101)
    feed.flush()
    assert shown(feed, "GPU-a-0") == value("a", 0, 0, 0)
    assert feed.fleet.nodes["a"].session == 2
    feed.send("a", 1, session=2)
    feed.flush()
    assert shown(feed, "GPU-a-0") == value("a", 0, 0, 1)


def test_the_will_of_an_earlier_session_does_not_count(feed: Feed) -> None:
    feed.send("a", 0, session=2)
    will = CollectorStatus(state=NodeState.OFFLINE, session=1, reason="lost")
    feed.publish("a", Topic.STATUS, messages.encode(will))
    assert feed.fleet.nodes["a"].online
    will = msgspec.structs.replace(will, session=2)
    feed.publish("a", Topic.STATUS, messages.encode(will))
    assert not feed.fleet.nodes["a"].online


def test_frames_wait_for_their_inventory(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data")
    feed.send("b", 0, 1, 2)
    feed.flush()
    assert feed.fleet.nodes == {}
    (ask,) = feed.ingest.drain_commands(feed.now)
    assert (ask.node, ask.command.kind) == ("b", CommandKind.INVENTORY)
    feed.inventory(inventory("b", 2))
    assert feed.commit() == 3
    assert shown(feed, "GPU-b-0") == value("b", 0, 0, 2)
    assert feed.stats.dropped == {}


def test_frames_that_wait_are_bounded_and_those_dropped_are_missing(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data")
    feed.send("b", *range(200))
    feed.inventory(inventory("b", 2))
    assert feed.commit() == 128
    assert feed.stats.dropped == {"schema": 72}
    assert feed.ingest.nodes["b"].accounts[1].spans() == [(0, 71)]


def test_a_frame_of_the_wrong_size_is_not_stored_and_the_inventory_is_asked_for(feed: Feed) -> None:
    feed.send("a", 0)
    feed.send("a", 1, gpus=3)
    feed.send("a", 2)
    feed.commit()
    assert stored(feed, "GPU-a-0") == values("a", 0, 0, 2)
    assert feed.ingest.drain_commands(feed.now)[0].command.kind is CommandKind.INVENTORY
    feed.inventory(inventory("a", 3, version=1))
    feed.commit()
    assert stored(feed, "GPU-a-2") == values("a", 2, 1)
    assert feed.ingest.nodes["a"].accounts[1].missing == 0


def test_a_frame_that_fits_no_inventory_is_given_up_in_the_end(feed: Feed) -> None:
    for _ in range(3):
        feed.publish("a", Topic.BACKFILL, frames.encode_many([payload("a", 5, 1, 0)]))
        feed.inventory(inventory("a", 2))
    feed.send("a", 1)
    feed.commit()
    assert feed.stats.dropped == {"malformed": 3}
    assert feed.stats.frames_lost + feed.stats.frames_lost_claimed == 1
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 1)])}


def test_frames_from_before_a_change_of_devices_are_read_as_they_were(feed: Feed) -> None:
    feed.send("a", 0)
    changed = msgspec.structs.replace(inventory("a", 1, version=1), taken_at=sampled_at(5))
    feed.inventory(changed)
    feed.send("a", 6, gpus=1)
    feed.publish("a", Topic.BACKFILL, frames.encode_many([payload("a", 2, 1, 3)]))
    feed.commit()
    assert stored(feed, "GPU-a-1") == values("a", 1, 0, 3)
    assert stored(feed, "GPU-a-0") == values("a", 0, 0, 3, 6)
    assert shown(feed, "GPU-a-0") == value("a", 0, 0, 6)


@pytest.mark.parametrize("again", [(0, 1), (1, 0)], ids=["the same rows anew", "back again"])
def test_a_frame_from_before_goes_to_its_gpus_whatever_inventories_came_since(
    feed: Feed, again: tuple[int, int]
) -> None:
    """GPUs change places at 5, and then facts alone at 8, or places again: a frame of 6 comes after that, and one of 2."""

    def placed(order: tuple[int, int], at: int) -> Inventory:
        gpus = tuple(Gpu(uuid=f"GPU-a-{one}", index=index, name="X") for index, one in enumerate(order))
        return msgspec.structs.replace(
            inventory("a", 2, version=at), gpus=gpus, taken_at=sampled_at(at), host={"kernel": str(at)}
        )

    first, second = again[::-1] if again == (0, 1) else again, (0, 1)
    feed.inventory(placed(first, 0))
    feed.send("a", 0)
    feed.inventory(placed(second, 5))
    feed.send("a", 5)
    feed.inventory(placed(again, 8))
    feed.send("a", 8)
    feed.resend("a", 2, 6)
    feed.commit()
    order = {0: first, 2: first, 5: second, 6: second, 8: again}
    for gpu in (0, 1):
        wanted = [value("a", rows.index(gpu), 0, seq) for seq, rows in order.items()]
        assert stored(feed, f"GPU-a-{gpu}") == wanted


@pytest.mark.parametrize("at_once", [True, False], ids=["running", "after kill -9"])
def test_frames_made_with_an_inventory_that_never_came_are_read_by_the_one_that_brings_it(
    tmp_path: Path, at_once: bool
) -> None:
    """Of a node that ran before the broker did, with two GPUs, from 3 on with one, from 4 on with another in its place, and
    from 6 on with three."""

    def made(at: int, *gpus: str) -> Inventory:
        found = tuple(Gpu(uuid=f"GPU-a-{one}", index=index, name="X") for index, one in enumerate(gpus))
        return msgspec.structs.replace(inventory("a", 2, version=at), gpus=found, taken_at=sampled_at(at))

    feed = Feed(tmp_path / "data")
    before = made(4, "y"), made(3, "x"), made(0, "0", "1")
    bare = tuple(msgspec.structs.replace(each, schema=messages.NO_SCHEMA) for each in before)
    feed.hello("a", ring=(FrameSpan(1, 0, 5),))
    feed.inventory(msgspec.structs.replace(made(6, "0", "1", "2"), before=bare))
    feed.send("a", 6, gpus=3)
    feed.commit()
    if not at_once:
        feed.reopen()
    feed.resend("a", 0, 2)
    feed.resend("a", 3, 4, 5, gpus=1)
    feed.commit()
    wanted = {"0": values("a", 0, 0, 2, 6), "1": values("a", 1, 0, 2, 6), "2": values("a", 2, 6)}
    wanted |= {"x": values("a", 0, 3), "y": values("a", 0, 4, 5)}
    assert {gpu: stored(feed, f"GPU-a-{gpu}") for gpu in wanted} == wanted
    assert feed.stats.dropped == {}
    assert set(feed.fleet.by_uuid) == {"GPU-a-0", "GPU-a-1", "GPU-a-2"}


def test_an_inventory_whose_past_is_of_another_node_or_has_a_past_is_refused(feed: Feed) -> None:
    past = inventory("a", 1)
    for wrong in (inventory("b", 1), msgspec.structs.replace(past, before=(past,))):
        feed.inventory(msgspec.structs.replace(inventory("a", 2, version=1), before=(wrong,)))
    feed.inventory(msgspec.structs.replace(inventory("a", 2, version=1), before=(past,) * 8))
    assert feed.stats.dropped == {"malformed": 3}


def test_a_device_counts_once_however_many_inventories_it_is_in_and_an_impossible_time_is_none(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data")
    past = msgspec.structs.replace(inventory("a", 2), taken_at=1 << 62)
    feed.hello("a")
    feed.inventory(msgspec.structs.replace(inventory("a", 3, version=1), taken_at=START, before=(past, past)))
    registry = IdRegistry(feed.store.known())
    assert (
        registry.unknown(msgspec.structs.replace(inventory("a", 3), before=(inventory("a", 2), inventory("a", 4)))) == 4
    )
    feed.send("a", 0, gpus=3)
    feed.commit()
    (current, older) = feed.ingest.nodes["a"].layouts
    assert (current.taken_at, older.taken_at) == (START, 0)


def test_another_release_is_understood_by_names(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data")
    ours = SCHEMA.blocks[GPU_FAST]
    theirs = Block(ours.table, ours.lane, ("gpu_new_thing", ours.gauges[1], ours.gauges[0]), ours.counters[:1])
    schema = Schema((SCHEMA.blocks[0 if GPU_FAST else 1], theirs))
    feed.inventory(msgspec.structs.replace(inventory("a", 2), schema=schema))
    packed = frames.pack(1, [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], schema)
    feed.publish("a", Topic.FRAME, frames.encode(frames.Frame(schema.id, 1, 0, START, (packed,))))
    feed.commit()
    assert feed.stats.dropped == {}
    assert stored(feed, "GPU-a-0") == [3.0]
    assert shown(feed, "GPU-a-1", 1) == 6.0
    assert feed.store.history("GPU-a-1", ours.counters[0], 0, 1 << 62, 0).mean == [8.0]
    assert feed.store.history("GPU-a-1", ours.gauges[5], 0, 1 << 62, 0).mean == [None]
    row = feed.fleet.by_uuid["GPU-a-0"]
    assert gaps_of(feed.fleet.matrices[GPU_FAST].gauges)[row, 5] == Gap.NOT_SUPPORTED


def test_a_table_of_a_newer_release_costs_the_node_no_other_reading(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data")
    switch = Block("switch", "slow", ("switch_up", "switch_watts"), ("switch_errors_total",))
    schema = Schema((switch, SCHEMA.blocks[GPU_FAST], Block("gpu", "daily", ("gpu_age",), ())))
    feed.inventory(msgspec.structs.replace(inventory("a", 2), schema=schema))
    rows = [[float(row), *(9.0,) * (len(NAMES) - 1)] for row in range(2)]
    theirs = frames.pack(0, [[1.0, 2.0, 3.0]] * 5, schema)
    blocks = (theirs, frames.pack(1, rows, schema), frames.pack(2, [[4.0]], schema))
    sent = frames.Frame(schema.id, 1, 0, START, blocks)
    feed.publish("a", Topic.FRAME, frames.encode(sent))
    feed.commit()
    assert feed.stats.dropped == {}
    assert stored(feed, "GPU-a-0") == [0.0]
    assert stored(feed, "GPU-a-1") == [1.0]
    assert shown(feed, "GPU-a-1") == 1.0
    feed.reopen()  # the schema is as it was when it comes back from the store
    feed.publish("a", Topic.FRAME, frames.encode(msgspec.structs.replace(sent, seq=1)))
    feed.commit()
    assert stored(feed, "GPU-a-1") == [1.0, 1.0]


def test_a_block_that_nobody_knows_must_still_have_the_size_that_it_claims(tmp_path: Path) -> None:
    switch = Block("switch", "slow", ("switch_up",), ("switch_errors_total",))
    schema = Schema((switch, SCHEMA.blocks[GPU_FAST]))
    newer = msgspec.structs.replace(inventory("a", 2), schema=schema)
    layout = make_layout(newer, IdRegistry(Feed(tmp_path / "data").store.known()))
    whole = frames.pack(0, [[1.0, 2.0]] * 3, schema)
    spoiled = {"counters": whole.counters[8:], "gauges": whole.gauges + b"    ", "rows": -1}
    for name, wrong in spoiled.items():
        part = msgspec.structs.replace(whole, **{name: wrong})
        frame = frames.Frame(schema.id, 1, 0, START, (part,))
        assert not layout.fits(frame), name
        assert not fits_inventory(frame, newer), name
    frame = frames.Frame(schema.id, 1, 0, START, (whole,))
    assert layout.fits(frame)
    assert fits_inventory(frame, newer)


def test_holes_are_asked_for_and_what_is_gone_is_counted(feed: Feed) -> None:
    feed.send("a", 0, 5)
    feed.ingest.drain_commands(feed.now)
    feed.now += 1
    (ask,) = feed.ingest.drain_commands(feed.now)
    assert (ask.command.about, ask.command.first, ask.command.last) == (1, 1, 4)
    feed.publish("a", Topic.BACKFILL, frames.encode_many([payload("a", 2, 1, s) for s in (3, 4)]))
    reply = CommandReply(about=1, first=1, last=4, sent=2, gone=(FrameSpan(1, 1, 2),))
    feed.publish("a", Topic.REPLY, messages.encode(reply))
    assert feed.commit() == 4
    assert feed.stats.frames_lost == 2
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 5)])}
    assert feed.ingest.ledger.missing == 0


def test_frames_of_a_node_that_never_sent_one_are_claimed_and_not_lost(feed: Feed) -> None:
    """Anybody may name a node and claim a year for it; what a node lost that sends is exact: an hour of a new one."""
    feed.hello("b", session=9, ring=(FrameSpan(8, 10, 12),))
    assert (feed.stats.frames_lost, feed.stats.frames_lost_claimed) == (0, 10)
    feed.send("a", *range(0, 4501, 900))
    for number, (lost, claimed) in enumerate([(899, 10), (1798, 10), (2697, 10), (3596, 10), (3596, 909)]):
        span = FrameSpan(1, 900 * number + 1, 900 * number + 899)
        gone = CommandReply(about=1, first=span.first, last=span.last, gone=(span,))
        feed.publish("a", Topic.REPLY, messages.encode(gone))
        assert (feed.stats.frames_lost, feed.stats.frames_lost_claimed) == (lost, claimed)


def test_what_the_ring_holds_of_sessions_we_slept_through_is_asked_for(feed: Feed) -> None:
    feed.hello("a", session=9, ring=(FrameSpan(7, 10, 12), FrameSpan(8, 0, 3), FrameSpan(8, 6, 8)))
    assert (feed.stats.frames_lost, feed.stats.frames_lost_claimed) == (0, 10)
    feed.now += 1
    asks = feed.ingest.drain_commands(feed.now)
    feed.now += 1
    asks += feed.ingest.drain_commands(feed.now)
    wanted = {(ask.command.about, ask.command.first, ask.command.last) for ask in asks}
    assert wanted == {(7, 10, 12), (8, 0, 8)}


def test_old_sessions_can_be_left_alone(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data", backfill=BackfillConfig(max_age_seconds=60))
    feed.hello("a", session=9, ring=(FrameSpan(8, 0, 999),))
    assert feed.stats.frames_lost_claimed == 939
    assert feed.ingest.ledger.missing == 61


def test_without_room_the_newest_still_shows_and_the_rest_is_missing(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data", StoreConfig(pending_bytes=1024 * 1024))
    feed.hello("a", gpus=16)
    count = 1024 * 1024 // len(payload("a", 16, 1, 0)) + 20
    feed.send("a", *range(count), gpus=16)
    feed.flush()
    assert shown(feed, "GPU-a-3") == value("a", 3, 0, count - 1)
    kept = feed.commit()
    assert kept < count
    account = feed.ingest.nodes["a"].accounts[1]
    assert account.missing == count - kept
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, kept - 1)])}
    feed.send("a", *range(kept, count), gpus=16)
    assert feed.commit() == count - kept
    assert account.missing == 0


def test_events_are_kept_once_whether_they_come_alone_or_in_a_frame(feed: Feed) -> None:
    event = Event(id="1-1", node="a", at=START, kind="xid")
    body = messages.encode(event)
    feed.publish("a", Topic.EVENT, body)
    feed.publish("a", Topic.EVENT, body)
    feed.publish("a", Topic.FRAME, payload("a", 2, 1, 0, [body]))
    feed.commit()
    found = feed.store.events(0, 1 << 62, None, None, 10)
    assert [each.event for each in found] == [event]
    assert feed.stats.events_duplicate == 2
    assert feed.ingest.drain_events() == [event]
    assert feed.ingest.drain_events() == []


def test_an_event_of_the_aggregators_own_is_stored_once_and_no_rule_evaluates_it(feed: Feed) -> None:
    event = Event(id="recovery-1", node="a", at=START, kind="recovery", message="drain done by ann")
    feed.ingest.record_event(event, START)
    feed.ingest.record_event(event, START)
    feed.commit()
    (stored_event,) = feed.store.events(0, 1 << 62, "a", "recovery", 10)
    assert (stored_event.event, stored_event.received_at) == (event, START)
    assert list(feed.ingest.recent).count(event) == 1
    assert feed.ingest.drain_events() == []


BAD = {
    "malformed": [
        ("a", Topic.FRAME, b"\x93\x01\x02"),
        ("a", Topic.FRAME, b""),
        ("a", Topic.BACKFILL, b"\xc1"),
        ("a", Topic.STATUS, b"{}"),
        ("a", Topic.STATUS, b'{"state": "online", "session": 1, "interval": 0}'),
        ("a", Topic.INVENTORY, b"[1, 2"),
        ("a", Topic.EVENT, b"\xff\xfe"),
        ("a", Topic.REPLY, b"null"),
        ("a", Topic.FRAME, frames.encode(frames.build(1 << 63, 0, START, {}))),
        ("a", Topic.FRAME, frames.encode(frames.build(1, 0, -5, {}))),
    ],
    "oversize": [
        ("a", Topic.FRAME, bytes(frames.MAX_FRAME_BYTES + 1)),
        ("a", Topic.INVENTORY, bytes(frames.MAX_FRAME_BYTES + 1)),
    ],
    "foreign": [
        ("a", Topic.INVENTORY, messages.encode(inventory("b", 1))),
        ("a", Topic.EVENT, messages.encode(Event(id="1", node="b", at=1, kind="xid"))),
    ],
}


@pytest.mark.parametrize("reason", list(BAD))
def test_a_flood_of_bad_messages_is_counted_sampled_and_stops_nothing(feed: Feed, reason: str) -> None:
    for _ in range(30):
        feed.now += 1.0  # within what a node may send
        for message in BAD[reason]:
            feed.publish(*message)
    assert feed.stats.dropped == {reason: 30 * len(BAD[reason])}
    kept = sorted((feed.config.data_dir / "quarantine").glob(f"{reason}-*.bin"))
    assert len(kept) == 20
    assert max(path.stat().st_size for path in kept) <= 64 * 1024
    feed.send("a", 0)
    assert feed.commit() == 1


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("kilowatch/0/default/aa/a/frame", "version"),
        ("kilowatch/2/default/aa/a/status", "version"),
        ("kilowatch/1/other/aa/a/frame", "foreign"),
        ("kilowatch/1/default/00/a/frame", "foreign"),
        ("kilowatch/1/default/aa/a/weather", "foreign"),
        ("zigbee2mqtt/lamp", "foreign"),
    ],
)
def test_topics_that_are_not_ours_are_counted(feed: Feed, topic: str, reason: str) -> None:
    feed.ingest.receive(topic, b"", feed.now, feed.wall)
    assert feed.stats.dropped == {reason: 1}


def test_an_inventory_that_contradicts_itself_is_refused(feed: Feed) -> None:
    twice = inventory("a", 2)
    twice = msgspec.structs.replace(twice, gpus=(twice.gpus[0], twice.gpus[0]))
    feed.inventory(twice)
    assert feed.stats.dropped == {"malformed": 1}
    assert len(feed.fleet.by_uuid) == 2


def test_a_frame_without_blocks_is_accounted_for(feed: Feed) -> None:
    feed.publish("a", Topic.FRAME, frames.encode(frames.build(1, 0, START, {})))
    assert feed.commit() == 1


def test_a_corrupt_number_does_not_make_all_true_frames_look_old(feed: Feed) -> None:
    """One flipped bit: refused and counted; nothing is missing because of it."""
    feed.send("a", 0, 1)
    feed.flush()
    feed.send("a", 1 << 20)
    feed.send("a", 2)
    feed.flush()
    assert feed.stats.dropped == {"malformed": 1}
    assert feed.ingest.ledger.missing == 0
    assert shown(feed, "GPU-a-0") == values("a", 0, 2)[0]


def test_a_node_may_have_counted_on_while_it_was_not_heard(feed: Feed) -> None:
    """A broker that was down for a day: the leap is as long as the silence."""
    feed.send("a", 0)
    feed.flush()
    feed.now += 86_400
    feed.send("a", 86_400)
    feed.flush()
    assert feed.stats.dropped == {}
    assert feed.ingest.ledger.missing == 86_399


def test_nodes_count_on_while_our_machine_is_suspended(feed: Feed) -> None:
    """Its monotonic clock stood still for six hours, the wall clock did not."""
    feed.send("a", 0)
    feed.flush()
    feed.now += 1.0
    feed.wall += 6 * 3600 * 10**9
    ring = (FrameSpan(1, 0, 6 * 3600 - 1),)
    status = CollectorStatus(state=NodeState.ONLINE, session=1, ring=ring)
    feed.publish("a", Topic.STATUS, messages.encode(status))
    feed.send("a", 6 * 3600)
    feed.flush()
    assert feed.stats.dropped == {}
    assert feed.fleet.nodes["a"].seq == 6 * 3600
    feed.send("a", 10_000_000)
    assert feed.stats.dropped == {"malformed": 1}


def test_a_spoofed_session_does_not_silence_the_true_one_for_good(feed: Feed) -> None:
    """The true session is taken back as soon as the other is silent."""
    feed.send("a", 0)
    feed.flush()
    feed.send("a", 0, session=77)
    feed.flush()
    feed.now += 1.0
    feed.send("a", 1)
    feed.flush()
    assert shown(feed, "GPU-a-0") == values("a", 0, 0)[0]
    feed.now += 3.0
    feed.send("a", 2)
    feed.flush()
    assert shown(feed, "GPU-a-0") == values("a", 0, 2)[0]
