"""Frames that are shed: they are shown, stored as provisional means, requested again and replaced."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from aggregator.config import BackfillConfig
from aggregator.load.controller import ShedStep
from aggregator.store.content_faults import ContentFaults
from aggregator.store.protocol import Batch, CollectorRun, ContentError
from aggregator.store.provisional import PREFIX
from telemetry.wire import frame as frames
from telemetry.wire.inventory import CommandKind, FrameSpan
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.feed import Feed
from tests.aggregator.node import GAP_COLUMN, START, expected, gpu_rows, payload, sampled_at, value

GAUGES = SCHEMA.blocks[GPU_FAST].gauges
COUNTERS = SCHEMA.blocks[GPU_FAST].counters
FAST = SCHEMA.blocks[GPU_FAST].name


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A store with one node of two GPUs that said hello."""
    feed = Feed(tmp_path / "data", backfill=BackfillConfig(grace_seconds=0.0))
    feed.hello("a", ring=(FrameSpan(1, 0, 0),))
    return feed


def sent(feed: Feed, first: int, last: int) -> None:
    """Send frames one by one, a flush after each and a commit at the end, a second apart."""
    for seq in range(first, last + 1):
        feed.now += 1.0
        feed.wall += 10**9
        feed.send("a", seq)
        feed.flush()
    feed.commit()


def idle(feed: Feed, seconds: int) -> None:
    """Pass time without frames."""
    feed.now += seconds
    feed.wall += seconds * 10**9
    feed.commit()


def refill(feed: Feed) -> list[tuple[int, int]]:
    """Answer all requests for frames as the node's ring does; return what was requested."""
    asked = []
    for _ in range(100):
        feed.now += 1.0
        feed.wall += 10**9
        commands = [
            each.command for each in feed.ingest.drain_commands(feed.now) if each.command.kind is CommandKind.RESEND
        ]
        if not commands:
            break
        for command in commands:
            asked.append((command.first, command.last))
            old = [payload("a", 2, 1, seq) for seq in range(command.first, command.last + 1)]
            feed.publish("a", Topic.BACKFILL, frames.encode_many(old))
            feed.gone("a", 0, -1)
            feed.now += 60.0
        feed.commit()
    return asked


def provisional(feed: Feed, block: str = FAST) -> list[tuple[int, int, int]]:
    """Return first and last number and count of frames of each provisional row of the first GPU."""
    engine = feed.store._engine
    return [
        (first, last, count)
        for first, last, count in engine.rows(
            f"select seq, last_seq, frames from {PREFIX}{block} "
            f"where device = (select min(device) from {PREFIX}{block}) order by seq"
        )
    ]


def raw(feed: Feed, metric: str) -> list[float | None]:
    return feed.store.history("GPU-a-0", metric, 0, 1 << 62, 0).mean


def assert_complete(feed: Feed, count: int) -> None:
    """Every frame is stored once, bit for bit, and nothing provisional is left."""
    for row in range(2):
        table = expected("a", row, range(count))
        for column, name in enumerate(SCHEMA.blocks[GPU_FAST].names):
            found = feed.store.history(f"GPU-a-{row}", name, 0, 1 << 62, 0).mean
            wanted = [None if np.isnan(number) else number for number in table[:, column]]
            assert found == wanted, name
    assert [provisional(feed, block.name) for block in SCHEMA.blocks] == [[]] * len(SCHEMA.blocks)
    assert feed.ingest.ledger.missing == 0


def test_a_shed_frame_is_shown_and_missing_and_its_mean_is_stored(feed: Feed) -> None:
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 24)
    idle(feed, 11)
    assert feed.stats.frames_stored == 0
    assert feed.shedding.frames == 25
    assert feed.ingest.ledger.missing == 25
    row = feed.fleet.by_uuid["GPU-a-0"]
    assert feed.fleet.reading(GAUGES[0], row, feed.now - 11) == value("a", 0, 0, 24)
    spans = provisional(feed)
    assert sum(count for _, _, count in spans) == 25
    assert spans[0][0] == 0
    assert [first for first, _, _ in spans[1:]] == [last + 1 for _, last, _ in spans[:-1]]
    assert all(last - first < 10 for first, last, _ in spans)
    table = expected("a", 0, range(25))
    wanted = [float(np.float32(table[first : last + 1, 0].mean())) for first, last, _ in spans]
    assert raw(feed, GAUGES[0]) == pytest.approx(wanted, rel=1e-6)
    assert raw(feed, GAUGES[GAP_COLUMN]) == [None] * len(spans), "no reading, no zero"
    last_readings = [table[last, len(GAUGES)] for _, last, _ in spans]
    assert raw(feed, COUNTERS[0]) == last_readings
    assert provisional(feed, SCHEMA.blocks[NODE_FAST].name), "the node's own readings too"


def test_a_node_that_is_set_aside_costs_no_other_its_means(feed: Feed) -> None:
    """The names of b could not be stored, so that nothing of b is; the means of a are."""
    faults = ContentFaults(lambda: 0.0)
    faults.run_of = feed.ingest._registry.run_of
    feed.hello("b")
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 24)
    feed.send("b", *range(25))
    feed.commit()
    feed.wall += 11 * 10**9
    feed.flush()
    batch = feed.ingest.drain_batch(feed.wall)
    runs = {run for rows in batch.means for run in rows.run.tolist()}
    assert {one.node for run in runs if (one := faults.run_of(run))} == {"a", "b"}
    faults._keep_names("b", Batch(runs=[CollectorRun(9, "b", 1)]))
    faults.aside.fail("b", ContentError("a name that no column holds"), 0.0)
    rest = faults.before(batch)
    assert {one.node for rows in rest.means for run in rows.run.tolist() if (one := faults.run_of(run))} == {"a"}


def test_while_history_is_shed_nothing_is_requested(feed: Feed) -> None:
    feed.shedding.step, feed.shedding.refill = ShedStep.HALF_HISTORY, 0.0
    feed.send("a", 5)
    feed.commit()
    assert feed.ingest.drain_commands(feed.now + 10) == []
    feed.shedding.step, feed.shedding.refill = ShedStep.NOTHING, 1 / 16
    (command,) = feed.ingest.drain_commands(feed.now + 20)
    assert (command.command.first, command.node) == (0, "a")


def test_after_the_overload_all_shed_frames_come_back_bit_for_bit(feed: Feed) -> None:
    sent(feed, 0, 4)
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 5, 37)
    feed.shedding.step = ShedStep.NOTHING
    sent(feed, 38, 44)
    idle(feed, 11)
    assert feed.stats.frames_stored == 12
    assert provisional(feed)
    asked = refill(feed)
    assert asked[0][0] == 5
    assert max(last for _, last in asked) == 37
    assert_complete(feed, 45)


def test_a_mean_stays_until_the_last_of_its_frames_is_there(feed: Feed) -> None:
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 24)
    idle(feed, 11)
    feed.shedding.step = ShedStep.NOTHING
    (first, last, _), *rest = provisional(feed)
    assert last > first
    old = [payload("a", 2, 1, seq) for seq in range(first, last)]
    feed.publish("a", Topic.BACKFILL, frames.encode_many(old))
    feed.commit()
    assert len(provisional(feed)) == len(rest) + 1
    feed.publish("a", Topic.BACKFILL, frames.encode_many([payload("a", 2, 1, last)]))
    feed.commit()
    assert provisional(feed) == rest


def test_files_and_refills_are_kept_account_of_after_means_were_replaced(feed: Feed) -> None:
    """The spans of replaced means once hid the table of refilled files: retention failed every minute."""
    sent(feed, 0, 4)
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 5, 37)
    feed.shedding.step = ShedStep.NOTHING
    idle(feed, 11)
    refill(feed)
    feed.store.maintain(feed.wall + 8 * 86_400 * 10**9)
    feed.reopen()
    assert_complete(feed, 38)


def test_a_mean_that_comes_after_its_frames_is_not_stored(feed: Feed) -> None:
    """A ring can be faster than the ten seconds of a mean."""
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 6)
    feed.shedding.step = ShedStep.NOTHING
    old = [payload("a", 2, 1, seq) for seq in range(4)]
    feed.publish("a", Topic.BACKFILL, frames.encode_many(old))
    feed.commit()
    old = [payload("a", 2, 1, seq) for seq in range(4, 7)]
    feed.publish("a", Topic.BACKFILL, frames.encode_many(old))
    idle(feed, 11)
    assert_complete(feed, 7)


def test_what_the_ring_has_lost_stays_as_a_mean(feed: Feed) -> None:
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 24)
    idle(feed, 11)
    feed.shedding.step = ShedStep.NOTHING
    before = provisional(feed)
    first, _, _ = before[0]
    feed.gone("a", first, first)
    feed.commit()
    feed.publish("a", Topic.BACKFILL, frames.encode_many([payload("a", 2, 1, seq) for seq in range(first + 1, 25)]))
    feed.commit()
    assert provisional(feed) == before[:1]
    feed.reopen()
    idle(feed, 1)
    assert provisional(feed) == before[:1]
    assert feed.store.accounted()["a", 1].missing(0, 24) == []


def test_a_kill_between_shedding_and_refill_loses_nothing(feed: Feed) -> None:
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 22)
    idle(feed, 11)
    before = provisional(feed)
    feed.reopen()
    assert provisional(feed) == before
    feed.hello("a", ring=(FrameSpan(1, 0, 22),))
    refill(feed)
    assert_complete(feed, 23)


def test_coalesced_frames_are_not_decoded_and_come_back(feed: Feed) -> None:
    """Of several frames of a node in one flush only the newest is decoded; a broken one before it
    does no harm, for it is not even looked at."""
    sent(feed, 0, 0)
    feed.shedding.step = ShedStep.FRAMES
    feed.send("a", 1, 2)
    feed.publish("a", Topic.FRAME, b"\xc1" + payload("a", 2, 1, 3)[1:])
    feed.send("a", 3)
    feed.flush()
    row = feed.fleet.by_uuid["GPU-a-0"]
    assert feed.fleet.reading(GAUGES[0], row, feed.now) == value("a", 0, 0, 3)
    assert feed.stats.dropped == {}
    assert (feed.shedding.frames, feed.shedding.frames_skipped) == (1, 3)
    assert feed.stats.frames_received == 5
    assert feed.ingest.ledger.missing == 3
    feed.shedding.step = ShedStep.NOTHING
    idle(feed, 11)
    refill(feed)
    assert_complete(feed, 4)


def test_a_coalesced_frame_with_the_slow_lane_is_shown(feed: Feed) -> None:
    """Of one update in 15 s the rules on its readings live; and a broken one costs only itself."""
    feed.shedding.step = ShedStep.FRAMES
    limit = SCHEMA.blocks[GPU_SLOW].gauges[0]
    slow = {GPU_FAST: gpu_rows("a", 2, 1), GPU_SLOW: [[7.0] * len(SCHEMA.blocks[GPU_SLOW].names)] * 2}
    feed.publish("a", Topic.FRAME, frames.encode(frames.build(1, 1, sampled_at(1), slow)))
    feed.send("a", 2)
    feed.publish("a", Topic.FRAME, b"\xc1 broken" * 1000)
    feed.send("a", 3)
    feed.flush()
    row = feed.fleet.by_uuid["GPU-a-0"]
    assert feed.fleet.reading(limit, row, feed.now) == 7.0
    assert feed.fleet.reading(GAUGES[0], row, feed.now) == value("a", 0, 0, 3)
    assert feed.shedding.frames_skipped == 1
    assert feed.stats.dropped == {"malformed": 1}


def test_half_of_the_nodes_keep_every_frame(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data")
    names = [f"n{number}" for number in range(20)]
    for name in names:
        feed.hello(name)
    feed.shedding.step = ShedStep.HALF_HISTORY
    for name in names:
        feed.send(name, *range(10))
    feed.commit()
    missing = [feed.ingest.nodes[name].accounts[1].missing for name in names]
    assert set(missing) == {0, 10}
    assert feed.stats.frames_stored == 10 * missing.count(0)


def test_a_frame_that_was_shed_is_not_shown_over_a_newer_one(feed: Feed) -> None:
    """Shedding ends between two frames of one flush."""
    feed.shedding.step = ShedStep.HISTORY
    feed.send("a", 0)
    feed.shedding.step = ShedStep.NOTHING
    feed.send("a", 1)
    feed.flush()
    row = feed.fleet.by_uuid["GPU-a-0"]
    assert feed.fleet.reading(GAUGES[0], row, feed.now) == value("a", 0, 0, 1)
    assert feed.fleet.nodes["a"].seq == 1


def test_a_large_flush_is_done_in_parts_and_loses_nothing(feed: Feed) -> None:
    feed.send("a", *range(25))
    assert feed.ingest.waiting == 25
    for left in (15, 5, 0):
        feed.ingest.flush(feed.now, feed.wall, 10)
        assert feed.ingest.waiting == left
    feed.commit()
    assert_complete(feed, 25)


def test_the_past_shows_a_mean_for_as_long_as_it_stands_for(feed: Feed) -> None:
    from aggregator.store.protocol import PastInstants
    from telemetry.metric import Lane, Table

    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 24)
    idle(feed, 11)
    when = PastInstants(sampled_at(3), 2 * 10**9, 8)
    reach = {Lane.FAST: 3 * 10**9, Lane.SLOW: 45 * 10**9}
    past = feed.store.past(Table.GPU, (GAUGES[0],), when, reach, None)
    found = past.columns[GAUGES[0]][:, 0]
    last = provisional(feed)[0][1]
    for instant, number in zip(when.all().tolist(), found.tolist(), strict=True):
        assert np.isnan(number) == (instant < sampled_at(last)), (instant - START) // 10**9


def test_history_says_where_means_stand_for_readings(feed: Feed) -> None:
    """And weighs a mean by the readings that it is made of."""
    sent(feed, 0, 4)
    assert feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0).provisional == []
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 5, 27)
    idle(feed, 11)
    hour = START - START % (3600 * 10**9)
    series = feed.store.history("GPU-a-0", GAUGES[0], hour, hour + 7200 * 10**9, 7200.0)
    ((begin, end),) = series.provisional
    assert begin <= sampled_at(5)
    assert end == sampled_at(27)
    assert series.mean == pytest.approx([expected("a", 0, range(28))[:, 0].mean()], rel=1e-6)
    feed.shedding.step = ShedStep.NOTHING
    refill(feed)
    assert feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0).provisional == []


def test_means_are_removed_when_they_are_too_old_or_too_many(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 49)
    idle(feed, 11)
    spans = len(provisional(feed))
    assert spans >= 5
    monkeypatch.setattr("aggregator.store.provisional.MOST_ROWS", 2 * (spans - 2))
    feed.store.maintain(feed.wall)
    assert 0 < len(provisional(feed)) < spans
    slim = SCHEMA.blocks[NODE_FAST].name
    assert len(provisional(feed, slim)) == spans, "a block without too many rows loses none"
    feed.store.maintain(feed.wall + 8 * 86_400 * 10**9)
    assert provisional(feed) == []
    assert feed.ingest.ledger.missing == 50, "they are still requested again"


def test_the_provisional_mark_is_in_the_store_itself(feed: Feed) -> None:
    """Anybody who reads the file finds means apart from readings."""
    feed.shedding.step = ShedStep.HISTORY
    sent(feed, 0, 24)
    idle(feed, 11)
    feed.store.close()
    with duckdb.connect(str(feed.config.data_dir / "hot.duckdb"), read_only=True) as database:
        ((rows,),) = database.execute(f"select count(*) from {PREFIX}{FAST}").fetchall()
        tables = database.execute("select table_name from duckdb_tables()").fetchall()
        counts = [
            database.execute(f"select count(*) from {name}").fetchall()[0][0]
            for (name,) in tables
            if name.startswith(f"{FAST}_")
        ]
    assert rows > 0
    assert sum(counts) == 0
