"""Who holds a GPU and when, from the rows of its allocations. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from aggregator.jobs.usage import FOREVER, Holder
from api.jobs import AllocationRow
from telemetry.wire.jobs import AllocationKind, JobKey


def edge_times(rows: Iterable[AllocationRow]) -> set[int]:
    """Return when allocations begin and end, ns since 1970."""
    return {at for row in rows for at in (row.begin, row.end) if at is not None}


def spans_of(rows: Iterable[AllocationRow]) -> list[tuple[int, int]]:
    """Return when a job had a GPU in any of its allocations that have ended, in order and without overlap."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted((row.begin, row.end) for row in rows if row.end is not None):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def not_alone(rows: Iterable[tuple[JobKey, AllocationRow]]) -> set[JobKey]:
    """Return the jobs that had not all of a GPU while they had it: another one was allocated it at the same time, or
    used it as they did."""
    found: set[JobKey] = set()
    open_rows: list[tuple[JobKey, AllocationRow]] = []
    for key, row in sorted(rows, key=lambda each: each[1].begin):
        open_rows = [one for one in open_rows if one[1].end is None or one[1].end > row.begin]
        for other, its in open_rows:
            if other != key:
                given = row.kind is AllocationKind.ALLOCATED, its.kind is AllocationKind.ALLOCATED
                found |= {(True, False): {other}, (False, True): {key}}.get(given, {key, other})
        open_rows.append((key, row))
    return found


def holders(rows: Sequence[tuple[JobKey, AllocationRow]], use: Mapping[JobKey, float], counted: int) -> list[Holder]:
    """Return who holds a GPU and when, after `counted`: at each instant the jobs that it is allocated
    to, else those that use it; each with its share by the use of the processes that it has there then, else an equal one."""
    ends = {id(row): FOREVER if row.end is None else row.end for _, row in rows}
    edges = sorted({row.begin for _, row in rows} | set(ends.values()))
    found: list[Holder] = []
    for begin, end in itertools.pairwise(edges):
        if end <= counted:
            continue
        there = [(key, row) for key, row in rows if row.begin <= begin and ends[id(row)] >= end]
        keys = {key for key, row in there if row.kind is AllocationKind.ALLOCATED}
        keys = keys or {key for key, _ in there}
        at_work = {key for key, row in there if row.kind is AllocationKind.USED} or keys
        used = {key: use.get(key, 0.0) if key in at_work else 0.0 for key in keys}
        known = sum(used.values())
        for key in sorted(keys):
            share = used[key] / known if known > 0 else 1 / len(keys)
            found.append(Holder(key, begin, end, share))
    return found
