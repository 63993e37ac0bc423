"""Use of the GPUs in a month by user, account or job, from the jobs' summaries. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from aggregator.jobs.summary import held_seconds
from api.jobs import AllocationRow, JobPhase, JobRow, JobSummary
from api.use import UseRow
from power.report.energy import carbon_kg
from power.site.config import SiteConfig

_TAKEN_BACK = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"})
"""States of runs that somebody else ended: their owners asked for no more than they needed."""


class JobPart(NamedTuple):
    """A job with the share of it that lies in a month."""

    row: JobRow
    share: float | None
    """None where it is not known."""
    split: bool
    """Whether the job reaches over an edge of the month."""
    time_share: float | None = 1.0
    """Share of its GPU time that lies in the month; None where that is not known."""


def crosses(row: JobRow, start: int, end: int, now: int) -> bool:
    """Return whether a job reaches over an edge of a span, ns since 1970."""
    return row.begin < start or (now if row.end is None else row.end) > end


def held_between(rows: Iterable[AllocationRow], start: int, end: int) -> dict[tuple[str, str], float]:
    """Return for how many seconds of a span a job had each GPU, by node and UUID; ns since 1970."""
    by_gpu: defaultdict[tuple[str, str], list[AllocationRow]] = defaultdict(list)
    for row in rows:
        by_gpu[row.node, row.gpu].append(row)
    found = {}
    for key, held in by_gpu.items():
        before, until = (held_seconds(_until(held, at), at) for at in (start, end))
        found[key] = max(0.0, until - before)
    return found


def share_of_time(rows: Sequence[AllocationRow], start: int, end: int, now: int) -> float | None:
    """Return which share of a job's GPU time lies in a span, ns since 1970; None without any GPU time."""
    within = sum(held_between(rows, start, min(end, now)).values())
    whole = sum(held_between(rows, 0, now).values())
    return within / whole if whole > 0 else None


def use_rows(parts: Sequence[JobPart], by: str, memory: Mapping[str, int] | None = None) -> list[UseRow]:
    """Return a row a user, account or job, the most GPU hours first. `memory`: bytes of a GPU by node, of nodes whose GPUs
    have the same."""
    groups: defaultdict[tuple[str, str, str], list[JobPart]] = defaultdict(list)
    for part in parts:
        if part.share != 0:
            row = part.row
            key = (row.id, row.scheduler, row.cluster) if by == "job" else (getattr(row, by), "", "")
            groups[key].append(part)
    rows = [
        msgspec.structs.replace(_row(key, group), **{by: key[0]}, **_asked(group, memory or {}))
        for key, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-(row.gpu_hours or 0.0), row.user, row.account, row.job))


def with_co2(row: UseRow, place: SiteConfig) -> UseRow:
    """Return a row with the CO2 of what is known of its energy at the wall."""
    return msgspec.structs.replace(row, co2_kg=co2_kg(row.wall_joules, place))


def co2_kg(wall_joules: float | None, place: SiteConfig) -> float | None:
    """Return the kilograms of CO2 of an energy at the wall, the building's overhead with it; None where that is not
    known."""
    if wall_joules is None:
        return None
    return carbon_kg(wall_joules / 3.6e6, place.g_per_kwh, place.pue)


def _until(rows: Sequence[AllocationRow], at: int) -> list[AllocationRow]:
    """Return the allocations as they stood at a time."""
    return [
        AllocationRow(node=row.node, gpu=row.gpu, begin=row.begin, end=min(at, at if row.end is None else row.end))
        for row in rows
        if row.begin < at
    ]


def _row(key: tuple[str, str, str], group: Sequence[JobPart]) -> UseRow:
    known = [
        (part.row.summary, part.share) for part in group if part.row.summary is not None and part.share is not None
    ]
    hours = sum(summary.gpu_hours * share for summary, share in known)
    busy = [
        (summary.utilization_ratio, summary.gpu_hours * share * summary.coverage)
        for summary, share in known
        if summary.utilization_ratio is not None and summary.coverage
    ]
    read = sum(weight for _, weight in busy)
    return UseRow(
        scheduler=key[1],
        cluster=key[2],
        jobs=len(group),
        gpu_hours=hours if known else None,
        hours_coverage=len(known) / len(group),
        utilization_ratio=sum(ratio * weight for ratio, weight in busy) / read if read else None,
        utilization_coverage=min(1.0, read / hours) if hours else None,
        energy_joules=_sum([(each.energy_joules, share) for each, share in known]),
        energy_coverage=_covered([(each, share, each.energy_coverage) for each, share in known]),
        wall_joules=_sum([(each.wall_joules, share) for each, share in known]),
        wall_coverage=_covered([(each, share, each.wall_coverage) for each, share in known]),
        cost=_sum([(each.cost, share) for each, share in known]),
        cost_coverage=_covered(
            [(each, share, None if each.cost is None else each.wall_coverage) for each, share in known]
        ),
        co2_kg=None,  # of the site: `with_co2`
        idle_gpu_hours=_sum([(each.idle_gpu_hours, share) for each, share in known]),
        idle_coverage=_covered([(each, share, each.idle_coverage) for each, share in known]),
        idle_cost=_sum([(each.idle_cost, share) for each, share in known]),
        split_by_time=sum(part.split for part in group),
    )


def _asked(group: Sequence[JobPart], memory: Mapping[str, int]) -> dict[str, float | None]:
    """Return what jobs asked for against what they used of it."""
    known = [(each.row.summary, each.share, each) for each in group if each.row.summary is not None and each.share]
    times = [_asked_hours(part) for _, _, part in known]
    peaks = [_memory_ratio(part.row, memory) for _, _, part in known]
    idle = [(part.row.gpus, summary.gpus_idle) for summary, _, part in known if summary.gpus_idle is not None]
    asked = sum(each[0] for each in times if each is not None)
    used = sum(each[1] for each in times if each is not None)

    def covered(covers: Iterable[float | None]) -> float | None:
        return _covered([(summary, share, cover) for (summary, share, _), cover in zip(known, covers, strict=True)])

    return {
        "asked_gpu_hours": asked or None,
        "asked_used_ratio": used / asked if asked else None,
        "asked_coverage": covered(None if each is None else 1.0 for each in times),
        "gpus_held": sum(gpus for gpus, _ in idle) if idle else None,
        "gpus_idle": sum(its for _, its in idle) if idle else None,
        "gpus_coverage": covered(None if each.gpus_idle is None else each.coverage for each, _, _ in known),
        "memory_peak_ratio": max((each for each in peaks if each is not None), default=None),
        "memory_coverage": covered(None if each is None else 1.0 for each in peaks),
    }


def _asked_hours(part: JobPart) -> tuple[float, float] | None:
    """Return the GPU hours of a job that its limit allowed and those for which it ran, of its part in the month; None
    where they are not known, and of a run that does not tell."""
    row, limit = part.row, part.row.time_limit_seconds
    if row.phase is not JobPhase.ENDED or row.end is None or row.state in _TAKEN_BACK:
        return None
    if limit is None or part.time_share is None:
        return None
    gpus = row.gpus * part.time_share / 3600
    return gpus * limit, gpus * (row.end - row.begin) / 1e9


def _memory_ratio(row: JobRow, memory: Mapping[str, int]) -> float | None:
    """Return the highest memory in use of what a GPU of a job has; None where the GPUs of its nodes differ."""
    peak = None if row.summary is None else row.summary.memory_peak_bytes
    sizes = {memory.get(node, 0) for node in row.nodes}
    size = sizes.pop() if len(sizes) == 1 else 0
    return None if peak is None or not size else peak / size


def _sum(values: Sequence[tuple[float | None, float]]) -> float | None:
    found = [value * share for value, share in values if value is not None]
    return sum(found) if found else None


def _covered(values: Sequence[tuple[JobSummary, float, float | None]]) -> float | None:
    hours = sum(each.gpu_hours * share for each, share, _ in values)
    if hours <= 0:
        return None
    return min(1.0, sum(each.gpu_hours * share * (cover or 0.0) for each, share, cover in values) / hours)
