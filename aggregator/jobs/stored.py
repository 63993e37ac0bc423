"""A job as the store keeps it, and the question that finds jobs there."""

from __future__ import annotations

import msgspec

from aggregator.jobs.ledger import JobRecord
from aggregator.jobs.usage import GpuAccount
from api.jobs import JobRow, JobSummary


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the store keeps it."""

    row: JobRow
    """As the API shows it, with a summary without GPUs."""
    record: JobRecord
    summary: JobSummary
    accounts: list[GpuAccount] = []


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are wanted; an empty text stands for any."""

    id: str = ""
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
