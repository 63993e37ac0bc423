"""When the log is folded in, and that later folds leave alone what one has made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregator.config import MIB, StoreConfig
from aggregator.store.duck import CACHED_BYTES, ROW_GROUP, DuckEngine, memory_bytes, settled
from aggregator.store.folding import LONGEST, Folding
from tests.aggregator.feed import Feed

FOLDS = 9
PART = 20_000
"""Rows of a commit."""
FULL = StoreConfig().checkpoint_bytes


def row_groups(engine: DuckEngine) -> list[int]:
    """Return the rows of each row group."""
    return [
        int(rows)
        for _, rows in engine.rows(
            "select row_group_id, sum(count) from pragma_storage_info('t') "
            "where column_name = 'a' and segment_type = 'INTEGER' group by 1 order by 1"
        )
    ]


def merges(engine: DuckEngine, rows: int) -> bool:
    """Whether DuckDB merges row groups in some folds with so many rows each."""
    engine.run("create table t(a integer)")
    found = False
    for _ in range(FOLDS):
        before = row_groups(engine)
        for first in range(0, rows, PART):
            engine.insert("t", {"a": np.arange(first, min(rows, first + PART), dtype=np.int32)})
        assert engine.fold()
        found |= row_groups(engine)[: len(before)] != before
    assert sum(row_groups(engine)) == FOLDS * rows
    return found


@pytest.mark.parametrize(
    "rows", [20_000, 80_000, 92_000, 92_200, ROW_GROUP, 130_000, 184_000, 185_000, 2 * ROW_GROUP, 310_000]
)
def test_duckdb_merges_row_groups_where_they_are_not_settled(tmp_path: Path, rows: int) -> None:
    """Of a new DuckDB this says whether it merges by the same rule."""
    engine = DuckEngine(tmp_path / "t.duckdb", StoreConfig())
    try:
        assert merges(engine, rows) is not settled(rows)
    finally:
        engine.close()


def folds_of(rows: int, commit_bytes: int) -> list[int]:
    """Return after how many commits of so many rows each of some folds comes."""
    folding, found = Folding(FULL), list[int]()
    for _ in range(5):
        log, commits = 0, 0
        while True:
            commits += 1
            log += commit_bytes
            folding.add("gpu_fast", rows)
            assert log <= LONGEST * FULL
            if folding.due(log):
                break
        folding.done()
        found.append(commits)
    return found


@pytest.mark.parametrize(
    ("gpus", "commits"),
    [
        (20_000, 5),  # four are 80,000 rows, three of which make two row groups
        (18_000, 6),
        (22_000, 5),
        (44_000, 5),
        (60_000, 2),
        (100_000, 1),
    ],
)
def test_a_fold_waits_until_what_it_makes_is_settled(gpus: int, commits: int) -> None:
    assert folds_of(gpus, gpus * 215) == [commits] * 5
    assert settled(gpus * commits)


def test_a_log_of_few_rows_is_folded_before_it_is_three_times_as_long() -> None:
    [commits, *_] = folds_of(1000, MIB)
    assert commits * MIB == LONGEST * FULL


def test_a_fold_that_failed_or_that_another_did_is_no_reason_to_fold_again() -> None:
    folding = Folding(MIB)
    folding.add("gpu_fast", 100_000)
    assert folding.due(2 * MIB)
    folding.put_off()
    assert not folding.due(2 * MIB + 1)
    assert folding.due(3 * MIB)
    folding.add("gpu_fast", 100_000)
    assert not folding.due(1000), "the sealer has folded"
    folding.done()
    assert not folding.due(MIB - 1)


def test_the_store_folds_a_log_that_stays_below_three_times_its_size(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data", StoreConfig(checkpoint_bytes=MIB))
    feed.hello("a")
    log, longest, seq = tmp_path / "data" / "hot.duckdb.wal", 0, 0
    while not feed.store.tidy():
        feed.now += 1.0
        feed.send("a", *range(seq, seq + 400))
        seq += 400
        assert feed.commit() == 400
        longest = max(longest, log.stat().st_size)
    assert MIB < longest <= LONGEST * MIB
    assert not log.exists() or log.stat().st_size < MIB / 10


def fill(engine: DuckEngine) -> int:
    """Fold more blocks in than stay cached; return how many rows these are."""
    engine.insert("t", {"a": np.random.default_rng(1).random(10 * MIB)})
    assert engine.fold()
    assert memory_bytes(engine) > 2 * CACHED_BYTES
    return 10 * MIB


def test_blocks_that_were_folded_in_are_evicted_while_nobody_reads(tmp_path: Path) -> None:
    engine = DuckEngine(tmp_path / "t.duckdb", StoreConfig())
    try:
        engine.run("create table t(a double)")
        assert not engine.evict(), "there is nothing"
        rows = fill(engine)
        with engine.reader() as reader:
            assert not engine.evict()
            assert reader.rows("select count(a) from t") == [(rows,)]
        assert engine.evict()
        assert memory_bytes(engine) <= CACHED_BYTES
        assert engine.rows("select current_setting('memory_limit')") == [("512.0 MiB",)]
        assert engine.rows("select count(a) from t") == [(rows,)]
    finally:
        engine.close()


def test_what_is_in_use_is_not_evicted(tmp_path: Path) -> None:
    engine = DuckEngine(tmp_path / "t.duckdb", StoreConfig())
    try:
        engine.run("create temporary table t(a double)")
        rows = 10 * MIB
        engine.insert("t", {"a": np.random.default_rng(1).random(rows)})
        assert engine.evict()
        assert engine.rows("select current_setting('memory_limit')") == [("512.0 MiB",)]
        assert engine.rows("select count(a) from t") == [(rows,)]
    finally:
        engine.close()


def test_upkeep_evicts(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "data", StoreConfig())
    engine = feed.store._engine
    engine.run("create table t(a double)")
    fill(engine)
    feed.store.maintain(feed.wall)
    assert memory_bytes(engine) <= CACHED_BYTES
