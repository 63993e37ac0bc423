"""From what all sources of jobs know now to jobs and allocations with begin and end. Pure.

Begin: of the most exact source, the earliest. End: a hook's wins; otherwise an allocation ends when no
source names it any more, at the last time that one did. A source that fails does not say that anything
ended. Two sources that name different jobs for one GPU are both kept: who reads the list sees both. A job whose hook
ended it, or whose end was concluded, is over: a source that does not know that, and a process that it left behind,
bring it back to no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from collector.jobs.source import FoundProcess, JobsAnswer, JobsInput, Ownership, ProcessId
from telemetry.wire.jobs import (
    ENDED_SECONDS,
    Allocation,
    AllocationKind,
    GpuProcess,
    Job,
    JobKey,
    Precision,
    aliases_of,
)

UNSURE_SECONDS = 60.0
"""Time for which an allocation is kept whose source fails, or whose GPU does not answer; then it is lost."""
PROCESSES = "process"
"""Source of what the processes themselves show."""
LOST = "lost"
"""State of a job whose end nobody saw."""
_SECOND = 1_000_000_000
_EXACTNESS = {precision: rank for rank, precision in enumerate(Precision)}
_KNOWING = frozenset({"reading", "absent"})
"""States of a source in which a missing allocation has ended."""


class AllocationKey(NamedTuple):
    """Identity of an allocation that lasts."""

    job: JobKey
    gpu: str
    instance: int | None
    step: str
    kind: AllocationKind


def key_of(allocation: Allocation) -> AllocationKey:
    """Return the identity of an allocation while it lasts; one that ended and began anew has the same."""
    return AllocationKey(allocation.job, allocation.gpu, allocation.instance, allocation.step, allocation.kind)


class MergedJobs(NamedTuple):
    """Jobs, allocations and processes of a node at one time."""

    jobs: tuple[Job, ...]
    allocations: tuple[Allocation, ...]
    """Allocations that ended lately, then those that last."""
    processes: tuple[GpuProcess, ...]


class OpenAllocation(msgspec.Struct, kw_only=True):
    """An allocation that lasts, as the merge and its file remember it."""

    allocation: Allocation
    sources: tuple[str, ...] = ()
    """Names of the sources that named it last."""
    seen: int = 0
    """When one did, ns since 1970."""
    processes: tuple[ProcessId, ...] = ()
    """Processes that used the GPU then."""


class _Statement(NamedTuple):
    """What one source says of an allocation, or one process shows."""

    source: str
    allocation: Allocation
    seen: int
    process: ProcessId | None = None


class _Look(NamedTuple):
    """Input of an update, apart from times and from what processes use."""

    processes: tuple[tuple[ProcessId, str, int | None, str], ...]
    """Identity, GPU, instance and user of each."""
    unread: frozenset[str]
    owners: Mapping[ProcessId, Ownership]
    answers: tuple[tuple[str, JobsAnswer], ...]


class JobMerge:
    """Allocations of a node over time.

    Most looks find what the one before found. After two in a row that had the same result, a third only notes
    that what lasts was seen: until a look differs, an ended allocation leaves, or too much time has passed.
    """

    def __init__(
        self, remembered: Sequence[OpenAllocation] = (), ended: Iterable[Allocation] = (), seen: int = 0
    ) -> None:
        """`remembered` lasted when the collector of this node last ran, at `seen`; `ended` had ended lately."""
        self._open = {key_of(each.allocation): each for each in remembered}
        for each in self._open.values():
            each.seen = max(each.seen, seen)
        self._ended = list(ended)
        self._over: dict[tuple[JobKey, str], int] = {}
        """Jobs that no longer have a GPU that a hook gave them, and since when: they began nothing there since."""
        self._given: dict[tuple[JobKey, str], int] = {}
        """Since when jobs have the GPUs that a hook gave them."""
        self._lost: set[JobKey] = set()
        self._named = {
            process: Ownership(each.allocation.job, each.allocation.step, each.allocation.source)
            for each in remembered
            for process in each.processes
        }
        """Jobs that schedulers named, of processes that are still there: kept while a scheduler is silent."""
        self._read_at: dict[str, int] = {}
        """Time of the newest reading of the processes of each GPU."""
        self._owner_of: Mapping[ProcessId, Ownership] = {}
        """Job of each process of the newest look."""
        self._look: _Look | None = None
        """The newest one."""
        self._merged = MergedJobs((), (), ())
        """The newest result."""
        self._at = 0
        """When it was, ns since 1970."""
        self._settled_until: float = 0.0
        """Until when the same look has the same result, ns since 1970."""

    @property
    def open(self) -> tuple[OpenAllocation, ...]:
        """Allocations that last."""
        return tuple(self._open.values())

    @property
    def ended(self) -> tuple[Allocation, ...]:
        """Allocations that ended lately, and those whose source still names them or that left a process behind."""
        return tuple(self._ended)

    def update(
        self, given: JobsInput, owners: Mapping[ProcessId, Ownership], answers: Mapping[str, JobsAnswer]
    ) -> MergedJobs:
        """Return jobs, allocations and processes at `given.at`. `owners`: job of each process by its cgroup
        or user; `answers`: of the sources by name, in the order of trust."""
        look = _look_of(given, owners, answers)
        same, before = look == self._look, self._merged
        since = given.at - self._at
        if same and 0 <= since <= UNSURE_SECONDS * _SECOND and given.at <= self._settled_until:
            self._see_again(given)
            merged = before
            if given.processes:  # what they use may differ
                merged = before._replace(processes=self._processes(given, answers))
        else:
            settled = self._merge(given, owners, answers)
            allocations = (*self._lately(given.at), *(each.allocation for each in self._open.values()))
            processes = self._processes(given, answers)
            jobs = self._jobs(allocations, processes, answers.values())
            merged = MergedJobs(jobs, allocations, processes)
            settled = settled and same and merged[:2] == before[:2]
            self._settled_until = self._first_leaves(given.at) if settled else 0.0
        for each in given.processes:
            self._read_at[each.process.gpu] = each.read_at
        self._look, self._at, self._merged = look, given.at, merged
        return merged

    def _see_again(self, given: JobsInput) -> None:
        """Note that all that lasts was seen again."""
        read = {(each.id, each.process.gpu): each.read_at for each in given.processes}
        for key, record in self._open.items():
            seen = [read[each, key.gpu] for each in record.processes]
            if record.sources != (PROCESSES,):
                seen.append(given.at)
            record.seen = max(record.seen, *seen)

    def _lately(self, at: int) -> Iterator[Allocation]:
        """Yield the allocations that ended lately."""
        oldest = at - int(ENDED_SECONDS * _SECOND)
        return (each for each in self._ended if each.end >= oldest)

    def _first_leaves(self, at: int) -> float:
        """Return until when no ended allocation leaves, ns since 1970."""
        ends = min((each.end for each in self._lately(at)), default=None)
        return math.inf if ends is None else ends + ENDED_SECONDS * _SECOND

    def _processes(self, given: JobsInput, answers: Mapping[str, JobsAnswer]) -> tuple[GpuProcess, ...]:
        """Return the processes with their jobs."""
        found = [
            msgspec.structs.replace(each.process, job=self._owner_of[each.id].job)
            if each.id in self._owner_of
            else each.process
            for each in given.processes
        ]
        for answer in answers.values():
            found += answer.processes
        return tuple(found)

    def _merge(
        self, given: JobsInput, owners: Mapping[ProcessId, Ownership], answers: Mapping[str, JobsAnswer]
    ) -> bool:
        """Begin, continue and end allocations. Return whether a source names each that lasts: time alone ends
        none then."""
        present = {each.id for each in given.processes}
        named = _by_alias(given, owners, answers.values())
        named |= {each: owner for each, owner in self._named.items() if each in present}
        for answer in reversed(list(answers.values())):
            named.update((each, owner) for each, owner in answer.owners.items() if each in present)
        self._named = named
        named = self._owner_of = {**owners, **named}
        self._rename(owners, named)
        self._note_hooks(answers.values())
        statements = self._statements(given, named, answers)
        for key, stated in statements.items():
            self._apply(key, stated)
        self._end_unstated(statements.keys(), given, answers)
        oldest = given.at - int(ENDED_SECONDS * _SECOND)
        current = {(key.job, key.gpu) for key in statements}
        current |= {(named[each.id].job, each.process.gpu) for each in given.processes if each.id in named}
        self._ended = [
            each for each in self._ended if each.end >= oldest or (_is_final(each) and (each.job, each.gpu) in current)
        ]
        return self._open.keys() <= statements.keys()

    def _note_hooks(self, answers: Iterable[JobsAnswer]) -> None:
        """Note which GPUs hooks have given to jobs, and taken back."""
        stated = [each for answer in answers for each in answer.allocations]
        self._given = {
            (each.job, each.gpu): each.begin for each in stated if each.begin and each.begin_from is Precision.HOOK
        }
        self._over = {(each.job, each.gpu): each.end for each in (*self._ended, *stated) if _is_final(each)}
        for each in stated:
            if not each.end and each.begin > self._over.get((each.job, each.gpu), each.begin):
                del self._over[each.job, each.gpu]

    def _rename(self, owners: Mapping[ProcessId, Ownership], named: Mapping[ProcessId, Ownership]) -> None:
        """Give allocations that were made of a cgroup alone the key by which a scheduler has named their job
        since: no allocation ended, and none began."""
        for key, record in list(self._open.items()):
            if key.kind is not AllocationKind.USED:
                continue
            known = [each for each in record.processes if each in named and each in owners]
            if not known or any(named[each].job == key.job for each in known):
                continue
            if not any(owners[each].job == key.job for each in known):
                continue
            owner = named[known[0]]
            del self._open[key]
            record.allocation = msgspec.structs.replace(
                record.allocation, job=owner.job, step=owner.step, source=owner.source
            )
            self._open.setdefault(key_of(record.allocation), record)

    def _statements(
        self, given: JobsInput, named: Mapping[ProcessId, Ownership], answers: Mapping[str, JobsAnswer]
    ) -> dict[AllocationKey, list[_Statement]]:
        """Return what is known now about each allocation."""
        found: dict[AllocationKey, list[_Statement]] = {}
        for name, answer in answers.items():
            for allocation in answer.allocations:
                known = _begun_at(allocation, given.at)
                found.setdefault(key_of(known), []).append(_Statement(name, known, given.at))
        for each in given.processes:
            if (owner := named.get(each.id)) is None:
                continue
            used = self._used(each, owner)
            key = key_of(used)
            if (key.job, key.gpu) not in self._over:
                statement = _Statement(PROCESSES, used, each.read_at, each.id)
                found.setdefault(key, []).append(statement)
            elif (record := self._open.get(key)) is not None:  # left behind: it used the GPU to the end
                record.seen = max(record.seen, each.read_at)
        return found

    def _used(self, found: FoundProcess, owner: Ownership) -> Allocation:
        """Return the allocation that a process shows. A process that is younger than the reading before
        began to use its GPU when it started."""
        process = found.process
        before = self._read_at.get(process.gpu, found.read_at)
        return Allocation(
            job=owner.job,
            gpu=process.gpu,
            instance=process.instance,
            step=owner.step,
            kind=AllocationKind.USED,
            begin=process.started if before < process.started < found.read_at else found.read_at,
            source=owner.source,
        )

    def _apply(self, key: AllocationKey, stated: Sequence[_Statement]) -> None:
        """Begin, continue or end an allocation."""
        active = [each for each in stated if not each.allocation.end]
        over = [
            each.allocation
            for each in stated
            if each.allocation.end and (not active or each.allocation.end_from is Precision.HOOK)
        ]
        record = self._open.get(key)
        if over:
            ended = min(over, key=_exactness_of_end)
            known = [each.allocation for each in stated if each.allocation.begin <= ended.end]
            known += [record.allocation] if record is not None else []
            self._close(key, _earliest(ended, known or [ended]), ended.end, ended.end_from)
            active = [each for each in active if each.allocation.begin > ended.end]
            record = None
        if not active:
            return
        if record is not None and _is_another(record, active):
            self._close(key, record.allocation, record.seen, Precision.PROCESS)
            record = None
        if record is None:
            last = max((each.end for each in self._ended if key_of(each) == key), default=0)
            active = [each for each in active if each.allocation.begin > last]
            if not active:  # the answer of a source that has not noticed the end yet
                return
            record = self._open[key] = OpenAllocation(allocation=active[0].allocation)
        begins = [record.allocation, *(each.allocation for each in active)]
        record.allocation = _earliest(record.allocation, begins)
        since = self._given.get((key.job, key.gpu), 0)
        if key.kind is AllocationKind.USED and record.allocation.begin < since:
            record.allocation = msgspec.structs.replace(record.allocation, begin=since)
        record.sources = tuple(dict.fromkeys(each.source for each in active))
        record.seen = max(record.seen, *(each.seen for each in active))
        record.processes = tuple(each.process for each in active if each.process is not None)

    def _close(self, key: AllocationKey, allocation: Allocation, end: int, how: Precision) -> None:
        """End an allocation. Where that was noted before, the more exact end holds."""
        self._open.pop(key, None)
        if key.kind is AllocationKind.USED:
            end = min(end, self._over.get((key.job, key.gpu), end))
        end = max(end, allocation.begin)
        closed = msgspec.structs.replace(allocation, end=end, end_from=how)
        if closed.end_by:
            seen = max((each for each in self._used_until(key.job) if each <= end), default=0)
            closed = msgspec.structs.replace(closed, end_after=max(seen, closed.begin))
        for number, other in enumerate(self._ended):
            if key_of(other) == key and other.begin <= end and allocation.begin <= other.end:
                later = bool(other.end_by) and end > other.end  # than is possible
                if not later and _exactness_of_end(closed) < _exactness_of_end(other):
                    self._ended[number] = _earliest(closed, [closed, other])
                return
        self._ended.append(closed)

    def _used_until(self, job: JobKey) -> Iterator[int]:
        """Yield when processes of a job were seen last."""
        used = AllocationKind.USED
        yield from (each.seen for key, each in self._open.items() if key.job == job and key.kind is used)
        yield from (each.end for each in self._ended if each.job == job and each.kind is used)

    def _end_unstated(
        self, stated: Iterable[AllocationKey], given: JobsInput, answers: Mapping[str, JobsAnswer]
    ) -> None:
        """End the allocations that no source names any more."""
        knowing = {name for name, answer in answers.items() if answer.state.state in _KNOWING}
        knowing.add(PROCESSES)
        for key in self._open.keys() - set(stated):
            record = self._open[key]
            unsure = (key.job, key.gpu) not in self._over and (
                not knowing.issuperset(record.sources) or (key.kind is AllocationKind.USED and key.gpu in given.unread)
            )
            if unsure and given.at - record.seen < UNSURE_SECONDS * _SECOND:
                continue
            if unsure:
                self._lost.add(key.job)
            self._close(key, record.allocation, record.seen, Precision.PROCESS)

    def _jobs(
        self, allocations: Sequence[Allocation], processes: Sequence[GpuProcess], answers: Iterable[JobsAnswer]
    ) -> tuple[Job, ...]:
        """Return the jobs of all allocations, and those that a source names."""
        found: dict[JobKey, Job] = {}
        for answer in answers:
            for job in answer.jobs:
                found[job.key] = _filled(found.get(job.key), job)
        users = {each.job: each.user for each in processes if each.job is not None and each.user}
        spans: dict[JobKey, list[Allocation]] = {}
        for allocation in allocations:
            spans.setdefault(allocation.job, []).append(allocation)
        for key, its in spans.items():
            self._lost -= {key} if any(not each.end for each in its) else set()
            lasts = any(not each.end for each in its)
            guess = Job(
                key=key,
                user=users.get(key, ""),
                begin=min(each.begin for each in its),
                end=0 if lasts else max(each.end for each in its),
                state=LOST if key in self._lost else "",
            )
            found[key] = _filled(found.get(key), guess)
        self._lost &= spans.keys()
        return tuple(found.values())


def _by_alias(
    given: JobsInput, owners: Mapping[ProcessId, Ownership], answers: Iterable[JobsAnswer]
) -> dict[ProcessId, Ownership]:
    """Return the jobs of processes whose cgroup has an alias of a job that is known to have their GPU, though its source
    has not seen the process yet."""
    found = {}
    for answer in answers:
        facts = {job.key: job for job in answer.jobs}
        holders = {
            (alias, each.gpu): each.job
            for each in sorted(answer.allocations, key=lambda each: each.job)
            if not each.end
            for alias in aliases_of(facts.get(each.job, Job(key=each.job)))
        }
        for process in given.processes if holders else ():
            owner = owners.get(process.id)
            name = None if owner is None else holders.get((owner.job, process.process.gpu))
            if owner is not None and name is not None:
                found[process.id] = Ownership(name, owner.step, owner.source)
    return found


def _look_of(given: JobsInput, owners: Mapping[ProcessId, Ownership], answers: Mapping[str, JobsAnswer]) -> _Look:
    shown = [(each.id, each.process) for each in given.processes]
    processes = tuple((each, one.gpu, one.instance, one.user) for each, one in shown)
    return _Look(processes, given.unread, dict(owners), tuple(answers.items()))


def _begun_at(allocation: Allocation, now: int) -> Allocation:
    """Return an allocation with a begin: now, where its source knows none, and not after its end."""
    if allocation.begin:
        return allocation
    begin = min(now, allocation.end or now)
    return msgspec.structs.replace(allocation, begin=begin, begin_from=Precision.PROCESS)


def _earliest(allocation: Allocation, others: Iterable[Allocation]) -> Allocation:
    """Return an allocation with the begin of the most exact of `others`, the earliest among these."""
    best = min(others, key=lambda each: (_EXACTNESS[each.begin_from], each.begin))
    return msgspec.structs.replace(allocation, begin=best.begin, begin_from=best.begin_from, source=best.source)


def _is_final(allocation: Allocation) -> bool:
    """Return whether an allocation has an end that a hook wrote, or that was concluded in its place."""
    return bool(allocation.end) and (allocation.end_from is Precision.HOOK or bool(allocation.end_by))


def _exactness_of_end(allocation: Allocation) -> tuple[int, int]:
    return _EXACTNESS[allocation.end_from], allocation.end


def _is_another(record: OpenAllocation, active: Sequence[_Statement]) -> bool:
    """Return whether a GPU was given back and taken again while nobody looked: everything that is known now
    began after the last look."""
    if any(each.process in record.processes for each in active if each.process is not None):
        return False
    if any(each.process is not None and each.process[1] <= record.seen for each in active):
        return False
    unseen = min(each.seen for each in active) - record.seen
    exact = [each for each in active if each.allocation.begin_from is not Precision.PROCESS]
    if exact:
        return all(each.allocation.begin > record.seen for each in exact)
    return unseen > UNSURE_SECONDS * _SECOND


def _filled(known: Job | None, other: Job) -> Job:
    """Return a job with what another source knows of it in the fields that are empty."""
    if known is None:
        return other
    blank = Job(key=known.key)
    added = {
        name: getattr(other, name) for name in known.__struct_fields__ if getattr(known, name) == getattr(blank, name)
    }
    return msgspec.structs.replace(known, **added)
