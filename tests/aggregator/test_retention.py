"""Retention by age and by bytes: whole files go, the oldest readings first."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator.config import DAY, StoreConfig
from aggregator.store.manifest import RAW, SealedFile
from aggregator.store.retention import too_much, too_old
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.feed import HOUR, Feed
from tests.aggregator.node import sampled_at

METRIC = SCHEMA.blocks[GPU_FAST].gauges[0]
CONFIG = StoreConfig()
NOW = int(400 * DAY) * 10**9


def file(kind: str, days: float, size: int = 100) -> SealedFile:
    """A file whose period ended some days ago."""
    ends = int(NOW / 1e9 - days * DAY)
    return SealedFile(f"{kind}-{days}", kind, "gpu_fast", ends - 3600, ends, 1, size, 0, 0, "", "", [])


def test_each_kind_has_an_age_of_its_own() -> None:
    files = [file(kind, days) for kind in (RAW, "10", "60", "3600") for days in (1, 8, 31, 366)]
    going = {each.path for each in too_old(files, CONFIG, NOW)}
    assert going == {"raw-8", "raw-31", "raw-366", "10-31", "10-366", "60-366"}


def test_a_step_that_is_not_configured_any_more_is_kept_longest() -> None:
    assert too_old([file("300", 366)], CONFIG, NOW) == []


@pytest.mark.parametrize(
    ("limit", "gone"),
    [
        (600, []),
        (599, ["raw-2"]),
        (400, ["raw-2", "raw-1"]),
        (301, ["raw-2", "raw-1", "10-9"]),
        (0, ["raw-2", "raw-1", "10-9", "10-1", "60-20", "3600-20"]),
    ],
)
def test_the_oldest_readings_go_first_then_the_finest_roll_ups(limit: int, gone: list[str]) -> None:
    files = [file("3600", 20), file("60", 20), file("10", 1), file("10", 9), file(RAW, 1), file(RAW, 2)]
    assert [each.path for each in too_much(files, 600, limit)] == gone


def hours(folder: Path, config: StoreConfig, count: int) -> Feed:
    """A store with some hours of one node, one frame a minute, sealed."""
    feed = Feed(folder, config)
    feed.hello("a")
    for hour in range(count):
        feed.resend("a", *range(60 * hour, 60 * hour + 60))
        feed.commit()
        feed.wall += HOUR
        feed.seal()
    return feed


def sealed(feed: Feed, kind: str) -> int:
    return len(list((feed.config.data_dir / kind / "gpu_fast").glob("*.parquet")))


def test_readings_go_by_age_and_the_roll_ups_still_tell_their_story(tmp_path: Path) -> None:
    feed = hours(tmp_path / "data", StoreConfig(raw_age_seconds=3.5 * 3600), 5)
    feed.wall += 3600 * 10**9
    feed.store._retained_at = 0
    feed.seal()
    assert sealed(feed, "sealed") == 2
    assert sealed(feed, "rollup_10") == 5
    found = feed.store.history("GPU-a-0", METRIC, sampled_at(0), sampled_at(300), 60.0)
    assert len(found.at) == 5
    assert None not in found.mean
    before = feed.store.accounted()
    feed.reopen()
    assert feed.store.accounted() == before


def test_a_bound_in_bytes_is_kept(tmp_path: Path) -> None:
    feed = hours(tmp_path / "data", StoreConfig(), 3)
    size = feed.store.size()
    size.pop("memory")
    everything = sum(size.values())
    feed.store.close()
    bounded = StoreConfig(max_bytes=everything - size["sealed"] // 2)
    feed = Feed(tmp_path / "data", bounded)
    feed.wall += 3 * HOUR
    feed.seal()
    after = feed.store.size()
    after.pop("memory")
    assert 0 < sum(after.values()) <= bounded.max_bytes
    assert 0 < after["sealed"] < size["sealed"]
    assert after["rollups"] == size["rollups"]
    left = feed.store.history("GPU-a-0", METRIC, sampled_at(120), sampled_at(180), 0)
    assert len(left.at) == 60, "the newest readings stay"


def test_events_and_holes_go_by_age(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data", StoreConfig(events_age_seconds=3600))
    feed.hello("a")
    feed.send("a", 5)
    feed.gone("a", 0, 4)
    feed.commit()
    feed.seal()
    assert feed.store._engine.rows("select count(*) from holes") == [(1,)]
    feed.wall += 2 * HOUR
    feed.seal()
    assert feed.store._engine.rows("select count(*) from holes") == [(0,)]


def test_sessions_of_long_ago_are_forgotten_at_opening(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data", StoreConfig(raw_age_seconds=DAY, rollup_age_seconds=(DAY, DAY, DAY)))
    feed.hello("a")
    feed.send("a", 0, 1)
    feed.commit()
    feed.wall += HOUR
    feed.seal()
    feed.hello("a", session=2)
    feed.wall += 48 * HOUR
    feed.send("a", 0, session=2)
    feed.commit()
    feed.wall += HOUR
    feed.seal()
    feed.reopen()
    assert set(feed.store.accounted()) == {("a", 2)}
    assert [run.session for run in feed.store.known().runs] == [2]
