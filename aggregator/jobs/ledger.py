"""From the complete lists of the nodes' jobs to allocations with a begin and an end. Pure.

A node sends what it knows now, never a change. The ledger compares each list with what it has: an
allocation that is listed and known is the same row, whatever was missed in between; one that is known
and no longer listed has ended unseen. A node that is silent ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from aggregator.jobs.aliases import Names, Rename, renames
from aggregator.jobs.scheduled import SAYS_NOTHING, merged
from aggregator.scheduler.names import SCHEDULERS, SOURCES
from api.jobs import AllocationRow, JobAccount, JobPhase
from telemetry.errors import WireError
from telemetry.wire.jobs import ENDED_SECONDS, UNLIMITED, Allocation, Job, JobKey, NodeJobs, Precision

KEPT_SECONDS = ENDED_SECONDS + 300.0
"""Seconds for which a job that has ended stays in memory: its node lists it for `ENDED_SECONDS`."""
MOST_ALLOCATIONS = 2048
"""Allocations of one node in memory, ended ones included: a message holds at most some 400."""
RANKS = {precision: rank for rank, precision in enumerate(Precision)}
"""The lower, the more exact."""
_ENDED_STATES = frozenset({"", "RUNNING", "PENDING", "COMPLETING"})
"""Words of a scheduler that say nothing of how a job ended."""
_EXACT = frozenset({Precision.HOOK, Precision.SCHEDULER})
LOST = "lost"
MOST_SESSIONS = 8
"""Sessions of a node that are remembered."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its allocations, as the store keeps it."""

    job: Job
    allocations: list[AllocationRow]
    reported: Job | None = None
    """As its scheduler said last."""
    account: JobAccount | None = None


@dataclass(slots=True)
class TrackedJob:
    """A job in memory."""

    job: Job
    """As its nodes say."""
    rows: dict[str, list[AllocationRow]] = field(default_factory=dict)
    """Its allocations by node."""
    reported: Job | None = None
    """As its scheduler said last."""
    account: JobAccount | None = None
    """As the scheduler's accounting says, once it has ended."""
    replaces: set[JobKey] = field(default_factory=set)
    """Aliases of it that the store may have as a job."""
    use: dict[str, float] = field(default_factory=dict)
    """Use of its GPUs by its processes when that was read last, by UUID, 0 to 1."""

    @property
    def known(self) -> Job:
        """Facts of nodes and scheduler together."""
        return self.job if self.reported is None else merged(self.job, self.reported)

    @property
    def facts(self) -> Job:
        """Known facts: the accounting says how it ended, what it was allowed and since when it waited where nobody
        else does."""
        known, account = self.known, self.account
        if account is None:
            return known
        known = replace(
            known,
            submitted=known.submitted or account.submitted or 0,
            eligible=known.eligible or account.eligible or 0,
            time_limit=known.time_limit or (UNLIMITED if account.unlimited else account.time_limit_seconds),
        )
        if known.state not in SAYS_NOTHING | _ENDED_STATES:
            return known
        return replace(known, state=account.state, exit_code=account.exit_code)

    @property
    def allocations(self) -> list[AllocationRow]:
        """Allocations on all of its nodes."""
        return [row for rows in self.rows.values() for row in rows]

    @property
    def open(self) -> bool:
        """Whether one of its allocations lasts."""
        return any(row.end is None for rows in self.rows.values() for row in rows)

    @property
    def begin(self) -> int:
        """When it began: as its scheduler says, else its first allocation; ns since 1970."""
        reported = 0 if self.reported is None else self.reported.begin
        return reported or self.job.begin or min(row.begin for row in self.allocations)

    @property
    def wait_seconds(self) -> float | None:
        """How long it waited for resources: up to its begin as its scheduler or a prolog says it, from when it could
        have begun (`eligible`), else from its submission. None where one of them is not known, and where they contradict
        each other."""
        facts = self.facts
        since = max(facts.submitted, facts.eligible)
        exact = facts.begin or any(row.begin_from in _EXACT for row in self.allocations)
        return (self.begin - since) / 1e9 if exact and facts.submitted and self.begin >= since else None

    @property
    def end(self) -> int | None:
        """When it ended: as its scheduler says, else its last allocation; None while it runs."""
        if self.open:
            return None
        reported = 0 if self.reported is None else self.reported.end
        ends = [row.end or 0 for row in self.allocations]
        if not any(row.end_by for row in self.allocations):  # else its epilog was that of a newer run
            ends.append(self.job.end)
        return reported or max(ends)

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes."""
        return sorted(self.rows)

    @property
    def gpus(self) -> list[tuple[str, str]]:
        """Node and UUID of its GPUs."""
        return sorted({(row.node, row.gpu) for row in self.allocations})

    @property
    def phase(self) -> JobPhase:
        """Its phase; `silent` is for who knows the fleet."""
        if self.open:
            return JobPhase.RUNNING
        state = self.facts.state
        unseen = any(row.lost for row in self.allocations) and state in _ENDED_STATES
        return JobPhase.LOST if unseen or state == LOST else JobPhase.ENDED

    def record(self) -> JobRecord:
        """Return what the store keeps."""
        return JobRecord(job=self.job, allocations=self.allocations, reported=self.reported, account=self.account)


def part_of(key: JobKey, tracked: TrackedJob) -> str:
    """Return the name under which a fault of a job is reported: that of a node first."""
    return f"{min(tracked.rows, default='')}/{key.scheduler} {key.id}"


@dataclass(slots=True)
class _NodeLists:
    """What is known of a node's newest list."""

    session: int
    version: int
    at: int
    seen: int
    """When the list was certainly true last, ns since 1970."""
    past: tuple[int, ...] = ()
    """Sessions before."""

    def supersedes(self, message: NodeJobs) -> bool:
        """Return whether a list is not newer than this one. A session that was not known before is
        newer whatever its clock says, which may have been set back."""
        if message.session == self.session:
            return message.version <= self.version
        return message.session in self.past and message.at <= self.at


class JobLedger:
    """Jobs and allocations of all nodes: those that last, and those that ended lately."""

    def __init__(self) -> None:
        self.jobs: dict[JobKey, TrackedJob] = {}
        self.changed: set[JobKey] = set()
        """Jobs that the store does not have as they are."""
        self.fresh: set[JobKey] = set()
        """Jobs of which the store may have an older part."""
        self.changed_gpus: set[tuple[str, str]] = set()
        """Node and UUID of GPUs whose holders have changed."""
        self.renamed: list[Rename] = []
        """What has a better name since: whoever counts by keys has to follow."""
        self._nodes: dict[str, _NodeLists] = {}
        self._jobs_of: dict[str, set[JobKey]] = {}
        """Jobs in memory by node."""

    def _count(self, node: str) -> int:
        """Return the allocations of a node in memory."""
        return sum(len(self.jobs[key].rows[node]) for key in self._jobs_of.get(node, ()))

    def apply(self, node: str, message: NodeJobs) -> bool:
        """Compare a node's list with what is known; return whether it was news. Raises `WireError`
        (`budget`) for more allocations than a node may have; nothing of it is applied then."""
        before = self._nodes.get(node)
        if before is not None and before.supersedes(message):
            return False
        self._check_room(node, message)
        self._compare(node, message)
        past = () if before is None else before.past
        if before is not None and before.session != message.session:
            past = (*past, before.session)[-MOST_SESSIONS:]
        self._nodes[node] = _NodeLists(message.session, message.version, message.at, message.at, past)
        return True

    def amend(self, node: str, message: NodeJobs, at: int) -> None:
        """Compare the list that a node sent last with what is known, now that its scheduler has said more, at a
        time. Raises `WireError` as `apply` does."""
        self._check_room(node, message)
        self._compare(node, replace(message, at=max(at, message.at)))

    def _check_room(self, node: str, message: NodeJobs) -> None:
        new = sum(self._find(node, each) is None for each in message.allocations)
        if new and self._count(node) + new > MOST_ALLOCATIONS:
            raise WireError("budget", f"more than {MOST_ALLOCATIONS} allocations of GPUs")

    def _rename(self, node: str, names: Names, facts: Mapping[JobKey, Job]) -> None:
        """Give the rows of a node that were known by an alias to the job that it stands for."""
        for each in renames(node, names, self.of_node(node)):
            old = self.jobs[each.old]
            if each.new not in self.jobs:
                self.fresh.add(each.new)
            rows = old.rows.pop(node)
            self._jobs_of[node].discard(each.old)
            for row in rows:
                if names.of(each.old, row.gpu, row.begin, row.end) == each.new:
                    self._join(facts.get(each.new) or replace(old.job, key=each.new), row)
                else:
                    self._add(old.job, row)
            self.changed |= {each.old, each.new}
            if not old.rows:
                self.jobs[each.new].replaces |= {each.old, *old.replaces}
                del self.jobs[each.old]
                self.changed.discard(each.old)
                self.fresh.discard(each.old)
            self.renamed.append(each)

    def _join(self, job: Job, row: AllocationRow) -> None:
        """Add a row to a job that may have the same allocation already."""
        tracked = self.jobs.get(job.key)
        rows = [] if tracked is None else tracked.rows.get(row.node, [])
        for at, other in enumerate(rows):
            if _is_one(row, other):
                ended = row.end is not None and other.end is not None
                later = max(row, other, key=lambda each: each.end or 0)
                end = (later.end, later.end_from, later.lost) if ended else (None, other.end_from, False)
                rows[at] = replace(other, begin=min(row.begin, other.begin), end=end[0], end_from=end[1], lost=end[2])
                self.changed_gpus.add((row.node, row.gpu))
                return
        self._add(job, row)

    def _compare(self, node: str, message: NodeJobs) -> None:
        before = self._nodes.get(node)
        names = Names(message)
        message = names.applied(message)
        self._rename(node, names, {job.key: job for job in message.jobs})
        facts = {job.key: job for job in message.jobs}
        listed: set[tuple[JobKey, int]] = set()
        for each in sorted(message.allocations, key=lambda each: each.begin):
            listed.add((each.job, self._put(node, each, message.at, facts.get(each.job))))
        for key, job in facts.items():
            tracked = self.jobs.get(key)
            if tracked is not None:
                self._merge(tracked, job)
        seen = before.seen if before is not None else 0
        self._end_unlisted(node, listed, message.at, seen)

    def report(self, reported: Job) -> None:
        """Note what its scheduler says of a job in memory."""
        tracked = self.jobs.get(reported.key)
        if tracked is not None and tracked.reported != reported:
            tracked.reported = reported
            self.changed.add(reported.key)

    def settle(self, key: JobKey, account: JobAccount) -> None:
        """Note what the accounting says of a job in memory that has ended: also when, where nobody saw it, or nobody
        noticed."""
        tracked = self.jobs[key]
        tracked.account = account
        self.changed.add(key)
        for node, rows in tracked.rows.items():
            for number, row in enumerate(rows):
                unseen = row.lost or row.end is None
                if unseen and account.end is not None and account.end >= row.begin:
                    rows[number] = replace(
                        row,
                        end=account.end,
                        end_from=Precision.ACCOUNTING,
                        lost=False,
                        end_by="" if row.lost else SCHEDULERS[key.scheduler].accounting,
                    )
                    self.changed_gpus.add((node, row.gpu))

    def confirm(self, node: str, session: int, at: int) -> None:
        """Note that a node whose list is of `session` still reported at a time, ns since 1970."""
        known = self._nodes.get(node)
        if known is not None and known.session == session:
            known.seen = max(known.seen, at)

    def remove(self, node: str) -> None:
        """End what lasts on a node that is gone for good, at the time at which it was listed last."""
        known = self._nodes.pop(node, None)
        self._end_unlisted(node, set(), None, 0 if known is None else known.seen)

    def restore(self, records: Iterable[JobRecord]) -> None:
        """Begin with the jobs that lasted when the store was written last."""
        for record in records:
            key = record.job.key
            if record.allocations and key not in self.jobs:
                for row in record.allocations:
                    self._add(record.job, row)
                self.jobs[key].reported, self.jobs[key].account = record.reported, record.account

    def absorb(self, record: JobRecord) -> None:
        """Add what the store has of a job that was no longer in memory."""
        key = record.job.key
        tracked = self.jobs.get(key)
        if tracked is None:
            return
        for row in record.allocations:
            rows = tracked.rows.get(row.node, [])
            at = next((at for at, other in enumerate(rows) if _same(row, other)), None)
            if at is None:
                self._add(record.job, row)
            elif row.end_by and rows[at].end is None:  # its node does not know of it
                rows[at] = row
                self.changed_gpus.add((row.node, row.gpu))
        tracked.job = newer_facts(record.job, tracked.job)
        tracked.reported = tracked.reported or record.reported
        tracked.account = tracked.account or record.account
        self.changed.add(key)

    def drop(self, key: JobKey) -> None:
        """Forget a job that has ended and is stored."""
        for node, rows in self.jobs.pop(key).rows.items():
            self._jobs_of[node].discard(key)
            if not self._jobs_of[node]:
                del self._jobs_of[node]
            self.changed_gpus.update((node, row.gpu) for row in rows)
        self.changed.discard(key)
        self.fresh.discard(key)

    def of_node(self, node: str) -> Iterator[tuple[JobKey, AllocationRow]]:
        """Yield the allocations of a node."""
        for key in self._jobs_of.get(node, ()):
            for row in self.jobs[key].rows[node]:
                yield key, row

    def note_use(self, message: NodeJobs) -> None:
        """Note how much each job's processes use of the GPUs of a node, where it is read: of a job that has ended since,
        what they used last holds for the time until then."""
        found: dict[tuple[JobKey, str], float] = {}
        for process in message.processes:
            if process.job is not None and process.sm_ratio is not None and process.job in self.jobs:
                its = process.job, process.gpu
                found[its] = found.get(its, 0.0) + process.sm_ratio
        for (key, gpu), ratio in found.items():
            self.jobs[key].use[gpu] = ratio

    def _add(self, job: Job, row: AllocationRow) -> None:
        """Add a row of a job; none is in memory without a row."""
        tracked = self.jobs.setdefault(job.key, TrackedJob(job))
        tracked.rows.setdefault(row.node, []).append(row)
        self._jobs_of.setdefault(row.node, set()).add(job.key)
        self.changed_gpus.add((row.node, row.gpu))

    def _find(self, node: str, each: Allocation) -> int | None:
        """Return the position of the row of a listed allocation among those of its job on that node."""
        tracked = self.jobs.get(each.job)
        if tracked is None:
            return None
        rows = tracked.rows.get(node, [])
        same = [
            at
            for at, row in enumerate(rows)
            if row.gpu == each.gpu and row.instance == each.instance and row.step == each.step and row.kind is each.kind
        ]
        for at in same:
            if rows[at].begin == each.begin:
                return at
        for at in reversed(same):
            row = rows[at]
            if row.begin_from is each.begin_from is Precision.HOOK:
                continue  # each begin is that of a hook of its own: the end of one is not that of the other
            if (not each.end or row.begin < each.end) and (row.end is None or each.begin < row.end):
                return at
        return None

    def _put(self, node: str, each: Allocation, at: int, facts: Job | None) -> int:
        """Add or change the row of a listed allocation; return its position in its job."""
        position = self._find(node, each)
        if position is None:
            begin = each.begin or at
            row = AllocationRow(
                node=node,
                gpu=each.gpu,
                instance=each.instance,
                step=each.step,
                kind=each.kind,
                begin=begin,
                end=max(begin, each.end) if each.end else None,
                begin_from=each.begin_from,
                end_from=each.end_from,
                source=each.source,
                assumed=each.assumed,
                end_by=each.end_by,
                end_after=each.end_after or None,
            )
            if each.job not in self.jobs:
                self.fresh.add(each.job)
            self._add(facts or Job(key=each.job), row)
            position = len(self.jobs[each.job].rows[node]) - 1
        else:
            rows = self.jobs[each.job].rows[node]
            row = _updated(rows[position], each, at)
            if row == rows[position]:
                return position
            rows[position] = row
        self.changed.add(each.job)
        self.changed_gpus.add((node, each.gpu))
        return position

    def _end_unlisted(self, node: str, listed: set[tuple[JobKey, int]], at: int | None, seen: int) -> None:
        """End the rows of a node that last and are not listed at `at`: it was certain at `seen` that
        they lasted. `at` None: the node is gone."""
        for key in self._jobs_of.get(node, ()):
            rows = self.jobs[key].rows[node]
            for number, row in enumerate(rows):
                if row.end is not None or (key, number) in listed:
                    continue
                if at is not None and row.begin > at:
                    continue  # the list is older than the row
                end = max(row.begin, seen if at is None else min(seen, at))
                rows[number] = replace(row, end=end, lost=True)
                self.changed.add(key)
                self.changed_gpus.add((row.node, row.gpu))

    def _merge(self, tracked: TrackedJob, job: Job) -> None:
        newer = newer_facts(tracked.job, job)
        if newer != tracked.job:
            tracked.job = newer
            self.changed.add(job.key)


def _same(row: AllocationRow, other: AllocationRow) -> bool:
    """Return whether two rows of a job and node are one allocation."""
    return (row.gpu, row.instance, row.step, row.kind, row.begin) == (
        other.gpu, other.instance, other.step, other.kind, other.begin
    )  # fmt: skip


def _is_one(row: AllocationRow, other: AllocationRow) -> bool:
    """Return whether two rows of a job and node overlap as only one allocation does."""
    return (
        (row.gpu, row.instance, row.step, row.kind) == (other.gpu, other.instance, other.step, other.kind)
        and (other.end is None or row.begin <= other.end)
        and (row.end is None or other.begin <= row.end)
    )


def _updated(row: AllocationRow, each: Allocation, at: int) -> AllocationRow:
    """Return a row with what a newer list says of it: the more exact time wins, the earlier begin among
    equals; an end by hook or by conclusion is final, and a row that was lost and is listed again goes on."""
    if each.begin and RANKS[each.begin_from] < RANKS[row.begin_from]:
        row = replace(row, begin=each.begin, begin_from=each.begin_from)
    elif each.begin and each.begin_from is row.begin_from and each.begin < row.begin:
        row = replace(row, begin=each.begin)
    if each.end:
        if row.end is None or row.lost or _is_more_exact(row, each):
            row = replace(
                row,
                end=max(each.end, row.begin),
                end_from=each.end_from,
                lost=False,
                end_by=each.end_by,
                end_after=each.end_after or None,
            )
    elif row.end is not None and not row.end_by and (row.lost or (row.end_from is not Precision.HOOK and at > row.end)):
        row = replace(row, end=None, lost=False)
    if row.end is not None and row.end < row.begin:
        row = replace(row, end=row.begin)
    if each.source and each.source != row.source and row.source in {"", *SOURCES}:
        row = replace(row, source=each.source)
    if row.assumed and not each.assumed:
        row = replace(row, assumed=False)
    return row


def _is_more_exact(row: AllocationRow, each: Allocation) -> bool:
    """Return whether the end of a listed allocation is more exact than the one that its row has. One that was concluded
    gives way to what its node saw, as far as that is possible: an epilog may be that of a newer run."""
    if row.end_by and not each.end_by:
        return row.end_by in SOURCES or each.end <= (row.end or 0)
    return RANKS[each.end_from] < RANKS[row.end_from]


def newer_facts(old: Job, new: Job) -> Job:
    """Return a job with the newest known facts; begin and end are the widest."""
    known = {name: getattr(new, name) for name in Job.__struct_fields__ if getattr(new, name)}
    if new.exit_code is not None:
        known["exit_code"] = new.exit_code
    if old.begin and new.begin:
        known["begin"] = min(old.begin, new.begin)
    known["end"] = max(old.end, new.end)
    if new.state in _ENDED_STATES and old.state not in _ENDED_STATES:
        known["state"] = old.state  # a node that has not heard of the end yet
    return replace(old, **known)
