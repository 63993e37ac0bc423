"""The embedded store: exactly once, gaps are NULL, and it survives what can be survived."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
import numpy as np
import pytest

from aggregator.assembly.store_choice import Lock, open_store
from aggregator.config import AggregatorConfig, StoreConfig
from aggregator.store.checksum import sidecar_of
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.jobs import RUNNING
from aggregator.store.protocol import Batch, Frames, Hole
from telemetry.errors import ConfigError, StoreError
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.feed import ARRIVAL, Feed
from tests.aggregator.node import GAP_COLUMN, expected, sampled_at
from tests.faults.record import Told

GAUGES = SCHEMA.blocks[GPU_FAST].gauges
COUNTERS = SCHEMA.blocks[GPU_FAST].counters


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A store with one node of two GPUs that said hello."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    return feed


def all_of(store: EmbeddedStore, device: str, metric: str) -> list[float | None]:
    return store.history(device, metric, 0, 1 << 62, 0).mean


def test_every_value_is_stored_bit_for_bit_and_a_gap_is_null(feed: Feed) -> None:
    feed.send("a", *range(20))
    assert feed.commit() == 20
    for row in range(2):
        table = expected("a", row, range(20))
        for column, name in enumerate(SCHEMA.blocks[GPU_FAST].names):
            stored = all_of(feed.store, f"GPU-a-{row}", name)
            wanted = [None if np.isnan(number) else number for number in table[:, column]]
            assert stored == wanted, name
    assert set(all_of(feed.store, "GPU-a-0", GAUGES[GAP_COLUMN])) == {None}


def test_a_batch_written_twice_is_stored_once(feed: Feed) -> None:
    feed.send("a", 0, 1, 2)
    feed.ingest.flush(feed.now, feed.wall)
    batch = feed.ingest.drain_batch(feed.wall)
    assert feed.store.write(batch) == 3
    assert feed.store.write(batch) == 0
    assert len(all_of(feed.store, "GPU-a-0", GAUGES[0])) == 3


def test_a_frame_that_stands_twice_in_a_batch_is_stored_once(feed: Feed) -> None:
    feed.send("a", 0, 1)
    feed.ingest.flush(feed.now, feed.wall)
    batch = feed.ingest.drain_batch(feed.wall)
    frames = batch.frames
    batch.frames = Frames(frames.run, np.zeros(2, np.int64), frames.sampled_at, frames.received_at, frames.backfilled)
    assert feed.store.write(batch) == 1
    assert all_of(feed.store, "GPU-a-0", GAUGES[0]) == [expected("a", 0, [0])[0, 0]]


def test_a_restart_remembers_what_is_stored_and_what_is_lost(feed: Feed) -> None:
    feed.send("a", 0, 1, 5)
    feed.gone("a", 2, 3)
    feed.commit()
    feed.reopen()
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 3), (5, 5)])}
    feed.send("a", 0, 4, 5, 3)
    assert feed.commit() == 1
    assert feed.stats.frames_duplicate == 3


def test_nodes_of_the_store_stand_in_the_fleet_after_a_restart(feed: Feed) -> None:
    feed.send("a", 0)
    feed.commit()
    feed.reopen()
    node = feed.fleet.nodes["a"]
    assert not node.online
    assert [gpu.uuid for gpu in node.inventory.gpus] == ["GPU-a-0", "GPU-a-1"]


def test_a_batch_that_fails_leaves_nothing_and_can_be_written_again(feed: Feed) -> None:
    feed.send("a", 0)
    feed.ingest.flush(feed.now, feed.wall)
    batch = feed.ingest.drain_batch(feed.wall)
    good, batch.blocks = batch.blocks, [*batch.blocks, batch.blocks[0]]
    batch.blocks[-1].gauges = batch.blocks[-1].gauges[:, :-1]
    with pytest.raises((StoreError, ValueError)):
        feed.store.write(batch)
    assert feed.store.accounted() == {}
    feed.reopen()
    assert feed.store.known().runs == []
    assert good


def test_events_are_stored_once_and_found_newest_first(feed: Feed) -> None:
    feed.check_events()


def test_buckets_hold_mean_lowest_highest_and_the_last_of_a_counter(feed: Feed) -> None:
    feed.send("a", *range(12), 25)
    feed.commit()
    begin = sampled_at(0) - sampled_at(0) % (10 * 10**9)
    found = feed.store.history("GPU-a-1", GAUGES[0], begin, begin + 60 * 10**9, 10.0)
    table = expected("a", 1, [*range(12), 25])
    at = np.array([sampled_at(seq) for seq in [*range(12), 25]])
    buckets = (at - at % (10 * 10**9)).tolist()
    assert found.at[0] == buckets[0]
    assert np.diff(found.at).tolist() == [10 * 10**9] * (len(found.at) - 1)
    for position, start in enumerate(found.at):
        inside = table[[bucket == start for bucket in buckets], 0]
        if not len(inside):
            assert found.mean[position] is None
            continue
        assert found.mean[position] == pytest.approx(inside.mean())
        assert (found.low[position], found.high[position]) == (inside.min(), inside.max())
    counter = feed.store.history("GPU-a-1", COUNTERS[0], begin, begin + 60 * 10**9, 10.0)
    last = {bucket: row[len(GAUGES)] for bucket, row in zip(buckets, table, strict=True)}
    assert [value for value in counter.mean if value is not None] == list(last.values())


def test_history_says_what_it_does_not_know(feed: Feed) -> None:
    assert feed.store.history("GPU-nobody", GAUGES[0], 0, 1 << 62, 0).at == []
    with pytest.raises(StoreError, match="there is no metric 'gpu_powr'"):
        feed.store.history("GPU-a-0", "gpu_powr", 0, 1, 0)
    with pytest.raises(StoreError, match="longer step"):
        feed.store.history("GPU-a-0", GAUGES[0], 0, 1 << 60, 1)


def test_two_aggregators_can_not_share_a_folder(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "data")
    with pytest.raises(ConfigError, match=f"in use by another aggregator \\(process {os.getpid()}"):
        Lock(tmp_path / "data")
    lock.release()
    Lock(tmp_path / "data").release()


def test_a_folder_that_can_not_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"data_dir.*choose another folder"):
        Lock(tmp_path / "file" / "data")


def sealed_feed(folder: Path) -> Feed:
    """Return a store with five sealed frames of a node, and nothing else."""
    feed = Feed(folder)
    feed.hello("a")
    feed.send("a", *range(5))
    feed.commit()
    feed.wall += 2 * 3600 * 10**9
    feed.seal()
    return feed


def test_a_corrupt_database_is_set_aside_and_sealed_data_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed = sealed_feed(tmp_path / "data")
    feed.send("a", 5, 6)
    feed.commit()
    feed.store.close()
    hot = tmp_path / "data" / "hot.duckdb"
    hot.write_bytes(b"this is not a database" * 1000)
    feed.open()
    assert "was renamed to hot.duckdb.damaged-1" in caplog.text
    assert hot.with_name("hot.duckdb.damaged-1").exists()
    assert len(all_of(feed.store, "GPU-a-0", GAUGES[0])) == 5
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 4)])}
    feed.hello("a")
    feed.send("a", *range(7))
    assert feed.commit() == 2
    assert all_of(feed.store, "GPU-a-0", GAUGES[0]) == expected("a", 0, range(7))[:, 0].tolist()


def test_without_a_database_one_sealed_file_that_can_not_be_read_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sealed file of a release before checksums: damage shows only when it is read."""
    feed = sealed_feed(tmp_path / "data")
    feed.store.close()
    (tmp_path / "data" / "hot.duckdb").unlink()
    first, *_ = sorted((tmp_path / "data" / "sealed" / "gpu_fast").glob("*.parquet"))
    other = first.with_name("other")
    duckdb.sql(f"copy (from '{first}') to '{other}' (format parquet, compression zstd)")
    raw = bytearray(other.read_bytes())
    raw[4:400] = bytes(byte ^ 0x5A for byte in raw[4:400])
    first.write_bytes(raw)
    other.unlink()
    sidecar_of(first).unlink()
    feed.open()
    assert f"{first}: not readable; left alone" in caplog.text
    assert feed.store.size()["sealed"] > 0, "the other files are there"
    assert first.exists()


def test_a_database_that_opens_and_can_not_be_read_is_set_aside(tmp_path: Path) -> None:
    """A job that can't be decoded costs itself alone; a table of another form all of it."""
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    feed.send("a", *range(5))
    feed.commit()
    hot = tmp_path / "data" / "hot.duckdb"

    def changed(statement: str) -> None:
        feed.store.close()
        with duckdb.connect(str(hot)) as connection:
            connection.execute(statement)
        feed.open()

    changed(f"insert into jobs(key, \"end\") values ('k', {RUNNING}); insert into job_summaries(job) values ('k')")
    assert (feed.store.open_jobs(), len(feed.store.accounted())) == ([], 1)
    assert not list(hot.parent.glob("*.damaged-1"))
    changed("drop table devices; create table devices(id varchar)")
    assert hot.with_name("hot.duckdb.damaged-1").exists()
    assert feed.store.accounted() == {}
    feed.hello("a")
    feed.send("a", *range(5))
    assert feed.commit() == 5
    feed.store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.aggregator.feed import Feed
feed = Feed(Path(sys.argv[1]))
feed.hello("a")
for seq in range(10):
    feed.send("a", seq)
    feed.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that was killed after ten commits, its log not folded in."""
    folder = tmp_path_factory.mktemp("killed") / "data"
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(folder)], check=False, cwd=Path(__file__).parents[2]
    )
    return folder


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(killed_once, tmp_path / "data")


def test_kill_9_loses_no_commit(killed: Path) -> None:
    store = EmbeddedStore(StoreConfig(), killed)
    assert store.accounted() == {("a", 1): IntervalSet([(0, 9)])}
    assert all_of(store, "GPU-a-1", GAUGES[0]) == expected("a", 1, range(10))[:, 0].tolist()


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_torn_log_costs_only_what_follows_the_tear(killed: Path, part: float) -> None:
    log = killed / "hot.duckdb.wal"
    whole = log.read_bytes()
    log.write_bytes(whole[: int(len(whole) * part)])
    stored = EmbeddedStore(StoreConfig(), killed).accounted().get(("a", 1), IntervalSet())
    assert stored.spans <= 1
    assert stored.end < 9
    assert stored == IntervalSet([(0, stored.end)])


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_flipped_byte_in_the_log_costs_only_what_follows_it(
    killed: Path, part: float, caplog: pytest.LogCaptureFixture
) -> None:
    log = killed / "hot.duckdb.wal"
    whole = bytearray(log.read_bytes())
    # In the content of an entry: of its head is the next test.
    entry = max(at for at in entries_of(bytes(whole)) if at <= len(whole) * part)
    whole[entry + 16 + int.from_bytes(whole[entry : entry + 8], "little") // 2] ^= 0xFF
    log.write_bytes(whole)
    store = EmbeddedStore(StoreConfig(), killed)
    stored = store.accounted().get(("a", 1), IntervalSet())
    assert stored == IntervalSet([(0, stored.end)])
    assert (killed / "hot.duckdb.wal.damaged-1").read_bytes() == bytes(whole)
    assert "requested again" in caplog.text
    store.close()


def entries_of(log: bytes) -> list[int]:
    """Return where the entries of DuckDB's log begin: each has a length, a checksum and its content."""
    for header in range(64):
        found = [header]
        while found[-1] < len(log):
            found.append(found[-1] + 16 + int.from_bytes(log[found[-1] : found[-1] + 8], "little"))
        if found[-1] == len(log):
            return found[:-1]
    raise AssertionError("the log has another format than the tests know")


@pytest.mark.parametrize("byte", range(16))
def test_a_flipped_byte_in_the_head_of_an_entry_is_kept_and_named_too(
    killed: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    """DuckDB itself takes a false length for the torn end of a write, and cuts it off silently."""
    log = killed / "hot.duckdb.wal"
    whole = bytearray(log.read_bytes())
    entries = entries_of(whole)
    whole[entries[len(entries) * 97 // 100] + byte] ^= 0xFF
    log.write_bytes(whole)
    store = EmbeddedStore(StoreConfig(), killed)
    stored = store.accounted().get(("a", 1), IntervalSet())
    assert stored == IntervalSet([(0, stored.end)])
    assert 0 <= stored.end < 9
    (kept,) = killed.glob("hot.duckdb.wal.*-1")  # torn, or damaged
    assert kept.read_bytes() == bytes(whole)
    assert "requested again" in caplog.text
    store.close()


def test_a_log_with_any_damaged_header_is_kept_and_named(
    killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = (killed / "hot.duckdb.wal").read_bytes()
    for byte in range(entries_of(whole)[0]):
        folder = tmp_path / str(byte)
        shutil.copytree(killed, folder)
        damaged = bytearray(whole)
        damaged[byte] ^= 0xFF
        (folder / "hot.duckdb.wal").write_bytes(damaged)
        caplog.clear()
        store = EmbeddedStore(StoreConfig(), folder)
        lost = store.accounted() == {}
        named = bool(list(folder.glob("hot.duckdb.wal.*-1"))) and "requested again" in caplog.text
        assert lost == named
        store.close()


def test_a_whole_log_leaves_no_copy_behind(killed: Path) -> None:
    store = EmbeddedStore(StoreConfig(), killed)
    assert [path.name for path in killed.glob("*.wal.*")] == []
    store.close()


def test_a_full_disk_is_an_error_with_a_cure_and_passes(tiny: Path, record_property: Told) -> None:
    feed = Feed(tiny / "data")
    feed.hello("a", gpus=64)
    feed.send("a", 0, gpus=64)
    feed.commit()
    ballast = tiny / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(16 * 1024 * 1024))
    feed.send("a", *range(1, 400), gpus=64)
    feed.ingest.flush(feed.now, feed.wall)
    batch = feed.ingest.drain_batch(feed.wall)
    with pytest.raises(StoreError, match=r"hot\.duckdb.*Free disk space"):
        feed.store.write(batch)
    ballast.unlink()
    assert feed.store.write(batch) == 399
    assert feed.store.write(batch) == 0
    feed.reopen()
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 399)])}
    assert all_of(feed.store, "GPU-a-63", GAUGES[0]) == expected("a", 63, range(400))[:, 0].tolist()
    feed.store.close()
    record_property("expected", "one clear error; the same batch is stored once when there is room")
    record_property(
        "observed", "the commit of 399 frames was refused with its cure; stored once when there was room, not twice"
    )


def test_open_store_opens_the_embedded_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    store = open_store(AggregatorConfig(data_dir=tmp_path / "data"))
    assert store.write(Batch(holes=[], at=ARRIVAL)) == 0
    assert store.size()["sealed"] == 0
    store.close()
    assert duckdb.connect(str(tmp_path / "data" / "hot.duckdb")).execute("from runs").fetchall() == []


def test_a_hole_is_recorded_once(feed: Feed) -> None:
    feed.send("a", 0)
    feed.commit()
    hole = Batch(holes=[Hole("a", 1, 1, 3, "gone")], at=ARRIVAL)
    feed.store.write(hole)
    feed.store.write(hole)
    assert feed.store._engine.rows("select first, last, reason from holes") == [(1, 3, "gone")]
