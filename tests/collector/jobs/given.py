"""Jobs, processes and answers of sources, in short."""

from __future__ import annotations

from collector.jobs.cgroups import reading_of
from collector.jobs.source import FoundProcess, JobsAnswer, JobsInput, Ownership
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, JobSourceState, Precision

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
"""2026, in ns since 1970."""
GPU = "GPU-0"
SLURM = JobKey("slurm", "lab", "4711")


def at(seconds: float) -> int:
    """Return a time, in seconds after the start."""
    return START + int(seconds * SECOND)


def process(
    pid: int,
    started: float = -100.0,
    *,
    gpu: str = GPU,
    read: float = 0.0,
    user: str = "ada",
    cgroup: str = "",
    instance: int | None = None,
    name: str = "python",
) -> FoundProcess:
    """Return a process that was read at a time."""
    shown = GpuProcess(gpu=gpu, pid=pid, started=at(started), user=user, name=name, instance=instance)
    return FoundProcess(process=shown, uid=1000, owner=reading_of(cgroup).owner, read_at=at(read))


def given(seconds: float, *processes: FoundProcess, unread: frozenset[str] = frozenset()) -> JobsInput:
    """Return the input of a look."""
    return JobsInput(at=at(seconds), node="n1", processes=processes, unread=unread)


def answer(
    *allocations: Allocation,
    state: str = "reading",
    owners: dict[tuple[int, int], Ownership] | None = None,
    jobs: tuple[Job, ...] = (),
) -> JobsAnswer:
    """Return the answer of a source."""
    return JobsAnswer(
        state=JobSourceState(name="slurm", state=state), allocations=allocations, owners=owners or {}, jobs=jobs
    )


def allocated(
    job: JobKey = SLURM,
    *,
    begin: float | None = None,
    end: float | None = None,
    how: Precision = Precision.SCHEDULER,
    gpu: str = GPU,
    source: str = "slurm",
) -> Allocation:
    """Return an allocation by a scheduler; without a begin it is not known."""
    return Allocation(
        job=job,
        gpu=gpu,
        kind=AllocationKind.ALLOCATED,
        source=source,
        begin=0 if begin is None else at(begin),
        end=0 if end is None else at(end),
        begin_from=how,
        end_from=how,
    )
