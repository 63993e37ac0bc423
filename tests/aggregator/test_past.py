"""The fleet's past: whatever became of the readings since, each instant shows what was new then."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from aggregator.config import StoreConfig
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.protocol import FleetPast, PastInstants
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.feed import ARRIVAL, HOUR, Feed
from tests.aggregator.node import GAP_COLUMN, expected, sampled_at

SECOND = 10**9
NAMES = SCHEMA.blocks[GPU_FAST].names
REACH = {Lane.FAST: 3 * SECOND, Lane.SLOW: 45 * SECOND}
FRAMES = 90


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A store with 90 s of node a, of which 20 to 29 are missing, and of node b from 40 on."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    feed.send("a", *range(20), *range(30, FRAMES))
    feed.commit()
    feed.wall += 40 * SECOND
    feed.hello("b")
    feed.send("b", *range(40, FRAMES))
    feed.commit()
    return feed


def look(store: EmbeddedStore, seqs: range, columns: tuple[str, ...] = NAMES, node: str | None = None) -> FleetPast:
    """The fleet at the time of some frames."""
    when = PastInstants(sampled_at(seqs.start), seqs.step * SECOND, len(seqs))
    return store.past(Table.GPU, columns, when, REACH, None if node is None else [node])


def shown(past: FleetPast, key: str, metric: str) -> list[float | None]:
    """One metric of one device at each instant."""
    column = [device.key for device in past.devices].index(key)
    return [None if np.isnan(x) else float(x) for x in past.columns[metric][:, column]]


def test_each_instant_has_the_newest_reading_of_every_column(feed: Feed) -> None:
    """Bit for bit, gauges and counters; a gap in the newest frame is not filled from an older one."""
    past = look(feed.store, range(5, 18))
    for row in range(2):
        table = expected("a", row, range(5, 18))
        for column, name in enumerate(NAMES):
            wanted = [None if np.isnan(number) else number for number in table[:, column]]
            assert shown(past, f"GPU-a-{row}", name) == wanted, name
    assert set(shown(past, "GPU-a-0", NAMES[GAP_COLUMN])) == {None}
    assert past.columns["gpu_power_watts"].dtype == np.float32
    assert [device.node for device in past.devices] == ["a", "a"]


@pytest.mark.parametrize("sealed", [False, True], ids=["hot", "sealed"])
@pytest.mark.parametrize("step", [1, 2, 5, 7])
def test_what_is_too_old_is_absent_and_comes_back(feed: Feed, step: int, sealed: bool) -> None:
    """Three intervals after the last reading it is no longer shown, whatever the step."""
    if sealed:
        feed.wall += HOUR
        feed.seal()
    seqs = range(15, 40, step)
    got = shown(look(feed.store, seqs), "GPU-a-1", "gpu_power_watts")
    at = NAMES.index("gpu_power_watts")
    wanted = [
        expected("a", 1, [seq if seq < 20 or seq >= 30 else 19])[0, at] if seq < 22 or seq >= 30 else None
        for seq in seqs
    ]
    assert got == wanted


def test_a_reading_of_the_future_is_never_shown(feed: Feed) -> None:
    """A nanosecond before a frame, the frame before is the newest."""
    when = PastInstants(sampled_at(50) - 1, SECOND, 1)
    past = feed.store.past(Table.GPU, ("gpu_power_watts",), when, REACH, None)
    at = NAMES.index("gpu_power_watts")
    assert shown(past, "GPU-a-0", "gpu_power_watts") == [expected("a", 0, [49])[0, at]]
    assert set(past.seen[Lane.FAST][0].tolist()) == {sampled_at(49)}


def test_a_node_that_joined_later_is_named_so(feed: Feed) -> None:
    """It has no readings then; after a restart that is known still."""
    for _ in range(2):
        when = PastInstants(ARRIVAL + 1, SECOND, 1)
        past = feed.store.past(Table.GPU, ("gpu_power_watts",), when, REACH, None)
        assert past.later == {("b", "GPU-b-0"), ("b", "GPU-b-1")}
        assert feed.store.later(Table.NODE, ARRIVAL) == {("b", "b")}
        assert feed.store.later(Table.GPU, feed.wall) == set()
        feed.reopen()


def test_some_nodes_alone(feed: Feed) -> None:
    """An unknown node has no readings."""
    for _ in range(2):
        past = look(feed.store, range(50, 53), node="b")
        assert {device.node for device in past.devices} == {"b"}
        assert look(feed.store, range(50, 53), node="c").devices == []
        feed.wall += HOUR
        feed.seal()


def test_the_past_is_the_same_before_during_and_after_sealing(feed: Feed) -> None:
    """Whatever of it is hot, sealed, or both."""
    before = look(feed.store, range(60))
    feed.wall += HOUR
    while feed.store.maintain(feed.wall):
        feed.store.seal()
        after = look(feed.store, range(60))
        for name in NAMES:
            np.testing.assert_array_equal(before.columns[name], after.columns[name])
        np.testing.assert_array_equal(before.seen[Lane.FAST], after.seen[Lane.FAST])
    assert feed.store.size()["sealed"] > 0
    feed.reopen()
    np.testing.assert_array_equal(
        before.columns["gpu_power_watts"], look(feed.store, range(60)).columns["gpu_power_watts"]
    )


def test_half_in_a_sealed_hour_and_half_in_a_hot_one(feed: Feed) -> None:
    """Frames of one answer come from both."""
    feed.wall += HOUR
    feed.seal()
    feed.resend("a", *range(FRAMES, FRAMES + 10))
    feed.commit()
    seqs = range(FRAMES - 5, FRAMES + 5)
    at = NAMES.index("gpu_power_watts")
    wanted = expected("a", 0, seqs)[:, at].tolist()
    assert shown(look(feed.store, seqs), "GPU-a-0", "gpu_power_watts") == wanted


def test_steps_of_a_roll_up_are_answered_from_it(tmp_path: Path) -> None:
    """When the readings themselves are gone: gauges by their mean, counters by their last."""
    feed = Feed(tmp_path, StoreConfig(raw_age_seconds=2 * HOUR / SECOND))
    feed.hello("a")
    feed.send("a", *range(FRAMES))
    feed.commit()
    for _ in range(4):
        feed.wall += HOUR
        feed.seal()
    assert feed.store.size()["sealed"] == 0
    first = -(-sampled_at(0) // (10 * SECOND)) * 10 * SECOND
    when = PastInstants(first + 10 * SECOND, 10 * SECOND, 5)
    begin = (first - sampled_at(0)) // SECOND
    for moments in (when, PastInstants(when.first, SECOND, 1)):
        past = feed.store.past(Table.GPU, ("gpu_power_watts", "gpu_energy_joules_total"), moments, REACH, None)
        assert past.slack[Lane.FAST] == 10 * SECOND
        for number in range(moments.count):
            seqs = range(begin + 10 * number, begin + 10 * number + 10)
            table = expected("a", 0, seqs)
            power, joules = (NAMES.index(name) for name in ("gpu_power_watts", "gpu_energy_joules_total"))
            got = shown(past, "GPU-a-0", "gpu_power_watts")[number]
            assert got == pytest.approx(table[:, power].mean(), rel=1e-6)
            assert shown(past, "GPU-a-0", "gpu_energy_joules_total")[number] == table[-1, joules]


def test_the_slow_lane_holds_on_longer(feed: Feed) -> None:
    """What is read every 15 s is no gap between."""
    past = look(feed.store, range(80, 85), ("gpu_power_watts", "gpu_power_limit_watts"))
    assert past.columns["gpu_power_limit_watts"].shape == past.columns["gpu_power_watts"].shape
    assert not past.seen[Lane.SLOW].any()  # these nodes send no slow block
    assert np.isnan(past.columns["gpu_power_limit_watts"]).all()


def test_a_metric_of_another_table_is_refused(feed: Feed) -> None:
    with pytest.raises(StoreError, match="node_load_1m"):
        look(feed.store, range(3), ("node_load_1m",))


def test_commits_seals_and_questions_go_on_side_by_side(tmp_path: Path) -> None:
    """Commits do not wait for queries, and no query fails because of a seal."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    feed.send("a", *range(FRAMES))
    feed.commit()
    at = NAMES.index("gpu_power_watts")
    wanted = expected("a", 0, range(60))[:, at].tolist()
    over, faults, answers = threading.Event(), list[object](), 0

    def ask() -> None:
        nonlocal answers
        while not over.is_set():
            try:
                got = shown(look(feed.store, range(60)), "GPU-a-0", "gpu_power_watts")
                if got != wanted:
                    faults.append(got)
            except StoreError as error:
                faults.append(error)
            answers += 1

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    seq = FRAMES
    while answers < 40 and not faults:
        feed.send("a", *range(seq, seq + 5))
        seq += 5
        feed.wall += HOUR // 4
        assert feed.commit() == 5
        feed.store.tidy()
        feed.seal()
    over.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert feed.store.size()["sealed"] > 0


def test_closing_breaks_off_a_question(feed: Feed) -> None:
    """It ends, by an answer or by a fault of the store, and the store can be opened again."""
    outcome = list[object]()

    def ask() -> None:
        try:
            while True:
                look(feed.store, range(60))
        except StoreError as error:
            outcome.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    feed.reopen()
    # The feed has a new store now; the old one is closed for good.
    thread.join(1)
    while thread.is_alive():
        feed.reopen()
        thread.join(1)
    assert len(outcome) == 1
    assert shown(look(feed.store, range(5)), "GPU-a-0", "gpu_power_watts")[0] is not None


def test_a_question_that_nobody_waits_for_any_more_is_broken_off(feed: Feed) -> None:
    """Its thread is free for the next one; the store goes on."""
    with pytest.raises(StoreError, match=r"more than 0\.05 s\. Request less"), feed.store._engine.reader(0.05) as eye:
        eye.rows("select count(*) from range(1000000000) as a, range(1000000000) as b")
    assert len(look(feed.store, range(5)).devices) == 2
    feed.send("a", FRAMES)
    assert feed.commit() == 1


def test_history_is_the_same_while_hours_are_sealed_beside_it(feed: Feed) -> None:
    """It is asked beside commits, in a thread of its own."""
    wanted = feed.store.history("GPU-a-0", "gpu_power_watts", 0, 1 << 61, 0)
    assert len(wanted.at) == FRAMES - 10
    over, faults = threading.Event(), list[object]()

    def ask() -> None:
        while not over.is_set():
            try:
                found = feed.store.history("GPU-a-0", "gpu_power_watts", 0, 1 << 61, 0)
                if found.mean[: len(wanted.mean)] != wanted.mean:
                    faults.append(found)
            except StoreError as error:
                faults.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for begin in range(FRAMES, FRAMES + 20, 5):
        feed.send("a", *range(begin, begin + 5))
        feed.wall += HOUR
        feed.commit()
        feed.seal()
    over.set()
    thread.join()
    assert faults == []
    assert feed.store.size()["sealed"] > 0
