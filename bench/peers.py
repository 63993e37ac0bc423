"""Other ways to read eight GPUs once a second, each as its own process: `bench.collector` runs them.

    python -m bench.peers gpustat|nvitop|pynvml

Prints one line of JSON after each reading: seconds from the start of the process to its end, and
how many numbers it has.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from telemetry.catalogue import CATALOGUE
from telemetry.catalogue.nvml import Call, Field
from telemetry.metric import Lane, Table

Read = Callable[[], int]
"""Function that reads all GPUs and returns the number of values."""


def gpustat() -> Read:
    """Return a reader through gpustat, as its `--watch` reads: a new query each time."""
    import gpustat as library  # type: ignore[import-untyped]  # noqa: PLC0415

    return lambda: numbers([gpu.jsonify() for gpu in library.new_query().gpus])


def nvitop() -> Read:
    """Return a reader through nvitop's device API: a snapshot of each device."""
    from nvitop import Device  # type: ignore[import-untyped]  # noqa: PLC0415

    devices = Device.all()

    def read() -> int:
        found = 0
        for device in devices:
            snapshot = device.as_snapshot()
            values = [getattr(snapshot, key) for key in dir(snapshot) if not key.startswith("_")]
            found += sum(isinstance(value, int | float) for value in values)
        return found

    return read


def pynvml() -> Read:
    """Return a plain loop over nvidia-ml-py: only the calls behind the fast lane."""
    import pynvml as library  # noqa: PLC0415

    library.nvmlInit()
    handles = [library.nvmlDeviceGetHandleByIndex(n) for n in range(library.nvmlDeviceGetCount())]
    calls, fields = fast_lane()
    bound = [
        (getattr(library, name.removesuffix("_v2")), arguments)
        for name, arguments in calls
        if hasattr(library, name.removesuffix("_v2"))
    ]

    def read() -> int:
        found = 0
        for handle in handles:
            for function, arguments in bound:
                with contextlib.suppress(library.NVMLError):
                    answer = function(handle, *arguments)
                    found += len(answer) if isinstance(answer, list | tuple) else 1
            with contextlib.suppress(library.NVMLError):
                values = library.nvmlDeviceGetFieldValues(handle, fields)
                found += sum(value.nvmlReturn == 0 for value in values)
        return found

    return read


def fast_lane() -> tuple[list[tuple[str, tuple[int, ...]]], list[int]]:
    """Return the distinct calls and the field ids behind the fast lane, the first choice of each."""
    first = [
        metric.readers("nvml")[0]
        for metric in CATALOGUE
        if metric.table is Table.GPU and metric.lane is Lane.FAST and metric.readers("nvml")
    ]
    calls = list(dict.fromkeys((each.function, each.args) for each in first if isinstance(each, Call)))
    return calls, [each.id for each in first if isinstance(each, Field) and isinstance(each.id, int)]


def numbers(value: object) -> int:
    """Return how many numbers a JSON document holds."""
    if isinstance(value, dict):
        return sum(map(numbers, value.values()))
    if isinstance(value, list):
        return sum(map(numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


PEERS: dict[str, Callable[[], Read]] = {"gpustat": gpustat, "nvitop": nvitop, "pynvml": pynvml}


def here() -> list[str]:
    """Return the peers that are installed: `pip install kilowatch[bench]` brings them."""
    return [name for name in PEERS if importlib.util.find_spec(name) is not None]


def age() -> float:
    """Return the age of this process, seconds; 10 ms steps."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / 100


def main(arguments: list[str]) -> int:
    """Read once a second until ended."""
    read = PEERS[arguments[0]]()
    due = time.monotonic()
    while True:
        line: dict[str, Any] = {"readings": read(), "age": age()}
        print(json.dumps(line), flush=True)
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
