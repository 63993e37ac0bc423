"""Energy of jobs by the counters of their GPUs, where these are read at each begin and end, and by samples until then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from aggregator.jobs.edges import EdgeCounters, EdgeWindow, Readings, grown
from aggregator.jobs.holding import edge_times, holders, not_alone, spans_of
from aggregator.jobs.ledger import JobLedger, TrackedJob
from aggregator.jobs.months import counted_account, counted_by_month
from aggregator.jobs.usage import FOREVER, NO_MONTH, CountedMonth, GpuAccount, UsageMeter
from api.jobs import AllocationRow, EnergyFrom
from telemetry.wire.jobs import JobKey

Months = Callable[[int, int], Mapping[str, int]]
"""Returns the begins of the site's months from that of a time on which begin before another, by name, ns since 1970."""


class JobEnergy:
    """Energy and use of each GPU by the jobs of a ledger; a meter adds up the samples."""

    def __init__(self, ledger: JobLedger, meter: UsageMeter, months: Months) -> None:
        self._ledger, self._meter, self.months = ledger, meter, months
        self._month = NO_MONTH
        """The present one."""
        self.edges = EdgeCounters()
        self._moved: dict[tuple[JobKey, str], dict[tuple[str, str], float]] = {}
        """By how much the counters of a GPU gave a job more than the samples, by month and sum."""
        self._not_alone: set[tuple[JobKey, str]] = set()
        """Jobs on GPUs that another one held or used at the same time."""

    # -- Who holds a GPU ---------------------------------------------------------------------------

    def begin_month(self, month: CountedMonth) -> None:
        """Have the counters looked for at the begin of the present month of what lasts over it."""
        if month.name == self._month.name:
            return
        self._month = month
        for tracked in self._ledger.jobs.values():
            if tracked.begin < month.start:
                self._ledger.changed_gpus.update(tracked.gpus)

    def hold(self, node: str, gpus: set[str]) -> None:
        """Bring the holders of some GPUs of a node to the meter."""
        held: dict[str, list[tuple[JobKey, AllocationRow]]] = {gpu: [] for gpu in gpus}
        for key, row in self._ledger.of_node(node):
            if row.gpu in gpus:
                held[row.gpu].append((key, row))
        for gpu, rows in held.items():
            for key in not_alone(rows):
                self._not_alone.add((key, gpu))
                # What was moved by a counter that turns out not to be the job's alone goes back.
                if (key, gpu) in self._moved:
                    self._move(key, gpu, {})
                    self._ledger.changed.add(key)
            by_job: dict[JobKey, list[AllocationRow]] = {}
            for key, row in rows:
                by_job.setdefault(key, []).append(row)
            self.edges.want(node, gpu, set().union(*map(self._times, by_job.values())))
            counted = self._meter.counted_until(gpu)
            use = {key: self._ledger.jobs[key].use.get(gpu, 0.0) for key in by_job}
            self._meter.hold(gpu, holders(rows, use, counted))

    def rename(self, old: JobKey, new: JobKey, gpus: Iterable[str]) -> None:
        """Note that a job that was known under an alias is no other one than that of its name."""
        self._not_alone -= {(key, gpu) for key in (old, new) for gpu in gpus}

    def restore(self, account: GpuAccount) -> None:
        """Begin with the counters that are known of a job that was stored."""
        self.edges.restore(account.node, account.gpu, account.counters)

    def seeks(self, tracked: TrackedJob) -> bool:
        """Return whether a counter of a job's GPUs is still looked for."""
        return any(self.edges.sought(row.gpu, self._times([row])) for row in tracked.allocations)

    def forget(self, key: JobKey, gpus: Iterable[str]) -> None:
        """Forget a job that leaves the memory."""
        for gpu in gpus:
            self._moved.pop((key, gpu), None)
            self._not_alone.discard((key, gpu))

    def _begins(self, rows: Sequence[AllocationRow]) -> Mapping[str, int]:
        """Return the begins of the months in which a job has a GPU by some rows, with that of its begin, by name."""
        begin = min(row.begin for row in rows)
        present = {self._month.name: self._month.start}
        if begin >= self._month.start:
            return present
        end = max(FOREVER if row.end is None else row.end for row in rows)
        return self.months(begin, min(end, self._month.start + 1)) or present

    def _times(self, rows: Sequence[AllocationRow]) -> set[int]:
        """Return when the counter of a GPU counts for a job that has it by some rows, ns since 1970."""
        return edge_times(rows) | {
            at
            for at in self._begins(rows).values()
            if any(row.begin < at < (FOREVER if row.end is None else row.end) for row in rows)
        }

    # -- What it used ------------------------------------------------------------------------------

    def accounts(self, tracked: TrackedJob) -> list[GpuAccount]:
        """Return what a job used of each of its GPUs."""
        return [self._counted(tracked, self._meter.account(tracked.job.key, node, gpu)) for node, gpu in tracked.gpus]

    def _counted(self, tracked: TrackedJob, account: GpuAccount) -> GpuAccount:
        """Return what a job used of a GPU, with the energy by its counter where that is known at each edge."""
        rows = [row for row in tracked.rows[account.node] if row.gpu == account.gpu]
        times = edge_times(rows)
        counters = self.edges.known(account.gpu, self._times(rows))
        if not self._countable(tracked.job.key, rows, account):
            return account
        running = any(row.end is None for row in rows)
        spans = spans_of(rows)
        joules = None if running else grown(spans, counters)
        if joules is not None:
            return counted_account(account, joules, spans, counters, self._begins(rows))
        lost = self.edges.given_up(account.gpu, times)
        settled = not running and (lost or times <= counters.keys())
        basis = EnergyFrom.SAMPLES if settled else EnergyFrom.PROVISIONAL
        return msgspec.structs.replace(account, counters=counters, energy_from=basis)

    def _countable(self, key: JobKey, rows: Sequence[AllocationRow], account: GpuAccount) -> bool:
        """Return whether the counter of a GPU is that of a job alone."""
        whole = not account.shared and all(row.instance is None for row in rows)
        return whole and (key, account.gpu) not in self._not_alone

    # -- Counters from the store -------------------------------------------------------------------

    def due(self, wall_ns: int) -> list[EdgeWindow]:
        """Return the queries to the store for counters at begins and ends that are to be looked for now."""
        return self.edges.due(wall_ns)

    def note(self, window: EdgeWindow, readings: Readings) -> None:
        """Take what the store has of one of these; the jobs whose energy is counted by it, or not to be counted by any
        more, are written again."""
        found: dict[tuple[str, str], set[int]] = {}
        for edge in {*self.edges.note(window, readings), *self.edges.lost(window)}:
            found.setdefault((edge.node, edge.gpu), set()).add(edge.at)
        for node in {node for node, _ in found}:
            held: dict[tuple[JobKey, str], list[AllocationRow]] = {}
            for key, row in self._ledger.of_node(node):
                if (node, row.gpu) in found:
                    held.setdefault((key, row.gpu), []).append(row)
            for (key, gpu), rows in held.items():
                if not found[node, gpu].isdisjoint(self._times(rows)):
                    self._note_counted(key, node, gpu, min(row.begin for row in rows))

    def _note_counted(self, key: JobKey, node: str, gpu: str, begin: int) -> None:
        """Note that there is a new word about the counters of a GPU that a job has since a time."""
        sampled = self._meter.account(key, node, gpu)
        counted = self._counted(self._ledger.jobs[key], sampled)
        if counted.energy_from is EnergyFrom.COUNTERS:
            # What nobody counted, as before a start, nobody gives back.
            whole = self._meter.counted_whole(gpu, begin)
            more = Counter(counted_by_month(counted))
            more.subtract(counted_by_month(sampled))
            self._move(key, gpu, more if whole else {})
        if counted.energy_from is not EnergyFrom.PROVISIONAL:
            self._ledger.changed.add(key)

    def _move(self, key: JobKey, gpu: str, more: Mapping[tuple[str, str], float]) -> None:
        """Give a job of the energy and the cost that nobody caused what its counter has more than the samples, by month
        and sum, in place of what it was given before."""
        before = self._moved.pop((key, gpu), {})
        for month, name in before.keys() | more.keys():
            its = (month, name)
            self._meter.move_unheld(month, name, before.get(its, 0.0) - more.get(its, 0.0))
        if more:
            self._moved[key, gpu] = dict(more)
