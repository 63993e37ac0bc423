"""The loop that works on the shared storage, in a thread of its own: a storage that hangs blocks neither
commits nor spills."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aggregator.impairments import Impairments
from aggregator.store.shared.store import SharedStatus, SharedStore
from telemetry.runtime.worker_threads import WorkerThreads
from telemetry.text import duration

RULE = "shared_storage_failing"
PAUSE_SECONDS = 1.0
_NAMED = 3


class SharedUpkeep:
    """Uploads, listings, compaction and removal, until cancelled; what does not work is an impairment."""

    def __init__(self, store: SharedStore, impairments: Impairments, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock`: ns since 1970."""
        self.threads = WorkerThreads(1, "shared-storage")
        self._store, self._clock = store, clock
        self._impairments = impairments

    async def run(self) -> None:
        """Work as long as there is work, then look again each second."""
        while True:
            more = await self.threads.run(self._store.tend, self._clock())
            self.report()
            if not more:
                await asyncio.sleep(PAUSE_SECONDS)

    def report(self) -> None:
        """Report what does not work now."""
        self._impairments.update(RULE, reasons_of(self._store.shared_status(), self._clock()))


def reasons_of(status: SharedStatus, now: int) -> dict[str, str]:
    """Return why the storage does not work, by part; nothing where it does. `now` in ns."""
    found = {}
    if status.problem:
        waits = "nothing waits"
        if status.waiting:
            age = duration(max(0, round((now - status.waiting_since) / 1e9)))
            waits = (
                f"{status.waiting} segments ({status.waiting_bytes} bytes) wait here: a loss of this disk "
                f"costs a refill of {age}"
            )
        found["store/shared"] = f"{status.problem} {waits}"
    if status.unreadable:
        names = sorted(status.unreadable)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        first = status.unreadable[names[0]]
        found["store/unreadable"] = (
            f"{len(names)} files are left out: {', '.join(names[:_NAMED])}{more}; the first: {first}"
        )
    return found
