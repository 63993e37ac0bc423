"""Cost of a collector on its node: CPU, memory, driver calls, time to start.

    python -m bench.collector [--gpus 8] [--seconds 30] [--latency 30] [--json]

`kilowatch collect` as it is installed, parent and child, at 1 Hz on a compiled stand-in of
libnvidia-ml, beside gpustat, nvitop's device API and a plain nvidia-ml-py loop, all at the same
time, each on a stand-in of its own. Twice: with a driver that answers at once, and with one whose
calls take a while. The CPU of each contains that of the stand-in, which is the same for all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import wire
from bench.peers import here
from bench.processes import CpuMeter, children
from bench.report import show
from bench.testbed import Testbed
from telemetry import frame as frames
from telemetry.topics import Topic, pattern
from tests.fake_nvml import FakeDriver

SETTLE_SECONDS = 5
OURS = "kilowatch"


def measure(
    gpus: int, seconds: int, latency: int, settle: float = SETTLE_SECONDS
) -> dict[str, Any]:
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
        if not select.select([listener], [], [], 60)[0]:
            raise TimeoutError(f"no frame came within 60 s: {testbed.log(OURS)[-500:]}")
        inbox += listener.recv(1 << 16)


def _receive(listener: Any, inbox: bytearray) -> None:
    while select.select([listener], [], [], 0)[0]:
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
    options = parser.parse_args(arguments)
    found = {
        "at_once": measure(options.gpus, options.seconds, 0),
        "with_latency": measure(options.gpus, options.seconds, options.latency),
        "latency_us": options.latency,
    }
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
