"""The store executor: commits go on during a seal, and closing waits for no thread."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from aggregator.store.executor import SEALING_NICE, StoreExecutor
from aggregator.store.seal import Sealer
from api.stats import Stats
from telemetry.errors import StoreError
from tests.aggregator.feed import HOUR, Feed


class Gate:
    """Holds a sealer in the middle of a file, its connection open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.nice = -1
        step = Sealer.step

        def held(sealer: Sealer) -> None:
            with sealer._engine.reader() as look:
                self.nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
                self.reached.set()
                while not self.open.wait(0.01):
                    look.rows("select 1")  # a closing engine ends it here, as it would a long copy
            step(sealer)

        monkeypatch.setattr(Sealer, "step", held)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    feed = Feed(tmp_path / "data")
    feed.hello("a")
    feed.send("a", *range(30))
    feed.commit()
    feed.wall += HOUR
    return feed


async def test_a_commit_does_not_wait_for_a_file_in_the_making(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, keeper = Gate(monkeypatch), StoreExecutor(feed.store, Stats())
    sealing = asyncio.create_task(keeper.maintain(feed.wall))
    await asyncio.to_thread(gate.reached.wait)
    feed.send("a", 30)
    feed.flush()
    assert await keeper.write(feed.ingest.drain_batch(feed.wall), asyncio.Event())
    assert not sealing.done()
    gate.open.set()
    assert await sealing
    while await keeper.maintain(feed.wall):
        pass
    assert list((feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"))
    found = feed.store.history("GPU-a-0", "gpu_power_watts", 0, 1 << 62, 0)
    assert len(found.at) == 31
    if sys.platform == "linux":
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        assert gate.nice == max(usual, SEALING_NICE), "the rest goes first"
    await keeper.close()


async def test_closing_ends_a_seal_and_the_next_start_makes_it_again(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        gate, keeper = Gate(patch), StoreExecutor(feed.store, Stats())
        sealing = asyncio.create_task(keeper.maintain(feed.wall))
        await asyncio.to_thread(gate.reached.wait)
        await keeper.close()
        assert not await sealing
        assert not keeper._stats.store_ok or keeper._stats.store_errors
    feed.open()
    feed.seal()
    assert len(feed.store.history("GPU-a-0", "gpu_power_watts", 0, 1 << 62, 0).at) == 30
    assert len(list((feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"))) == 1


async def test_a_seal_that_fails_is_told_and_begun_anew(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = Stats()
    keeper = StoreExecutor(feed.store, stats)
    with monkeypatch.context() as patch:

        def full(_: Sealer) -> None:
            raise StoreError("no space left on device.")

        patch.setattr(Sealer, "step", full)
        assert not await keeper.maintain(feed.wall)
    assert not stats.store_ok
    while await keeper.maintain(feed.wall):
        pass
    assert len(list((feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"))) == 1
    await keeper.close()


async def test_a_check_that_fails_is_told_once_and_is_no_fault_of_writing(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sibling that is damaged can't be read to find what a lost file had."""
    stats, checks = Stats(), []
    keeper = StoreExecutor(feed.store, stats)
    while await keeper.maintain(feed.wall):
        pass

    def damaged() -> None:
        checks.append(1)
        raise StoreError("no magic bytes found at end of file.")

    monkeypatch.setattr(feed.store, "check_next", damaged)
    for _ in range(3):
        assert not await keeper.maintain(feed.wall)
    assert (len(checks), stats.store_ok, stats.store_errors) == (1, True, 0)
    assert caplog.text.count("no magic bytes") == 1
    await keeper.close()


async def test_a_log_that_cannot_be_folded_in_is_named_until_it_can(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a fault of our own: it would grow until the disk is full, and commits go on meanwhile."""
    keeper = StoreExecutor(feed.store, Stats())
    feed.send("a", 30)
    feed.flush()
    with monkeypatch.context() as patch:
        patch.setattr(feed.store, "tidy", lambda: int("x"))
        assert await keeper.write(feed.ingest.drain_batch(feed.wall), asyncio.Event())
        assert "ValueError" in keeper.faults["fold of the log"]
    feed.send("a", 31)
    feed.flush()
    assert await keeper.write(feed.ingest.drain_batch(feed.wall), asyncio.Event())
    assert keeper.faults == {}
    await keeper.close()
