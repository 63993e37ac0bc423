"""Where two sources of a job disagree, in a line each. Pure: nobody decides here who is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.jobs.scheduled import SAYS_NOTHING
from aggregator.scheduler.names import SCHEDULERS, SOURCES
from api.jobs import AllocationRow, JobAccount
from telemetry.text import duration, timestamp
from telemetry.wire.jobs import AllocationKind, Job, Precision

LEAST_SECONDS = 2.0
"""Difference of two times beyond which it is said: Slurm's are whole seconds."""
PROCESS_SECONDS = 10.0
"""The same for times by processes, which are looked at every few seconds."""


def differences(job: Job, rows: Sequence[AllocationRow], account: JobAccount | None) -> list[str]:
    """Return where the sources of a job disagree, and which ends nobody said. `job`: as nodes and scheduler have it,
    without its account."""
    return [*_of_gpus(rows), *_of_ends(rows), *(() if account is None else _of_account(job, rows, account))]


def _of_gpus(rows: Sequence[AllocationRow]) -> Iterator[str]:
    """Yield the nodes on which the prolog and the scheduler name different GPUs."""
    for node, source in sorted({(row.node, row.source) for row in rows if row.source in SOURCES}):
        given = [row for row in rows if row.node == node and row.kind is AllocationKind.ALLOCATED]
        if any(row.source != source and row.begin_from is Precision.HOOK for row in given):
            yield f"{node}: {source} names other GPUs than the prolog"


def _of_ends(rows: Sequence[AllocationRow]) -> Iterator[str]:
    """Yield the nodes on which no epilog said the end, when that can have been, and by what it is known."""
    given = [row for row in rows if row.end_by and row.kind is AllocationKind.ALLOCATED]
    for node in sorted({row.node for row in given}):
        row = next(row for row in given if row.node == node)
        end, after = row.end or 0, row.end_after
        when = "at" if after in {None, end} else f"between {timestamp(after or 0)} and"
        yield f"{node}: no epilog said its end: it was {when} {timestamp(end)}, by {row.end_by}"


def _of_account(job: Job, rows: Sequence[AllocationRow], account: JobAccount) -> Iterator[str]:
    names = SCHEDULERS[job.key.scheduler]
    its = names.accounting
    first = min(rows, key=lambda row: (row.begin_from is Precision.PROCESS, row.begin))
    last = max(rows, key=lambda row: (row.end_from is not Precision.PROCESS, row.end or 0))
    if account.begin is None:
        if names.has_runs:
            yield f"{its} knows no begin of this run"
    elif names.has_runs and (late := _lateness(first.begin, account.begin, first.begin_from)):
        yield f"it had its first GPU {late} than its begin in {its}"
    if account.end is not None and last.end is not None and (late := _lateness(last.end, account.end, last.end_from)):
        yield f"it gave its last GPU back {late} than its end in {its}"
    if job.state not in {*SAYS_NOTHING, account.state} and job.end:
        yield f"{job.state} here, {account.state} in {its}"
    elif (job.exit_code or 0) != (account.exit_code or 0) and job.state not in SAYS_NOTHING:
        yield f"exit code {job.exit_code or 0} here, {account.exit_code or 0} in {its}"


def _lateness(ours: int, its: int, how: Precision) -> str:
    """Return how much later or earlier our time is; "" where they agree."""
    seconds = (ours - its) / 1e9
    if abs(seconds) <= (PROCESS_SECONDS if how is Precision.PROCESS else LEAST_SECONDS):
        return ""
    return f"{duration(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"
