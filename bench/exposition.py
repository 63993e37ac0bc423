"""A Prometheus page of 100,000 series: from the fleet's matrices, against prometheus_client.

python -m bench.exposition [--series 100000] [--repeat 5] [--json]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aggregator.http.exposition import ExpositionPages, render
from bench.load import BASES, TICKS, Load, make_load
from bench.report import show
from telemetry.catalogue import BY_NAME
from telemetry.fleet import Fleet
from telemetry.metric import Kind, Table
from telemetry.wire import frame as frames
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, SCHEMA

GPUS = 8


class Library(Collector):
    """The same readings through prometheus_client, as exporters do: a family a metric, made again
    at every scrape."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterable[Metric]:
        """Yield all families."""
        fleet, block = self._fleet, SCHEMA.blocks[GPU_FAST]
        cluster = {name: node.inventory.cluster for name, node in fleet.nodes.items()}
        for name in block.names:
            metric = BY_NAME[name]
            make = GaugeMetricFamily if metric.kind is Kind.GAUGE else CounterMetricFamily
            family = make(f"kilowatch_{name}", metric.help, labels=["cluster", "node", "gpu", "uuid"])
            values = fleet.column(name, 0.0).tolist()
            for entry, value in zip(fleet.gpus, values, strict=True):
                if entry is not None and not math.isnan(value):
                    node, gpu = entry
                    family.add_metric([cluster[node], node, str(gpu.index), gpu.uuid], value)
            yield family


def make_fleet(load: Load) -> Fleet:
    """Return a fleet in which every node of the load has just sent a frame."""
    fleet, block = Fleet(), SCHEMA.blocks[GPU_FAST]
    for number in range(load.nodes):
        node = fleet.place(msgspec.json.decode(load.inventory(number), type=Inventory))
        node.online, node.seen, node.sampled_at = True, 0.0, 1
        packed = frames.decode(load.frame(number, number // BASES % TICKS, 1)).blocks[0]
        gauges = np.frombuffer(packed.gauges, "<f4").reshape(packed.rows, len(block.gauges))
        counters = np.frombuffer(packed.counters, "<f8").reshape(packed.rows, len(block.counters))
        fleet.store(GPU_FAST, node.rows[Table.GPU], gauges, counters, 0.0)
    return fleet


def best(work: Callable[[], object], repeat: int) -> float:
    """Return the shortest of `repeat` runs, ms of wall time."""
    found = math.inf
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - began)
    return found * 1e3


def measure(series: int, repeat: int) -> dict[str, Any]:
    """Return ms a page, both ways, and how many series and bytes it has."""
    per_node = GPUS * len(SCHEMA.blocks[GPU_FAST].names)
    fleet = make_fleet(make_load(max(1, round(series / per_node)), GPUS))
    nodes, pages = list(fleet.nodes.values()), ExpositionPages()
    registry = CollectorRegistry()
    registry.register(Library(fleet))
    page = render(pages.snapshot(fleet, nodes, 0.0))
    other = generate_latest(registry)
    snapshot = best(lambda: pages.snapshot(fleet, nodes, 0.0), repeat)
    ours = best(lambda: render(pages.snapshot(fleet, nodes, 0.0)), repeat)
    theirs = best(lambda: generate_latest(registry), max(1, repeat // 2))
    return {
        "gpus": len(nodes) * GPUS,
        "series": _series(page),
        "bytes": len(page),
        "milliseconds": ours,
        "of_that_on_the_loop_milliseconds": snapshot,
        "prometheus_client_series": _series(other),
        "prometheus_client_milliseconds": theirs,
        "times_faster_per_series": theirs / _series(other) / (ours / _series(page)),
    }


def _series(page: bytes) -> int:
    return sum(not line.startswith(b"#") for line in page.splitlines())


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.exposition", description=__doc__)
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.series, options.repeat), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
