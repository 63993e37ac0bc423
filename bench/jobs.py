"""Cost of knowing who uses the GPUs: a collector with `[jobs]` beside one without, at the same time.

    python -m bench.jobs [--gpus 8] [--processes 8] [--seconds 60] [--json]

Both are `kilowatch collect` as it is installed, parent and child, at 1 Hz on a compiled stand-in of
libnvidia-ml of their own. The drivers list real processes of this machine; each has another program as its
owner's. The figure is the difference of the two, in percent of a core; the order of the two is no matter, as
they run at once.
"""

from __future__ import annotations

import argparse
import os
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
CHANGE_SECONDS = 60.0
"""Seconds between two changes of who uses a GPU."""
GIB = 1 << 30


def measure(
    gpus: int, processes: int, seconds: float, settle: float = SETTLE_SECONDS
) -> dict[str, Any]:
    """Run both at once, with so many processes on each GPU."""
    sleepers = [
        subprocess.Popen(["sleep", f"{seconds + 600 + number}"])
        for number in range(gpus * processes)
    ]
    pids = [process.pid for process in sleepers]
    try:
        with Testbed() as testbed:
            drivers = {}
            for name in ("with", "without"):
                drivers[name] = FakeDriver(testbed.folder / name, gpus=gpus)
                for gpu in range(gpus):
                    _place(drivers[name], gpu, pids[gpu * processes : (gpu + 1) * processes])
                testbed.start(name, _collect(testbed, name), os.environ | drivers[name].environment)
            files = {name: testbed.folder / f"ring-{name}" / "ring" for name in drivers}
            wait_until("the first frames", lambda: all(each.exists() for each in files.values()))
            time.sleep(settle)
            parents = {name: testbed.pids[name] for name in drivers}
            watched = {f"{name}.parent": pid for name, pid in parents.items()}
            watched |= {
                f"{name}.child{number}": child
                for name, pid in parents.items()
                for number, child in enumerate(children(pid))
            }
            meter = CpuMeter(**watched)
            calls = {name: sum(driver.calls().values()) for name, driver in drivers.items()}
            meter.start()
            _wait(drivers, pids, gpus, processes, seconds)
            costs = meter.stop()
            found: dict[str, Any] = {"gpus": gpus, "processes": len(pids)}
            for name, driver in drivers.items():
                its = [cost for key, cost in costs.items() if key.startswith(f"{name}.")]
                made = sum(driver.calls().values()) - calls[name]
                found[name] = {
                    "cpu_percent": sum(cost.cpu_percent for cost in its),
                    "pss_mib": sum(cost.pss_mib for cost in its),
                    "calls_a_second": made / seconds,
                }
                driver.close()
    finally:
        for process in sleepers:
            process.kill()
            process.wait()
    for figure in ("cpu_percent", "pss_mib", "calls_a_second"):
        found[f"added_{figure}"] = found["with"][figure] - found["without"][figure]
    return found


def _wait(
    drivers: dict[str, FakeDriver], pids: list[int], gpus: int, processes: int, seconds: float
) -> None:
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
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.gpus, options.processes, options.seconds), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
