"""A job as the store keeps it, and the question that finds jobs there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from aggregator.jobs.differences import differences
from aggregator.jobs.ledger import JobRecord, TrackedJob
from aggregator.jobs.usage import GpuAccount, UnheldUse
from aggregator.scheduler.listed import owner_text
from api.jobs import JobPhase, JobRow, JobSummary
from telemetry.wire.jobs import UNLIMITED, JobKey

_ARRAY = re.compile(r"(\d+)\[\]", re.ASCII)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the store keeps it."""

    row: JobRow
    """As the API shows it, with a summary without GPUs."""
    record: JobRecord
    summary: JobSummary
    accounts: list[GpuAccount] = []
    replaces: list[JobKey] = []
    """Aliases under which the store may have it, or a part of it, as a job of its own."""


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are wanted; an empty text stands for any."""

    id: str = ""
    """Id of a job, the uid of a pod, `4_0` and `12+1` as users of Slurm know a task of an array and a part of a
    heterogeneous job, or `4[]` of all tasks of an array."""
    user: str = ""
    account: str = ""
    node: str = ""
    since: int = 0
    """Jobs that ended before are left out, ns since 1970."""
    until: int = 2**62
    """Jobs that began later are left out."""
    running: bool | None = None
    """Only those that have not ended, or only those that have; None stands for both."""
    limit: int = 1000
    sums: bool = False
    """Whether only sums are wanted, as for a month: of a job of several aggregators there may be no quantiles then."""

    @property
    def owner(self) -> str:
        """The owner of the job that users call so, of an array what those of its tasks begin with; empty where they know it
        by its id alone."""
        return part_of(self.id)

    @property
    def owner_text(self) -> str:
        """The text of a stored row that has that owner."""
        return f'"owner":"{self.owner}' + ("" if self.owner.endswith("_") else '"')

    @property
    def uid(self) -> str:
        """The id where it has the form of a pod's uid, empty for others."""
        return self.id if _UID.fullmatch(self.id) else ""

    def named(self, name: str, owner: str, aliases: Collection[str]) -> bool:
        """Return whether a job of an id, `name`, an owner and aliases has the name that is wanted."""
        return self.id in {"", name, *aliases} or (owner != "" and _is_part(owner, self.owner))

    def matches(self, row: JobRow) -> bool:
        """Return whether a job is wanted."""
        return (
            self.named(row.id, row.owner, row.renamed_from)
            and self.user in {"", row.user}
            and self.account in {"", row.account}
            and (not self.node or self.node in row.nodes)
            and self.running in {None, row.end is None}
            and row.begin < self.until
            and (row.end is None or row.end >= self.since)
        )


def _is_part(owner: str, wanted: str) -> bool:
    return owner == wanted or (wanted.endswith("_") and owner.startswith(wanted))


def part_of(name: str) -> str:
    """Return the owner of a task of an array or of a part of a heterogeneous job by its name, and what those of all tasks
    begin with by that of an array; empty for other names."""
    if found := _ARRAY.fullmatch(name):
        return f"Array/{found[1]}_"
    array, _, task = name.partition("_")
    if array.isdecimal() and task.isdecimal():
        return owner_text(array, task, "", "")
    het, _, offset = name.partition("+")
    return owner_text("", "", het, offset) if het.isdecimal() and offset.isdecimal() else ""


class FoundJobs(NamedTuple):
    """Jobs that match a query."""

    rows: list[JobRow]
    """The newest begin first."""
    missing: Sequence[str] = ()
    """Aggregators of the cluster whose part is not in it."""


class WholeJobs(NamedTuple):
    """Some jobs with their allocations and accounts, by key."""

    jobs: Mapping[JobKey, StoredJob]
    missing: Sequence[str] = ()


class UnheldMonth(NamedTuple):
    """Use of the GPUs that no job held in a month; None where that was not counted."""

    reported: UnheldUse | None
    """Of nodes that say who holds their GPUs."""
    unreported: UnheldUse | None
    missing: Sequence[str] = ()


def key_of(row: JobRow) -> JobKey:
    """Return the key of a row."""
    return JobKey(row.scheduler, row.cluster, row.id, row.restart)


def row_of_job(tracked: TrackedJob, summary: JobSummary, phase: JobPhase) -> JobRow:
    """Return a job as a row of a list."""
    job = tracked.facts
    return JobRow(
        scheduler=job.key.scheduler,
        cluster=job.key.cluster,
        id=job.key.id,
        restart=job.key.restart,
        renamed_from=list(job.aliases),
        job_name=job.name,
        user=job.user,
        account=job.account,
        queue=job.queue,
        owner=job.owner,
        phase=phase,
        state=job.state,
        exit_code=job.exit_code,
        submitted=job.submitted or None,
        eligible=job.eligible or None,
        wait_seconds=tracked.wait_seconds,
        reason=job.reason,
        begin=tracked.begin,
        end=tracked.end,
        nodes=tracked.nodes,
        gpus=len(tracked.gpus),
        gpus_asked=job.gpus or None,
        purpose=job.purpose,
        time_limit_seconds=job.time_limit if isinstance(job.time_limit, int) else None,
        unlimited=job.time_limit == UNLIMITED,
        account_of_run=tracked.account,
        differences=differences(tracked.known, tracked.allocations, tracked.account),
        summary=msgspec.structs.replace(summary, gpus=[]),
    )
