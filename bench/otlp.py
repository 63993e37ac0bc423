"""Cost of a push by OTLP: gathering, encoding and compressing the readings of a fleet, with the official classes beside.

python -m bench.otlp --gpus 10000 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from aggregator.remote.otlp.gather import OtlpGatherer
from aggregator.remote.otlp.names import exported
from aggregator.remote.otlp.transport import compressed
from aggregator.settings.otlp import OtlpConfig
from bench.live_fleet import GPUS, LiveFleet

ROUNDS = 5


def official(bodies: list[bytes]) -> Callable[[], int]:
    """Return a function that makes the same messages by the official classes, and returns their bytes."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: PLC0415 - for tests and benches
        ExportMetricsServiceRequest,
    )

    read = [ExportMetricsServiceRequest.FromString(body) for body in bodies]
    flat = [
        (its.resource, [
            (one.name, one.unit, one.WhichOneof("data"), [
                ([(pair.key, pair.value.string_value) for pair in point.attributes], point.time_unix_nano,
                 point.as_double or float(point.as_int))
                for point in getattr(one, one.WhichOneof("data")).data_points
            ])
            for one in its.scope_metrics[0].metrics
        ])
        for request in read for its in request.resource_metrics
    ]  # fmt: skip

    def make() -> int:
        request = ExportMetricsServiceRequest()
        for resource, metrics in flat:
            its = request.resource_metrics.add()
            its.resource.CopyFrom(resource)
            scope = its.scope_metrics.add()
            for name, unit, kind, points in metrics:
                metric = scope.metrics.add(name=name, unit=unit)
                data = getattr(metric, kind or "gauge").data_points
                for pairs, at, value in points:
                    point = data.add(time_unix_nano=at, as_double=value)
                    for key, text in pairs:
                        point.attributes.add(key=key).value.string_value = text
        return len(request.SerializeToString())

    return make


async def measure(gpus: int) -> dict[str, Any]:
    """Return CPU seconds of one push, the medians of some, and its size."""
    fleet = LiveFleet(gpus // GPUS)
    await fleet.beat()
    chance = np.random.default_rng(7)
    gatherer = OtlpGatherer(fleet, exported(()))
    spent: list[tuple[float, float, float]] = []
    bodies, count, packed = [], 0, 0
    for _ in range(ROUNDS + 1):
        for matrix in fleet.fleet.matrices:  # every reading that any GPU has, and all of them new
            matrix.gauges[:] = chance.uniform(1, 1000, matrix.gauges.shape)
            matrix.counters[:] = chance.uniform(1, 1e12, matrix.counters.shape)
            matrix.seen[:] = fleet.now()
        for node in fleet.fleet.nodes.values():
            node.seen = fleet.now()
        began = time.process_time()
        readings = await gatherer.readings()
        gathered = time.process_time()
        found = gatherer.metrics(readings)
        encoded = time.process_time()
        packed = sum(len(compressed(body)) for body, _ in found)
        spent.append((gathered - began, encoded - gathered, time.process_time() - encoded))
        bodies, count = [body for body, _ in found], sum(points for _, points in found)
    make, classes = official(bodies), []
    for _ in range(ROUNDS):
        began = time.process_time()
        make()
        classes.append(time.process_time() - began)
    middle = [sorted(column)[len(column) // 2] for column in zip(*spent[1:], strict=True)]
    whole = sum(middle)
    every = OtlpConfig().every_seconds
    return {
        "gpus": gpus, "points": count, "requests": len(bodies), "bytes": sum(map(len, bodies)), "packed_bytes": packed,
        "gather_seconds": round(middle[0], 4), "encode_seconds": round(middle[1], 4),
        "compress_seconds": round(middle[2], 4), "core_percent": round(100 * whole / every, 2),
        "official_encode_seconds": round(sorted(classes)[ROUNDS // 2], 4),
    }  # fmt: skip


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.otlp", description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(given.gpus))
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:26} {value:>14,}")


if __name__ == "__main__":
    main()
