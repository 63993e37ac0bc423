"""Jobs as text."""

from __future__ import annotations

from api.jobs import JobReply, JobRow, JobsReply, JobSummary
from kilowatch.text.table import columns
from telemetry.text import counted, duration, timestamp

_HEAD = ("JOB", "USER", "ACCOUNT", "STATE", "BEGIN", "TIME", "GPUS", "GPU HOURS", "USE", "KWH", "NAME")  # fmt: skip
_GPU_HEAD = ("NODE", "GPU", "TIME", "USE", "KWH", "MEMORY", "")
_WIDTH = 160
UNKNOWN = "-"
PARTIAL = "~"
"""Mark of a figure that covers less than 90 % of the job's time."""


def job_lines(reply: JobsReply) -> list[str]:
    """Return a line a job, and one that says what is not shown."""
    if not reply.jobs:
        return ["no job had a GPU in that time"]
    lines = columns([_HEAD, *(_cells(row, reply.at) for row in reply.jobs)], width=_WIDTH)
    if any(row.summary is not None and row.summary.partial for row in reply.jobs):
        lines.append(f"{PARTIAL} partial: read for less than 90 % of the job's GPU time")
    if reply.more:
        lines.append(f"there are more than these {len(reply.jobs)}: see --limit and --since")
    return lines


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
    if summary is not None:
        lines += _figures(summary)
    lines.append("")
    uses = [] if summary is None else summary.gpus
    return lines + columns(
        [
            _GPU_HEAD,
            *(
                (each.node, each.gpu, duration(each.held_seconds), _percent(each.utilization_ratio),
                 _kwh(each.energy_joules), _gib(each.memory_peak_bytes), "shared" if each.shared else "")
                for each in uses
            ),
        ],
        width=_WIDTH,
    )  # fmt: skip


def _figures(summary: JobSummary) -> list[str]:
    covered = (
        "no reading" if summary.coverage is None else f"{summary.coverage:.0%} of the time read"
    )
    cost = UNKNOWN if summary.cost is None else f"{summary.cost:.2f} {summary.currency}"
    lines = [
        f"{summary.gpu_hours:.2f} GPU hours, {covered}" + (", partial" if summary.partial else ""),
        f"utilisation {_percent(summary.utilization_ratio)} (p10 {_percent(summary.utilization_p10_ratio)}, "
        f"p90 {_percent(summary.utilization_p90_ratio)}), memory at least {_gib(summary.memory_peak_bytes)}",
        *_activity(summary),
        f"energy {_kwh(summary.energy_joules)} kWh at the GPUs, {_kwh(summary.wall_joules)} kWh at the wall, "
        f"cost {cost}",
    ]
    if summary.gpus_idle:
        lines.append(f"{counted(summary.gpus_idle, 'GPU')} never worked")
    limits = sorted(summary.clock_limit_seconds.items(), key=lambda pair: -pair[1])
    if limits:
        lines.append("GPU time under a clock limit: " + ", ".join(f"{word} {duration(seconds)}" for word, seconds in limits))  # fmt: skip
    if summary.faults:
        lines.append("faults: " + ", ".join(f"{kind} {count} times" for kind, count in sorted(summary.faults.items())))  # fmt: skip
    return lines


def _activity(summary: JobSummary) -> list[str]:
    """Return what the parts of the GPUs did, where GPM says so."""
    if summary.sm_active_ratio is None:
        return []
    return [
        f"multiprocessors active {_percent(summary.sm_active_ratio)}, occupied {_percent(summary.sm_occupancy_ratio)}, "
        f"tensor cores {_percent(summary.tensor_active_ratio)}, memory bandwidth {_percent(summary.dram_active_ratio)}"
    ]


def _cells(row: JobRow, now: int) -> tuple[str, ...]:
    found = row.summary
    mark = PARTIAL if found is not None and found.partial else ""
    return (
        f"{row.id}#{row.restart}" if row.restart else row.id,
        row.user or UNKNOWN,
        row.account or UNKNOWN,
        str(row.phase),
        timestamp(row.begin),
        _time(row, now),
        str(row.gpus),
        UNKNOWN if found is None else f"{found.gpu_hours:.2f}",
        UNKNOWN if found is None else _percent(found.utilization_ratio) + mark,
        UNKNOWN if found is None else _kwh(found.energy_joules) + mark,
        row.job_name or UNKNOWN,
    )


def _time(row: JobRow, now: int) -> str:
    return duration(max(0.0, ((row.end or now) - row.begin) / 1e9))


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.0%}"


def _kwh(joules: float | None) -> str:
    return UNKNOWN if joules is None else f"{joules / 3.6e6:.3f}"


def _gib(size: float | None) -> str:
    return UNKNOWN if size is None else f"{size / 2**30:.1f} GiB"
