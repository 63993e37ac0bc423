"""The threads of the store: one for commits, upkeep and short queries; others for long queries and
sealing.

The engine releases the interpreter while it works, so ingest goes on meanwhile. A batch that could
not be written is retried, with growing pauses, until it can be: ingest bounds what waits meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, TypeVarTuple, Unpack

from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.stats import add_lags
from aggregator.store.content_faults import TRIES, ContentFaults, is_content
from aggregator.store.protocol import (
    Batch,
    FleetPast,
    HistorySeries,
    LostFrames,
    OtherStores,
    PastInstants,
    Store,
    StoredState,
    StoreStatus,
)
from api.fleet import StoredEvent
from api.jobs import JobRow
from api.stats import Stats
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.runtime.backoff import STEADY, Backoff
from telemetry.runtime.isolation import reason_of
from telemetry.runtime.worker_threads import WorkerThreads
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import JobKey

log = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")
Answer = TypeVar("Answer")
FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
"""Seconds between two tries of a batch."""
CHECK_PAUSE = 300.0
"""Seconds without a check of sealed files after one that failed."""
SEALING_NICE = 10


class StoreExecutor:
    """Runs a store's methods in threads, so that the event loop never waits for a disk."""

    def __init__(self, store: Store, stats: Stats, attempted: Callable[[], None] = lambda: None) -> None:
        """`attempted` is called after each try to commit, whether it succeeded or not."""
        self._store = store
        self._stats = stats
        self._attempted = attempted
        self.others: OtherStores | None = None
        """The stores of the other aggregators of a cluster, this one among them."""
        self.content = ContentFaults()
        """Nodes whose content could not be written."""
        self.faults: dict[str, str] = {}
        """Why `commit` or `fold of the log` fails as a whole, by a fault of our own rather than of the disk
        or a server."""
        self._thread = WorkerThreads(1, "store")
        self._beside = WorkerThreads(2, "store-apart")
        """For answers that may take longer than a commit may wait."""
        self._check_at = -math.inf
        """Monotonic seconds before which no sealed file is checked."""
        self._upkeep = WorkerThreads(1, "store-upkeep", _lower_priority)
        self._maintaining = asyncio.Lock()

    @property
    def threads(self) -> list[WorkerThreads]:
        """The threads of the store."""
        return [self._thread, self._beside, self._upkeep]

    @property
    def store(self) -> Store:
        """The store itself, for what is not in the protocol; `run` its methods."""
        return self._store

    async def run(self, method: Callable[[Unpack[Arguments]], Answer], *args: *Arguments) -> Answer:
        """Run a method of the store in its thread, between two commits."""
        return await self._thread.run(method, *args)

    async def known(self) -> StoredState:
        """Return the runs and devices that have a number already."""
        return await self._thread.run(self._store.known)

    async def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Return which frames of each (node, session) are stored or recorded as holes."""
        return await self._thread.run(self._store.accounted)

    async def inventories(self) -> list[Inventory]:
        """Return the newest inventory of each node."""
        return await self._thread.run(self._store.inventories)

    async def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return one metric of one device, `start` <= time < `end` in ns since 1970; of a cluster's
        aggregators from the one that holds it."""
        if self.others is not None:
            return await self.others.history(device, metric, start, end, step)
        return await self.own_history(device, metric, start, end, step)

    async def own_history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return what this store has of a device."""
        return await self._beside.run(self._store.history, device, metric, start, end, step)

    async def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the newest readings of a table's devices, or of some nodes, at each instant; of all
        aggregators of a cluster."""
        if self.others is not None:
            return await self.others.past(table, columns, when, reach, nodes)
        return await self.own_past(table, columns, when, reach, nodes)

    async def own_past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return what this store has of a table's devices."""
        return await self._beside.run(self._store.past, table, columns, when, reach, nodes)

    async def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Return events, newest first; of all aggregators of a cluster."""
        if self.others is not None:
            return await self.others.events(start, end, node, kind, limit)
        return await self.own_events(start, end, node, kind, limit)

    async def own_events(
        self, start: int, end: int, node: str | None, kind: str | None, limit: int
    ) -> list[StoredEvent]:
        """Return the events that this store has."""
        return await self._thread.run(self._store.events, start, end, node, kind, limit)

    async def write_jobs(self, jobs: Sequence[StoredJob]) -> None:
        """Store jobs, each in place of what is stored of it. Raises `StoreError`."""
        await self._thread.run(self._store.write_jobs, jobs)

    async def open_jobs(self) -> list[StoredJob]:
        """Return the jobs that a start goes on with: those that last, and those whose energy is still to be counted."""
        return await self._thread.run(self._store.open_jobs)

    async def jobs_of(self, keys: Sequence[JobKey]) -> list[StoredJob]:
        """Return the jobs of some keys, as far as they are stored."""
        return await self._thread.run(self._store.jobs_of, keys)

    async def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """Return jobs, the newest begin first."""
        return await self._beside.run(self._store.find_jobs, query)

    async def size(self) -> dict[str, int]:
        """Return bytes by part."""
        return await self._thread.run(self._store.size)

    def status(self) -> StoreStatus:
        """Return the state of the store."""
        return self._store.status()

    async def write(self, batch: Batch, stop: asyncio.Event) -> bool:
        """Write a batch, with retries; return False when it failed and `stop` was set."""
        backoff = Backoff(FIRST_RETRY, LONGEST_RETRY, STEADY)
        batch = self.content.before(batch)
        tries = 0
        while True:
            began = time.monotonic()
            backfilled = int(batch.frames.backfilled.sum())
            try:
                written: int | None = await self._thread.run(self._store.write, batch)
                self.content.works(batch)
            except Exception as error:  # noqa: BLE001 - reported; a batch is never dropped for it
                tries += 1
                written = None
                if is_content(error) and tries >= TRIES:
                    written = await self.content.write(batch, lambda part: self._thread.run(self._store.write, part))
                if written is None:
                    self._attempted()
                    self._failed(error)
                    if tries >= TRIES and not isinstance(error, StoreError):  # and of no single node
                        self.faults["commit"] = reason_of(error)
            if written is None:
                if stop.is_set():
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(backoff.next()):
                        await stop.wait()
                continue
            self.faults.pop("commit", None)
            stats = self._stats
            stats.store.add(time.monotonic() - began)
            live = batch.frames.sampled_at[~batch.frames.backfilled]
            add_lags(stats.committed, (time.time_ns() - live) / 1e9)
            new = written
            stats.frames_stored += new
            stats.frames_backfilled += min(new, backfilled)
            stats.frames_duplicate += len(batch.frames) - new
            stats.events_stored += len(batch.events)
            if not stats.store_ok:
                log.warning("store: writes succeed again")
                stats.store_ok = True
            await self._tidy()
            return True

    async def _tidy(self) -> None:
        try:
            await self._thread.run(self._store.tidy)
            self.faults.pop("fold of the log", None)
        except StoreError as error:  # nothing is lost, and a commit that fails is reported
            log.warning("store: %s", error)
        except Exception as error:
            log.exception("store: the log was not folded in")
            self.faults["fold of the log"] = reason_of(error)

    async def maintain(self, wall: int) -> bool:
        """Do one piece of upkeep; return whether there is more to do now."""
        async with self._maintaining:
            return await self._maintain(wall)

    async def _maintain(self, wall: int) -> bool:
        try:
            more = await self._thread.run(self._store.maintain, wall)
            if more:
                await self._upkeep.run(self._store.seal)
                await self._tidy()  # while a file was being made the log could not be folded in
            else:
                await self._check_next()
        except StoreError as error:
            self._failed(error)
            return False
        return more

    async def _check_next(self) -> None:
        """Check one sealed file. A check that fails loses nothing, and commits go on."""
        if time.monotonic() < self._check_at:
            return
        try:
            await self._upkeep.run(self._store.check_next)
        except StoreError as error:
            self._check_at = time.monotonic() + CHECK_PAUSE
            log.warning("store: no sealed file is checked for %.0f s: %s", CHECK_PAUSE, error)

    async def drain_refill(self) -> list[LostFrames]:
        """Return frames that are to be requested again, since their file was lost."""
        return await self._thread.run(self._store.drain_refill)

    async def close(self) -> None:
        """Close the store and end the threads."""
        try:
            await self._thread.run(self._store.close)
        finally:
            self._thread.close()
            for threads in (self._beside, self._upkeep):
                threads.close(cancel=True)

    def _failed(self, error: Exception) -> None:
        self._stats.store_errors += 1
        if self._stats.store_ok:
            log.error(
                "store: %s Live data continues; frames that can't be stored are requested again.",
                error,
                exc_info=None if isinstance(error, StoreError) else error,
            )
        self._stats.store_ok = False


def _lower_priority() -> None:
    """Lower the priority of this thread: sealing takes a third of a core for 100,000 GPUs, and
    nothing waits for it."""
    if sys.platform == "linux":  # elsewhere it would be the whole process
        own = threading.get_native_id()
        usual = os.getpriority(os.PRIO_PROCESS, own)
        with contextlib.suppress(OSError):  # a sandbox may forbid it: then not
            os.setpriority(os.PRIO_PROCESS, own, max(usual, SEALING_NICE))  # up is forbidden to all
