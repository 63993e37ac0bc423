"""Cost of knowing who uses the GPUs: a collector with `[jobs]` beside one without, at the same time.

    python -m bench.jobs [--gpus 8] [--processes 8] [--seconds 80] [--json]

Both are `kilowatch collect` as it is installed, parent and child, at 1 Hz on a compiled stand-in of
libnvidia-ml of their own. The drivers list real processes of this machine. The figure is the median, over windows
in which both run at once, of the difference in percent of a core, with the lowest and the highest window; they
are started twice, the other one first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.processes import CpuMeter, children
from bench.report import show
from bench.testbed import Testbed, wait_until
from tests.fake_nvml import FakeDriver

SETTLE_SECONDS = 8
LEAST_SECONDS = 2.0
"""Seconds of a window: a shorter one may have no reading, which comes once a second."""
CHANGE_SECONDS = 60.0
"""Seconds between two changes of who uses a GPU."""
GIB = 1 << 30


def measure(
    gpus: int, processes: int, seconds: float, settle: float = SETTLE_SECONDS, windows: int = 2
) -> dict[str, Any]:
    """Run both at once, with so many processes on each GPU, twice for so many windows: `seconds` in all, or
    `LEAST_SECONDS` each."""
    window = max(LEAST_SECONDS, seconds / 2 / windows)
    sleepers = [subprocess.Popen(["sleep", f"{seconds + 600 + number}"]) for number in range(gpus * processes)]
    pids = [process.pid for process in sleepers]
    rows: list[dict[str, dict[str, float]]] = []
    try:
        for names in (("with", "without"), ("without", "with")):
            rows += _windows(names, pids, gpus, window, settle, windows)
    finally:
        for process in sleepers:
            process.kill()
            process.wait()
    found: dict[str, Any] = {"gpus": gpus, "processes": len(pids), "windows": len(rows)}
    for name in ("with", "without"):
        found[name] = {figure: statistics.median(row[name][figure] for row in rows) for figure in rows[0][name]}
    for figure in found["with"]:
        added = [row["with"][figure] - row["without"][figure] for row in rows]
        found[f"added_{figure}"] = statistics.median(added)
        if figure == "cpu_percent":
            found["added_cpu_percent_lowest"] = min(added)
            found["added_cpu_percent_highest"] = max(added)
    return found


def _windows(
    names: tuple[str, ...], pids: list[int], gpus: int, seconds: float, settle: float, windows: int
) -> list[dict[str, dict[str, float]]]:
    """Start collectors in an order, and return the figures of each window by name."""
    processes = len(pids) // gpus
    rows = []
    with Testbed() as testbed, contextlib.ExitStack() as stack:
        drivers = {}
        for name in names:
            drivers[name] = FakeDriver(testbed.folder / name, gpus=gpus)
            stack.callback(drivers[name].close)
            for gpu in range(gpus):
                _place(drivers[name], gpu, pids[gpu * processes : (gpu + 1) * processes])
            testbed.start(name, _collect(testbed, name), os.environ | drivers[name].environment)
        files = [testbed.folder / f"ring-{name}" / "ring" for name in names]
        wait_until("the first frames", lambda: all(each.exists() for each in files))
        time.sleep(settle)
        parents = {name: testbed.pids[name] for name in names}
        watched = {f"{name}.parent": pid for name, pid in parents.items()}
        watched |= {
            f"{name}.child{number}": child
            for name, pid in parents.items()
            for number, child in enumerate(children(pid))
        }
        for _ in range(windows):
            meter = CpuMeter(**watched)
            calls = {name: sum(driver.calls().values()) for name, driver in drivers.items()}
            meter.start()
            _wait(drivers, pids, gpus, processes, seconds)
            costs = meter.stop()
            row = {}
            for name, driver in drivers.items():
                its = [cost for key, cost in costs.items() if key.startswith(f"{name}.")]
                row[name] = {
                    "cpu_percent": sum(cost.cpu_percent for cost in its),
                    "pss_mib": sum(cost.pss_mib for cost in its),
                    "calls_a_second": (sum(driver.calls().values()) - calls[name]) / seconds,
                }
            rows.append(row)
    return rows


def _wait(drivers: dict[str, FakeDriver], pids: list[int], gpus: int, processes: int, seconds: float) -> None:
    """Wait, while one GPU after the other changes hands once a minute."""
    deadline, turn = time.monotonic() + seconds, 0
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, CHANGE_SECONDS))
        gpu = turn % gpus
        owners = pids[gpu * processes : (gpu + 1) * processes]
        for driver in drivers.values():
            _place(driver, gpu, owners[turn // gpus % 2 :: 2] or owners)
        turn += 1


def _place(driver: FakeDriver, gpu: int, pids: list[int]) -> None:
    driver.processes(gpu, compute=dict.fromkeys(pids, GIB), busy=dict.fromkeys(pids, 10))


def _collect(testbed: Testbed, name: str) -> list[str]:
    file: Path = testbed.folder / f"{name}.toml"
    kernel_log = testbed.folder / f"kmsg-{name}"
    os.mkfifo(kernel_log)
    file.write_text(
        f"[broker]\nport = {testbed.port}\n[jobs]\nenabled = {str(name == 'with').lower()}\n"
        f'same_pids = true\n[collector]\nnode = "bench-{name}"\nsource = "nvml"\n'
        f'state_dir = "{testbed.folder / f"ring-{name}"}"\nkernel_log = "{kernel_log}"\n'
    )
    return [sys.executable, "-m", "kilowatch", "collect", "--config", str(file)]


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.jobs", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=8, help="on each GPU")
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.gpus, options.processes, options.seconds), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
