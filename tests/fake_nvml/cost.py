"""What it costs to read eight GPUs: `python -m tests.fake_nvml.cost [seconds]`.

Ticks a real NVML source at 1 Hz, with the slow lane every 15 s, against the fake driver, and prints
CPU and memory of both processes and the driver calls of a tick. The child's CPU contains the fake
driver's own, which looks every value up in a table of text.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from collector.nvml.source import NvmlSource
from telemetry.metric import Lane
from tests.fake_nvml import FakeDriver

FAST, BOTH = frozenset({Lane.FAST}), frozenset(Lane)
SLOW_EVERY = 15


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, to 10 ns (schedstat), all threads together."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_megabytes(pid: int) -> float:
    """Resident memory that belongs to the process alone."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = [line.split()[1] for line in text.splitlines() if line.startswith("Private_")]
    return sum(map(int, private)) / 1024


async def measure(fake: FakeDriver, seconds: int) -> None:
    """Tick, and print what it took."""
    source = NvmlSource(environment=fake.environment)
    await source.open()
    await source.read(BOTH, 0, time.time_ns(), 0.8)
    probe = source._supervisor._probe
    assert probe is not None
    pids = {"parent": os.getpid(), "child": probe.pid}
    await asyncio.sleep(2)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    calls = sum(fake.calls().values())
    for tick in range(seconds):
        await source.read(FAST if tick % SLOW_EVERY else BOTH, tick, time.time_ns(), 0.8)
        await asyncio.sleep(1)
    for name, pid in pids.items():
        share = (cpu_seconds(pid) - before[name]) / seconds
        print(f"{name}: {share:.3%} of a core, {resident_megabytes(pid):.1f} MB")
    print(f"driver calls a tick: {(sum(fake.calls().values()) - calls) / seconds:.1f}")
    await source.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, FakeDriver(Path(folder), gpus=8) as driver:
        asyncio.run(measure(driver, int(sys.argv[1]) if len(sys.argv) > 1 else 30))
