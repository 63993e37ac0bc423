"""Hints about a job: what its figures suggest, in a line each. Pure.

A hint says what was read, never what somebody should do; nothing is said of the use of a job whose GPUs were
held too shortly to judge, nor of a figure that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.jobs import JobPhase, JobRow, JobSummary
from present.device.gpu import limit_word
from present.units import percent, rate_text
from telemetry.notations.purpose import purpose_of
from telemetry.text import counted

LEAST_SECONDS = 600.0
"""Mean time that a job must have held its GPUs: programs load their data before they compute."""
LOW_USE = 0.35
"""Mean utilisation below which GPUs mostly wait."""
MUCH_PCIE = 2e9
"""Bytes a second over PCIe that are worth a word: an eighth of what 16 lanes of version 3 carry one way."""
LIMITED = 0.1
"""Share of the GPU time under a clock limit that is worth a line."""
_FAULTY_LIMITS = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
"""Reasons for limited clocks that a healthy GPU at full load does not have, as it has the power limit."""


def hints(row: JobRow, unused: int = 0, newer: str = "") -> list[str]:
    """Return the hints about a job, the most important first. `unused`: GPUs that are allocated to it and have
    no process now; `newer`: that a newer run of it waits, and why."""
    return list(_hints(row, unused, newer))


def _hints(row: JobRow, unused: int, newer: str) -> Iterator[str]:
    if row.phase is JobPhase.SILENT:
        yield "its nodes are silent: whether it runs is not known"
    if row.phase is JobPhase.LOST:
        yield "ended unseen"
    if newer:
        yield f"its next run {newer}"
    if row.state == "SUSPENDED" and row.phase is JobPhase.RUNNING:
        yield "suspended by its scheduler: its GPUs wait"
    yield from row.differences
    found, (purpose, wrong) = row.summary, purpose_of(row.purpose)
    spare = row.gpus if purpose.idle else max(0, row.gpus - (purpose.gpus or row.gpus))
    for kind, count in sorted(() if found is None else found.faults.items()):
        yield f"{kind} {'once' if count == 1 else f'{count:,} times'} while it ran"
    if unused > spare:
        yield f"{unused:,} of {counted(row.gpus, 'GPU')} without a process now"
    if row.gpus_asked is not None and row.gpus_asked != row.gpus:
        yield f"asked for {counted(row.gpus_asked, 'GPU')}, {row.gpus:,} seen"
    if wrong:
        yield f"its owner declares {wrong!r}, which says nothing: gpus=6, checkpoint=15m and idle=ok do"
    if found is not None and row.gpus and found.gpu_hours * 3600 / row.gpus >= LEAST_SECONDS:
        yield from _use(found, row.gpus, spare)


def _use(found: JobSummary, gpus: int, spare: int) -> Iterator[str]:
    if (found.gpus_idle or 0) > spare:
        yield f"{found.gpus_idle:,} of {counted(gpus, 'GPU')} never worked"
    use = found.utilization_ratio
    if use is not None and use < LOW_USE and found.gpus_idle != gpus and spare < gpus:
        moved = found.pcie_bytes_per_second or 0.0
        data = f", and PCIe moves {rate_text('pcie', moved)} a GPU" if moved >= MUCH_PCIE else ""
        yield f"use {percent(use)} in the mean: the GPUs mostly wait{data}"
    limited, reason = max((found.clock_limit_seconds.get(name, 0.0), name) for name in _FAULTY_LIMITS)
    share = limited / (found.gpu_hours * 3600)
    if share >= LIMITED:
        yield f"clocks limited by {limit_word(reason)} for {percent(min(1.0, share))} of its GPU time"
    if found.partial:
        read = [each for each in (found.coverage, found.energy_coverage) if each is not None]
        yield (f"partial: {percent(min(read))} of its GPU time was read" if read else "no use was read")
