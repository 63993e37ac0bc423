"""Jobs of which the nodes say something else than the newest listing of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.jobs.ledger import KEPT_SECONDS, JobLedger, TrackedJob
from aggregator.jobs.own_lists import OwnLists
from aggregator.jobs.scheduled import Word, short
from telemetry.wire.jobs import JobKey

UNLISTED_SECONDS = 60.0
"""Seconds after its begin from which on a job that runs has to be in the scheduler's listing."""
UNLISTED_ASKED_SECONDS = 300.0
"""Seconds between two questions to the accounting about jobs that run here and are not listed."""
MOST_NAMED = 5
"""Names of jobs or nodes in a line."""


class UnlistedJobs:
    """The jobs that run and are not listed, and those of which the accounting has said nothing."""

    def __init__(self, ledger: JobLedger, own: OwnLists, word: Word | None) -> None:
        """`word`: of the scheduler; None where nobody asks it."""
        self._ledger, self._own, self._word = ledger, own, word
        self._asked = 0
        """When the accounting was asked last about jobs that are not listed, ns since 1970."""

    def problems(self) -> list[str]:
        """Return what in the newest listing does not fit to what the nodes say, in a line each."""
        word = self._word
        if word is None or word.listing is None:
            return []
        lines = word.problems()
        missing = sorted(word.unknown - {short(node) for node in self._own.of})
        if missing:
            lines.append(f"{word.title}'s {_some(missing)}: no node of ours that sends its jobs is called so")
        unlisted = [key.id for key in self._all()]
        if unlisted and word.names is not None:
            lines.append(
                f"it does not list {_some(unlisted)}, which run here: may its user see them ({word.names.sees_all})?"
            )
        return lines

    def without_account(self, wall_ns: int) -> list[JobKey]:
        """Return runs of the scheduler that ended lately and of which the accounting has said nothing yet; now and then also those
        that last and are not listed: no epilog may have run."""
        since, names = (wall_ns - int(KEPT_SECONDS * 1e9), None if self._word is None else self._word.names)
        if names is None:
            return []
        found = [
            key
            for key, tracked in self._ledger.jobs.items()
            if key.scheduler == names.scheduler
            and tracked.account is None
            and tracked.end is not None
            and tracked.end >= since
        ]
        if wall_ns - self._asked >= UNLISTED_ASKED_SECONDS * 1e9:
            self._asked = wall_ns
            found += self._all()
        return found

    def has(self, key: JobKey, tracked: TrackedJob) -> bool:
        """Return whether a run lasts and the newest listing does not have it."""
        word = self._word
        if word is None or word.names is None or word.listing is None or word.of(key) is not None:
            return False
        if key.scheduler != word.names.scheduler or not word.names.sees_all:
            return False
        before = word.listing.at - int(UNLISTED_SECONDS * 1e9)
        return key.cluster in {"", word.cluster} and tracked.open and tracked.begin < before

    def _all(self) -> list[JobKey]:
        return [key for key, tracked in self._ledger.jobs.items() if self.has(key, tracked)]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
