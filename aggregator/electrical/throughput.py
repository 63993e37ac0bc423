"""Power, clocks and limits of the fleet's GPUs: samples of throughput, and what a plan of caps starts from."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from power.plan.caps import CappableGpu
from power.plan.throughput import ThroughputLedger
from power.wiring import Index
from telemetry.fleet import Fleet
from telemetry.metric import Table


class ThroughputSampler:
    """Adds the present readings of all GPUs to a ledger; what model each is, is looked up once."""

    def __init__(self) -> None:
        self._version = -1
        """Version of the fleet that the models are of."""
        self._models: list[str] = []
        self._model: Index = np.zeros(0, np.intp)

    def sample(self, ledger: ThroughputLedger, fleet: Fleet, now: float) -> None:
        """Add the readings at `now`, the fleet's monotonic seconds."""
        held = fleet.column("gpu_clocks_event_sw_power_cap", now) == 1.0
        if not held.any():
            return
        if fleet.version != self._version:
            names = ["" if row is None else row[1].name for row in fleet.gpus]
            number = {name: place for place, name in enumerate(dict.fromkeys(names))}
            self._models, self._version = list(number), fleet.version
            self._model = np.array([number[name] for name in names], np.intp)
        watts, hertz, busy = (
            fleet.column(name, now).astype(np.float64)
            for name in ("gpu_power_watts", "gpu_sm_clock_hertz", "gpu_utilization_ratio")
        )
        ledger.add(self._models, self._model, watts, hertz, busy, held)


def cappable(fleet: Fleet, nodes: Collection[str], now: float, jobs: Mapping[str, str]) -> list[CappableGpu]:
    """Return the GPUs of some nodes with their limits, draw and clock; those without a known limit are
    left out. `jobs`: who holds each, by UUID, as far as that is known."""
    names = (
        "gpu_power_limit_watts", "gpu_power_limit_min_watts", "gpu_power_limit_default_watts",
        "gpu_power_watts", "gpu_sm_clock_hertz",
    )  # fmt: skip
    columns = [fleet.column(name, now) for name in names]
    found = []
    for node in nodes:
        known = fleet.nodes.get(node)
        if known is None:
            continue
        start = known.rows[Table.GPU].start
        for number, gpu in enumerate(known.inventory.gpus):
            limit, floor, default, watts, clock = (_known(column[start + number]) for column in columns)
            limit = gpu.power_limit_watts if limit is None else limit
            if limit is not None:
                found.append(
                    CappableGpu(node, gpu.index, gpu.name, limit, floor, default, watts, clock, jobs.get(gpu.uuid))
                )
    return found


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
