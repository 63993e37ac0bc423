"""CPU and bytes of a value on its way into the fleet: packed frames against JSON.

python -m bench.frames [--gpus 8] [--repeat 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire import frame as frames
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, SCHEMA


def cost(work: Callable[[], object], repeat: int, values: int) -> float:
    """Return the CPU time of one value in ns: the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begin = time.process_time_ns()
        for _ in range(repeat):
            work()
        best = min(best, (time.process_time_ns() - begin) / repeat / values)
    return best


def measure(gpus: int, repeat: int) -> dict[str, float]:
    """Return ns a value for each step, and bytes a value on the wire."""
    block = SCHEMA.blocks[GPU_FAST]
    names, split = block.names, len(block.gauges)
    rows = [[float(row * 7 + column) * 1.1 for column in range(len(names))] for row in range(gpus)]
    values = gpus * len(names)
    payload = frames.encode(frames.build(1, 1, 1, {GPU_FAST: rows}))
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    fleet = Fleet()
    node = fleet.place(Inventory(node="n", gpus=tuple(Gpu(uuid=str(n), index=n, name="") for n in range(gpus))))

    def ingest() -> None:
        packed = frames.decode(payload).blocks[0]
        fleet.store(
            GPU_FAST,
            node.rows[Table.GPU],
            np.frombuffer(packed.gauges, "<f4").reshape(packed.rows, split),
            np.frombuffer(packed.counters, "<f8").reshape(packed.rows, len(names) - split),
            0.0,
        )

    return {
        "values": values,
        "frame_encode_ns": cost(lambda: frames.encode(frames.build(1, 1, 1, {GPU_FAST: rows})), repeat, values),
        "json_encode_ns": cost(lambda: json.dumps(rows), repeat, values),
        "frame_decode_and_store_ns": cost(ingest, repeat, values),
        "json_decode_ns": cost(lambda: json.loads(text), repeat, values),
        "frame_bytes": len(payload) / values,
        "json_bytes": len(text) / values,
    }


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.frames", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.gpus, options.repeat)
    if options.json:
        print(json.dumps(found))
        return 0
    for step, other in (
        ("frame_encode_ns", "json_encode_ns"),
        ("frame_decode_and_store_ns", "json_decode_ns"),
        ("frame_bytes", "json_bytes"),
    ):
        ratio = found[other] / found[step]
        print(f"{step:28} {found[step]:8.1f}   {other:18} {found[other]:8.1f}   {ratio:5.1f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
