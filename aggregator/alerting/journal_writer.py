"""The journal writer: stores the changes of the incident manager, in order, in its own thread.

A slow or full disk delays nothing else: changes that arrive meanwhile are joined and written together,
and a failed write is retried with growing pauses. The journal has them in memory and gives them to the
outbox; a page must not wait for a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal, Route
from telemetry.runtime.backoff import STEADY, Backoff
from telemetry.runtime.isolation import Isolation, PartKind
from telemetry.runtime.worker_threads import WorkerThreads

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
"""Seconds between two tries."""
IDLE_SECONDS = 60.0


class JournalWriter:
    """Owns the thread in which the journal is written."""

    def __init__(self, journal: Journal, route: Route, wake: Callable[[], None]) -> None:
        """`wake` is called after each commit: there may be something to send."""
        self._journal = journal
        self._route = route
        self._wake = wake
        self.threads = WorkerThreads(1, "journal")
        self._step: IncidentChanges | None = None
        self._records: Sequence[AlertRecord] | None = None
        self._waiting: list[asyncio.Future[bool]] = []
        self._work = asyncio.Event()
        self.aside = Isolation(PartKind.DELIVERY)
        """`journal` where the last step could not be given to it, by a fault of our own; `wake` where the channels were not
        woken: they look by themselves every few seconds."""
        self.commits = 0
        self.errors = 0
        """Commits that did not reach the disk at first."""
        self.seconds = 0.0
        """Time spent in commits."""
        self.last = 0.0
        """Duration of the last commit."""

    @property
    def waits(self) -> bool:
        """Whether anything is not on disk yet."""
        return self._step is not None or self._records is not None or bool(self._journal.trouble)

    def add(self, step: IncidentChanges, records: Sequence[AlertRecord] | None = None) -> None:
        """Add the changes of a step, and the engine's records where they have changed."""
        if not step and not step.records and records is None:
            return
        self._step = step if self._step is None else self._step.then(step)
        if records is not None:
            self._records = records
        self._work.set()

    async def saved(self, seconds: float) -> bool:
        """Wait until all that was added is on disk; False when it can't be, or takes too long."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._work.set()
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return False

    async def run(self) -> None:
        """Commit whenever there is something to commit, until cancelled."""
        retry = Backoff(FIRST_RETRY, LONGEST_RETRY, STEADY)
        while True:
            try:
                failing = self._journal.trouble or len(self.aside)
                pause = retry.next() if failing else IDLE_SECONDS
                if "journal" in self.aside:
                    await asyncio.sleep(min(pause, FIRST_RETRY))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._work.wait()
                if "wake" in self.aside:
                    self._wake_channels()
                if await self._commit() and "wake" not in self.aside:
                    retry.reset()
            except Exception as error:  # noqa: BLE001 - reported
                self.aside.fail("journal", error, 0.0)
                await asyncio.sleep(FIRST_RETRY)

    async def close(self) -> None:
        """Commit the rest and close the journal."""
        try:
            if not await self._commit():
                log.error(
                    "alerts: the journal could not be written before the end: %s. Changes that are not in it are lost.",
                    self._journal.trouble,
                )
            await self.call(self._journal.close)
        finally:
            self.threads.close()

    async def _commit(self) -> bool:
        self._work.clear()
        step, records, waiting = self._step, self._records, self._waiting
        self._step, self._records, self._waiting = None, None, []
        if step is None and records is None and not self._journal.trouble and not waiting:
            return True
        began = time.monotonic()
        before = self._journal.trouble
        try:
            good = await self._written(step, records)
        except Exception as error:  # noqa: BLE001 - no disk's fault: what was to be written is tried again
            self.aside.fail("journal", error, 0.0)
            good = False
            self._put_back(step, records)
        self.commits += 1
        self.errors += not good
        self.last = time.monotonic() - began
        self.seconds += self.last
        for future in waiting:
            if not future.done():
                future.set_result(good)
        self._wake_channels()
        self._log(before)
        return good

    def _wake_channels(self) -> None:
        """Tell the channels that there may be something to send; no commit waits for them."""
        with self.aside.attempt("wake"):
            self._wake()

    async def _written(self, step: IncidentChanges | None, records: Sequence[AlertRecord] | None) -> bool:
        """Return whether changes are on disk; without the thread, the loop writes them itself: a page
        must not wait for it."""
        try:
            good = await self.call(lambda: self._write(step, records))
            self.aside.works("journal")
        except Exception as error:  # noqa: BLE001 - reported
            self.aside.fail("journal", error, 0.0)
            good = self._write(step, records)
        return good

    def _put_back(self, step: IncidentChanges | None, records: Sequence[AlertRecord] | None) -> None:
        """Add what could not be written before what has come meanwhile."""
        if step is not None:
            self._step = step if self._step is None else step.then(self._step)
        if self._records is None:
            self._records = records

    def _write(self, step: IncidentChanges | None, records: Sequence[AlertRecord] | None) -> bool:
        if step is None and records is None:
            return self._journal.flush()
        return self._journal.commit(step or IncidentChanges(), self._route, records)

    def _log(self, before: str) -> None:
        trouble = self._journal.trouble
        if trouble and not before:
            log.error(
                "alerts: the journal can't be written: %s. Alerts and pages go on; a crash "
                "now would lose what is not on disk.",
                trouble,
            )
        elif before and not trouble:
            log.warning("alerts: the journal is written again")

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of the journal."""
        return await self.threads.run(function)
