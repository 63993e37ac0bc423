"""Who holds which GPU row, from the newest list of jobs of each node."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from alerts.engine.isolation import NodeFaults
from alerts.engine.row_index import RowIndex
from alerts.rules.gpu_jobs import OF_JOBS, GpuHolding, GpuJobs, labels_of_job
from telemetry.devices import Event
from telemetry.fleet import Fleet, Node
from telemetry.metric import Table
from telemetry.notations.purpose import purpose_of
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs

_SCHEDULERS = ("slurm", "pod", "kube", "ray")
"""Beginnings of the names of the sources that know allocations without a process."""
_SERVICES = re.compile(r"(Deployment|StatefulSet|DaemonSet|RayService|InferenceService|Service)/")
"""Owners of jobs that wait for requests."""
_AT_REST = frozenset({"SUSPENDED", "STOPPED", "COMPLETING"})
"""States of a job that has its GPUs and can't use them."""
_PEOPLE = re.compile(
    r"\b(interactive|jupyter\w*|notebook|bash|zsh|sh|salloc|debug|vscode|code-server)\b", re.IGNORECASE
)
"""Names and queues of jobs that wait for a person."""
_SESSION = "interactive"
"""Step of Slurm in which the shell of `salloc` runs, whatever its job is called."""
_SYSTEM = re.compile(
    r"nv-hostengine|nvidia-persiste|nvidia-cuda-mps|nvidia-smi|dcgm|Xorg|Xwayland|gnome-shell|kilowatch", re.IGNORECASE
)
"""Programs of the system, which belong to no job."""
_DIAGNOSIS_SECONDS = 900.0
"""Seconds for which root may use a GPU that no job has: prologs and epilogs test GPUs. Nobody else can have its
name, which is hidden where users are hashed or off."""
_KEPT_FREE = 1000
"""Numbers of ended jobs that are not used again at once, so that no memory takes one for another."""
_MOST_NAMED = 8
"""Most jobs that the label of a node names."""
_NO_LABELS: Mapping[str, str] = {}


class JobsByNode:
    """Newest list of the jobs of each node, as the aggregator fills it."""

    def __init__(self) -> None:
        self.newest: dict[str, NodeJobs] = {}
        self.version = 0
        """Incremented with every change."""
        self._changed: set[str] = set()

    def put(self, node: str, jobs: NodeJobs) -> None:
        """Replace a node's list."""
        self.newest[node] = jobs
        self.version += 1
        self._changed.add(node)

    def remove(self, node: str) -> None:
        """Forget a node: who holds its GPUs is not known from now on."""
        if self.newest.pop(node, None) is not None:
            self.version += 1
            self._changed.add(node)

    def take_changed(self) -> set[str]:
        """Return the nodes that have changed since the last call."""
        found, self._changed = self._changed, set()
        return found


class _Holder(NamedTuple):
    """What is known of a GPU."""

    holding: GpuHolding = GpuHolding.UNKNOWN
    key: JobKey | None = None
    allocated: bool = False
    begin: float = np.nan


class JobIndex:
    """Holder of each GPU row, and the labels of its job."""

    def __init__(self) -> None:
        self.newest = JobsByNode()
        """Filled by its owner."""
        self.rows = GpuJobs()
        self._version = -1
        self._changed: set[str] = set()
        """Nodes that are not up to date."""
        self._places: dict[str, slice] = {}
        self._held: dict[str, list[int]] = {}
        """By node: numbers of the jobs that its GPUs name."""
        self._labels: dict[str, dict[str, Mapping[str, str]]] = {}
        self._numbers: dict[JobKey, int] = {}
        self._keys: dict[int, JobKey] = {}
        self._uses: Counter[int] = Counter()
        self._free: deque[int] = deque()

    def labels(self, node: str, gpu: str | None) -> Mapping[str, str]:
        """Return `job`, `user` and `account` of a GPU; of a node, those of all its GPUs, joined by
        commas."""
        of_node = self._labels.get(node)
        if not of_node:
            return _NO_LABELS
        if gpu is not None:
            return of_node.get(gpu, _NO_LABELS)
        joined: dict[str, str] = {}
        for name in OF_JOBS:
            words = dict.fromkeys(one[name] for one in of_node.values() if name in one)
            if words:
                joined[name] = ",".join(list(words)[:_MOST_NAMED])
        return joined

    def follow(self, fleet: Fleet, index: RowIndex, moved: set[str]) -> None:
        """Bring the rows up to date, with work only for nodes that have changed; add these to `moved`.
        Raises `NodeFaults` for nodes whose list can't be read; those of the others are up to date
        then."""
        jobs, changed = self.newest, self._changed
        changed |= jobs.take_changed()
        changed.update(index.arrived)
        if index.version != self._version:
            self._version = index.version
            gone = self._places.keys() - fleet.nodes.keys()
            changed |= gone & jobs.newest.keys()  # it may come back
            for name in [*gone, *(name for name in index.arrived if name in self._places)]:
                self._clear(name)
            for name in gone:
                self._hold(name, [])
        self.rows.grow(fleet.size(Table.GPU))
        faults: dict[str, Exception] = {}
        for name in changed & fleet.nodes.keys():
            try:
                self._put(name, fleet.nodes[name], jobs.newest.get(name))
            except Exception as error:  # noqa: BLE001 - raised below, by the node's name
                faults[name] = error
        moved |= changed
        self._changed = set()
        if faults:
            raise NodeFaults(faults)

    def _clear(self, name: str) -> None:
        self.rows.clear(self._places.pop(name))
        self._labels.pop(name, None)

    def _hold(self, name: str, numbers: list[int]) -> None:
        """Count the uses of the numbers of jobs, and give those back that nobody uses."""
        before = self._held.pop(name, [])
        if numbers:
            self._held[name] = numbers
        self._uses.update(numbers)
        self._uses.subtract(before)
        for number in before:
            if self._uses[number] <= 0 and number in self._keys:
                del self._uses[number], self._numbers[self._keys.pop(number)]
                self.rows.jobs.pop(number, None)
                self._declare(number, "")
                self._free.append(number)

    def _number(self, key: JobKey) -> int:
        number = self._numbers.get(key)
        if number is None:
            if len(self._free) > _KEPT_FREE:
                number = self._free.popleft()
            else:
                number = self.rows.count
                self.rows.count += 1
            self._numbers[key] = number
            self._keys[number] = key
        return number

    def _put(self, name: str, node: Node, message: NodeJobs | None) -> None:
        rows, gpus = self.rows, node.inventory.gpus
        place = node.rows[Table.GPU]
        rows.clear(place)
        self._places[name] = place
        self._labels.pop(name, None)
        if message is None or not (message.allocations or message.sources or message.processes):
            self._hold(name, [])
            return
        jobs = {job.key: job for job in message.jobs}
        live: dict[str, list[Allocation]] = {}
        for one in message.allocations:
            if not one.end:
                live.setdefault(one.gpu, []).append(one)
        processes: dict[str, list[GpuProcess]] = {}
        for process in message.processes:
            processes.setdefault(process.gpu, []).append(process)
        scheduled = any(source.state == "reading" and source.name.startswith(_SCHEDULERS) for source in message.sources)
        readable = not message.sources or any(one.state == "reading" for one in message.sources)
        labels: dict[str, Mapping[str, str]] = {}
        numbers: list[int] = []
        for row, gpu in enumerate(gpus, place.start):
            mine = live.get(gpu.uuid, ())
            holder = _holder(mine, readable=readable)
            rows.holding[row] = holder.holding
            if holder.key is not None:
                number = self._number(holder.key)
                numbers.append(number)
                rows.job[row], rows.begin[row] = number, holder.begin
                job = jobs.get(holder.key) or Job(key=holder.key)
                rows.jobs[number] = job
                self._declare(number, job.purpose)
                rows.asked[row] = job.gpus
                session = any(one.job == job.key and one.step == _SESSION for one in mine)
                rows.allocated[row] = holder.allocated
                rows.batch[row] = not session and _is_batch(job)
                labels[gpu.uuid] = labels_of_job(job)
            elif mine:
                named = [labels_of_job(jobs.get(one.job) or Job(key=one.job)) for one in mine]
                labels[gpu.uuid] = _joined(named)
            if scheduled:
                self._outside(name, row, mine, processes.get(gpu.uuid, ()), message, jobs)
        if labels:
            self._labels[name] = labels
        self._hold(name, numbers)

    def _declare(self, number: int, text: str) -> None:
        """Note what the owner of a job declares of it."""
        if text:
            self.rows.purposes[number], _ = purpose_of(text)
        else:
            self.rows.purposes.pop(number, None)

    def _outside(
        self,
        node: str,
        row: int,
        mine: Sequence[Allocation],
        processes: Sequence[GpuProcess],
        message: NodeJobs,
        jobs: Mapping[JobKey, Job],
    ) -> None:
        """Set whether a process on a GPU belongs to no allocation of it."""
        given = {one.job for one in mine if one.kind is AllocationKind.ALLOCATED}
        users = {jobs[key].user for key in given if key in jobs} - {""}
        ended = {one.job: one.end for one in message.allocations if one.end and one.job not in given}
        ended |= {key: job.end for key, job in jobs.items() if job.end and key not in given}
        found, unknown, since = 0, message.left_out > 0, np.inf
        for process in processes:
            if process.type != "compute" or _SYSTEM.search(process.name) or process.job in given:
                continue
            if process.hidden:
                unknown = True
            elif process.job in ended or not process.user or process.user not in users:
                found = 1
                counts = _counts_from(process, free=not given and process.job not in ended)
                if counts < since:
                    since = counts
                    self.rows.outsiders[row] = _outsider(node, process, message.at, ended)
        self.rows.outside_from[row] = since if found else 0
        self.rows.outside[row] = found or (-1 if unknown else 0)


def _holder(mine: Sequence[Allocation], *, readable: bool) -> _Holder:
    """Return who has a GPU: what a scheduler says goes before what processes show."""
    if not mine:
        return _Holder(GpuHolding.FREE if readable else GpuHolding.UNKNOWN)
    given = [one for one in mine if one.kind is AllocationKind.ALLOCATED]
    these = given or mine
    if any(one.instance is not None for one in mine) or len({one.job for one in these}) > 1:
        return _Holder(GpuHolding.SHARED)
    begins = [one.begin for one in these if one.begin]
    begin = min(begins) / 1e9 if begins else np.nan
    return _Holder(GpuHolding.ONE_JOB, these[0].job, bool(given), begin)


def _is_batch(job: Job) -> bool:
    """Return whether a job works by itself, now: a person or a service may wait, and so does a job that its
    scheduler has suspended, that only its epilog is left of, or whose owner says so."""
    if job.state in _AT_REST or purpose_of(job.purpose)[0].idle:
        return False
    words = f"{job.name} {job.queue} {job.owner}"
    return not (_SERVICES.match(job.owner) or _PEOPLE.search(words))


def _joined(labels: Iterable[Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for one in labels:
        for name, word in one.items():
            found.setdefault(name, {})[word] = None
    return {name: ",".join(list(words)[:_MOST_NAMED]) for name, words in found.items()}


def _counts_from(process: GpuProcess, *, free: bool) -> float:
    """Return the second from which on a process belongs to nobody: a diagnosis of a free GPU ends by itself."""
    return process.started / 1e9 + _DIAGNOSIS_SECONDS if free and process.user == "root" else 0.0


def _outsider(node: str, process: GpuProcess, at: int, ended: Mapping[JobKey, int]) -> Event:
    """Return a process outside any allocation as the cause of an alert."""
    whose = f" of {process.user}" if process.user else ""
    line = f"{process.name or 'a process'} (pid {process.pid}){whose}"
    if process.job in ended and process.job is not None:
        line += f", left over from job {process.job.id}, which has ended"
    elif process.job is not None and process.job.id != process.user:
        line += f", of {process.job.scheduler} {process.job.id}, which does not have this GPU"
    return Event(
        id=f"outside-{process.pid}-{process.started}",
        node=node,
        at=at,
        kind="process_outside",
        gpu=process.gpu,
        message=line,
        data={"process": process.name, "pid": process.pid},
    )
