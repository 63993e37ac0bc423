"""Metrics of the collector itself and of its node: columns of the `node` table."""

from __future__ import annotations

import resource
from pathlib import Path

from collector.sampling.rows import answering
from collector.source import Rows, Source
from telemetry.gap import NOT_READ, NOT_SUPPORTED
from telemetry.metric import Lane
from telemetry.wire.inventory import Inventory


def node_metrics(inventory: Inventory, rows: Rows, expected: int) -> dict[str, float]:
    """Return metrics of the node that follow from one reading, by name. `expected` is the number of
    GPUs that it has ever had."""
    found = {"node_gpus_expected": float(expected), "node_gpus_answering": float(answering(rows))}
    if inventory.driver_state in ("released", "unknown"):
        found["node_driver_up"] = NOT_READ  # released on purpose, or being opened: no fault
    elif inventory.driver_state != "none":
        found["node_driver_up"] = float(inventory.driver_state == "up")
    return found


def collector_metrics(source: Source, skipped: int, failing: int, lanes: frozenset[Lane]) -> dict[str, float]:
    """Return metrics of the collector itself, by name. `failing`: its parts that failed."""
    found = {"node_ticks_skipped_total": float(skipped), "node_collector_tasks_failing": float(failing)}
    if Lane.SLOW in lanes:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found["node_collector_cpu_seconds_total"] = usage.ru_utime + usage.ru_stime
        found["node_collector_memory_bytes"] = resident_bytes()
        found["node_probes_abandoned_total"] = float(getattr(source, "abandoned", 0))
    return found


def resident_bytes() -> float:
    """Return the resident memory of this process. Linux only, as the driver is."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return NOT_SUPPORTED
    return float(pages * resource.getpagesize())
