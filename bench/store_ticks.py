"""Rows of whole fleets and of a few GPUs, second by second, for the benchmarks of stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregator.store.protocol import Batch, BlockRows, CollectorRun, Frames, StoredDevice
from bench.load import SECOND, TICKS, make_load
from collector.simulated import scenario
from collector.simulated.cluster import cluster as simulated_cluster
from telemetry.wire import frame as frames
from telemetry.wire.schema import GPU_FAST, SCHEMA

GPUS = 8
BLOCK = SCHEMA.blocks[GPU_FAST]
METRICS = len(BLOCK.names)
LONG = 1e7
"""Seconds: one period holds a whole run."""
LIVELY = {
    "gpu_temperature_celsius": (0.8, 1.0),
    "gpu_memory_temperature_celsius": (0.8, 1.0),
    "gpu_thermal_margin_celsius": (0.8, 1.0),
    "gpu_utilization_ratio": (0.33, 0.01),
    "gpu_sm_active_ratio": (1.0, 0.004),
    "gpu_tensor_active_ratio": (1.0, 0.004),
    "gpu_dram_active_ratio": (1.0, 0.004),
    "gpu_memory_used_bytes": (0.1, 2.0**21),
}
"""Share of the seconds in which a reading moves, and by what step."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Rows of one second."""

    at: int
    """ns since 1970."""
    gauges: npt.NDArray[np.float32]
    counters: npt.NDArray[np.float64]


def fleet_ticks(gpus: int, ticks: int, start: int) -> Iterator[Tick]:
    """Yield the seconds of a wide fleet, from the bodies of `bench.load`."""
    load = make_load(gpus // GPUS, GPUS)
    for tick in range(ticks):
        packed = [frames.decode(load.frame(node, tick % TICKS, 1)).blocks[0] for node in range(load.nodes)]
        yield Tick(
            start + tick * SECOND,
            np.frombuffer(b"".join(each.gauges for each in packed), "<f4").reshape(gpus, len(BLOCK.gauges)),
            np.frombuffer(b"".join(each.counters for each in packed), "<f8").reshape(gpus, len(BLOCK.counters)),
        )


def history_ticks(gpus: int, seconds: int, start: int, *, lively: bool = False) -> Iterator[Tick]:
    """Yield the seconds of a few simulated GPUs. `lively`: readings that a steady job leaves alone change as
    often as in the liveliest recordings, the first seconds of a load that comes and goes."""
    dice = np.random.default_rng(3)
    fleet = simulated_cluster(scenario("fleet", nodes=gpus // GPUS, gpus=GPUS, seed=3, faults=""))
    nodes, split = [fleet.node(name) for name in fleet.scenario.nodes], len(BLOCK.gauges)
    for second in range(seconds):
        rows = np.array([row for node in nodes for row in node.fast(second)[GPU_FAST]])
        for name, (share, step) in LIVELY.items() if lively else ():
            moved = dice.random(gpus) < share
            rows[:, BLOCK.names.index(name)] -= moved * step * dice.integers(1, 9, gpus)
        yield Tick(start + second * SECOND, rows[:, :split].astype(np.float32), rows[:, split:].copy())


def batch_of(ticks: list[Tick], first: int, *, named: bool) -> Batch:
    """Return the batch of a commit; `first` is the number of its first second."""
    gpus = len(ticks[0].gauges)
    nodes, count = gpus // GPUS, len(ticks)
    batch = Batch(
        Frames(
            run=np.tile(np.arange(nodes, dtype=np.int32), count),
            seq=np.repeat(np.arange(first, first + count), nodes),
            sampled_at=np.repeat([tick.at for tick in ticks], nodes),
            received_at=np.repeat([tick.at for tick in ticks], nodes),
            backfilled=np.zeros(nodes * count, np.bool_),
        ),
        [
            BlockRows(
                GPU_FAST,
                (np.arange(gpus, dtype=np.int32) // GPUS) + number * nodes,
                np.arange(gpus, dtype=np.int32),
                tick.gauges,
                tick.counters,
            )
            for number, tick in enumerate(ticks)
        ],
        at=ticks[0].at,
    )
    if named:
        batch.runs = [CollectorRun(node, f"node-{node}", 1) for node in range(nodes)]
        batch.devices = [StoredDevice(gpu, f"node-{gpu // GPUS}", uuid(gpu), gpu % GPUS, "") for gpu in range(gpus)]
    return batch


def uuid(gpu: int) -> str:
    """Return the UUID of a GPU by its number."""
    return f"GPU-{gpu:08x}-0000-4000-8000-000000000000"
