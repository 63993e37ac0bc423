"""Jobs as text."""

from __future__ import annotations

from collections.abc import Sequence

from api.jobs import JobAccount, JobReply, JobRow, JobsReply, JobSummary
from kilowatch.text.table import columns
from present import job
from present.job import (
    activity_rows,
    asked_row,
    clocks_row,
    cost_rows,
    energy_row,
    faults_row,
    gpu_use_row,
    hours_row,
    idle_rows,
    memory_row,
    purpose_words,
    read_row,
    renamed_rows,
    use_row,
)
from present.row import FactRow
from present.units import gibibytes
from telemetry.text import counted, duration, timestamp

_HEAD = ("JOB", "USER", "ACCOUNT", "STATE", "BEGIN", "TIME", "GPUS", "GPU HOURS", "USE", "ENERGY", "NAME")
_GPU_HEAD = ("NODE", "GPU", "TIME", "USE", "ENERGY", "MEMORY", "")
_WIDTH = 160
UNKNOWN = "-"
PARTIAL = "~"
"""Mark of a figure that covers less than 90 % of the job's time."""


def job_lines(reply: JobsReply) -> list[str]:
    """Return a line a job, and one that says what is not shown."""
    unread = [
        f"{each.name}: {each.state}{f', {each.message}' if each.message else ''}"
        for each in reply.sources
        if each.state != "reading" or each.message
    ] + lacking_lines(reply.missing)
    if not reply.jobs:
        return ["no job had a GPU in that time", *unread]
    lines = columns([_HEAD, *(_cells(row, reply.at) for row in reply.jobs)], width=_WIDTH)
    if any(row.summary is not None and row.summary.partial for row in reply.jobs):
        lines.append(f"{PARTIAL} partial: read for less than 90 % of the job's GPU time")
    if reply.more:
        lines.append(f"there are more than these {len(reply.jobs)}: see --limit and --since")
    return lines + unread


def summary_lines(reply: JobReply) -> list[str]:
    """Return all about a job."""
    row, summary = reply.job, reply.job.summary
    ended = "it runs" if row.end is None else timestamp(row.end)
    lines = [
        f"job {row.id} of {row.scheduler}{f' ({row.cluster})' if row.cluster else ''}: {row.phase}"
        + (f", {row.state}" if row.state else "")
        + ("" if row.exit_code is None else f", exit code {row.exit_code}")
        + (f", {counted(row.restart, 'restart')}" if row.restart else ""),
        f"name {row.job_name or UNKNOWN}, user {row.user or UNKNOWN}, account {row.account or UNKNOWN}, "
        f"queue {row.queue or UNKNOWN}",
        f"from {timestamp(row.begin)} to {ended}: {counted(row.gpus, 'GPU')} of {', '.join(row.nodes)}",
    ]
    if row.owner or row.submitted is not None:
        submitted = UNKNOWN if row.submitted is None else timestamp(row.submitted)
        lines.append(f"part of {row.owner or UNKNOWN}, submitted {submitted}{_eligible(row)}")
    lines += [f"{one.label} {one.value}" for one in (*renamed_rows(row), asked_row(row, reply.at))]
    if declares := purpose_words(row.purpose):
        lines.append(f"declares that it {declares}")
    if row.account_of_run is not None:
        lines.append(_account(row.account_of_run))
    if summary is not None:
        lines += _figures(summary)
    lines += [f"! {hint}" for hint in row.hints]
    assumed = sorted({each.node for each in reply.allocations if each.assumed})
    if assumed:
        lines.append(f"which GPUs of {', '.join(assumed)} they are is assumed by the scheduler's numbers")
    lines += lacking_lines(reply.missing)
    lines.append("")
    uses = [] if summary is None else summary.gpus
    energy_read = None if summary is None else summary.energy_coverage
    return lines + columns(
        [
            _GPU_HEAD,
            *(
                (each.node, each.gpu, duration(each.held_seconds), _cell(gpu_use_row(each)),
                 _cell(energy_row("energy", each.energy_joules, energy_read)), _gib(each.memory_peak_bytes), "shared" if each.shared else "")
                for each in uses
            ),
        ],
        width=_WIDTH,
    )  # fmt: skip


def lacking_lines(missing: Sequence[str]) -> list[str]:
    """Return a line about the aggregators whose part is missing; none where none is."""
    return (
        [f"without what {', '.join(missing)} {'know' if len(missing) > 1 else 'knows'}, which did not answer"]
        if missing
        else []
    )


def _eligible(row: JobRow) -> str:
    """Return since when it waited for resources, where that is not its submission."""
    return "" if row.eligible in {None, row.submitted} else f", eligible {timestamp(row.eligible or 0)}"


def _account(account: JobAccount) -> str:
    begin = UNKNOWN if account.begin is None else timestamp(account.begin)
    end = UNKNOWN if account.end is None else timestamp(account.end)
    code = f", exit code {account.exit_code}" if account.exit_code is not None else ""
    return f"in the accounting: {account.state}, from {begin} to {end}{code}"


def _figures(summary: JobSummary) -> list[str]:
    """Return the figures, those that belong together on a line."""
    groups = (
        (hours_row(summary), read_row(summary)), (use_row(summary),), tuple(activity_rows(summary)),
        (memory_row(summary),), tuple(cost_rows(summary)), tuple(idle_rows(summary)), (clocks_row(summary),),
        (faults_row(summary),),
    )  # fmt: skip
    lines = ("; ".join(f"{row.label} {row.whole}" for row in group if row.value) for group in groups)
    return [line for line in lines if line]


def _cells(row: JobRow, now: int) -> tuple[str, ...]:
    found = row.summary
    return (
        f"{row.id}#{row.restart}" if row.restart else row.id,
        row.user or UNKNOWN,
        row.account or UNKNOWN,
        str(row.phase),
        timestamp(row.begin),
        _time(row, now),
        str(row.gpus),
        UNKNOWN if found is None else hours_row(found).value,
        _cell(use_row(found)),
        UNKNOWN if found is None else _cell(energy_row("energy", found.energy_joules, found.energy_coverage)),
        row.job_name or UNKNOWN,
    )


def _time(row: JobRow, now: int) -> str:
    return duration(max(0.0, ((row.end or now) - row.begin) / 1e9))


def _cell(row: FactRow) -> str:
    """Return a figure for a column."""
    return UNKNOWN if row.value == job.UNKNOWN else row.value


def _gib(size: float | None) -> str:
    return UNKNOWN if size is None else gibibytes(size)
