"""Cost of a collector on its node: CPU, memory, driver calls, time to start.

    python -m bench.collector [--gpus 8] [--seconds 30] [--latency 30] [--json] [--node [--windows 3]]

`kilowatch collect` as it is installed, parent and child, at 1 Hz on a compiled stand-in of
libnvidia-ml, beside gpustat, nvitop's device API and a plain nvidia-ml-py loop, all at the same
time, each on a stand-in of its own. Twice: with a driver that answers at once, and with one whose
calls take a while. The CPU of each contains that of the stand-in, which is the same for all.

With `--node` what the readings of the machine beside its GPUs cost instead: two collectors at once, of which one reads
the ten ports, drives, services and sensors of a DGX H100, 224 CPUs and 2,000 processes, from a tree of files, the other
none of them. The figure is the median difference of the windows, with the least and the most: what is read once a
minute is in every second one. What the kernel itself takes to count is not in it: the files are on a disk. More
collectors at once would be more measurements, but each then costs two to three times as much, for none finds its own
code in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from statistics import median
from typing import Any

from bench import wire
from bench.peers import here
from bench.processes import CpuMeter, children
from bench.report import show
from bench.testbed import Testbed
from telemetry.wire import frame as frames
from telemetry.wire.topics import Topic, pattern
from tests.collector import node_trees
from tests.fake_nvml import FakeDriver

SETTLE_SECONDS = 5
OURS = "kilowatch"
CPUS, PROCESSES = 224, 2000
"""Of the machine whose readings are measured."""
NODE_FILES = {
    "proc/stat": "cpu 1 0 1 9 0 0 0 0 0 0\n"
    + "".join(f"cpu{cpu} 98120 7 5123 9912345 412 0 77 0 0 0\n" for cpu in range(CPUS))
    + f"intr 9123456789 {'0 ' * 2000}\nctxt 1\nbtime 1\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
    "proc/loadavg": "0.1 0.1 0.1 1/100 1\n",
    "proc/meminfo": "MemTotal: 100 kB\nMemFree: 90 kB\nMemAvailable: 90 kB\n"
    + "".join(f"Kind{line}: 0 kB\n" for line in range(50)),
    "proc/uptime": "1000.0 1\n",
    "proc/net/dev": "Inter-|\n face |\n"
    + "".join(f"  eno{card}: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n" for card in range(12)),
    "proc/diskstats": "".join(f"259 {n} nvme{n}n1 1 0 1 0 1 0 1 0 0 0 0\n" for n in range(10)),
} | {
    f"proc/{pid}/stat": f"{pid} (kworker/{pid}:1) S 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n"
    for pid in range(1000, 1000 + PROCESSES)
}
"""Files of /proc that a tree lacks."""


def measure(gpus: int, seconds: int, latency: int, settle: float = SETTLE_SECONDS) -> dict[str, Any]:
    """Run all at once, at that latency of a driver call in us (0: at once)."""
    peers = here()
    with (
        Testbed() as testbed,
        contextlib.closing(wire.connect("127.0.0.1", testbed.port, "bench-listener")) as listener,
    ):
        drivers = {name: _driver(testbed.folder / name, gpus, latency) for name in (OURS, *peers)}
        listener.sendall(wire.subscribe(pattern(kind=Topic.FRAME)))
        began = time.monotonic()
        testbed.start(OURS, _collect(testbed), os.environ | drivers[OURS].environment)
        _wait_for_frame(listener, testbed)
        first = {OURS: time.monotonic() - began}
        for name in peers:
            command = [sys.executable, "-m", "bench.peers", name]
            testbed.start(name, command, os.environ | drivers[name].environment)
        for name in peers:
            first[name] = _first(testbed, name)
        listener.setblocking(False)
        time.sleep(settle)
        parent = testbed.pids[OURS]
        pids = {"kilowatch.parent": parent}
        pids |= {f"kilowatch.child{n or ''}": child for n, child in enumerate(children(parent))}
        pids |= {name: testbed.pids[name] for name in peers}
        meter = CpuMeter(**pids)
        calls = {name: sum(driver.calls().values()) for name, driver in drivers.items()}
        inbox = bytearray()
        _receive(listener, inbox)
        inbox.clear()
        meter.start()
        time.sleep(seconds)
        costs = meter.stop()
        _receive(listener, inbox)
        readings = {OURS: _readings(inbox)}
        readings |= {name: json.loads(_lines(testbed, name)[-1])["readings"] for name in peers}
        found: dict[str, Any] = {}
        for name, driver in drivers.items():
            its = {key: cost for key, cost in costs.items() if key.split(".")[0] == name}
            cpu = sum(cost.cpu_percent for cost in its.values())
            found[name] = {
                "cpu_percent": cpu,
                "rss_mib": sum(cost.rss_mib for cost in its.values()),
                "pss_mib": sum(cost.pss_mib for cost in its.values()),
                "calls_per_tick": (sum(driver.calls().values()) - calls[name]) / seconds,
                "readings_per_tick": readings[name],
                "us_per_reading": cpu * 1e4 / readings[name],
                "first_reading_seconds": first[name],
                "processes": {key: asdict(cost) for key, cost in its.items()},
            }
            driver.close()
    return found


def measure_node(seconds: int, windows: int, settle: float = SETTLE_SECONDS) -> dict[str, Any]:
    """Run a collector with all readings of a node and one with none, and return the cost of each and the difference in
    each window of so many seconds."""
    found: dict[str, Any] = {}
    with Testbed() as testbed:
        tree = node_trees.dgx(testbed.folder / "tree")
        node_trees.put(tree.root, NODE_FILES)
        pids: dict[str, int] = {}
        for name, settings in (("none", "node_readings = false"), ("all", f'host_root = "{tree.root}"')):
            driver = _driver(testbed.folder / name, 8, 0)
            file = testbed.folder / f"{name}.toml"
            file.write_text(
                f'[broker]\nport = {testbed.port}\n[collector]\nnode = "{name}"\nsource = "nvml"\n'
                f'kernel_log = "none"\nstate_dir = "{testbed.folder / name / "state"}"\n{settings}\n'
            )
            command = [sys.executable, "-m", "kilowatch", "collect", "--config", str(file)]
            testbed.start(name, command, os.environ | driver.environment)
            pids[name] = testbed.pids[name]
        time.sleep(settle)
        meter = CpuMeter(**pids)
        costs = []
        for _ in range(windows):
            meter.start()
            time.sleep(seconds)
            costs.append(meter.stop())
    for name in pids:
        found[f"{name}.cpu_percent"] = median(cost[name].cpu_percent for cost in costs)
        found[f"{name}.pss_mib"] = costs[-1][name].pss_mib
    more = [cost["all"].cpu_percent - cost["none"].cpu_percent for cost in costs]
    found |= {
        "cpu_percent_more": median(more),
        "cpu_percent_more_least": min(more),
        "cpu_percent_more_most": max(more),
        "pss_mib_more": found["all.pss_mib"] - found["none.pss_mib"],
    }
    return found


def _driver(folder: Path, gpus: int, latency: int) -> FakeDriver:
    driver = FakeDriver(folder, gpus=gpus)
    for gpu in range(gpus):
        driver.set(gpu, latency=latency)
    return driver


def _collect(testbed: Testbed) -> list[str]:
    file = testbed.folder / "collector.toml"
    kernel_log = testbed.folder / "kmsg"  # quiet, and waited for in the kernel, as /dev/kmsg is
    os.mkfifo(kernel_log)
    file.write_text(
        f'[broker]\nport = {testbed.port}\n[collector]\nnode = "bench"\nsource = "nvml"\n'
        f'state_dir = "{testbed.folder / "ring"}"\nkernel_log = "{kernel_log}"\n'
    )
    return [sys.executable, "-m", "kilowatch", "collect", "--config", str(file)]


def _wait_for_frame(listener: Any, testbed: Testbed) -> None:
    inbox = bytearray()
    while not list(wire.messages(inbox)):
        if not wait([listener], 60):
            raise TimeoutError(f"no frame came within 60 s: {testbed.log(OURS)[-500:]}")
        inbox += listener.recv(1 << 16)


def _receive(listener: Any, inbox: bytearray) -> None:
    while wait([listener], 0):
        inbox += listener.recv(1 << 20)


def _readings(inbox: bytearray) -> float:
    """Return the mean number of values in a frame, without gaps."""
    counts = []
    for _, payload in wire.messages(inbox):
        blocks = frames.decode(payload).blocks
        rows = [row for packed in blocks for row in frames.unpack(packed)]
        counts.append(sum(not math.isnan(value) for row in rows for value in row))
    return sum(counts) / len(counts)


def _lines(testbed: Testbed, name: str) -> list[str]:
    return [line for line in testbed.log(name).splitlines(keepends=True) if line.startswith("{")]


def _first(testbed: Testbed, name: str) -> float:
    deadline = time.monotonic() + 60
    while not (lines := _lines(testbed, name)) or not lines[0].endswith("\n"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has read nothing: {testbed.log(name)[-500:]}")
        time.sleep(0.05)
    return float(json.loads(lines[0])["age"])


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.collector", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--latency", type=int, default=30, help="us a call, in the second run")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--node", action="store_true", help="the readings beside the GPUs")
    parser.add_argument("--windows", type=int, default=3, help="of --seconds each, with --node")
    options = parser.parse_args(arguments)
    if options.node:
        show(measure_node(options.seconds, options.windows), as_json=options.json)
        return 0
    found = {
        "at_once": measure(options.gpus, options.seconds, 0),
        "with_latency": measure(options.gpus, options.seconds, options.latency),
        "latency_us": options.latency,
    }
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
