"""Jobs of the cluster in a running aggregator: lists come in, allocations, use and summaries go out.

Everything runs on the event loop but what the store does. A job is written when it changes, and while
it runs every ten minutes; what it has used is saved once a minute (`running`); energy goes on by the counters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial

import msgspec

from aggregator.jobs.aliases import Names
from aggregator.jobs.energy import JobEnergy, Months
from aggregator.jobs.faults import JobFaults
from aggregator.jobs.ledger import KEPT_SECONDS, JobLedger, TrackedJob, part_of
from aggregator.jobs.own_lists import OwnLists
from aggregator.jobs.running import newest
from aggregator.jobs.scheduled import Word
from aggregator.jobs.slots import SOURCE as SLOTS
from aggregator.jobs.slots import of_users
from aggregator.jobs.stored import JobQuery, StoredJob, row_of_job
from aggregator.jobs.summary import held_seconds, summarize
from aggregator.jobs.unlisted import UnlistedJobs
from aggregator.jobs.usage import FOREVER, LAG_SECONDS, NO_MONTH, CountedMonth, GpuAccount, UsageMeter
from aggregator.jobs.write_times import WriteTimes
from aggregator.scheduler.listed import JobListing
from api.jobs import AllocationRow, JobAccount, JobPhase, JobRow, JobSummary
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import Isolation, PartKind
from telemetry.wire import border
from telemetry.wire.jobs import JobKey, JobSourceState, NodeJobs, with_node

STEP_SECONDS = 5.0
"""Seconds between two samples of the fleet."""
LOOK_SECONDS = 60.0
"""Seconds between two searches for jobs that need not stay in memory."""
SILENT_SECONDS = 60.0
"""Seconds without a frame after which a node says nothing of its jobs."""
MOST_AT_ONCE = 500
"""Jobs of one write."""


class JobService:
    """Jobs of all nodes of a cluster or shard. One loop owns it."""

    def __init__(
        self,
        currency: Callable[[], str] = lambda: "",
        word: Word | None = None,
        *,
        shares: bool = False,
        months: Months = lambda *_: {},
    ) -> None:
        """`currency`: that of the site; `word`: of the scheduler, None where nobody asks it; `shares`: whether other
        aggregators may have counted what this one did not; `months`: of the site."""
        self.ledger = JobLedger()
        self.meter = UsageMeter()
        self.lists: dict[str, NodeJobs] = {}
        """Newest list of each node."""
        self.on_list: Callable[[str, NodeJobs | None], None] = lambda *_: None
        """Called with each new list of a node; with None when the node is gone."""
        self.aside = Isolation(PartKind.JOBS)
        """Nodes, and jobs by `node/scheduler id`, on which an error of our own was raised; the others go on."""
        self.energy = JobEnergy(self.ledger, self.meter, months)
        """Energy and use of each GPU by each job."""
        self._currency, self._shares = currency, shares
        self.faults = JobFaults(self.ledger)
        self.writes = WriteTimes()
        """When jobs are written."""
        self._looked = -math.inf
        """Monotonic seconds of the last search of `forget_ended`."""
        self._reporting: set[str] = set()
        """Nodes that sent a frame lately."""
        self._own = OwnLists()
        self.word = word
        """Newest word of the scheduler; None where nobody asks it."""
        self.unlisted = UnlistedJobs(self.ledger, self._own, word)
        self.sources: Callable[[], list[JobSourceState]] = list
        """Returns the state of the scheduler's word."""

    # -- In ----------------------------------------------------------------------------------------

    def receive(self, node: str, payload: bytes, gpus: Set[str], wall_ns: int) -> None:
        """Apply a list of a node that has some GPUs. Raises `WireError`."""
        message = border.decode_jobs(payload)
        foreign = {each.gpu for each in message.allocations} - gpus
        if foreign:
            raise WireError("foreign", f"jobs on {min(foreign)}, which is not of this node")
        if message.at > wall_ns:
            message = msgspec.structs.replace(message, at=wall_ns)
        if self.word is None or self.word.source != SLOTS:
            message = of_users(message)
        own = with_node(message, node)
        message = self._with_word(node, own, wall_ns)
        if self.ledger.apply(node, message):
            self._own.put(node, own)
            self._show(node, message)

    def _follow_renames(self) -> None:
        """Bring what was counted of a job under an alias to its name."""
        renamed, self.ledger.renamed = self.ledger.renamed, []
        for each in renamed:
            self.energy.rename(each.old, each.new, each.gpus)
            self._hold(each.node, set(each.gpus))
            for gpu in each.gpus:
                self.meter.rename(each.old, each.new, each.node, gpu)
            if each.old not in self.ledger.jobs:
                self.writes.forget(each.old)
                self.faults.rename(each.old, each.new)

    def _show(self, node: str, message: NodeJobs) -> None:
        self.lists[node] = message
        self._follow_renames()
        _report(self.ledger, self.word, message)
        self.on_list(node, message)

    def _with_word(self, node: str, own: NodeJobs, wall_ns: int) -> NodeJobs:
        """Return a node's list with what the scheduler says, and names in the place of aliases."""
        if self.word is None:
            return Names(own).applied(own)
        rows = list(self.ledger.of_node(node))
        message = self.word.list_of(own, node, rows, wall_ns)
        return Names(message).applied(message)

    def hear(self, listing: JobListing, now: float, wall_ns: int) -> Iterator[None]:
        """Apply a listing of the scheduler, in steps between which others may have their turn."""
        word = self.word
        if word is None:
            return
        changed = word.hear(listing, wall_ns)
        for node, own in self._own.due(changed):
            self.aside.run(node, now, partial(self._amend, node, own, listing.at, wall_ns), None)
            yield

    def _amend(self, node: str, own: NodeJobs, at: int, wall_ns: int) -> None:
        self._own.disturb([node])
        message = self._with_word(node, own, wall_ns)
        if message != self.lists.get(node):
            self.ledger.amend(node, message, at)
            self._show(node, message)
        else:
            _report(self.ledger, self.word, message)
            self._own.rest(node, self.ledger.of_node(node))

    def settle(self, accounts: Mapping[JobKey, JobAccount]) -> None:
        """Note what the accounting says of runs that have ended."""
        newest = {(key.scheduler, key.id): key for key in sorted(accounts)}
        named = {key: key for key in accounts} | {JobKey(key.scheduler, "", key.id): key for key in newest.values()}
        for key, its in named.items():
            tracked = self.ledger.jobs.get(key)
            if tracked is None or tracked.account is not None:
                continue
            if tracked.open and not (key.cluster and self.unlisted.has(key, tracked)):
                continue
            self.ledger.settle(key, accounts[its])
            self._own.disturb(tracked.rows)

    def remove(self, node: str) -> None:
        """Forget a node that is gone: what lasted on it has ended unseen."""
        self.ledger.remove(node)
        self.meter.leave({row.gpu for _, row in self.ledger.of_node(node)})
        self._own.remove(node)
        self.aside.forget(node)
        if self.lists.pop(node, None) is not None:
            self.on_list(node, None)

    def restore(self, stored: Iterable[StoredJob], saved: Mapping[JobKey, Sequence[GpuAccount]]) -> None:
        """Begin with the jobs that last, and those whose energy is still to be counted; `saved`: what they had used
        when that was saved last."""
        for each in stored:
            key = each.record.job.key
            accounts = newest(each.accounts, saved.get(key, ()))
            self._restore_use(msgspec.structs.replace(each, accounts=accounts))
            self.ledger.restore([each.record])
            self.writes.restored(key)

    def absorb(self, stored: Iterable[StoredJob], asked: Iterable[JobKey]) -> None:
        """Add what the store has of jobs that are new in memory; `asked`: all that were asked for."""
        self.ledger.fresh.difference_update(asked)
        for each in stored:
            if each.record.job.key in self.ledger.jobs:
                self._restore_use(each)
                self.ledger.absorb(each.record)
                self._own.disturb(row.node for row in each.record.allocations)

    def _restore_use(self, stored: StoredJob) -> None:
        key = stored.record.job.key
        for account in stored.accounts:
            self.energy.restore(account)
            # The counter goes on over no time that another one counted, or that was counted for nobody.
            if self._shares or stored.row.end is not None:
                account = msgspec.structs.replace(account, at=0, counter=0.0)  # noqa: PLW2901
            self.meter.restore(key, account)
        self.faults.restore(key, stored.summary.faults)

    def steps(
        self,
        fleet: Fleet,
        now: float,
        wall_ns: int,
        watts: Mapping[str, float] | None = None,
        price: float | None = None,
        month: CountedMonth = NO_MONTH,
    ) -> Iterator[None]:
        """Read the fleet, and count what its jobs used, in steps between which others may have their turn.
        `now`: the fleet's monotonic seconds; `watts`: at the wall by node; `price`: of a kWh; `month`: the
        present one."""
        self.energy.begin_month(month)
        self._reporting = {name for name, node in fleet.nodes.items() if now - node.seen < SILENT_SECONDS}
        self.aside.forget_idle(now)
        if len(self.aside):  # a job that is gone is never tried again
            jobs = {part_of(key, tracked) for key, tracked in self.ledger.jobs.items()}
            self.aside.keep(fleet.nodes.keys() | self.lists.keys() | jobs)
        changed, self.ledger.changed_gpus = self.ledger.changed_gpus, set()
        by_node: dict[str, set[str]] = {}
        for name, gpu in changed:
            by_node.setdefault(name, set()).add(gpu)
        for name in (self.lists.keys() & self._reporting) | by_node.keys():
            gpus = by_node.get(name, set())
            self.aside.run(name, now, partial(self._follow, fleet, name, gpus), None)
            if name in self.aside:
                self.ledger.changed_gpus.update((name, gpu) for gpu in gpus)
        yield
        reported = self.lists.keys() & self._reporting
        yield from self.meter.steps(fleet, now, wall_ns, watts or {}, price, reported, month)

    def _follow(self, fleet: Fleet, name: str, gpus: set[str]) -> None:
        """Note that a node reports, and who holds those of its GPUs that have changed hands."""
        if name in self.lists and name in self._reporting:
            node = fleet.nodes[name]
            self.ledger.confirm(name, node.session, node.sampled_at)
        if gpus:
            self._hold(name, gpus)

    def _hold(self, node: str, gpus: set[str]) -> None:
        """Bring the holders of some GPUs of a node to the meter."""
        if node in self.lists:
            self.ledger.note_use(self.lists[node])
        self.energy.hold(node, gpus)

    # -- Out ---------------------------------------------------------------------------------------

    def due(self, now: float, wall_ns: int) -> list[StoredJob]:
        """Return jobs that are to be written: those that have changed, and those of `writes`. Call `written` when they
        are."""
        ledger = self.ledger
        keys = [key for key in ledger.changed if key not in ledger.fresh]
        keys += [key for key in self.writes.due(now) if key not in ledger.changed]
        found: list[StoredJob] = []
        for key in keys:
            if key not in ledger.jobs:
                continue
            part = part_of(key, ledger.jobs[key])
            stored = self.aside.run(part, now, partial(self.stored, key, wall_ns), None)
            if stored is not None:
                found.append(stored)
            if len(found) == MOST_AT_ONCE:
                break
        return found

    def written(self, jobs: Sequence[StoredJob], now: float, wall_ns: int) -> None:
        """Note that jobs are stored."""
        for each in jobs:
            key = each.record.job.key
            tracked = self.ledger.jobs.get(key)
            if tracked is None:
                continue
            self.writes.written(key, tracked.end, now, wall_ns)
            tracked.replaces.difference_update(each.replaces)
            if tracked.record() == each.record:
                self.ledger.changed.discard(key)

    def forget_ended(self, now: float, wall_ns: int) -> None:
        """Drop jobs from memory that ended a while ago and are stored; looks at all once in a while."""
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        before = wall_ns - KEPT_SECONDS * 1e9
        open_there = {each.job for own in self._own.of.values() for each in own.allocations if not each.end}
        for key, tracked in list(self.ledger.jobs.items()):
            end = tracked.end
            if end is None or end >= before or key in self.ledger.changed:
                continue
            if self.writes.waits(key) or key in self.ledger.fresh:
                continue
            if key in open_there:  # for a node that knows nothing of its end
                continue
            if self.energy.seeks(tracked):
                continue
            self.aside.run(part_of(key, tracked), now, partial(self._forget, key, tracked.gpus), None)

    def _forget(self, key: JobKey, gpus: Iterable[tuple[str, str]]) -> None:
        self.ledger.drop(key)
        for node in {name for name, _ in gpus}:
            self._hold(node, {gpu for name, gpu in gpus if name == node})
        self.meter.forget(key, [gpu for _, gpu in gpus])
        self.energy.forget(key, [gpu for _, gpu in gpus])
        self.faults.forget(key)
        self.writes.forget(key)

    def stored(self, key: JobKey, wall_ns: int) -> StoredJob:
        """Return a job in memory as it is to be stored. Raises `KeyError`."""
        tracked = self.ledger.jobs[key]
        accounts = self.energy.accounts(tracked)
        summary = self._summary(key, tracked, accounts, wall_ns)
        phase = tracked.phase
        if phase is JobPhase.RUNNING and not self._reporting.intersection(tracked.nodes):
            phase = JobPhase.SILENT
        return StoredJob(
            row=row_of_job(tracked, summary, phase),
            record=tracked.record(),
            summary=summary,
            accounts=accounts,
            replaces=sorted(tracked.replaces),
        )

    def row(self, key: JobKey, wall_ns: int) -> JobRow:
        """Return a job in memory as a row of a list. Raises `KeyError`."""
        return self.stored(key, wall_ns).row

    def _summary(self, key: JobKey, tracked: TrackedJob, accounts: Sequence[GpuAccount], wall_ns: int) -> JobSummary:
        by_gpu: dict[tuple[str, str], list[AllocationRow]] = {}
        for row in tracked.allocations:
            by_gpu.setdefault((row.node, row.gpu), []).append(row)
        held = {}
        for (node, gpu), rows in by_gpu.items():
            counted = self.meter.counted_until(gpu)
            # What is not counted yet is not unknown.
            recent = counted if wall_ns - counted < 4 * LAG_SECONDS * 1e9 else wall_ns
            held[node, gpu] = held_seconds(rows, recent)
        return summarize(accounts, held, self.faults.of(key), self._currency())

    def held(self, key: JobKey) -> list[tuple[str, str]]:
        """Return node and UUID of the GPUs that a job holds."""
        tracked = self.ledger.jobs.get(key)
        rows = () if tracked is None else tracked.allocations
        return list(dict.fromkeys((row.node, row.gpu) for row in rows if row.end is None))

    def ids(self, own: str = "") -> Iterator[str]:
        """Yield the ids of the jobs in memory; `own`: those of a user alone."""
        return (key.id for key, its in self.ledger.jobs.items() if own in {"", its.job.user})

    def matching(self, query: JobQuery, wall_ns: int) -> list[JobRow]:
        """Return the jobs in memory that match a query, the newest begin first, without its limit."""
        keys = [
            key
            for key, tracked in self.ledger.jobs.items()
            if query.named(key.id, tracked.facts.owner, tracked.facts.aliases)
            and (not query.user or tracked.facts.user == query.user)
            and (not query.account or tracked.facts.account == query.account)
            and (not query.node or query.node in tracked.rows)
            and (query.running is None or query.running is tracked.open)
            and tracked.begin < query.until
            and (tracked.end or FOREVER) >= query.since
        ]
        keys.sort(key=lambda key: -self.ledger.jobs[key].begin)
        return [self.row(key, wall_ns) for key in keys[: query.limit]]


def _report(ledger: JobLedger, word: Word | None, message: NodeJobs) -> None:
    """Note what the scheduler says of the jobs of a node's list."""
    for key in {each.job for each in message.allocations}:
        reported = None if word is None else word.reported(key, message.users)
        if reported is not None:
            ledger.report(reported)
