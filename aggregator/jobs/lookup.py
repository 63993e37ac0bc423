"""Jobs of one aggregator, in memory and in its store; memory is newer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aggregator.jobs.aliases import without_aliases
from aggregator.jobs.service import JobService
from aggregator.jobs.stored import JobQuery, StoredJob, UnheldMonth, key_of
from aggregator.jobs.usage import UnheldKey
from api.jobs import JobRow
from telemetry.wire.jobs import JobKey


class JobStore(Protocol):
    """Jobs that are stored: `aggregator.store.executor.StoreExecutor`."""

    async def jobs_of(self, keys: Sequence[JobKey]) -> list[StoredJob]:
        """Return the jobs of some keys, as far as they are stored."""

    async def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """Return jobs, the newest begin first."""


async def find_here(jobs: JobService, store: JobStore, wanted: JobQuery, wall: int) -> list[JobRow]:
    """Return the jobs that match a query, the newest begin first. `wall`: ns since 1970."""
    live = jobs.matching(wanted, wall)
    found = await store.find_jobs(wanted)
    known = {key_of(row) for row in live} | jobs.ledger.jobs.keys()
    stored = [row for row in found if key_of(row) not in known]
    seen = [row for row in (*live, *stored) if wanted.user in {"", row.user}]
    return sorted(without_aliases(seen), key=lambda row: -row.begin)


async def whole_here(jobs: JobService, store: JobStore, keys: Sequence[JobKey], wall: int) -> dict[JobKey, StoredJob]:
    """Return all that is known of some jobs. `wall`: ns since 1970."""
    found = {key: jobs.stored(key, wall) for key in keys if key in jobs.ledger.jobs}
    rest = [key for key in keys if key not in found]
    stored = await store.jobs_of(rest) if rest else ()
    return found | {each.record.job.key: each for each in stored}


def unheld_here(jobs: JobService, month: str) -> UnheldMonth:
    """Return the use of the GPUs that no job held in a month."""
    free = jobs.meter.unheld
    return UnheldMonth(free.get(UnheldKey(month, reported=True)), free.get(UnheldKey(month, reported=False)))
