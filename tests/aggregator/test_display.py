"""The slow lane of a late frame shows until a newer reading arrives, with its own age."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.fleet import gaps_of
from telemetry.gap import Gap
from telemetry.wire import frame as frames
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.feed import Feed
from tests.aggregator.node import gpu_rows, sampled_at

LIMIT = "gpu_power_limit_watts"


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """One node of two GPUs that said hello."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    return feed


def slow_frame(seq: int, limit: float) -> bytes:
    """A frame that carries both lanes."""
    width = len(SCHEMA.blocks[GPU_SLOW].names)
    rows = {GPU_FAST: gpu_rows("a", 2, seq), GPU_SLOW: [[limit] * width] * 2}
    return frames.encode(frames.build(1, seq, sampled_at(seq), rows))


def late(feed: Feed, *payloads: bytes) -> None:
    """Deliver frames that were asked for again."""
    feed.publish("a", Topic.BACKFILL, frames.encode_many(payloads))
    feed.flush()


def test_the_first_slow_lane_shows_though_it_comes_late(feed: Feed) -> None:
    """Else an operator would wait 15 s for limits that are known."""
    feed.send("a", 3)
    feed.flush()
    late(feed, slow_frame(0, 700.0))
    assert feed.fleet.column(LIMIT, feed.now).tolist() == [700.0, 700.0]
    power = feed.fleet.column("gpu_power_watts", feed.now).tolist()
    assert power == [gpu_rows("a", 2, 3)[row][0] for row in (0, 1)], "the fast lane stays newest"


def test_a_late_slow_lane_never_covers_a_newer_one(feed: Feed) -> None:
    """Whether that came live or late."""
    feed.publish("a", Topic.FRAME, slow_frame(5, 500.0))
    feed.flush()
    late(feed, slow_frame(2, 200.0))
    assert feed.fleet.column(LIMIT, feed.now).tolist() == [500.0, 500.0]
    feed.send("a", 9)
    feed.flush()
    late(feed, slow_frame(7, 350.0), slow_frame(6, 600.0))
    assert feed.fleet.column(LIMIT, feed.now).tolist() == [350.0, 350.0]


def test_a_late_slow_lane_is_as_old_as_it_is(feed: Feed) -> None:
    """40 s old by the node's own clock: stale 5 s later, at three times 15 s."""
    feed.send("a", 40)
    feed.flush()
    late(feed, slow_frame(0, 700.0))
    assert feed.fleet.column(LIMIT, feed.now + 4.9).tolist() == [700.0, 700.0]
    assert gaps_of(feed.fleet.column(LIMIT, feed.now + 5.1)).tolist() == [Gap.STALE] * 2


def test_the_slow_lane_of_an_earlier_session_is_history(feed: Feed) -> None:
    """A collector that started anew reads it at once."""
    feed.send("a", 0, session=2)
    feed.flush()
    late(feed, slow_frame(8, 700.0))
    assert gaps_of(feed.fleet.column(LIMIT, feed.now)).tolist() == [Gap.NOT_READ] * 2
