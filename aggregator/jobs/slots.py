"""A node's list of jobs together with what HTCondor's pool says of its slots. Pure.

A node sees a slot by the cgroup of a process, and in it one job runs after the other. Whose a slot is, and which GPUs that
job was assigned, the pool alone knows. A job that the pool has no longer has ended since it was asked last: when its last
process did, where the node saw that. The queues of the schedds add what a job is called and asked for, and how it is while it
has no slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from aggregator.jobs.scheduled import UNSURE_SECONDS, Changed, merged, short
from aggregator.jobs.usage import FOREVER
from aggregator.scheduler.listed import ClaimedSlot, JobListing, ListedJob
from aggregator.scheduler.names import CONDOR, SchedulerNames
from api.jobs import AllocationRow
from telemetry.devices import Gpu
from telemetry.notations.htcondor import SCHEDULER, gpu_of, slot_of
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, NodeJobs, Precision, UserPrivacy, with_keys
from telemetry.wire.persons import BY_USER

SOURCE = CONDOR.source
"""Source of the allocations that the pool alone knows."""
GONE_SECONDS = 1200.0
"""Time for which the facts of a job are known that neither the pool nor a queue has any more."""
Rows = Sequence[tuple[JobKey, AllocationRow]]


class _SlotRun(NamedTuple):
    """A job in a slot."""

    begin: int
    end: int
    """`FOREVER` while it lasts."""
    key: JobKey


class SlotWord:
    """The newest listing of the pool, and that of the queues."""

    source, title = SOURCE, CONDOR.title
    names: SchedulerNames | None = CONDOR

    def __init__(self, gpus_of: Callable[[str], Sequence[Gpu]], began: int) -> None:
        """`gpus_of` returns the GPUs of a node; `began`: when the pool was first to be asked, ns since 1970."""
        self._gpus_of = gpus_of
        self._began = began
        self.listing: JobListing | None = None
        self.cluster = ""
        self.unknown: set[str] = set()
        """Nodes with jobs of the newest listing that nobody asked for."""
        self._on: dict[str, list[tuple[ListedJob, ClaimedSlot]]] = {}
        """Jobs in the slots of a node, by its short name."""
        self._by_key: dict[JobKey, ListedJob] = {}
        self._queued: dict[JobKey, ListedJob] = {}
        """Jobs of the queues."""
        self._gone: dict[JobKey, tuple[int, Job]] = {}
        """When a job was listed last, ns since 1970, and its facts then."""
        self._heard: dict[str, tuple[int, int]] = {}
        """When the pool had a machine last, and the time before, ns since 1970, by its short name."""
        self._nameless: set[str] = set()

    def hear(self, listing: JobListing, now: int) -> Changed:
        """Take in a listing; return what may be other than by the one before."""
        jobs = {each.key: each for each in listing.jobs}
        if listing.queue:
            return self._hear_queue(jobs, listing.at)
        self._leave(self._by_key.keys() - jobs.keys() - self._queued.keys(), listing.at)
        before = self._on
        self.listing = listing
        self._on, self._by_key, self._nameless = {}, jobs, set()
        for each in listing.jobs:
            for slot in each.slots:
                self._on.setdefault(short(slot.node), []).append((each, slot))
        there = {short(name) for name in listing.nodes}
        for node in there:
            last, _ = self._heard.get(node, (self._began, 0))
            self._heard[node] = listing.at, last
        self.unknown = set(self._on)
        known = before.keys() | self._on.keys()
        changed = {node for node in known if before.get(node) != self._on.get(node)}
        # Of a machine that is not there it depends on the time for how long it has not been.
        return Changed(changed | (self._heard.keys() - there), set())

    def _hear_queue(self, jobs: dict[JobKey, ListedJob], at: int) -> Changed:
        before = self._queued
        self._leave(before.keys() - jobs.keys() - self._by_key.keys(), at)
        self._queued = jobs
        changed = {key.id for key in before.keys() | jobs.keys() if before.get(key) != jobs.get(key)}
        return Changed(set(), changed)

    def _leave(self, keys: Iterable[JobKey], at: int) -> None:
        """Keep the facts of jobs that are listed nowhere any more, and none of those that left long ago."""
        before = at - GONE_SECONDS * 1e9
        self._gone = {key: its for key, its in self._gone.items() if its[0] >= before}
        for key in keys:
            job = self._facts(key)
            if job is not None:
                self._gone[key] = at, job if job.end else replace(job, state="")

    def of(self, key: JobKey) -> ListedJob | None:
        """Return a job of the newest listing."""
        return self._by_key.get(key)

    def reported(self, key: JobKey, users: UserPrivacy) -> Job | None:
        """Return the facts of a job in the form in which a node lets persons leave it."""
        job = self._facts(key)
        if job is None or users is UserPrivacy.NAMES:
            return job
        return replace(job, user="", account="")

    def _facts(self, key: JobKey) -> Job | None:
        """Return what pool and queue say of a job: the pool knows since when it runs, and is asked more often."""
        listed, queued = self._by_key.get(key), self._queued.get(key)
        if queued is None:
            return self._gone.get(key, (0, None))[1] if listed is None else listed.job
        its = queued.job
        if listed is None:  # a begin without a slot is that of a run before, or yet to be listed
            return replace(its, begin=0, state="" if queued.holds else its.state)
        job = listed.job
        return replace(
            job,
            name=its.name,
            owner=its.owner,
            gpus=its.gpus,
            time_limit=its.time_limit,
            user=job.user or its.user,
            account=job.account or its.account,
            submitted=job.submitted or its.submitted,
        )

    def problems(self) -> list[str]:
        """Return what in the newest listing can't be used, in a line each."""
        names = sorted(self._nameless)
        return [f"{len(names)} names of GPUs are of none of their nodes, as {names[0]}"] if names else []

    def list_of(self, message: NodeJobs, node: str, rows: Rows, now: int) -> NodeJobs:
        """Return a node's own list with the pool's word added. `rows`: allocations of the node that are known so far."""
        self.unknown.discard(short(node))
        heard, before = self._heard.get(short(node), (self._began, 0))
        if now - heard >= UNSURE_SECONDS * 1e9:
            return message
        rows = [(key, row) for key, row in rows if key.scheduler == SCHEDULER and row.source == SOURCE]
        listed = [] if self.listing is None else self._on.get(short(node), [])
        given = list(self._given(message, node, listed))
        current = {(each.job, each.gpu, each.begin) for each in given}
        asked = self.listing is not None and self.listing.at == heard
        for key, row in rows:
            if row.end is None and (key, row.gpu, row.begin) not in current:
                end = _end_of(message, row, given, before, heard) if asked else 0
                given.append(_again(key, row, end))
        past = [_again(key, row, row.end) for key, row in rows if row.end is not None]
        return self._named(message, given, past, listed)

    def _given(
        self, message: NodeJobs, node: str, listed: Iterable[tuple[ListedJob, ClaimedSlot]]
    ) -> Iterator[Allocation]:
        """Yield the GPUs that were assigned to the jobs in the slots of a node."""
        gpus = self._gpus_of(node)
        used = {
            (slot_of(each.job.id), each.gpu)
            for each in message.processes
            if each.job is not None and _is_slot(each.job)
        }
        for job, slot in listed:
            for name in slot.gpus:
                uuid, assumed = gpu_of(name, gpus)
                if not uuid:
                    self._nameless.add(f"{name} of {slot.node}")
                    continue
                yield Allocation(
                    job=job.key,
                    gpu=uuid,
                    step=slot_of(slot.name),
                    begin=slot.begin,
                    begin_from=Precision.SCHEDULER,
                    source=SOURCE,
                    assumed=assumed and (slot_of(slot.name), uuid) not in used,
                )

    def _named(
        self,
        message: NodeJobs,
        given: Sequence[Allocation],
        past: Sequence[Allocation],
        listed: Iterable[tuple[ListedJob, ClaimedSlot]],
    ) -> NodeJobs:
        """Return a list whose slots have become jobs."""
        runs: dict[str, list[_SlotRun]] = {}
        for each in (*past, *given):
            runs.setdefault(each.step, []).append(_SlotRun(each.begin, each.end or FOREVER, each.job))
        for job, slot in listed:
            runs.setdefault(slot_of(slot.name), []).append(_SlotRun(slot.begin, FOREVER, job.key))
        users = {job.key: job.user for job in message.jobs}
        now = {job.key: job for job in message.jobs}
        allocations: list[Allocation] = []
        for each in message.allocations:
            pieces = list(_pieces(each, runs)) if _is_slot(each.job) else [each]
            if pieces == [each] and _is_slot(each.job) and 0 < each.end < self._began:
                continue  # that of a job of before this start, which the store has
            allocations += pieces
            for piece in pieces if pieces != [each] else ():
                known = now.get(piece.job, Job(key=piece.job))
                person = "" if piece.end or message.users is UserPrivacy.NAMES else users.get(each.job, "")
                user = person or known.user
                aliases = tuple(sorted({*known.aliases, each.job.id}))
                now[piece.job] = replace(known, user=user, aliases=aliases)
        for key in {each.job for each in (*given, *allocations)}:
            reported = self.reported(key, message.users)
            if reported is not None:  # a state that does not last is no fact of the node's list
                reported = reported if reported.end else replace(reported, state="")
                now[key] = merged(now.get(key, Job(key=key)), reported)
        left = {each.job for each in allocations}
        return replace(
            message,
            jobs=tuple(job for job in now.values() if not _is_slot(job.key) or job.key in left),
            allocations=tuple(dict.fromkeys((*allocations, *given))),
            processes=tuple(_of_run(each, runs) for each in message.processes),
        )


def of_users(message: NodeJobs) -> NodeJobs:
    """Return a list in which slots of HTCondor are their users': where nobody asks the pool, jobs of several persons run in a
    slot one after the other."""
    users = {job.key: job.user for job in message.jobs if _is_slot(job.key) and job.user}
    if not users:
        return message

    def key(known: JobKey) -> JobKey:
        return JobKey(BY_USER, "", users[known]) if known in users else known

    message = with_keys(message, key)
    return replace(message, jobs=tuple({job.key: job for job in message.jobs}.values()))


def _is_slot(key: JobKey) -> bool:
    return key.scheduler == SCHEDULER and not key.cluster


def _again(key: JobKey, row: AllocationRow, end: int | None) -> Allocation:
    """Return an allocation as it is known."""
    return Allocation(
        job=key,
        gpu=row.gpu,
        step=row.step,
        begin=row.begin,
        begin_from=row.begin_from,
        end=max(end, row.begin) if end else 0,
        source=SOURCE,
        assumed=row.assumed,
    )


def _end_of(message: NodeJobs, row: AllocationRow, given: Iterable[Allocation], before: int, heard: int) -> int:
    """Return when an allocation has ended that was listed `before`, and not when the pool was `heard` last: before the
    next job on its GPU, and at its last process where that has ended in between."""
    last = max(
        (
            each.end
            for each in message.allocations
            if _is_slot(each.job) and slot_of(each.job.id) == row.step and each.gpu == row.gpu
        ),
        default=0,
    )
    next_begin = min((each.begin for each in given if each.gpu == row.gpu and each.begin > row.begin), default=heard)
    return min(last if before < last <= heard else heard, next_begin)


def _pieces(each: Allocation, runs: dict[str, list[_SlotRun]]) -> Iterator[Allocation]:
    """Yield the parts of what the processes in a slot used that are each one job's; all of it where none is known."""
    end = each.end or FOREVER
    its = {
        run.key: run for run in sorted(runs.get(slot_of(each.job.id), ())) if run.begin < end and each.begin < run.end
    }
    found = sorted(its.values())
    if not found:
        yield each
    for number, run in enumerate(found):
        begin = each.begin if number == 0 else max(each.begin, run.begin)
        until = min(end, run.end) if number + 1 < len(found) else end
        last = number + 1 == len(found)
        yield replace(each, job=run.key, begin=begin, end=each.end if last else until)


def _of_run(process: GpuProcess, runs: dict[str, list[_SlotRun]]) -> GpuProcess:
    if process.job is None or not _is_slot(process.job):
        return process
    now = [run for run in runs.get(slot_of(process.job.id), ()) if run.end == FOREVER]
    return replace(process, job=max(now).key) if now else process
