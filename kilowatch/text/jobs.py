"""Jobs as text."""

from __future__ import annotations

from collections.abc import Sequence

from api.jobs import JobAccount, JobReply, JobRow, JobsReply, JobSummary
from kilowatch.text.table import columns
from present.units import energy, gibibytes, kilograms, percent, rate_text, roughly
from telemetry.text import counted, duration, timestamp

_HEAD = ("JOB", "USER", "ACCOUNT", "STATE", "BEGIN", "TIME", "GPUS", "GPU HOURS", "USE", "ENERGY", "NAME")  # fmt: skip
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
        f"from {timestamp(row.begin)} to {ended}: {_time(row, reply.at)} on {counted(row.gpus, 'GPU')} of "
        f"{', '.join(row.nodes)}",
    ]
    if row.owner or row.submitted is not None or row.gpus_asked is not None:
        asked = UNKNOWN if row.gpus_asked is None else counted(row.gpus_asked, "GPU")
        submitted = UNKNOWN if row.submitted is None else timestamp(row.submitted)
        lines.append(f"part of {row.owner or UNKNOWN}, submitted {submitted}, asked for {asked}")
    if row.account_of_run is not None:
        lines.append(_account(row.account_of_run))
    if summary is not None:
        lines += _figures(summary)
    lines += [f"! {hint}" for hint in row.hints]
    assumed = sorted({each.node for each in reply.allocations if each.assumed})
    if assumed:
        lines.append(
            f"which GPUs of {', '.join(assumed)} they are is assumed by the scheduler's numbers"
        )
    lines += lacking_lines(reply.missing)
    lines.append("")
    uses = [] if summary is None else summary.gpus
    return lines + columns(
        [
            _GPU_HEAD,
            *(
                (each.node, each.gpu, duration(each.held_seconds), _percent(each.utilization_ratio),
                 _energy(each.energy_joules), _gib(each.memory_peak_bytes), "shared" if each.shared else "")
                for each in uses
            ),
        ],
        width=_WIDTH,
    )  # fmt: skip


def lacking_lines(missing: Sequence[str]) -> list[str]:
    """Return a line about the aggregators whose part is missing; none where none is."""
    return (
        [
            f"without what {', '.join(missing)} {'know' if len(missing) > 1 else 'knows'}, which did not answer"
        ]
        if missing
        else []
    )


def _account(account: JobAccount) -> str:
    begin = UNKNOWN if account.begin is None else timestamp(account.begin)
    end = UNKNOWN if account.end is None else timestamp(account.end)
    code = f", exit code {account.exit_code}" if account.exit_code is not None else ""
    return f"in the accounting: {account.state}, from {begin} to {end}{code}"


def _figures(summary: JobSummary) -> list[str]:
    covered = (
        "no reading"
        if summary.coverage is None
        else f"{percent(summary.coverage)} of the time read"
    )
    cost = UNKNOWN if summary.cost is None else f"{summary.cost:.2f} {summary.currency}"
    lines = [
        f"{summary.gpu_hours:.2f} GPU hours, {covered}" + (", partial" if summary.partial else ""),
        f"utilisation {_percent(summary.utilization_ratio)} (p10 {_percent(summary.utilization_p10_ratio)}, "
        f"p90 {_percent(summary.utilization_p90_ratio)}), memory at least {_gib(summary.memory_peak_bytes)}",
        *_activity(summary),
        f"energy {_energy(summary.energy_joules)} at the GPUs, {_energy(summary.wall_joules)} at the wall, "
        f"cost {cost}, CO2 {_kilograms(summary.co2_kg)}",
    ]
    if summary.idle_gpu_hours:
        lost = (
            ""
            if summary.idle_cost is None
            else f", {summary.idle_cost:.2f} {summary.currency} of the cost"
        )
        lines.append(f"{summary.idle_gpu_hours:.2f} GPU hours idle, below 5 % use{lost}")
    if summary.gpus_idle:
        lines.append(f"{counted(summary.gpus_idle, 'GPU')} never worked")
    limits = sorted(summary.clock_limit_seconds.items(), key=lambda pair: -pair[1])
    if limits:
        lines.append("GPU time under a clock limit: " + ", ".join(f"{word} {duration(seconds)}" for word, seconds in limits))  # fmt: skip
    if summary.faults:
        lines.append("faults: " + ", ".join(f"{kind} {count} times" for kind, count in sorted(summary.faults.items())))  # fmt: skip
    return lines


def _activity(summary: JobSummary) -> list[str]:
    """Return what the parts of the GPUs did, where GPM says so, and what went over their links, where it was read."""
    moved = [
        f"{words} {rate_text(words, rate)}"
        for words, rate in (
            ("PCIe", summary.pcie_bytes_per_second),
            ("NVLink", summary.nvlink_bytes_per_second),
        )
        if rate is not None
    ]
    traffic = [f"a GPU moved over {', over '.join(moved)}"] if moved else []
    if summary.sm_active_ratio is None:
        return traffic
    return [
        f"multiprocessors active {_percent(summary.sm_active_ratio)}, occupied {_percent(summary.sm_occupancy_ratio)}, "
        f"tensor cores {_percent(summary.tensor_active_ratio)}, memory bandwidth {_percent(summary.dram_active_ratio)}",
        *traffic,
    ]


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
        UNKNOWN if found is None else f"{found.gpu_hours:.2f}",
        UNKNOWN
        if found is None
        else roughly(_percent(found.utilization_ratio), partial=found.partial),
        UNKNOWN if found is None else roughly(_energy(found.energy_joules), partial=found.partial),
        row.job_name or UNKNOWN,
    )


def _time(row: JobRow, now: int) -> str:
    return duration(max(0.0, ((row.end or now) - row.begin) / 1e9))


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else percent(ratio)


def _energy(joules: float | None) -> str:
    return UNKNOWN if joules is None else energy(joules)


def _kilograms(mass: float | None) -> str:
    return UNKNOWN if mass is None else kilograms(mass)


def _gib(size: float | None) -> str:
    return UNKNOWN if size is None else gibibytes(size)
