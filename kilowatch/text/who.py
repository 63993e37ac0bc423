"""Who uses the GPUs, as text."""

from __future__ import annotations

from collections.abc import Sequence

from kilowatch.text.table import columns
from present.units import gibibytes, percent
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.inventory import Inventory
from telemetry.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs
from telemetry.text import duration

_HEAD = ("GPU", "PID", "USER", "JOB", "MEMORY", "SM", "FOR", "PROGRAM")
_WIDTH = 140
_DRIVER_WORKS = frozenset({"up", "none"})
_KIND = {"compute": "", "graphics": "graphics", "mps": "MPS"}


def is_gpu(text: str) -> bool:
    """Return whether an argument is an index, a UUID or a PCI address of a GPU, and not a node's name."""
    return text.isdecimal() or text.upper().startswith(("GPU-", "MIG-")) or ":" in text


def find_gpu(gpus: Sequence[Gpu], text: str) -> Gpu:
    """Return the GPU of an index, a UUID or the begin of one, or a PCI address. Raises `ConfigError`."""
    found = [
        gpu
        for gpu in gpus
        if text == str(gpu.index)
        or gpu.uuid.lower().startswith(text.lower())
        or (gpu.pci is not None and gpu.pci.endswith(text.lower()))
    ]
    if len(found) != 1:
        known = ", ".join(f"{gpu.index}" for gpu in gpus) or "none"
        raise ConfigError(
            "GPU",
            f"{text!r} is {'no GPU' if not found else 'more than one GPU'} of this machine",
            f"Its GPUs are {known}.",
        )
    return found[0]


def who_lines(inventory: Inventory, gpus: Sequence[Gpu], found: NodeJobs, now: int) -> list[str]:
    """Return a line a process of some GPUs, one for each of them that is allocated or free without one, then
    what could not be read. `now`: ns since 1970."""
    jobs = {job.key: job for job in found.jobs}
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        its = [each for each in found.processes if each.gpu == gpu.uuid]
        given = [
            each
            for each in found.allocations
            if each.gpu == gpu.uuid and not each.end and each.kind is AllocationKind.ALLOCATED
        ]
        used = {each.job for each in its}
        rows += [_process(gpu, each, jobs, now) for each in its]
        rows += [_idle(gpu, each, jobs, now) for each in given if each.job not in used]
        if not its and not given:
            rows.append((str(gpu.index), "-", "-", "-", "-", "-", "-", "no process"))
    lines = columns([_HEAD, *rows], width=_WIDTH) if rows else ["no GPU"]
    if found.left_out:
        lines.append(f"processes that the message had no room for: {found.left_out}")
    if inventory.driver_state not in _DRIVER_WORKS:
        lines.append(f"driver: {inventory.driver_state}: {inventory.driver_message}")
    return lines + [
        f"{source.name}: {source.state}: {source.message}"
        for source in found.sources
        if source.state != "reading" and (source.state != "absent" or source.name == "process")
    ]


def troubled(inventory: Inventory, found: NodeJobs) -> bool:
    """Return whether processes or their owners are not known."""
    states = {source.name: source.state for source in found.sources}
    return (
        inventory.driver_state not in _DRIVER_WORKS
        or any(each in {"failing", "no permission"} for each in states.values())
        or (states.get("process") == "absent" and len(states) == 1)
    )


def _process(gpu: Gpu, process: GpuProcess, jobs: dict[JobKey, Job], now: int) -> tuple[str, ...]:
    name = process.name or (f"({process.hidden})" if process.hidden else "-")
    kind = _KIND.get(process.type, process.type)
    return (
        _gpu(gpu, process.instance),
        str(process.pid),
        process.user or "-",
        _job(process.job, jobs),
        "-" if process.memory_bytes is None else gibibytes(process.memory_bytes),
        "-" if process.sm_ratio is None else percent(process.sm_ratio),
        _age(process.started, now),
        f"{name} ({kind})" if kind else name,
    )


def _idle(gpu: Gpu, given: Allocation, jobs: dict[JobKey, Job], now: int) -> tuple[str, ...]:
    job = jobs.get(given.job)
    return (
        _gpu(gpu, given.instance), "-", (job.user if job is not None else "") or "-",
        _job(given.job, jobs), "-", "-", _age(given.begin, now), f"allocated by {given.source}, no process",
    )  # fmt: skip


def _gpu(gpu: Gpu, instance: int | None) -> str:
    return str(gpu.index) if instance is None else f"{gpu.index} instance {instance}"


def _job(key: JobKey | None, jobs: dict[JobKey, Job]) -> str:
    """Return a job as a person calls it; of a user outside all schedulers there is none."""
    if key is None or key.scheduler == "user":
        return "-"
    job = jobs.get(key)
    text = f"{key.scheduler} {key.id}"
    return f"{text} {job.name}" if job is not None and job.name else text


def _age(since: int, now: int) -> str:
    return duration(max(0, now - since) / 1e9) if since else "-"
