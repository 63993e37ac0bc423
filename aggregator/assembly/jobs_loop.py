"""The jobs of a running aggregator: the loop that counts what they use and stores them, and what the scheduler lists."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from aggregator.assembly.job_edges import count_edges
from aggregator.electrical.service import ElectricalService
from aggregator.impairments import LoopTurns
from aggregator.ingest.held_messages import when_idle
from aggregator.jobs import running, unheld
from aggregator.jobs.service import MOST_AT_ONCE, STEP_SECONDS, JobService
from aggregator.jobs.usage import CountedMonth
from aggregator.load.every import every
from aggregator.load.round_robin import RoundRobin
from aggregator.scheduler.listed import JobListing
from aggregator.store.executor import StoreExecutor
from power.report.months import month_at
from telemetry.errors import StoreError
from telemetry.fleet import Fleet

log = logging.getLogger(__name__)

USE_SECONDS = 60.0
"""Seconds between two writes of what jobs that run have used, and of the use of GPUs that no job holds."""
JOBS_A_TURN = 100
"""Jobs whose use is collected in one go."""


class JobsLoop:
    """Counts and stores the jobs of a fleet."""

    def __init__(
        self,
        jobs: JobService,
        fleet: Fleet,
        electrical: ElectricalService,
        folder: Path,
        *,
        idle: asyncio.Event,
        turns: LoopTurns,
        round_robin: RoundRobin,
        now: Callable[[], float],
        wall: Callable[[], int],
    ) -> None:
        """`folder`: of data; `idle`: set while the rules are not evaluated; `now`: monotonic seconds; `wall`: ns since
        1970."""
        self._jobs, self._fleet, self._electrical, self._folder = jobs, fleet, electrical, folder
        self._idle, self._turns, self._round_robin = idle, turns, round_robin
        self._now, self._wall = now, wall
        self._saved = -math.inf
        """When the use of jobs and of GPUs that no job held was saved last, monotonic seconds."""

    async def restore(self, store: StoreExecutor) -> None:
        """Begin with what is stored and saved."""
        with self._turns.turn("jobs of before"):
            saved = await asyncio.to_thread(running.load, self._folder)
            self._jobs.restore(await store.open_jobs(), saved)
        self._jobs.meter.unheld = await asyncio.to_thread(unheld.load, self._folder)

    async def run(self, store: StoreExecutor) -> None:
        """Count what jobs use, and store them, until it is cancelled."""
        async for now in every(STEP_SECONDS):
            await when_idle(self._idle)
            with self._turns.turn("jobs"):
                wall = self._wall()
                await self._count(now, wall)
                await count_edges(self._jobs, store, wall, self._round_robin.turn)
                if self._jobs.writes.begin(len(self._jobs.ledger.jobs), now):
                    await self._write(store)
                await self._save_use(now)
                self._jobs.forget_ended(now, wall)

    async def settle(self, store: StoreExecutor) -> None:
        """Store and save what is left at the end."""
        with self._turns.turn("jobs"):
            await self._write(store)
            await self._save_use(math.inf)

    async def hear(self, listing: JobListing) -> Sequence[str]:
        """Apply what the scheduler lists; return what does not fit in it."""
        await when_idle(self._idle)
        for _ in self._jobs.hear(listing, self._now(), self._wall()):
            await self._round_robin.turn()
        return self._jobs.unlisted.problems()

    async def _count(self, now: float, wall: int) -> None:
        energy, site = self._electrical.energy, self._electrical.site
        price = energy.price(wall)
        if price is not None:
            price *= site.config.site.pue
        month = month_at(wall / 1e9, site.zone)
        counted = CountedMonth(month.name, month.start * 10**9, month_at(month.start - 1, site.zone).name)
        for _ in self._jobs.steps(self._fleet, now, wall, energy.node_watts(), price, counted):
            await self._round_robin.turn()

    async def _save_use(self, now: float) -> None:
        """Save the use of jobs that run and of nobody, once a minute."""
        if now - self._saved < USE_SECONDS:
            return
        self._saved = now
        jobs, found = self._jobs, []
        for number, one in enumerate(running.of_jobs(jobs.ledger, jobs.meter, jobs.aside, now)):
            found.append(one)
            if number % JOBS_A_TURN == 0:
                await self._round_robin.turn()
        try:
            await asyncio.to_thread(running.save, self._folder, found)
            await asyncio.to_thread(unheld.save, self._folder, unheld.encode(jobs.meter.unheld))
        except OSError as error:  # the store has its own troubles then, which are reported
            log.warning("%s: %s", error.filename or self._folder, error.strerror)

    async def _write(self, store: StoreExecutor) -> None:
        """Store the jobs that are due; those that can't be stored now are due again."""
        asked = list(self._jobs.ledger.fresh)
        try:
            if asked:
                self._jobs.absorb(await store.jobs_of(asked), asked)
            while due := self._jobs.due(self._now(), self._wall()):
                await store.write_jobs(due)
                self._jobs.written(due, self._now(), self._wall())
                if len(due) < MOST_AT_ONCE:
                    break
        except StoreError as error:  # as of its commits, which are reported
            log.warning("store: jobs are written again later: %s", error)
