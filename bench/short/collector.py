"""The whole collector: instructions of a tick, and memory. Both processes, with the stand-in of the driver.

    python -m bench.short.collector [--json]

Two collectors run under valgrind at the same time, one for a few frames and one for some more: the difference is that of
the further frames, among them one of the slow lane. A third one runs as it is, for its memory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing.connection import wait
from pathlib import Path

from bench import wire
from bench.processes import children, end, memory
from bench.report import show
from bench.short.counted import instructions, valgrind
from bench.testbed import Testbed
from telemetry.topics import Topic, parse, pattern
from tests.fake_nvml import FakeDriver

INTERVAL = 0.5
"""Seconds: valgrind is slow, and no tick may be late."""
FEW, MANY = 10, 40
"""Frames. Between the two lie fifteen seconds, the interval of the slow lane."""
PATIENCE = 120


def measure() -> dict[str, float]:
    """Return the instructions of a frame, and the memory in MiB."""
    logs: dict[str, Path] = {}
    waited = {"few": FEW, "many": MANY, "native": FEW}
    pss = 0.0
    with contextlib.ExitStack() as stack:
        testbed = stack.enter_context(Testbed())
        listener = stack.enter_context(
            contextlib.closing(wire.connect("127.0.0.1", testbed.port, "bench-listener"))
        )
        listener.sendall(wire.subscribe(pattern(kind=Topic.FRAME)))
        running = {}
        for name in waited:
            logs[name] = testbed.folder / name
            driver = stack.enter_context(FakeDriver(logs[name], gpus=8))
            file = logs[name] / "collector.toml"
            file.write_text(
                f'[broker]\nport = {testbed.port}\n[collector]\nnode = "{name}"\nsource = "nvml"\n'
                f'interval = {INTERVAL}\nkernel_log = "none"\nstate_dir = "{logs[name] / "state"}"\n'
            )
            command = [sys.executable, "-m", "kilowatch", "collect", "--config", str(file)]
            counting = [] if name == "native" else [*valgrind(logs[name]), "--trace-children=yes"]
            environment = os.environ | driver.environment
            running[name] = testbed.start(name, [*counting, *command], environment)
        came, inbox = dict.fromkeys(waited, 0), bytearray()
        while running:
            if not wait([listener], PATIENCE):
                raise TimeoutError(f"no frame in {PATIENCE} s: {came}")
            inbox += listener.recv(1 << 16)
            for where, _ in wire.messages(inbox):
                address = parse(where)
                if address is None or address.node not in running:
                    continue
                name = address.node
                came[name] += 1
                if came[name] == waited[name]:
                    process = running.pop(name)
                    if name == "native":
                        pids = [process.pid, *children(process.pid)]
                        pss = sum(memory(pid)["pss_mib"] for pid in pids)
                    end(process)
        totals = {
            name: sum(map(instructions, logs[name].glob("*.log"))) for name in ("few", "many")
        }
    return {
        "instructions": (totals["many"] - totals["few"]) / (MANY - FEW),
        "pss_mib": pss,
    }


if __name__ == "__main__":
    show(measure(), as_json="--json" in sys.argv)
