"""The store's own thread: commits, short upkeep and questions, one at a time; sealing has another.

The engine releases the interpreter while it works, so ingest goes on meanwhile. A batch that could
not be written is kept and tried again, ever more patiently, until it can be: what comes in the
meantime is bounded by ingest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from aggregator.stats import Stats
from aggregator.store.protocol import Batch, Store
from telemetry.errors import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_RETRY = 30.0
"""Seconds between two tries of a batch."""
SEALING_NICE = 10


class StoreExecutor:
    """Runs a store."""

    def __init__(self, store: Store, stats: Stats) -> None:
        self.store = store
        self._stats = stats
        self._thread = ThreadPoolExecutor(1, "store")
        self._apart = ThreadPoolExecutor(2, "store-apart")
        self._upkeep = ThreadPoolExecutor(1, "store-upkeep", initializer=_step_back)
        """No thread of these is started before it is used."""

    async def ask(self, function: str, *args: object) -> Any:
        """Call a method of the store in its thread; what a store asks of others (`apart`) in one of
        its own, so that no commit waits for a server's answer."""
        if function in getattr(self.store, "apart", ()):
            ask = getattr(self.store, function)
            return await asyncio.get_running_loop().run_in_executor(self._apart, ask, *args)
        return await self._call(lambda: getattr(self.store, function)(*args))

    async def write(self, batch: Batch, stop: asyncio.Event) -> bool:
        """Write a batch, however often it takes; False when `stop` was set and it failed again."""
        wait = 0.5
        while True:
            began = time.monotonic()
            backfilled = int(batch.frames.backfilled.sum())
            try:
                new = await self.ask("write", batch)
            except StoreError as error:
                self._failed(error)
                if stop.is_set():
                    return False
                try:
                    await asyncio.wait_for(stop.wait(), wait)
                except TimeoutError:
                    wait = min(LONGEST_RETRY, 2 * wait)
                continue
            stats = self._stats
            stats.store.add(time.monotonic() - began)
            live = batch.frames.sampled_at[~batch.frames.backfilled]
            stats.committed.add((time.time_ns() - live) / 1e9)
            stats.frames_stored += new
            stats.frames_backfilled += min(new, backfilled)
            stats.frames_duplicate += len(batch.frames) - new
            stats.events_stored += len(batch.events)
            if not stats.store_ok:
                log.warning("store: it writes again")
                stats.store_ok = True
            await self._tidy()
            return True

    async def _tidy(self) -> None:
        try:
            await self.ask("tidy")
        except StoreError as error:  # nothing is lost, and a commit that fails will be told
            log.warning("store: %s", error)

    async def maintain(self, wall: int) -> bool:
        """Do one piece of upkeep; returns whether there is more to do now."""
        try:
            more = bool(await self.ask("maintain", wall))
            if more:
                await asyncio.get_running_loop().run_in_executor(self._upkeep, self.store.seal)
                await self._tidy()  # beside a file in the making the log can't be folded in
        except StoreError as error:
            self._failed(error)
            return False
        return more

    async def close(self) -> None:
        """Write everything down and end the thread."""
        try:
            await self.ask("close")
        finally:
            self._thread.shutdown(wait=False)
            for threads in (self._apart, self._upkeep):
                threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _failed(self, error: StoreError) -> None:
        self._stats.store_errors += 1
        if self._stats.store_ok:
            log.error("store: %s Live data goes on; what can't be kept is asked for again.", error)
        self._stats.store_ok = False


def _step_back() -> None:
    """Let a thread have what the others leave: 100,000 GPUs are sealed at a third of a core, and
    nothing waits for it."""
    if sys.platform == "linux":  # elsewhere it would be the whole process
        own = threading.get_native_id()
        usual = os.getpriority(os.PRIO_PROCESS, own)
        with contextlib.suppress(OSError):  # a sandbox may forbid it: then not
            os.setpriority(os.PRIO_PROCESS, own, max(usual, SEALING_NICE))  # up is forbidden to all
