"""A node's list of jobs together with the scheduler's own word. Pure.

The scheduler knows what no node does: names, accounts, when a job was submitted, what it asked for, whether it is
suspended. Where a node has no prolog of ours it also knows which GPUs were given away, by numbers of its own. What
it says is added to the list of the node, so that everything behind sees one list; nothing that a node said itself
is changed; but where no epilog ran, silence is no statement: a job that has ended for the scheduler a while ago has
ended. A scheduler that does not answer ends nothing for `UNSURE_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from aggregator.scheduler.listed import WAITING, JobListing, ListedJob
from aggregator.scheduler.names import SLURM, SchedulerNames
from api.jobs import AllocationRow
from telemetry.devices import Gpu
from telemetry.notations.batch import array_task
from telemetry.wire.jobs import Allocation, AllocationKind, Job, JobKey, NodeJobs, Precision, UserPrivacy, with_keys

SAYS_NOTHING = frozenset({"", "ended", "lost"})
"""States of a job that do not tell how it ended."""
UNSURE_SECONDS = 300.0
"""Time for which the last listing holds while the scheduler does not answer: a controller that is started anew takes
a minute."""
NEWER_RUN = "a newer run in "
"""Evidence for the end of a run that its node never noticed, before the source that has the newer one."""
EPILOG_SECONDS = 60.0
"""Time after the end of a job for the scheduler, which waits for epilogs, in which its node says the end itself."""
Order = Callable[[str, Sequence[Gpu]], tuple[Sequence[int], str]]
"""Returns the minor number of each GPU of a node in the scheduler's order, and why that is assumed, or ""."""


class Changed(NamedTuple):
    """Parts of the lists that another listing, or the time since, may change."""

    nodes: Set[str]
    """Short names of nodes."""
    ids: Set[str]
    """Ids of jobs, whose nodes too."""
    all: bool = False


class Word(Protocol):
    """The newest word of a scheduler."""

    source: str
    """Source of the allocations that it alone knows."""
    title: str
    """How it is called."""
    listing: JobListing | None
    cluster: str
    unknown: set[str]
    """Nodes of the newest listing that nobody asked for: ours have other names, or these are not ours."""

    @property
    def names(self) -> SchedulerNames | None:
        """How it and its commands are called; None of one whose jobs have no number."""

    def hear(self, listing: JobListing, now: int) -> Changed:
        """Take in a listing; return what may be other than by the one before."""

    def of(self, key: JobKey) -> ListedJob | None:
        """Return a job of the newest listing."""

    def reported(self, key: JobKey, users: UserPrivacy) -> Job | None:
        """Return the facts of a job in the form in which a node lets persons leave it."""

    def list_of(self, message: NodeJobs, node: str, rows: Sequence[tuple[JobKey, AllocationRow]], now: int) -> NodeJobs:
        """Return a node's own list with its word added. `rows`: allocations of the node that are known so far."""

    def problems(self) -> list[str]:
        """Return what in the newest listing can't be used, in a line each."""


class SchedulerWord:
    """The newest listing of a scheduler whose jobs have numbers."""

    def __init__(
        self, order: Order, gpus_of: Callable[[str], Sequence[Gpu]], began: int, names: SchedulerNames = SLURM
    ) -> None:
        """`gpus_of` returns the GPUs of a node; `began`: when the scheduler was first to be asked, ns since
        1970."""
        self.names: SchedulerNames = names
        self.source, self.title, self._scheduler = names.source, names.title, names.scheduler
        self._order = order
        self._gpus_of = gpus_of
        self._heard_at = began
        self.listing: JobListing | None = None
        self._on: dict[str, list[ListedJob]] = {}
        """Jobs that have GPUs on a node, by its short name."""
        self._newest: dict[str, ListedJob] = {}
        """Newest run of each job, by its id."""
        self._released: dict[JobKey, int] = {}
        """When each run was first listed as one that has nothing any more, ns since 1970: for Slurm, a job that is cancelled
        while it is suspended ended when it was suspended."""
        self._unsettled: set[JobKey] = set()
        """Runs whose end did not count yet at the newest listing."""
        self._listed: dict[JobKey, ListedJob] = {}
        self._reasons: dict[JobKey, str] = {}
        """Why each run waits, or did last before it began: of one that runs nobody says."""
        self.cluster = ""
        self.unknown: set[str] = set()
        """Nodes of the newest listing that nobody asked for: ours have other names, or these are not ours."""

    def hear(self, listing: JobListing, now: int) -> Changed:
        """Take in a listing; return what may be other than by the one before. A job that is the same object is the same."""
        before, cluster, released = self._listed, self.cluster, self._released
        reasons, self._reasons = self._reasons, {}
        self._on, self._newest, self._released, self._listed = {}, {}, {}, {}
        self._heard_at, self.listing, self.cluster = listing.at, listing, listing.cluster or cluster
        nodes, ids = set[str](), set[str]()
        for each in listing.jobs:
            job = each.job
            key = job.key
            known = self._newest.get(key.id)
            if known is None or known.key.restart <= key.restart:
                self._newest[key.id] = each
            for node in _nodes_of(each) if each.holds else ():
                self._on.setdefault(node, []).append(each)
            if job.end and not each.holds:
                self._released[key] = released.get(key, listing.at)
            if reason := job.reason or reasons.get(key):
                self._reasons[key] = reason
            self._listed[key] = each
            old = before.pop(key, None)
            if old is not each and old != each:
                nodes.update(_nodes_of(each), () if old is None else _nodes_of(old))
                ids.add(key.id)
        for key, gone in before.items():
            nodes |= _nodes_of(gone)
            ids.add(key.id)
        ids |= {key.id for key in self._unsettled if self._was_released(key, now) or key not in self._released}
        self._unsettled = {key for key in self._released if not self._was_released(key, now)}
        self.unknown = set(self._on)
        return Changed(nodes, ids, all=cluster != self.cluster)

    def problems(self) -> list[str]:
        """Return what in the newest listing can't be used: `unknown` says all."""
        return []

    def sure(self, now: int) -> bool:
        """Return whether the newest listing, or the silence since the start, is not too old to hold."""
        return now - self._heard_at < UNSURE_SECONDS * 1e9

    def of(self, key: JobKey) -> ListedJob | None:
        """Return a job of the newest listing: where a cgroup alone named it, its newest run."""
        if key.scheduler != self._scheduler:
            return None
        found = self._newest.get(key.id)
        return found if found is not None and (not key.cluster or found.key == key) else None

    def list_of(self, message: NodeJobs, node: str, rows: Sequence[tuple[JobKey, AllocationRow]], now: int) -> NodeJobs:
        """Return a node's own list with the scheduler's word added. `rows`: allocations of the node that are
        known so far."""
        keys = _Keys(self, rows)
        message = with_keys(message, keys.of)
        message = replace(message, allocations=tuple(keys.of_ended(each) for each in message.allocations))
        if not self.sure(now):
            return message
        self.unknown.discard(short(node))
        message = self._concluded(message, rows, now)
        more = [*self._given(message, node), *self._known(message, rows, keys)]
        allocations = (*message.allocations, *{_identity(each): each for each in more}.values())
        jobs = {job.key: job for job in message.jobs}
        for key in {each.job for each in allocations}:
            reported = self.reported(key, message.users)
            if reported is not None:
                jobs[key] = merged(jobs.get(key, Job(key=key)), reported)
        return replace(message, allocations=allocations, jobs=_with_arrays(jobs))

    def reported(self, key: JobKey, users: UserPrivacy) -> Job | None:
        """Return the facts of a job in the form in which a node lets persons leave it."""
        found = self.of(key)
        if found is None:
            return None
        job = replace(found.job, key=key, reason=self._reasons.get(found.key, ""))
        return job if users is UserPrivacy.NAMES else replace(job, user="", account="")

    def _concluded(self, message: NodeJobs, rows: Sequence[tuple[JobKey, AllocationRow]], now: int) -> NodeJobs:
        """Return a list in which what lasts for the node alone has ended, and what has once ended so still has."""
        before = {
            (key, row.gpu, row.instance, row.step, row.kind, row.begin): row
            for key, row in rows
            if row.end is not None and row.end_by in {self.source, NEWER_RUN + self.source}
        }

        def concluded(each: Allocation) -> Allocation:
            if each.end or each.job.scheduler != self._scheduler:
                return each
            row = before.get((each.job, each.gpu, each.instance, each.step, each.kind, each.begin))
            end, by = self._end_of(each.job, now) if row is None else (row.end or 0, row.end_by)
            if not end:
                return each
            end = max(end, each.begin)
            return replace(each, end=end, end_from=Precision.SCHEDULER, end_by=by, end_after=end)

        return replace(message, allocations=tuple(concluded(each) for each in message.allocations))

    def _end_of(self, key: JobKey, now: int) -> tuple[int, str]:
        """Return when a run has ended, and why: the scheduler has said so for a while, or a newer one has begun, which it
        does after the epilog of this one; 0 where neither is so."""
        newest = self._newest.get(key.id)
        if newest is None or newest.key.cluster != key.cluster:
            return 0, ""
        if newest.key == key:
            return (newest.job.end if self._was_released(key, now) else 0), self.source
        return (newest.job.begin if newest.key.restart > key.restart else 0), NEWER_RUN + self.source

    def _was_released(self, key: JobKey, now: int) -> bool:
        """Return whether a run has been listed as ended for a while."""
        return now - self._released.get(key, now) >= EPILOG_SECONDS * 1e9

    def _given(self, message: NodeJobs, node: str) -> Iterable[Allocation]:
        """Yield the GPUs that the scheduler gave away and of which the node does not speak."""
        jobs = self._on.get(short(node))
        if not jobs:
            return
        gpus = self._gpus_of(node)
        order, assumed = self._order(node, gpus)
        by_minor = {gpu.minor: gpu.uuid for gpu in gpus if gpu.minor is not None}
        used = {(each.job, each.gpu) for each in message.processes}
        for listed in jobs:
            key = listed.key
            named = [its for name, its in listed.gpus.items() if short(name) == short(node)]
            counts = [its for name, its in listed.counts.items() if short(name) == short(node)]
            if counts and sum(counts) != len(gpus):
                continue  # which of them it has nobody says
            numbers = named[0] if named else range(len(order))
            for number in numbers:
                uuid = by_minor.get(order[number]) if number < len(order) else None
                if uuid is None or _speaks(message, key, uuid, listed.job.begin):
                    continue
                yield Allocation(
                    job=key,
                    gpu=uuid,
                    begin=listed.job.begin,
                    begin_from=Precision.SCHEDULER,
                    end_from=Precision.SCHEDULER,
                    source=self.source,
                    assumed=bool(assumed or not named) and (key, uuid) not in used,
                )

    def _known(
        self, message: NodeJobs, rows: Sequence[tuple[JobKey, AllocationRow]], keys: _Keys
    ) -> Iterable[Allocation]:
        """Yield allocations that only the scheduler knew, which end now as it says, or go on: the numbers of GPUs
        of a job are gone from its listing as soon as it ends, while it still has them."""
        for key, row in rows:
            if row.source != self.source or (row.end is not None and not row.lost):
                continue
            listed, name = self.of(key), keys.of(key)
            if _speaks(message, name, row.gpu, row.begin):
                continue
            same = Allocation(
                job=name,
                gpu=row.gpu,
                begin=row.begin,
                begin_from=row.begin_from,
                end_from=Precision.SCHEDULER,
                source=self.source,
                assumed=row.assumed,
            )
            if listed is not None and listed.job.end:
                yield replace(same, end=max(listed.job.end, row.begin))
            elif self.listing is None or (listed is not None and listed.holds and not listed.gpus):
                yield same


class _Keys:
    """Keys of a node's jobs: a cgroup names the number of a job, and neither the cluster nor the run."""

    def __init__(self, word: SchedulerWord, rows: Sequence[tuple[JobKey, AllocationRow]]) -> None:
        self._word = word
        self._scheduler = word.names.scheduler
        self._rows = rows
        self._last: dict[str, JobKey] = {}
        for key, _ in rows:
            known = self._last.get(key.id, key)
            if key.scheduler == self._scheduler and key.cluster and known.restart <= key.restart:
                self._last[key.id] = key

    def of(self, key: JobKey) -> JobKey:
        """Return the key of the run that a job is of which only the number is known: the newest one."""
        if key.scheduler != self._scheduler or key.cluster:
            return key
        newest, last = self._newest(key.id), self._last.get(key.id)
        if newest is None or (last is not None and last.restart > newest.restart):
            newest = last
        return newest or JobKey(self._scheduler, self._word.cluster, key.id)

    def of_ended(self, each: Allocation) -> Allocation:
        """Return an allocation that has ended with the run that it was of."""
        if not each.end or each.job.scheduler != self._scheduler:
            return each
        for key, row in self._rows:
            if key.id == each.job.id and row.gpu == each.gpu and row.begin == each.begin:
                return replace(each, job=self.of(key))
        return each

    def _newest(self, number: str) -> JobKey | None:
        listed = self._word.of(JobKey(self._scheduler, "", number))
        return None if listed is None else listed.key


def _nodes_of(listed: ListedJob) -> set[str]:
    return {short(node) for node in (*listed.gpus, *listed.counts, *listed.whole)}


def waiting(word: Word | None, number: str) -> Job | None:
    """Return the newest run of a job of the scheduler, where it has not begun by the newest listing."""
    names = None if word is None else word.names
    found = None if word is None or names is None else word.of(JobKey(names.scheduler, "", number))
    return found.job if found is not None and found.job.state in WAITING else None


def wait_words(job: Job) -> str:
    """Return that a job has not begun, and why: `waits: JobHeldUser`."""
    return f"waits: {job.reason}" if job.reason else "waits for its begin"


def short(node: str) -> str:
    """Return a node's name without its domain: Slurm's names have none."""
    return node.partition(".")[0]


def merged(job: Job, reported: Job) -> Job:
    """Return what a node says of a job with what its scheduler says: the scheduler knows best how it is called,
    what it is a part of (a prolog is not told the number of a component), what it asked for and how it is; the node
    whose it is, and since when."""
    changed = {
        name: getattr(reported, name)
        for name in (
            "name",
            "queue",
            "owner",
            "submitted",
            "eligible",
            "nodes",
            "gpus",
            "time_limit",
            "purpose",
            "reason",
        )
        if getattr(reported, name)
    }
    changed |= {name: getattr(reported, name) for name in ("user", "account", "begin") if not getattr(job, name)}
    if reported.end or not job.end:
        changed["state"] = reported.state or job.state
    if reported.end:
        changed |= {"exit_code": reported.exit_code, "end": job.end or reported.end}
    return replace(job, **changed)


def _with_arrays(jobs: Mapping[JobKey, Job]) -> tuple[Job, ...]:
    """Return jobs in which the tasks of an array have its number as an alias, where that is a job of the list: a cgroup
    may name no more."""
    return tuple(
        job if array not in jobs else replace(job, aliases=(*job.aliases, array.id))
        for job in jobs.values()
        for array in [replace(job.key, id=array_task(job.key.id)[0], restart=0)]
    )


def _speaks(message: NodeJobs, key: JobKey, gpu: str, begin: int) -> bool:
    """Return whether a node itself says that a GPU is or was given to a job, in the run that began then."""
    return any(
        each.job == key
        and each.gpu == gpu
        and each.kind is AllocationKind.ALLOCATED
        and (not each.end or each.end >= begin)
        for each in message.allocations
    )


def _identity(each: Allocation) -> tuple[JobKey, str, int | None, str]:
    return each.job, each.gpu, each.instance, each.step
