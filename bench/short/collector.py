"""Memory of a collector, both processes, with the stand-in of the driver.

python -m bench.short.collector [--json]
"""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing.connection import wait

from bench import wire
from bench.processes import children, memory
from bench.report import show
from bench.testbed import Testbed
from telemetry.wire.topics import Topic, pattern
from tests.fake_nvml import FakeDriver

FRAMES = 10
PATIENCE = 60
"""Seconds between two frames."""


def measure() -> dict[str, float]:
    """Return the memory after a few frames, in MiB; pages that others use too are divided among their users."""
    with (
        Testbed() as testbed,
        FakeDriver(testbed.folder / "driver", gpus=8) as driver,
        contextlib.closing(wire.connect("127.0.0.1", testbed.port, "bench-listener")) as listener,
    ):
        listener.sendall(wire.subscribe(pattern(kind=Topic.FRAME)))
        file = testbed.folder / "collector.toml"
        file.write_text(
            f'[broker]\nport = {testbed.port}\n[collector]\nnode = "bench"\nsource = "nvml"\n'
            f'kernel_log = "none"\nstate_dir = "{testbed.folder / "state"}"\n'
        )
        command = [sys.executable, "-m", "kilowatch", "collect", "--config", str(file)]
        process = testbed.start("collector", command, os.environ | driver.environment)
        came, inbox = 0, bytearray()
        while came < FRAMES:
            if not wait([listener], PATIENCE):
                raise TimeoutError(f"no frame in {PATIENCE} s: {testbed.log('collector')[-500:]}")
            inbox += listener.recv(1 << 16)
            came += len(list(wire.messages(inbox)))
        pids = [process.pid, *children(process.pid)]
        return {"pss_mib": sum(memory(pid)["pss_mib"] for pid in pids)}


if __name__ == "__main__":
    show(measure(), as_json="--json" in sys.argv)
