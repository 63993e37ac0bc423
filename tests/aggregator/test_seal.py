"""Sealing: any engine reads the files, nothing is doubled or lost, wherever it is cut short."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import numpy as np
import pytest

from aggregator.config import StoreConfig
from aggregator.store.seal import Sealer
from telemetry.errors import StoreError
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.feed import HOUR, Feed
from tests.aggregator.node import expected, sampled_at

GAUGES = SCHEMA.blocks[GPU_FAST].gauges
COUNTERS = SCHEMA.blocks[GPU_FAST].counters
NAMES = SCHEMA.blocks[GPU_FAST].names
FRAMES = 90


def filled(folder: Path, config: StoreConfig | None = None) -> Feed:
    """A store with two nodes and 90 frames of each, one hole, all in one period."""
    feed = Feed(folder, config)
    for node in ("a", "b"):
        feed.hello(node)
        feed.send(node, *range(40), *range(41, FRAMES))
        feed.commit()
    return feed


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return filled(tmp_path / "data")


def test_plain_duckdb_reads_what_was_sealed(feed: Feed) -> None:
    feed.wall += HOUR
    feed.seal()
    (path,) = (feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet")
    assert path.name == "2025-11-21T04-00-00Z.parquet"
    columns = ", ".join(f'"{name}"' for name in NAMES)
    found = duckdb.connect().sql(
        f"select node, device, name, index, session, seq, epoch_ns(ts), {columns} "
        f"from '{path}' where device = 'GPU-b-1' order by ts"
    )
    rows = found.fetchall()
    seqs = [*range(40), *range(41, FRAMES)]
    assert [row[:7] for row in rows] == [
        ("b", "GPU-b-1", "NVIDIA Test 80GB", 1, 1, seq, sampled_at(seq)) for seq in seqs
    ]
    table = np.array([row[7:] for row in rows], np.float64)
    np.testing.assert_array_equal(table, expected("b", 1, seqs))
    sorted_by = duckdb.connect().sql(f"select device, ts from '{path}'").fetchall()
    assert sorted_by == sorted(sorted_by)


def test_history_is_the_same_before_during_and_after_sealing(feed: Feed) -> None:
    def ask() -> list[object]:
        return [
            feed.store.history(f"GPU-a-{row}", metric, sampled_at(0), sampled_at(FRAMES), step)
            for row in range(2)
            for metric in (GAUGES[0], COUNTERS[0], GAUGES[2])
            for step in (0, 1.0, 7.0, 10.0)
        ]

    before = ask()
    feed.wall += HOUR
    steps = 0
    while feed.store.maintain(feed.wall):
        feed.store.seal()
        steps += 1
        after = ask()
        for one, other in zip(before, after, strict=True):
            if one.step < 10:  # type: ignore[attr-defined]
                assert one == other
    assert steps > 4, "sealing is done in pieces"
    assert feed.store.size()["sealed"] > 0


def test_readings_that_come_after_the_seal_join_the_sealed_ones(feed: Feed) -> None:
    feed.wall += HOUR
    feed.seal()
    feed.resend("a", 40, 90)
    feed.commit()
    found = feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0)
    assert found.mean == expected("a", 0, range(91))[:, 0].tolist()
    feed.wall += HOUR
    feed.seal()
    again = feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0)
    assert again == found


def test_roll_ups_say_what_the_readings_said(feed: Feed) -> None:
    feed.send("a", 40)
    feed.commit()
    table = expected("a", 0, range(FRAMES))
    feed.wall += HOUR
    feed.seal()
    for path in (feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"):
        path.unlink()
    feed.reopen()  # only the roll-ups are left
    for step in (10, 60):
        found = feed.store.history("GPU-a-0", GAUGES[0], sampled_at(0) - 3600 * 10**9, sampled_at(FRAMES), float(step))
        at = np.array([sampled_at(seq) for seq in range(FRAMES)])
        buckets = at - at % (step * 10**9)
        assert found.at == sorted(set(buckets.tolist()))
        for position, start in enumerate(found.at):
            inside = table[buckets == start, 0]
            assert found.mean[position] == pytest.approx(inside.mean(), rel=1e-6)
            assert (found.low[position], found.high[position]) == (inside.min(), inside.max())
    counter = feed.store.history("GPU-a-0", COUNTERS[0], sampled_at(0) - 3600 * 10**9, sampled_at(FRAMES), 60.0)
    assert counter.mean[-1] == table[-1, len(GAUGES)]


def test_a_large_period_is_sealed_as_several_files_by_device(tmp_path: Path) -> None:
    feed = filled(tmp_path / "data", StoreConfig(slice_rows=100))
    feed.wall += HOUR
    feed.seal()
    paths = sorted((feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"))
    assert len(paths) == 4
    devices = [duckdb.connect().execute(f"select distinct device from '{path}'").fetchall() for path in paths]
    assert sorted(devices) == [[("GPU-a-0",)], [("GPU-a-1",)], [("GPU-b-0",)], [("GPU-b-1",)]]
    seqs = [*range(40), *range(41, FRAMES)]
    found = feed.store.history("GPU-b-0", GAUGES[0], 0, 1 << 62, 0)
    assert found.mean == expected("b", 0, seqs)[:, 0].tolist()


def test_sealed_frames_are_remembered_as_marks(feed: Feed) -> None:
    before = feed.store.accounted()
    feed.wall += HOUR
    feed.seal()
    assert feed.store.accounted() == before
    feed.reopen()
    assert feed.store.accounted() == before
    assert before["a", 1] == IntervalSet([(0, 39), (41, FRAMES - 1)])
    feed.send("a", 3, 40)
    assert feed.commit() == 1


def test_what_comes_late_into_a_period_that_is_being_sealed_is_not_dropped_with_it(feed: Feed) -> None:
    """A batch that waited for a disk, say: its time is of a period that is half in files by now."""
    feed.send("a", 40)
    feed.flush()
    late = feed.ingest.drain_batch(feed.wall)
    feed.wall += HOUR
    feed.store.maintain(feed.wall)
    for _ in range(3):
        feed.store.seal()
    assert feed.store.write(late) == 1
    feed.seal()
    feed.reopen()
    found = feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0)
    assert found.mean == expected("a", 0, range(FRAMES))[:, 0].tolist()
    feed.wall += HOUR
    feed.seal()
    assert feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0) == found


def test_what_is_too_old_goes_while_an_hour_is_being_sealed(feed: Feed) -> None:
    """Or a disk fills while a large hour takes its time."""
    feed.wall += HOUR
    feed.seal()
    (old,) = (feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet")
    feed.send("a", 200)
    feed.commit()
    feed.wall += 8 * 24 * HOUR
    assert feed.store.maintain(feed.wall)
    assert feed.store._sealer is not None
    assert not old.exists()


def test_commits_go_on_beside_a_file_in_the_making(feed: Feed) -> None:
    feed.wall += HOUR
    assert feed.store.maintain(feed.wall)
    over = threading.Event()

    def seal() -> None:
        while not over.is_set():
            feed.store.seal()

    sealing = threading.Thread(target=seal)
    sealing.start()
    for seq in range(FRAMES, FRAMES + 50):
        feed.send("a", seq)
        assert feed.commit() == 1
        feed.store.tidy()
    over.set()
    sealing.join()
    feed.seal()
    seqs = [*range(40), *range(41, FRAMES + 50)]
    found = feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0)
    assert found.mean == expected("a", 0, seqs)[:, 0].tolist()


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_a_seal_that_is_cut_short_is_made_again(feed: Feed, steps: int) -> None:
    feed.wall += HOUR
    for _ in range(steps):
        feed.store.maintain(feed.wall)
        feed.store.seal()
    # As after kill -9: the files are as they are, and the engine only has what was committed.
    feed.store._sealer = None
    feed.reopen()
    feed.seal()
    seqs = [*range(40), *range(41, FRAMES)]
    for node in ("a", "b"):
        found = feed.store.history(f"GPU-{node}-0", GAUGES[0], 0, 1 << 62, 0)
        assert found.mean == expected(node, 0, seqs)[:, 0].tolist()
    assert len(list((feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"))) == 1


def test_a_crash_between_naming_the_files_and_the_commit_doubles_nothing(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The narrowest place: files have their names, and the manifest does not know them."""

    class PowerCutError(Exception):
        pass

    def cut(*_: object) -> None:
        raise PowerCutError

    feed.wall += HOUR
    with monkeypatch.context() as patch:
        patch.setattr("aggregator.store.seal.stored_spans.fold", cut)
        patch.setattr(Sealer, "abandon", lambda _: None)
        with pytest.raises(PowerCutError):
            feed.seal()
    sealed = feed.config.data_dir / "sealed" / "gpu_fast"
    assert len(list(sealed.glob("*.parquet"))) == 1
    feed.store._sealer = None
    feed.reopen()
    assert list(sealed.glob("*.parquet")) == [], "the hot tables hold it all still"
    seqs = [*range(40), *range(41, FRAMES)]
    found = feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0)
    assert found.mean == expected("a", 0, seqs)[:, 0].tolist()


def test_a_seal_that_fails_says_so_and_is_tried_again(feed: Feed) -> None:
    feed.wall += HOUR
    blocker = feed.config.data_dir / "sealed"
    blocker.write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="can't seal"):
        feed.seal()
    blocker.unlink()
    feed.seal()
    assert len(list((blocker / "gpu_fast").glob("*.parquet"))) == 1
    assert list((feed.config.data_dir / "sealing").glob("*")) == []


def test_a_clock_that_was_set_back_brings_a_period_twice(feed: Feed) -> None:
    feed.wall += HOUR
    feed.seal()
    feed.wall -= HOUR
    feed.send("a", 40, 95)
    feed.commit()
    feed.wall += HOUR
    feed.seal()
    names = sorted(path.name for path in (feed.config.data_dir / "sealed/gpu_fast").glob("*.parquet"))
    assert names == ["2025-11-21T04-00-00Z-001.parquet", "2025-11-21T04-00-00Z.parquet"]
    found = feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 62, 0)
    assert found.mean == expected("a", 0, [*range(FRAMES), 95])[:, 0].tolist()
