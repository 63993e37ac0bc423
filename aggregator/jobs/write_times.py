"""Times at which jobs are written to the store."""

from __future__ import annotations

import math

from aggregator.jobs.usage import LAG_SECONDS
from telemetry.wire.jobs import JobKey

WRITE_SECONDS = 600.0
"""Seconds between two writes of a job that runs and does not change."""
LAST_SECONDS = 60.0
"""Seconds after which a job is written anew that had ended less than `COUNTED_SECONDS` before it was written."""
COUNTED_SECONDS = LAG_SECONDS + 5.0
"""Seconds after its end in which readings of a job are counted."""
MANY = 1000
"""Jobs in memory above which changes wait for each other: a fold of the store's log writes all rows beside a changed
one anew, and a node's list has what is not stored yet."""
TOGETHER_SECONDS = 60.0
"""Seconds between two writes of changes then."""


class WriteTimes:
    """When to write again what has not changed, and how often to write what has. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._again: dict[JobKey, float] = {}
        self._next = -math.inf

    def begin(self, jobs: int, now: float) -> bool:
        """Return whether to write what is due, of so many jobs in memory; a write is then noted as begun."""
        if now < self._next:
            return False
        self._next = now + (TOGETHER_SECONDS if jobs > MANY else 0.0)
        return True

    def due(self, now: float) -> list[JobKey]:
        """Return the jobs that are to be written again."""
        return [key for key, at in self._again.items() if at <= now]

    def restored(self, key: JobKey) -> None:
        """Note a job as the store had it at the start: it is due."""
        self._again[key] = -math.inf

    def written(self, key: JobKey, end: int | None, now: float, wall_ns: int) -> None:
        """Note that a job was written; `end`: when it ended, ns since 1970, None while it runs."""
        if end is None:
            self._again[key] = now + WRITE_SECONDS
        elif wall_ns - end < COUNTED_SECONDS * 1e9:
            self._again[key] = now + LAST_SECONDS
        else:
            self._again.pop(key, None)

    def waits(self, key: JobKey) -> bool:
        """Return whether a job is still to be written again."""
        return key in self._again

    def forget(self, key: JobKey) -> None:
        """Forget a job."""
        self._again.pop(key, None)
