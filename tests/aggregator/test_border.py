"""Behind the border: what one node sends wrong costs neither the others, nor the store, nor itself more
than that message; and it is said whose it was."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.impairments import Impairments
from aggregator.ingest.refusals import MOST_NODES, OFTEN, OTHERS, QUIET, Refusals
from aggregator.ingest.router import HELD_SECONDS, RENAMED_SECONDS
from aggregator.store.protocol import Batch
from alerts.rules.rule import load
from api.alerts import AlertState, Severity
from api.stats import Stats
from telemetry.devices import Event, Gpu, Link
from telemetry.fleet import Fleet
from telemetry.wire import border
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import CollectorStatus, FrameSpan, Inventory, NodeState
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic, topic
from tests.aggregator.feed import ARRIVAL, Feed
from tests.aggregator.node import inventory, payload, sampled_at, value
from tests.kit.night import seed, size

GAUGE = SCHEMA.blocks[GPU_FAST].gauges[0]
SECOND = 10**9
YEAR_2116 = 1 << 62


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """An honest node `a` of two GPUs that said hello."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    return feed


def stored(feed: Feed, uuid: str, start: int = 0, end: int = 1 << 62) -> list[float | None]:
    return feed.store.history(uuid, GAUGE, start, end, 0).mean


# -- Inventories that ended the process ----------------------------------------------------------


def spoiled(kind: str) -> Inventory:
    """An inventory of node `b` as a stolen certificate may publish it."""
    body = inventory("b", 2)
    link = Link(gpu="GPU-b-0", number=2**31)
    match kind:
        case "index":
            gpus = (msgspec.structs.replace(body.gpus[0], index=2**31), body.gpus[1])
            return msgspec.structs.replace(body, gpus=gpus)
        case "number":
            return msgspec.structs.replace(body, links=(link,))
        case _:  # B2
            return msgspec.structs.replace(body, gpus=(), links=(link,))


@pytest.mark.parametrize("kind", ["index", "number", "orphan"])
def test_b1_an_inventory_that_no_column_holds_costs_its_node_alone(feed: Feed, kind: str) -> None:
    """Before it, after it and through a restart, while the broker sends the retained message again."""
    status = CollectorStatus(state=NodeState.ONLINE, session=1)
    for start in range(3):
        feed.publish("b", Topic.STATUS, messages.encode(status))
        feed.inventory(spoiled(kind))
        feed.send("a", 2 * start, 2 * start + 1)
        assert feed.commit() == 2
        assert "b" not in feed.fleet.nodes
        assert feed.stats.refused == {"b": {"malformed": 1}}
        feed.reopen()
        feed.hello("a")
    assert stored(feed, "GPU-a-0") == [value("a", 0, 0, seq) for seq in range(6)]
    feed.inventory(inventory("b", 2))
    feed.send("b", 0)
    assert feed.commit() == 1


def test_an_inventory_that_an_older_release_stored_is_left_out(feed: Feed) -> None:
    orphan = Inventory(node="z", links=(Link(gpu="GPU-nowhere", number=0),))
    feed.store.write(Batch(inventories=[orphan, inventory("a", 2)], at=ARRIVAL))
    feed.reopen()
    assert set(feed.fleet.nodes) == {"a"}


# -- Spans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [2**31, 2**62, 2**63, 2**70])
def test_a_ring_that_no_session_can_fill_counts_nothing(feed: Feed, last: int) -> None:
    feed.send("a", 0)
    for spans in ([[1, 0, last]], [[8, 0, last]], [[8, last - 1, last]]):
        for state in ("online", "offline"):
            body = {"state": state, "session": 1, "ring": spans}
            feed.publish("a", Topic.STATUS, json.dumps(body).encode())
    gone = {"about": 1, "first": 0, "last": 9, "gone": [[1, 0, last]]}
    feed.publish("a", Topic.REPLY, json.dumps(gone).encode())
    assert feed.stats.frames_lost == 0
    assert feed.ingest.ledger.missing == 0
    assert feed.stats.refused == {"a": {"malformed": 7}}
    assert feed.fleet.nodes["a"].online


def test_a_ring_can_not_be_ahead_of_the_frames_of_its_session(feed: Feed) -> None:
    feed.send("a", *range(5))
    ring = (FrameSpan(1, 0, 1_000_000),)
    status = CollectorStatus(state=NodeState.ONLINE, session=1, ring=ring)
    feed.publish("a", Topic.STATUS, messages.encode(status))
    assert feed.ingest.ledger.missing == 0
    assert feed.stats.refused == {"a": {"malformed": 1}}


# -- Clocks --------------------------------------------------------------------------------------


def frame_at(at: int, seq: int, session: int = 1) -> bytes:
    return payload("a", 2, session, seq, at=at)


@pytest.mark.parametrize("begin", [5 * SECOND, ARRIVAL - 14 * 3600 * SECOND, YEAR_2116])
def test_a_node_whose_clock_is_far_off_keeps_its_readings(feed: Feed, begin: int) -> None:
    """A dead battery, a clock that keeps local time, and one of the year 2116. Live, sent again and
    over a restart of ours, its readings lie where they belong, in their order."""
    feed.wall = ARRIVAL
    for seq in (0, 1, 4):
        feed.wall = ARRIVAL + seq * SECOND
        feed.publish("a", Topic.FRAME, frame_at(begin + seq * SECOND, seq))
        feed.flush()
    again = [frame_at(begin + seq * SECOND, seq) for seq in (2, 3)]
    feed.publish("a", Topic.BACKFILL, frames.encode_many(again))
    assert feed.commit() == 5
    found = feed.store.history("GPU-a-0", GAUGE, 0, YEAR_2116, 0)
    assert found.at == [ARRIVAL + seq * SECOND for seq in range(5)]
    assert found.mean == [value("a", 0, 0, seq) for seq in range(5)]
    assert feed.stats.lag.highest < 2
    assert feed.stats.dropped == {}
    feed.reopen()
    feed.wall += SECOND
    feed.hello("a")
    feed.publish("a", Topic.FRAME, frame_at(begin + 5 * SECOND, 5))
    assert feed.commit() == 1
    assert len(stored(feed, "GPU-a-0", ARRIVAL, ARRIVAL + 60 * SECOND)) == 6


def test_a_clock_that_is_far_off_is_an_alert_by_its_true_size(feed: Feed) -> None:
    pipeline = AlertPipeline(load(), lambda *_: None, cluster="default", now=feed.now, wall=feed.wall)
    for seq in range(200):
        feed.publish("a", Topic.FRAME, frame_at((100 + seq) * SECOND, seq))
        feed.flush()
        pipeline.evaluate(feed.fleet, feed.now, feed.wall, feed.ingest.drain_events(), listening=True, snapshots=())
        feed.now += 1
        feed.wall += SECOND
    (alert,) = [one for one in pipeline.alerts() if one.rule == "clock_skew"]
    assert (alert.state, alert.node) == (AlertState.FIRING, "a")
    assert alert.value == pytest.approx(-(ARRIVAL / 1e9 - 100), rel=1e-3)


def test_a_clock_that_is_set_right_is_believed_again(feed: Feed) -> None:
    feed.publish("a", Topic.FRAME, frame_at(5 * SECOND, 0))
    feed.flush()
    assert feed.fleet.nodes["a"].clock_offset == ARRIVAL - 5 * SECOND
    feed.publish("a", Topic.FRAME, frame_at(ARRIVAL + 3 * SECOND, 1))
    feed.flush()
    assert (feed.fleet.nodes["a"].clock_offset, feed.fleet.nodes["a"].sampled_at) == (0, ARRIVAL + 3 * SECOND)


@pytest.mark.parametrize("at", [5 * SECOND, YEAR_2116])
def test_a_frame_sent_again_whose_time_can_not_be_known_is_a_hole(feed: Feed, at: int) -> None:
    """And is requested no more: it would come with the same time."""
    feed.send("a", 0, 2, session=3)
    feed.publish("a", Topic.BACKFILL, frames.encode_many([frame_at(at, 1, session=3)]))
    assert feed.commit() == 2
    assert feed.stats.refused == {"a": {"clock": 1}}
    assert feed.store.accounted() == {("a", 3): IntervalSet([(0, 2)])}
    assert (feed.stats.frames_lost, feed.ingest.ledger.missing) == (1, 0)


def test_an_xid_of_a_node_whose_clock_is_far_off_pages(feed: Feed) -> None:
    """Such a frame would be history by its own time, and never be evaluated."""
    pipeline = AlertPipeline(load(), lambda *_: None, cluster="default", now=feed.now, wall=feed.wall)
    feed.send("a", 0)
    feed.flush()
    event = Event(id="1-1", node="a", at=70 * SECOND, kind="xid", gpu="GPU-a-1", data={"xid": 79})
    feed.publish("a", Topic.EVENT, messages.encode(event))
    pipeline.evaluate(feed.fleet, feed.now, feed.wall, feed.ingest.drain_events(), listening=True, snapshots=())
    (alert,) = [one for one in pipeline.alerts() if one.rule == "gpu_lost"]
    assert (alert.gpu, alert.severity) == ("GPU-a-1", Severity.PAGE)
    feed.commit()
    (kept,) = feed.store.events(0, YEAR_2116, None, None, 10)
    assert kept.event.at == ARRIVAL


# -- Events in frames ----------------------------------------------------------------------------


def test_a_bad_event_in_a_frame_costs_neither_the_frame_nor_its_other_events(feed: Feed) -> None:
    good = [Event(id=f"1-{n}", node="a", at=ARRIVAL, kind="xid", data={"xid": n}) for n in (48, 79)]
    bodies = [messages.encode(good[0]), b"{", b'{"id":"x","node":"b","at":1,"kind":"xid"}', messages.encode(good[1])]
    feed.publish("a", Topic.FRAME, payload("a", 2, 1, 0, bodies))
    assert feed.commit() == 1
    assert feed.ingest.drain_events() == good
    assert feed.stats.refused == {"a": {"malformed": 1, "foreign": 1}}


# -- Whose it was --------------------------------------------------------------------------------


def test_names_that_are_no_nodes_of_ours_are_one_entry(feed: Feed) -> None:
    for number in range(3000):
        feed.publish(f"invented-{number}", Topic.STATUS, b"{")
        feed.ingest.receive(f"kilowatch/1/else/00/x{number}/frame", b"", feed.now, feed.wall)
    feed.publish("a", Topic.STATUS, b"{")
    assert set(feed.stats.refused) == {OTHERS, "a"}
    assert feed.stats.refused[OTHERS]["foreign"] == 3000


def test_the_nodes_that_are_counted_by_name_are_bounded() -> None:
    stats = Stats()
    refusals = Refusals(stats)
    for number in range(MOST_NODES + 50):
        refusals.add(f"n{number}", "malformed", "x", float(number))
        refusals.add("n3", "oversize", "x", float(number))
    assert len(stats.refused) == MOST_NODES + 1
    assert stats.refused[OTHERS] == {"malformed": 50}
    assert stats.refused["n3"] == {"malformed": 1, "oversize": MOST_NODES + 50}


def test_refusals_that_go_on_are_reported_until_none_comes_any_more() -> None:
    refusals, impairments = Refusals(Stats()), Impairments()
    for second in range(OFTEN - 1):
        refusals.add("a", "malformed", "malformed: gpus[0].index", float(second))
        refusals.report(impairments, float(second))
    assert impairments.current() == []
    refusals.add("a", "oversize", "oversize: 5 bytes", 59.0)
    refusals.add(None, "foreign", "foreign: x", 59.0)
    refusals.report(impairments, 59.0)
    (one,) = impairments.current()
    assert (one.rule, one.part, one.whole) == ("messages_refused", "bus/a", False)
    assert one.facts == {"node": "a"}
    assert one.reason == "malformed: gpus[0].index; oversize: 5 bytes"
    refusals.report(impairments, 59.0 + QUIET)
    assert impairments.current() != []
    refusals.report(impairments, 60.0 + QUIET)
    assert impairments.current() == []


def test_three_refusals_in_more_than_a_minute_are_no_report() -> None:
    refusals, impairments = Refusals(Stats()), Impairments()
    for second in (0.0, 40.0, 80.0, 120.0):
        refusals.add("a", "malformed", "x", second)
        refusals.report(impairments, second)
    assert impairments.current() == []


@pytest.mark.parametrize(
    ("node", "rule", "severity"),
    [("a", "messages_refused", Severity.PAGE), ("stranger", "strangers_refused", Severity.TICKET)],
)
def test_refusals_that_go_on_are_an_alert_at_once(feed: Feed, node: str, rule: str, severity: Severity) -> None:
    impairments = Impairments()
    pipeline = AlertPipeline(
        load(), lambda *_: None, cluster="default", now=feed.now, wall=feed.wall, impairments=impairments
    )
    for _ in range(3):
        feed.publish(node, Topic.EVENT, b"\x1b[2J")
    feed.ingest.refusals.report(impairments, feed.now)
    fired = pipeline.evaluate(Fleet(), feed.now, feed.wall, [], listening=True, snapshots=())
    (alert,) = [one for one in fired if one.rule == rule]
    assert (alert.state, alert.severity) == (AlertState.FIRING, severity)
    assert "malformed" in alert.summary
    assert node == "stranger" or alert.node == "a"
    assert alert.summary.isprintable()


def test_samples_and_their_descriptions_hold_no_terminal_escapes(feed: Feed) -> None:
    feed.ingest.receive("kilowatch/1/default/aa/\x1b[2J/frame", b"", feed.now, feed.wall)
    feed.publish("a", Topic.STATUS, b'{"state": "\\u001b[2J", "session": 1}')
    for path in (feed.config.data_dir / "quarantine").glob("*.json"):
        for text in json.loads(path.read_bytes()).values():
            assert str(text).isprintable()


# -- All at once ---------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.timeout(size(300, 3600))
def test_spoiled_messages_of_every_kind_cost_an_honest_node_nothing(tmp_path: Path) -> None:
    """Thousands of messages with flipped bytes, in every kind, through a restart; the honest node's
    values are right to the bit, and the store opens again."""
    dice, count = random.Random(seed(14)), size(2000, 100_000)
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    feed.hello("b")
    link = msgspec.structs.replace(inventory("b", 2), links=(Link(gpu="GPU-b-0", number=1),))
    whole = {
        Topic.FRAME: payload("b", 2, 1, 5),
        Topic.BACKFILL: frames.encode_many([payload("b", 2, 1, 6), payload("b", 2, 1, 7)]),
        Topic.INVENTORY: messages.encode(link),
        Topic.STATUS: b'{"state":"online","session":1,"ring":[[1,0,9],[2,0,3]],"interval":1.0}',
        Topic.EVENT: b'{"id":"1-1","node":"b","at":1763700300000000000,"kind":"xid","data":{"xid":79}}',
        Topic.REPLY: b'{"about":1,"first":0,"last":9,"sent":3,"gone":[[1,2,4]]}',
    }
    digits = [b"2147483648", b"-1", b"4611686018427387904", b"9" * 25, b"1e308", b"null", b'"\\u0000"']
    for number in range(count):
        kind = dice.choice(list(whole))
        body = bytearray(whole[kind])
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(body))
            if dice.random() < 0.5:
                body[at] = dice.randrange(256)
            else:
                body[at : at + dice.randrange(3)] = dice.choice(digits)
        feed.publish("b", kind, bytes(body))
        if number % 40 == 0:
            feed.send("a", number // 40)
            feed.commit()
        if number == count // 2:
            feed.reopen()
            feed.hello("a")
        feed.now += 0.01
    assert stored(feed, "GPU-a-1") == [value("a", 1, 0, seq) for seq in range(count // 40)]
    assert "error" not in feed.stats.dropped
    assert feed.ingest.ledger.find("a", 1).missing == 0  # type: ignore[union-attr]
    feed.reopen()
    assert feed.store.events(0, YEAR_2116, "a", None, 10) == []
    assert feed.store.accounted()["a", 1] == IntervalSet([(0, count // 40 - 1)])


def test_what_a_gpu_is_called_holds_no_control_character_anywhere(feed: Feed) -> None:
    """As platform data over NVML comes: binary."""
    gpu = Gpu(uuid="GPU-b-0", index=0, name="NVIDIA\0 GB300\0\0", slot="\x01\x02", serial="16\x1b[0m")
    feed.inventory(Inventory(node="b", gpus=(gpu,), host={"product": "GB300\0"}))
    feed.send("b", 0, gpus=1)
    feed.commit()
    feed.reopen()
    (found,) = [each for each in feed.store.inventories() if each.node == "b"]
    assert (found.gpus[0].name, found.gpus[0].slot) == ("NVIDIA GB300", None)
    assert (found.gpus[0].serial, found.host) == ("16[0m", {"product": "GB300"})


def test_the_border_knows_our_own_topics_only(feed: Feed) -> None:
    feed.ingest.receive(topic("default", "a", Topic.STATUS) + "/x", b"{}", feed.now, feed.wall)
    assert feed.stats.refused == {OTHERS: {"foreign": 1}}
    assert border.MOST_TEXT < 10_000
    assert sampled_at(0) < ARRIVAL


def test_a_node_whose_reason_has_a_quotation_mark_is_offline(feed: Feed) -> None:
    feed.send("a", 0)
    will = CollectorStatus(state=NodeState.OFFLINE, session=1, reason='"lost"')
    feed.publish("a", Topic.STATUS, messages.encode(will))
    assert not feed.fleet.nodes["a"].online


# -- Whose a GPU is ------------------------------------------------------------------------------


def test_a_gpu_of_another_node_can_not_be_claimed(feed: Feed) -> None:
    """Nor while that reboots, nor after a restart of ours: its history stays its own."""
    feed.send("a", 0)
    feed.commit()
    thief = msgspec.structs.replace(inventory("a", 2), node="b")
    feed.inventory(thief)
    will = CollectorStatus(state=NodeState.OFFLINE, session=1, reason="lost")
    feed.publish("a", Topic.STATUS, messages.encode(will))
    feed.now += 300
    feed.inventory(thief)
    feed.reopen()
    feed.inventory(thief)
    feed.publish("b", Topic.FRAME, payload("b", 2, 1, 7))
    feed.commit()
    assert "b" not in feed.fleet.nodes
    assert stored(feed, "GPU-a-0") == [value("a", 0, 0, 0)]
    feed.hello("a")
    assert feed.fleet.gpus[feed.fleet.by_uuid["GPU-a-0"]] == ("a", inventory("a", 2).gpus[0])


def test_a_machine_that_has_another_name_now_keeps_its_gpus_after_our_restart(feed: Feed) -> None:
    old = msgspec.structs.replace(inventory("a", 2), host={"machine": "m1"})
    new = msgspec.structs.replace(old, node="b", session=2)
    feed.inventory(old)
    feed.send("a", 0, 1, 2)
    feed.commit()
    feed.inventory(new)
    assert feed.stats.refused == {OTHERS: {"foreign": 1}}, "its collector still sends under the old name"
    feed.reopen()
    feed.inventory(new)
    assert feed.stats.refused == {OTHERS: {"foreign": 1}}, "it may still send"
    feed.now += RENAMED_SECONDS + 1
    feed.inventory(msgspec.structs.replace(new, host={"machine": "m2"}))
    assert feed.stats.refused == {OTHERS: {"foreign": 2}}, "another machine"
    feed.inventory(new)
    feed.send("b", 0, session=2)
    assert feed.commit() == 1
    assert feed.ingest.renamed == [("a", "b")]
    whole = [*(value("a", 0, 0, seq) for seq in range(3)), value("b", 0, 0, 0)]
    assert sorted(filter(None, stored(feed, "GPU-a-0"))) == sorted(whole)
    feed.resend("b", 0, 1, 2)
    assert feed.commit() == 0, "its ring has what was stored under the old name"


@pytest.mark.parametrize("late", [False, True])
def test_a_machine_is_not_taken_over_from_a_name_under_which_it_runs(feed: Feed, late: bool) -> None:
    """Two collectors on one machine: neither a long interval nor a broker that comes back late is a new name."""
    old = msgspec.structs.replace(inventory("a", 2), host={"machine": "m1"})
    new = msgspec.structs.replace(old, node="b", session=2)
    feed.inventory(old)
    feed.send("a", 0)
    feed.commit()
    feed.reopen()
    feed.now += 60 * late
    if not late:
        status = CollectorStatus(state=NodeState.ONLINE, session=1, interval=10.0)
        feed.publish("a", Topic.STATUS, messages.encode(status))
    feed.inventory(new)
    feed.now += RENAMED_SECONDS - 1 if late else HELD_SECONDS - 1
    feed.inventory(new)
    assert feed.ingest.renamed == []
    assert "b" not in feed.fleet.nodes


@pytest.mark.parametrize("order", ["ghost first", "ghost last", "ghost gone"])
def test_a_name_without_a_frame_holds_no_gpu(feed: Feed, order: str) -> None:
    """The broker retains an inventory of a node's old host name; the aggregator is new."""
    live, ghost = inventory("n", 2), msgspec.structs.replace(inventory("n", 2), node="ghost")
    for each in (ghost, live) if order == "ghost first" else (live, ghost):
        feed.inventory(each)
    if order == "ghost gone":
        feed.ingest.remove("ghost")
    feed.send("n", 0)
    assert feed.commit() == 1
    assert feed.stats.dropped == {}
    assert feed.fleet.gpus[feed.fleet.by_uuid["GPU-n-0"]] == ("n", live.gpus[0])


@pytest.mark.parametrize("how", ["shutdown", "gone", "removed", "silent"])
def test_a_board_that_has_moved_is_its_new_nodes(feed: Feed, how: str) -> None:
    feed.send("a", 0)
    feed.commit()
    moved = msgspec.structs.replace(inventory("a", 2), node="b")
    match how:
        case "shutdown":
            end = CollectorStatus(state=NodeState.OFFLINE, session=1, reason="shutdown")
            feed.publish("a", Topic.STATUS, messages.encode(end))
        case "gone":
            gone = tuple(msgspec.structs.replace(gpu, present=False) for gpu in moved.gpus)
            feed.inventory(msgspec.structs.replace(inventory("a", 2, version=1), gpus=gone))
        case "removed":
            feed.inventory(inventory("a", 0, version=1))
        case _:
            feed.now += HELD_SECONDS + 1
    feed.inventory(moved)
    feed.publish("b", Topic.FRAME, payload("b", 2, 1, 7))
    assert feed.commit() == 1
    assert feed.fleet.gpus[feed.fleet.by_uuid["GPU-a-0"]][0] == "b"  # type: ignore[index]
    feed.inventory(inventory("a", 2, version=2))  # both list it: the old one is not refused
    assert "a" not in feed.stats.refused
    feed.fleet.remove("a")
    assert "b" in feed.fleet.nodes
