"""A job whose nodes several aggregators hold, or held one after the other, as one job. Pure.

Each of them has the allocations and the use of its own nodes. What they counted is added, since no two count
a GPU at a time; energy is counted anew by the counters that any of them knows at the begin and the end. Where two know
an allocation, the one that has its node now is believed: for another, it ended unseen when the node left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec.structs import replace

from aggregator.jobs.edges import grown
from aggregator.jobs.holding import spans_of
from aggregator.jobs.ledger import TrackedJob, newer_facts
from aggregator.jobs.months import COUNTED, counted_account, joined_account
from aggregator.jobs.stored import StoredJob, row_of_job
from aggregator.jobs.summary import held_seconds, summarize
from aggregator.jobs.usage import FOREVER, GpuAccount
from api.jobs import AllocationRow, EnergyFrom, JobPhase, JobRow, JobSummary
from telemetry.wire.jobs import Job

Place = tuple[str, str]
"""Node and UUID."""


def joined_job(
    parts: Mapping[str, StoredJob],
    holder: Callable[[str], str],
    wall: int,
    months: Callable[[int, int], Mapping[str, int]] = lambda *_: {},
) -> StoredJob:
    """Return the parts of a job, by the name of the aggregator, as one. `holder`: of a node, "" where none
    answers for it; `wall`: ns since 1970; `months`: as `JobService` has them."""
    if len(parts) == 1 and all(
        holder(row.node) in {name, ""} for name, its in parts.items() for row in its.record.allocations
    ):
        return next(iter(parts.values()))
    ordered = sorted(parts.values(), key=_newness)
    counts = _accounts(ordered)
    accounts = {place: joined_account(its) for place, its in counts.items()}
    tracked = TrackedJob(
        reduce(newer_facts, (each.record.job for each in ordered)),
        reported=max((each.record.reported for each in ordered if each.record.reported), key=_is_over, default=None),
        account=next((each.record.account for each in reversed(ordered) if each.record.account), None),
    )
    for row in _rows(parts, holder, accounts):
        tracked.rows.setdefault(row.node, []).append(row)
    faults: Counter[str] = Counter()
    for each in ordered:
        faults.update(each.summary.faults)
    held = _held(ordered, tracked, wall)
    rows = _by_place(tracked.allocations)
    its = [_counted(counts.get(place, ()), place, rows[place], months) for place in tracked.gpus]
    currency = next((each.summary.currency for each in ordered if each.summary.currency), "")
    summary = summarize(its, held, faults, currency)
    phase = tracked.phase
    if phase is JobPhase.RUNNING and all(part.row.phase is not phase for part in ordered):
        phase = JobPhase.SILENT
    return StoredJob(row=row_of_job(tracked, summary, phase), record=tracked.record(), summary=summary, accounts=its)


def joined_sums(rows: Sequence[JobRow]) -> JobRow:
    """Return the rows of a job, each of other nodes, as one whose summary has sums and what they cover."""
    ends = [row.end for row in rows]
    newest = max(rows, key=lambda row: FOREVER if row.end is None else row.end)
    known: dict[str, Any] = {
        name: next((value for row in (newest, *rows) if (value := getattr(row, name))), getattr(newest, name))
        for name in (
            "job_name", "user", "account", "queue", "owner", "submitted", "eligible", "wait_seconds", "gpus_asked", "purpose",
            "renamed_from", "time_limit_seconds", "unlimited",
        )
    }  # fmt: skip
    return replace(
        newest,
        **known,
        begin=min(row.begin for row in rows),
        end=None if None in ends else max(end for end in ends if end is not None),
        nodes=sorted({node for row in rows for node in row.nodes}),
        gpus=sum(row.gpus for row in rows),
        summary=_added([row.summary for row in rows if row.summary is not None]),
    )


_ADDED = ("energy_joules", "wall_joules", "cost", "idle_gpu_hours", "idle_cost")
_SHARES = ("coverage", "energy_coverage", "wall_coverage", "idle_coverage")
"""Shares of the GPU hours."""


def _added(summaries: Sequence[JobSummary]) -> JobSummary | None:
    if not summaries:
        return None
    hours = sum(each.gpu_hours for each in summaries)
    found: dict[str, Any] = {"gpu_hours": hours, "partial": any(each.partial for each in summaries)}
    for name in _SHARES:
        part = sum((getattr(each, name) or 0.0) * each.gpu_hours for each in summaries)
        found[name] = part / hours if hours > 0 else None
    for name in _ADDED:
        values = [value for each in summaries if (value := getattr(each, name)) is not None]
        found[name] = sum(values) if values else None
    use = [
        (each.utilization_ratio, each.gpu_hours * (each.coverage or 0.0))
        for each in summaries
        if each.utilization_ratio is not None
    ]
    read = sum(weight for _, weight in use)
    ratio = sum(ratio * weight for ratio, weight in use) / read if read else None
    idle = [each.gpus_idle for each in summaries if each.gpus_idle is not None]
    peaks = [each.memory_peak_bytes for each in summaries if each.memory_peak_bytes is not None]
    currency = next((each.currency for each in summaries if each.currency), "")
    return JobSummary(
        **found,
        utilization_ratio=ratio,
        currency=currency,
        gpus_idle=sum(idle) if idle else None,
        memory_peak_bytes=max(peaks, default=None),
    )


def _newness(part: StoredJob) -> tuple[int, int]:
    return (FOREVER if part.row.end is None else part.row.end), part.row.begin


def _is_over(reported: Job) -> bool:
    return bool(reported.end)


def _accounts(parts: Iterable[StoredJob]) -> dict[Place, list[GpuAccount]]:
    found: dict[Place, list[GpuAccount]] = {}
    for part in parts:
        for each in part.accounts:
            found.setdefault((each.node, each.gpu), []).append(each)
    return found


def _counted(
    accounts: Sequence[GpuAccount],
    place: Place,
    rows: Sequence[AllocationRow],
    months: Callable[[int, int], Mapping[str, int]],
) -> GpuAccount:
    """Return what several members counted of a job on a GPU, with the energy by the counters that any of them knows."""
    if len(accounts) < 2:
        return accounts[0] if accounts else GpuAccount(node=place[0], gpu=place[1])
    begin, end = min(row.begin for row in rows), max(row.end or FOREVER for row in rows)
    counters = {at: joules for each in accounts for at, joules in each.counters.items()}
    complete = next(
        (each for each in accounts if each.energy_from is EnergyFrom.COUNTERS and {begin, end} <= each.counters.keys()),
        None,
    )
    if complete is None:
        whole = joined_account(accounts)
        alone = not whole.shared and all(row.instance is None for row in rows)
        if end == FOREVER or not alone or any(each.joules and not each.counters for each in accounts):
            return whole
    else:  # that is the energy of all of its time: of what the others had of it, too
        counters |= complete.counters
        whole = joined_account([each if each is complete else _without_energy(each) for each in accounts])
        whole = replace(whole, counters=complete.counters, energy_from=complete.energy_from)
    spans, begins = spans_of(rows), months(begin, end)
    joules = grown(spans, counters)
    if joules is None or not (begins or (complete is None and not whole.edges)):
        return whole  # without a month's begin nobody can tell its part
    return counted_account(whole, joules, spans, counters, begins or {whole.first: begin})


def _without_energy(account: GpuAccount) -> GpuAccount:
    none = dict.fromkeys((*COUNTED, "joule_seconds"), 0.0)
    edges = {month: sums | none for month, sums in account.edges.items()}
    return replace(account, **none, edges=edges)


def _rows(
    parts: Mapping[str, StoredJob], holder: Callable[[str], str], accounts: Mapping[Place, GpuAccount]
) -> list[AllocationRow]:
    """Return the allocations of all parts, each once."""
    found: dict[tuple[object, ...], list[AllocationRow]] = {}
    rows = [(name, row) for name, part in parts.items() for row in part.record.allocations]
    # Its node's holder first; of others, whoever saw the end before one that missed it.
    rows.sort(key=lambda pair: (holder(pair[1].node) != pair[0], pair[1].lost, pair[1].end is None))
    for name, row in rows:
        same = found.setdefault((row.node, row.gpu, row.instance, row.step, row.kind), [])
        if any(_overlap(row, other) for other in same):
            continue
        if row.end is None and holder(row.node) not in {"", name}:  # which does not list it
            account = accounts.get((row.node, row.gpu))
            end = max(row.begin, 0 if account is None else account.at)
            same.append(replace(row, end=end, lost=True))
        else:
            same.append(row)
    return sorted((row for its in found.values() for row in its), key=lambda row: (row.begin, row.node, row.gpu))


def _overlap(row: AllocationRow, other: AllocationRow) -> bool:
    """Return whether two rows of a GPU are one allocation, whose begin one may know better."""
    return row.begin == other.begin or (
        row.begin < (FOREVER if other.end is None else other.end)
        and other.begin < (FOREVER if row.end is None else row.end)
    )


def _held(parts: Sequence[StoredJob], tracked: TrackedJob, wall: int) -> dict[Place, float]:
    """Return for how long the job had each GPU: as the only one says that knows of it, which has not counted
    the newest seconds yet, else by the allocations."""
    reported: dict[Place, list[tuple[float, list[AllocationRow]]]] = {}
    for part in parts:
        rows = _by_place(part.record.allocations)
        for use in part.summary.gpus:
            place = use.node, use.gpu
            reported.setdefault(place, []).append((use.held_seconds, rows.get(place, [])))
    found = {}
    for place, its in _by_place(tracked.allocations).items():
        seconds = [
            each for each, rows in reported.get(place, ()) if sorted(rows, key=_begin) == sorted(its, key=_begin)
        ]
        alone = len(reported.get(place, ())) == 1 and seconds
        found[place] = seconds[0] if alone else held_seconds(its, wall)
    return found


def _by_place(rows: Iterable[AllocationRow]) -> dict[Place, list[AllocationRow]]:
    found: dict[Place, list[AllocationRow]] = {}
    for row in rows:
        found.setdefault((row.node, row.gpu), []).append(row)
    return found


def _begin(row: AllocationRow) -> tuple[int, str]:
    return row.begin, row.step
