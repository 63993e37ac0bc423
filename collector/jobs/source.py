"""A source of jobs: the plug point between a node's GPUs and the schedulers that give them away.

To add a source (Slurm, Kubernetes, Ray), write one class that fits `JobSource` and name it in
`collector.jobs.sources`. A source reads, and may block: each is asked in a thread, never twice at once,
and one that hangs or raises costs the others nothing. What a source returns is always everything that it
knows now, never a change; `collector.jobs.merge` makes begins and ends of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from collector.jobs.cgroups import CgroupOwner
from telemetry.devices import Gpu, MigInstance
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, JobSourceState

ProcessId = tuple[int, int]
"""PID, and start in ns since 1970: PIDs are used again."""
RAY_TITLE = "ray::"
"""Begin of the title that a worker of Ray gives itself in the place of its command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProcess:
    """A process on a GPU, with what the kernel knows of it."""

    process: GpuProcess
    """As the driver lists it, with user and name; `job` is None. `hidden` names why the rest is unknown."""
    uid: int | None = None
    """Real user; None where it can't be read."""
    owner: CgroupOwner | None = None
    """Job, container, unit or login that its cgroup shows; None where it shows none that is believed."""
    read_at: int = 0
    """When the driver listed it, ns since 1970."""

    @property
    def id(self) -> ProcessId:
        """Identity of the process on its node."""
        return self.process.pid, self.process.started


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsInput:
    """Input of a source of jobs."""

    at: int
    """Wall clock without steps that do not last, ns since 1970."""
    node: str
    """Name of this node in kilowatch; a scheduler may have another one for it."""
    gpus: tuple[Gpu, ...] = ()
    """GPUs that the node has or had, with UUID, index, minor number and MIG mode."""
    instances: tuple[MigInstance, ...] = ()
    """MIG instances of these GPUs."""
    processes: tuple[FoundProcess, ...] = ()
    """Processes with a context on a GPU, from their newest reading."""
    unread: frozenset[str] = frozenset()
    """UUIDs of GPUs whose processes can't be read now: no process there is not known to be none."""
    step: int = 0
    """By how much the machine's clock is ahead of `at`, or was lately, by a step that has not lasted; ns."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Job that a process belongs to."""

    job: JobKey
    step: str = ""
    """The scheduler's step, or the container within a pod."""
    source: str = "process"
    """Source of the allocations that follow: `slurm-cgroup`, `pod-resources`, `ray`, `process`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAnswer:
    """Everything that a source knows now."""

    state: JobSourceState
    """Only of a source that is `reading` or `absent` is missing data the end of an allocation; what
    another had said holds for `collector.jobs.merge.UNSURE_SECONDS`."""
    jobs: tuple[Job, ...] = ()
    """Jobs with a GPU of this node, those that ended lately too where the source knows their ends."""
    allocations: tuple[Allocation, ...] = ()
    """GPUs that a scheduler gave away (`ALLOCATED`), with `begin` 0 where only its first look is known.
    One with an `end` has ended; one that is left out has ended unseen. `USED` ones are made by the merge."""
    owners: Mapping[ProcessId, Ownership] = field(default_factory=dict)
    """Job of each process of the input that the source knows better than its cgroup."""
    processes: tuple[GpuProcess, ...] = ()
    """Processes that the source knows by itself, with their jobs: a simulation."""


class JobSource(Protocol):
    """Source of jobs."""

    name: str
    """Name in `JobSourceState` and `Allocation.source`."""
    interval: float
    """Seconds between two questions, 1 at least. A source whose question is expensive keeps its answer
    and asks less often."""

    def read(self, given: JobsInput) -> JobsAnswer:
        """Return everything known now. Called in a thread and may block; a scheduler that is missing,
        refuses or fails is a state. What it raises is a bug: logged, and the state `failing`."""

    def close(self) -> None:
        """Close sockets and files; ignore errors."""


@runtime_checkable
class KnowsJobs(Protocol):
    """Source of readings that knows the jobs on its GPUs itself, as a simulation does: it is asked in
    place of this machine's processes and schedulers."""

    job_source: JobSource
