"""Who uses the GPUs of a node, by the list that the node keeps: a line a process, and one for each GPU that is
allocated or free without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from present.units import gibibytes, percent
from telemetry.devices import Gpu
from telemetry.text import counted, duration
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs

UNKNOWN = "not known"
PROCESSES = "process"
"""Name of the source that lists processes."""
_KINDS = {"compute": "", "mps": "MPS"}
HEADS = ("GPU", "PID", "user", "job", "memory", "use", "for", "program")


@dataclass(frozen=True, slots=True)
class UseLine:
    """A process on a GPU, or that there is none. Texts are empty where there is nothing to say."""

    gpu: Gpu
    instance: int | None
    """MIG GPU instance."""
    pid: str = ""
    user: str = ""
    key: JobKey | None = None
    """Its job, for a link."""
    job: str = ""
    memory: str = ""
    use: str = ""
    age: str = ""
    program: str = ""


def lists_processes(message: NodeJobs) -> bool:
    """Return whether a GPU of which a list has no process has none."""
    states = {source.name: source.state for source in message.sources}
    return states.get(PROCESSES) == "reading" and not message.left_out


def use_lines(message: NodeJobs, gpu: Gpu, now: int) -> Iterator[UseLine]:
    """Yield who uses a GPU. `now`: ns since 1970."""
    jobs = {job.key: job for job in message.jobs}
    its = [each for each in message.processes if each.gpu == gpu.uuid]
    used = {each.job for each in its}
    given = [
        each
        for each in message.allocations
        if each.gpu == gpu.uuid and not each.end and each.kind is AllocationKind.ALLOCATED
    ]
    for process in its:
        yield _process(gpu, process, jobs, now)
    without = "no process" if lists_processes(message) else "processes not known"
    for each in given:
        if each.job not in used:
            yield _allocated(gpu, each, jobs, now, without)
    if not its and not given:
        yield UseLine(gpu, None, program=without)


def _process(gpu: Gpu, process: GpuProcess, jobs: Mapping[JobKey, Job], now: int) -> UseLine:
    hidden = process.hidden or UNKNOWN
    key, memory, use = process.job, process.memory_bytes, process.sm_ratio
    return UseLine(
        gpu,
        process.instance,
        str(process.pid),
        process.user or hidden,
        key,
        hidden if key is None else job_words(key, jobs.get(key)),
        UNKNOWN if memory is None else gibibytes(memory),
        UNKNOWN if use is None else percent(use),
        _age(process.started, now),
        program_words(process),
    )


def _allocated(gpu: Gpu, given: Allocation, jobs: Mapping[JobKey, Job], now: int, without: str) -> UseLine:
    job = jobs.get(given.job)
    user = UNKNOWN if job is None or not job.user else job.user
    program = f"allocated by {given.source or 'its scheduler'}, {without}"
    return UseLine(
        gpu, given.instance, "", user, given.job, job_words(given.job, job), age=_age(given.begin, now), program=program
    )


def job_words(key: JobKey, job: Job | None) -> str:
    """Return a job as a person calls it; that of a user outside all schedulers is none."""
    if key.scheduler == "user":
        return "no job"
    name = f" {job.name}" if job is not None and job.name else ""
    return f"{key.scheduler} {key.id}{name}"


def program_words(process: GpuProcess) -> str:
    """Return the program of a process, with its kind where that is not compute."""
    kind = _KINDS.get(process.type, process.type)
    name = process.name or process.hidden or UNKNOWN
    return f"{name} ({kind})" if kind else name


def _age(since: int, now: int) -> str:
    return duration(max(0, now - since) / 1e9) if since else UNKNOWN


def lacking_lines(message: NodeJobs) -> Iterator[str]:
    """Yield what the list of a node leaves out, and why."""
    for source in message.sources:
        if source.state != "reading" and (source.state != "absent" or source.name == PROCESSES):
            yield f"{source.name}: {source.state}: {source.message}"
        elif source.state == "reading" and source.message:
            yield f"{source.name}: {source.message}"
    if message.left_out:
        yield f"{counted(message.left_out, 'process')} found no room in the node's message"
