"""The faults of GPUs while jobs held them, counted by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from aggregator.jobs.ledger import JobLedger
from aggregator.jobs.usage import FOREVER
from telemetry.devices import Event
from telemetry.wire.jobs import JobKey

AFTER_SECONDS = 60.0
"""Seconds after a job's end in which an event of its GPUs counts as a fault while it ran."""
MOST_FAULTS = 32
"""Kinds of faults that are counted of a job."""


class JobFaults:
    """Faults of the jobs of a ledger."""

    def __init__(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        self._of: dict[JobKey, Counter[str]] = {}

    def note(self, event: Event) -> None:
        """Count an event of a GPU for the jobs that held it, or did until a minute before."""
        if not event.gpu:
            return
        number = event.data.get("xid")
        kind = f"{event.kind} {number}" if isinstance(number, int) else event.kind
        for key, row in self._ledger.of_node(event.node):
            end = FOREVER if row.end is None else row.end + AFTER_SECONDS * 1e9
            if row.gpu == event.gpu and row.begin <= event.at <= end:
                found = self._of.setdefault(key, Counter())
                if kind in found or len(found) < MOST_FAULTS:
                    found[kind] += 1
                    self._ledger.changed.add(key)

    def of(self, key: JobKey) -> Mapping[str, int]:
        """Return the faults of a job."""
        return self._of.get(key, {})

    def restore(self, key: JobKey, faults: Mapping[str, int]) -> None:
        """Add what is stored of a job."""
        if faults:
            self._of.setdefault(key, Counter()).update(faults)

    def rename(self, old: JobKey, new: JobKey) -> None:
        """Bring what was counted of a job under an alias to its name, which may have the same faults."""
        faults = self._of.pop(old, None)
        if faults:
            self._of[new] = self._of.get(new, Counter()) | faults

    def forget(self, key: JobKey) -> None:
        """Forget a job."""
        self._of.pop(key, None)
