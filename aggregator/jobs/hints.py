"""Hints about a job: what its figures suggest, in a line each. Pure.

A hint says what was read, never what somebody should do; nothing is said of a job whose GPUs were held
too shortly to judge, nor of a figure that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.jobs import JobSummary
from telemetry.text import counted

LEAST_SECONDS = 600.0
"""Mean time that a job must have held its GPUs: programs load their data before they compute."""
LOW_USE = 0.35
"""Mean utilisation below which GPUs mostly wait."""
LIMITED = 0.1
"""Share of the GPU time under a clock limit that is worth a line."""
_USUAL = frozenset({"gpu_idle", "none"})
"""Reasons of clocks that limit no work."""


def hints(summary: JobSummary, gpus: int) -> list[str]:
    """Return the hints about a job of some GPUs, the most important first."""
    return list(_hints(summary, gpus))


def _hints(summary: JobSummary, gpus: int) -> Iterator[str]:
    for kind, count in sorted(summary.faults.items()):
        yield f"{kind} {counted(count, 'time')} while it ran"
    seconds = summary.gpu_hours * 3600
    if not gpus or seconds / gpus < LEAST_SECONDS:
        return
    if summary.gpus_idle:
        yield f"{summary.gpus_idle} of {counted(gpus, 'GPU')} never worked"
    use = summary.utilization_ratio
    if use is not None and use < LOW_USE and summary.gpus_idle != gpus:
        yield f"use {use:.0%} in the mean: the GPUs mostly wait"
    for word, limited in sorted(summary.clock_limit_seconds.items(), key=lambda pair: -pair[1]):
        if word not in _USUAL and limited / seconds >= LIMITED:
            yield f"{limited / seconds:.0%} of the GPU time under the clock limit {word}"
    if summary.partial:
        known = summary.coverage
        yield "no use was read" if known is None else f"use read for {known:.0%} of its time"
