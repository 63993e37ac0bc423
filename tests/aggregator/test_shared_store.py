"""Shared storage: each frame is read once, whoever wrote it, and nothing is lost while it is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from aggregator.impairments import Impairments
from aggregator.settings.shared_storage import SharedStorageConfig
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.shared import compaction
from aggregator.store.shared.segment import SegmentName, spans_of
from aggregator.store.shared.store import SharedStore
from aggregator.store.shared.upkeep import SharedUpkeep
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import shard_of
from tests.aggregator.feed import HOUR, Feed
from tests.aggregator.node import expected, sampled_at
from tests.faults.damaged_files import SORTS, Damage, DamagedKind, as_a_user
from tests.kit.waiting import until

GAUGE = SCHEMA.blocks[GPU_FAST].gauges[0]
MINUTE = 60 * 10**9
GROUP = shard_of("a")


class Member(Feed):
    """A member of a cluster that holds the groups of all its nodes, driven by hand."""

    store: SharedStore

    def __init__(self, folder: Path, shared: SharedStorageConfig, epoch: int = 1) -> None:
        self.shared, self.epoch = shared, epoch
        super().__init__(folder)

    def open_store(self) -> EmbeddedStore:
        store = SharedStore(self.config.store, self.config.data_dir, self.shared, self.config.name_limits)
        for node in ("a", "b"):
            store.hold(shard_of(node), self.epoch)
        return store

    def upkeep(self) -> None:
        """Do all upkeep that is due, of the store and of the storage."""
        for _ in range(200):
            self.seal()
            if not self.store.tend(self.wall):
                self.seal()
                return
        raise AssertionError("upkeep does not end")

    def pass_time(self, ns: int) -> None:
        """Let time pass, and do what is due then."""
        self.wall += ns
        self.upkeep()

    def read(self, step: float = 0.0, device: str = "GPU-a-0") -> list[float | None]:
        """Return all that is stored of a gauge."""
        start, end = sampled_at(0) - HOUR, sampled_at(0) + HOUR
        return self.store.history(device, GAUGE, start, end, step).mean


def values(*seqs: int, node: str = "a") -> list[float | None]:
    """What must be read of `GPU-<node>-0`."""
    return list(expected(node, 0, seqs)[:, 0].tolist())


@pytest.fixture
def shared(tmp_path: Path) -> SharedStorageConfig:
    (tmp_path / "shared").mkdir()
    return SharedStorageConfig(url=str(tmp_path / "shared"))


@pytest.fixture
def member(tmp_path: Path, shared: SharedStorageConfig) -> Iterator[Member]:
    found = Member(tmp_path / "one", shared)
    for node in ("a", "b"):
        found.hello(node)
        found.send(node, *range(30))
    found.commit()
    yield found
    found.store.close()


def segments(shared: SharedStorageConfig) -> list[str]:
    root = Path(shared.url)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.parquet"))


def test_frames_of_a_minute_become_one_segment_a_group_that_any_engine_reads(
    member: Member, shared: SharedStorageConfig
) -> None:
    member.pass_time(MINUTE)
    names = [SegmentName.parse(name) for name in segments(shared)]
    assert {(key.group, key.epoch, key.step) for key in names if key} == {(GROUP, 1, 0), (shard_of("b"), 1, 0)}
    found = duckdb.connect().sql(
        f"select epoch::int, seq, {GAUGE} from read_parquet('{shared.url}/**/*.parquet', "
        "union_by_name = true, hive_partitioning = true) "
        "where block = 'gpu_fast' and device = 'GPU-a-0' order by seq"
    )
    assert found.fetchall() == [(1, seq, value) for seq, value in enumerate(values(*range(30)))]


def test_history_is_the_same_before_and_after_every_step_of_a_spill(member: Member) -> None:
    expected_values = values(*range(30))
    member.store.tend(member.wall)  # the first listing
    member.wall += MINUTE
    steps = 0
    while member.store.maintain(member.wall):
        assert member.read() == expected_values
        member.store.seal()
        assert member.read() == expected_values
        steps += 1
    assert steps
    while member.store.tend(member.wall):
        assert member.read() == expected_values
        member.store.maintain(member.wall)
        assert member.read() == expected_values
    member.send("a", 30, 31)
    member.commit()
    assert member.read() == values(*range(32))


def test_the_next_holder_reads_all_and_knows_which_frames_it_need_not_request(
    member: Member, shared: SharedStorageConfig, tmp_path: Path
) -> None:
    member.pass_time(MINUTE)
    member.send("a", 30, 31)  # never spilled: the holder dies
    member.commit()
    other = Member(tmp_path / "two", shared, epoch=2)
    other.wall = member.wall
    other.upkeep()
    assert other.store.highest_epoch(GROUP) == 1
    assert other.store.accounted_shared(GROUP) == {("a", 1): IntervalSet([(0, 29)])}
    assert other.read() == values(*range(30))
    other.hello("a")
    other.resend("a", *range(25, 33))  # more than is missing: some come twice
    other.commit()
    other.pass_time(MINUTE)
    assert other.read() == values(*range(33))
    other.store.close()


def test_of_two_holders_the_higher_epoch_counts_and_each_frame_once(
    member: Member, shared: SharedStorageConfig, tmp_path: Path
) -> None:
    other = Member(tmp_path / "two", shared, epoch=2)
    other.hello("a")
    other.send("a", *range(20, 40))
    other.commit()
    member.pass_time(MINUTE)
    other.pass_time(MINUTE)
    member.pass_time(MINUTE)
    for each in (member, other):
        found = each.store.history("GPU-a-0", GAUGE, 0, 1 << 62, 0)
        assert (found.mean, found.incomplete) == (values(*range(40)), [])
        every = each.read(60.0)
        assert every == pytest.approx([sum(values(*range(40))) / 40])  # type: ignore[arg-type]
    other.store.close()


@pytest.mark.parametrize("piece", [compaction.PIECE_VALUES, 1])
def test_a_period_that_is_over_becomes_one_segment_with_roll_ups_and_old_ones_go_later(
    member: Member, shared: SharedStorageConfig, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """Rows of two devices may be too many to be sorted at a time."""
    monkeypatch.setattr(compaction, "PIECE_VALUES", piece)
    member.pass_time(MINUTE)
    member.send("a", *range(30, 60))
    member.commit()
    member.pass_time(MINUTE)
    before = segments(shared)
    assert sum(f"group={GROUP}" in name for name in before) == 2
    member.pass_time(HOUR)
    assert member.read() == values(*range(60))
    assert member.read(60.0) == pytest.approx([sum(values(*range(60))) / 60])  # type: ignore[arg-type]
    view = member.store._state.view.groups[GROUP]
    kinds = sorted(each.key.step for each in view.segments.values())
    assert kinds == [0, 10, 60, 3600]
    [whole] = [each for each in view.segments.values() if not each.key.step]
    [rows] = duckdb.execute("select count(*), list((block, device, ts)) from read_parquet(?)", [whole.place]).fetchall()
    assert rows[0] == sum(part.rows for part in whole.footer.blocks) > 120
    assert rows[1] == sorted(rows[1])
    assert not (member.config.data_dir / "compacting").exists()
    assert set(before) < set(segments(shared)), "a query may still read what is replaced"
    member.pass_time(2 * MINUTE)
    assert not set(before) & set(segments(shared))
    assert member.read() == values(*range(60))


def test_roll_ups_are_made_again_when_another_holder_adds_to_their_period(
    member: Member, shared: SharedStorageConfig, tmp_path: Path
) -> None:
    other = Member(tmp_path / "two", shared, epoch=2)
    other.hello("a")
    other.send("a", *range(20, 40))
    other.commit()
    other.pass_time(MINUTE)
    other.pass_time(2 * HOUR)  # compacts without what the old holder has not put there yet
    member.pass_time(MINUTE)  # wakes up, an hour late
    other.pass_time(2 * MINUTE)
    assert other.read() == values(*range(40))
    assert other.read(3600.0) == pytest.approx([sum(values(*range(40))) / 40])  # type: ignore[arg-type]
    left = {each.key.step for each in other.store._state.view.groups[GROUP].segments.values()}
    assert left == {0, 10, 60, 3600}
    other.store.close()


def test_a_frame_in_two_periods_counts_once_in_every_roll_up(
    member: Member, shared: SharedStorageConfig, tmp_path: Path
) -> None:
    member.pass_time(MINUTE)
    other = Member(tmp_path / "two", shared, epoch=2)
    other.wall = member.wall + HOUR
    other.hello("a")
    other.resend("a", *range(40))  # all again, an hour later
    other.commit()
    other.pass_time(MINUTE)
    other.pass_time(2 * HOUR)
    other.pass_time(10 * MINUTE)
    other.pass_time(10 * MINUTE)
    assert other.read() == values(*range(40))
    assert other.read(3600.0) == pytest.approx([sum(values(*range(40))) / 40])  # type: ignore[arg-type]
    other.store.close()


def test_files_that_are_torn_or_foreign_are_named_and_the_others_answered(
    member: Member, shared: SharedStorageConfig, caplog: pytest.LogCaptureFixture
) -> None:
    member.pass_time(MINUTE)
    member.send("a", *range(30, 60))
    member.commit()
    member.pass_time(MINUTE)
    root = Path(shared.url)
    torn = sorted((root / f"group={GROUP}").rglob("*.parquet"))[1]
    torn.write_bytes(torn.read_bytes()[:-100])
    (root / "readme.txt").write_text("not ours")
    duckdb.connect().sql(f"copy (select 1 as a) to '{torn.with_name(torn.name[:-11] + '9.parquet')}'")
    with caplog.at_level(logging.ERROR):
        member.pass_time(MINUTE)
    unreadable = member.store.shared_status().unreadable
    assert len(unreadable) == 3
    assert "readme.txt" in unreadable
    assert str(torn) in caplog.text
    found = member.store.history("GPU-a-0", GAUGE, 0, 1 << 62, 0)
    assert found.mean == values(*range(30))
    [(start, end)] = found.incomplete
    assert start <= member.wall < end
    torn.unlink()
    member.pass_time(MINUTE)
    assert len(member.store.shared_status().unreadable) == 2


def test_no_file_of_others_is_left_out_for_a_database_of_our_own_that_is_closed(
    tmp_path: Path, member: Member, shared: SharedStorageConfig
) -> None:
    """After a disk that was full, say; one that was left out is looked at again only when it changes."""
    other = Member(tmp_path / "two", shared)
    member.pass_time(MINUTE)
    other.store._engine._disconnect()
    other.wall = member.wall
    other.store.tend(other.wall)
    status = other.store.shared_status()
    assert "it is closed after an error" in status.problem
    assert not status.unreadable
    other.store._engine.open()
    other.pass_time(MINUTE)
    status = other.store.shared_status()
    assert (status.problem, status.unreadable) == ("", {})
    assert other.read() == values(*range(30))
    other.store.close()


def test_a_flipped_byte_is_found_by_the_endless_check(member: Member, shared: SharedStorageConfig) -> None:
    member.pass_time(MINUTE)
    [path] = (Path(shared.url) / f"group={GROUP}").rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    for _ in range(3):
        member.store.check_next()
    [(name, reason)] = member.store.shared_status().unreadable.items()
    assert path.as_posix().endswith(name)
    assert "bytes have changed" in reason
    found = member.store.history("GPU-a-0", GAUGE, 0, 1 << 62, 0)
    assert found.incomplete == [(sampled_at(0), sampled_at(30))]
    assert member.read(device="GPU-b-0") == values(*range(30), node="b")


def test_what_is_verified_while_the_storage_goes_away_is_answered_when_it_is_back(
    member: Member, shared: SharedStorageConfig
) -> None:
    """A file that is not there is not damaged."""
    member.pass_time(MINUTE)
    root = Path(shared.url)
    away = root.rename(root.with_name("away"))
    for _ in range(3):
        member.store.check_next()
    status = member.store.shared_status()
    assert "Mount it" in status.problem
    assert not status.unreadable
    away.rename(root)
    for _ in range(3):
        member.store.check_next()
    member.pass_time(MINUTE)
    status = member.store.shared_status()
    assert (status.problem, status.unreadable) == ("", {})
    assert member.read() == values(*range(30))


def test_while_the_storage_is_away_commits_and_answers_go_on_and_it_is_caught_up(
    member: Member, shared: SharedStorageConfig
) -> None:
    member.pass_time(MINUTE)
    root = Path(shared.url)
    away = root.rename(root.with_name("away"))
    member.send("a", *range(30, 60))
    member.commit()
    member.pass_time(MINUTE)
    status = member.store.shared_status()
    assert "Mount it" in status.problem
    assert (status.waiting, status.waiting_since > 0, status.waiting_bytes > 0) == (1, True, True)
    assert not root.exists(), "a folder is not made where a mount is missing"
    away.rename(root)
    member.reopen()  # what waits outlives a restart
    member.hello("a")
    member.pass_time(MINUTE)
    status = member.store.shared_status()
    assert (status.problem, status.waiting) == ("", 0)
    assert member.read() == values(*range(60))
    assert not list((member.config.data_dir / "outgoing").rglob("*.parquet"))


@pytest.mark.parametrize("damage", SORTS, ids=lambda one: one.name)
def test_a_waiting_segment_that_is_damaged_stops_no_start_and_no_other_segment(
    member: Member, shared: SharedStorageConfig, damage: Damage
) -> None:
    """The segment is kept by name, and what came of its frames is read from the database as long as that has them."""
    root = Path(shared.url)
    away = root.rename(root.with_name("away"))
    member.pass_time(MINUTE)
    damaged, other = sorted((member.config.data_dir / "outgoing").rglob("*.parquet"))
    damage.apply(damaged, DamagedKind("outgoing/*"))
    away.rename(root)
    with as_a_user():
        member.reopen()
        member.hello("a")
        member.pass_time(MINUTE)
        member.send("a", *range(30, 60))
        assert member.commit() == 30
        member.pass_time(MINUTE)
    assert other.name in {Path(name).name for name in segments(shared)}
    if not damage.name.startswith("flipped"):
        assert os.path.lexists(damaged.with_name(f"{damaged.name}.damaged-1"))
    assert member.read()[-30:] == values(*range(30, 60))
    assert member.store.shared_status().waiting == 0


def test_a_period_is_not_dropped_from_the_database_before_it_is_spilled(member: Member) -> None:
    member.wall += 2 * HOUR
    member.store._spilled_at = member.wall  # no spill is due yet
    assert not member.store.maintain(member.wall)
    assert member.read() == values(*range(30))
    member.pass_time(MINUTE)
    assert not member.store._periods
    assert member.read() == values(*range(30))


def test_a_crash_between_the_files_and_their_commit_spills_the_same_frames_again(
    member: Member, shared: SharedStorageConfig
) -> None:
    member.wall += MINUTE
    assert member.store.maintain(member.wall)
    while not member.store._spiller.made:  # type: ignore[union-attr]
        member.store.seal()
    assert list((member.config.data_dir / "outgoing").rglob("*.parquet"))
    member.reopen()
    assert not list((member.config.data_dir / "outgoing").rglob("*.parquet"))
    member.pass_time(MINUTE)
    assert member.read() == values(*range(30))
    assert len(segments(shared)) == 2


def test_a_name_that_is_taken_by_the_same_bytes_was_put_there_before_a_crash(
    member: Member, shared: SharedStorageConfig
) -> None:
    member.wall += MINUTE
    member.seal()
    while member.store._outgoing:
        member.store.tend(member.wall)
    member.reopen()  # before the database knows of it
    assert member.store.shared_status().waiting == 2
    member.pass_time(MINUTE)
    assert len(segments(shared)) == 2
    assert member.read() == values(*range(30))


def test_a_database_that_is_opened_again_after_an_upload_stops_no_later_one(
    member: Member, shared: SharedStorageConfig
) -> None:
    """A disk was full: the table still names what is in the storage already."""
    member.wall += MINUTE
    member.seal()
    while not member.store._uploaded:
        member.store.tend(member.wall)
    member.store._engine._disconnect()
    _everything_arrives(member, shared)


def test_a_database_that_is_opened_again_during_an_upload_loses_no_other_segment(
    member: Member, shared: SharedStorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    member.wall += MINUTE
    member.seal()
    put = member.store._storage.put

    def put_slowly(path: Path, name: str) -> None:
        put(path, name)
        monkeypatch.undo()
        member.store._engine._disconnect()
        member.store.request_spill(None)  # whatever is asked first opens it again

    monkeypatch.setattr(member.store._storage, "put", put_slowly)
    while len(member.store._outgoing) == 2:
        member.store.tend(member.wall)
    assert len(member.store._outgoing) == 1
    _everything_arrives(member, shared)


def test_a_compaction_whose_files_went_with_the_database_is_made_again(
    member: Member, shared: SharedStorageConfig
) -> None:
    member.pass_time(MINUTE)
    member.hello("a")
    member.send("a", *range(30, 60))
    member.commit()
    member.pass_time(MINUTE)
    member.wall += 2 * HOUR
    while not member.store._compacted:
        assert member.store.tend(member.wall)
    member.store._engine._disconnect()
    _everything_arrives(member, shared, 60)
    assert any("rollup" in name for name in segments(shared))


def _everything_arrives(member: Member, shared: SharedStorageConfig, frames: int = 30) -> None:
    member.pass_time(2 * MINUTE)
    status = member.store.shared_status()
    assert (status.problem, status.waiting, status.unreadable) == ("", 0, {})
    assert not list((member.config.data_dir / "outgoing").rglob("*.parquet"))
    assert member.read() == values(*range(frames))
    for node in ("a", "b"):
        assert any(f"group={shard_of(node)}" in name for name in segments(shared))


def test_readings_are_removed_from_the_storage_by_age_and_roll_ups_stay(
    member: Member, shared: SharedStorageConfig
) -> None:
    member.pass_time(MINUTE)
    member.pass_time(2 * HOUR)
    member.pass_time(8 * 24 * HOUR)
    member.pass_time(MINUTE)
    assert {name.count("rollup") for name in segments(shared)} == {1}
    assert member.read(3600.0) == pytest.approx([sum(values(*range(30))) / 30])  # type: ignore[arg-type]


def test_names_say_group_epoch_and_period_and_nothing_else_is_one() -> None:
    key = SegmentName("2f", 17, 0, 1_763_697_600, 61_000)
    assert str(key) == "group=2f/epoch=00000017/2025-11-21T04-00-00Z-0000061000.parquet"
    for each in (key, key._replace(step=60), key._replace(epoch=10**9)):
        assert SegmentName.parse(str(each)) == each
    for text in ("", "group=2f/x.parquet", str(key) + "x", str(key).replace("2f", "2F")):
        assert SegmentName.parse(text) is None


def test_marks_of_a_segment_are_its_frames(member: Member) -> None:
    member.store._spill_soon.add(GROUP)
    member.upkeep()
    view = member.store._state.view.groups[GROUP]
    [segment] = view.segments.values()
    assert spans_of(segment.footer.marks) == {("a", 1): IntervalSet([(0, 29)])}
    assert {part.name for part in segment.footer.blocks} == {"gpu_fast", "node_fast"}
    assert replace(view, overlap=frozenset()) == view


def test_the_loop_says_what_does_not_work_until_it_works_again(member: Member, shared: SharedStorageConfig) -> None:
    impairments = Impairments()
    upkeep = SharedUpkeep(member.store, impairments, lambda: member.wall)
    root = Path(shared.url)
    away = root.rename(root.with_name("away"))
    member.pass_time(MINUTE)
    upkeep.report()
    [found] = impairments.current()
    assert (found.rule, found.part) == ("shared_storage_failing", "store/shared")
    assert "2 segments" in found.reason
    away.rename(root)
    (root / "foreign").write_text("x")
    member.pass_time(MINUTE)
    member.wall += MINUTE
    upkeep.report()
    assert {one.part for one in impairments.current() if not one.until} == {"store/unreadable"}
    upkeep.threads.close()


async def test_the_loop_puts_segments_into_the_storage(member: Member, shared: SharedStorageConfig) -> None:
    upkeep = SharedUpkeep(member.store, Impairments(), lambda: member.wall)
    member.wall += MINUTE
    member.seal()
    task = asyncio.create_task(upkeep.run())
    await until(lambda: len(segments(shared)) == 2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    upkeep.threads.close()
