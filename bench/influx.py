"""InfluxDB as the store: cost of line protocol, both stores at the same load, pages while it is down.

    python -m bench.influx [--gpus 10000] [--ticks 60] [--latency SECONDS] [--json]

*Lines*: a tick of all GPUs as line protocol, by our encoder, by plain Python, and by the objects of
influxdb-client, which its writers expect. *Stores*: the same ticks into the embedded store, into
InfluxDB as means and as readings, with a real influxd behind. *Latency*: `bench.paging` with the server
up, down, slow and refusing: time from sample to verdict and from fault to page.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from influxdb_client.client.write.point import Point

from aggregator.config import AggregatorConfig, StoreConfig, StoreKind
from aggregator.influx.aggregates import of_readings
from aggregator.influx.client import InfluxClient
from aggregator.influx.setup import prepare
from aggregator.influx.store import InfluxStore
from aggregator.influx.writer import Writer
from aggregator.settings.influx import InfluxConfig
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.protocol import Batch, StoredDevice
from bench import paging
from bench.processes import CpuMeter, cpu_seconds
from bench.report import show
from bench.store_ticks import LONG, METRICS, Tick, batch_of, fleet_ticks, uuid
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.brokers import free_port
from tests.influxes import Influxd, Reply, Scripted

BLOCK = SCHEMA.blocks[GPU_FAST]
_new: Any = Point
POINTS = 500
"""Rows that are made into objects of influxdb-client: it is slow."""
SLOW_SECONDS = 5.0
CATCH_UP_SECONDS = 120.0
"""Seconds within which the server must catch up."""
SECOND = 10**9


def lines(tick: Tick) -> dict[str, float]:
    """Return ns a value to make line protocol of one tick."""
    gpus = len(tick.gauges)
    device = np.arange(gpus, dtype=np.int32)
    writer = Writer("bench", 5000)
    writer.add_devices(StoredDevice(gpu, f"node-{gpu // 8}", uuid(gpu), gpu % 8, "NVIDIA H100") for gpu in range(gpus))
    cells = of_readings(BLOCK, device, np.full(gpus, tick.at), tick.gauges, tick.counters)

    def ours() -> int:
        return sum(each.chunk.points for each in writer.points(GPU_FAST, cells))

    ours()
    rows = np.concatenate([tick.gauges.astype(np.float64), tick.counters], axis=1)
    found = {
        "encoder": _timed(ours) / gpus,
        "python": _timed(lambda: _by_hand(rows[:POINTS], tick.at)) / POINTS,
        "influxdb_client": _timed(lambda: _points(rows[:POINTS], tick.at)) / POINTS,
    }
    body = b"".join(each.chunk.text for each in writer.points(GPU_FAST, cells))
    found["gzip"] = _timed(lambda: len(gzip.compress(body, 1))) / gpus
    writer.close()
    return {f"{name}_ns_per_value": 1e9 * took / METRICS for name, took in found.items()} | {
        "bytes_per_value": len(body) / gpus / METRICS,
        "gzip_bytes_per_value": len(gzip.compress(body, 1)) / gpus / METRICS,
    }


def _by_hand(rows: np.ndarray[Any, Any], at: int) -> int:
    made = []
    for gpu, row in enumerate(rows.tolist()):
        fields = ",".join(
            f"{name}={value!r}"
            for name, value in zip(BLOCK.names, row, strict=True)
            if value == value  # noqa: PLR0124 - NaN: a gap
        )
        made.append(f"gpu,gpu={gpu % 8},node=node-{gpu // 8},uuid={uuid(gpu)} {fields} {at}")
    return len("\n".join(made))


def _points(rows: np.ndarray[Any, Any], at: int) -> int:
    made = []
    for gpu, row in enumerate(rows.tolist()):
        point = _new("gpu").tag("gpu", gpu % 8).tag("node", f"node-{gpu // 8}").tag("uuid", uuid(gpu))
        for name, value in zip(BLOCK.names, row, strict=True):
            if value == value:  # noqa: PLR0124 - NaN: a gap
                point.field(name, value)
        made.append(point.time(at // 10**6, "ms").to_line_protocol())
    return len("\n".join(made))


def stores(folder: Path, gpus: int, ticks: int) -> dict[str, Any]:
    """Return the cost of the same seconds of a fleet in each store. The first half is not counted: a
    server makes its series then."""
    found: dict[str, Any] = {"gpus": gpus, "ticks": ticks}
    (folder / "embedded").mkdir(parents=True)
    embedded = EmbeddedStore(StoreConfig(seal_seconds=LONG), folder / "embedded")
    found["embedded"] = _written(embedded.write, gpus, ticks, lambda: None)
    embedded.close()
    found["embedded"]["disk_bytes_per_value"] = _bytes(folder / "embedded") / gpus / ticks / METRICS
    if shutil.which("influxd") is None:
        return found
    for name, every in (("means", 10.0), ("readings", 0.0)):
        with _server(folder / name) as server:
            (folder / f"{name}-data").mkdir()
            store = InfluxStore(_settings(server.url, folder / f"{name}-data", every))
            found[name] = _influx(server, store, gpus, ticks)
            store.close()
    return found


def _influx(server: Influxd, store: InfluxStore, gpus: int, ticks: int) -> dict[str, float]:
    meter = CpuMeter(influxd=server.pid)
    first: list[float] = []

    def half() -> None:
        first.append(_caught_up(store))
        meter.start()

    sent = store.sender.metrics
    figures = _written(store.write, gpus, ticks, half)
    figures["behind_seconds_first_half"] = first[0]
    figures["behind_seconds"] = _caught_up(store)
    figures["behind_points"] = store.spool.points
    cost = meter.stop()["influxd"]
    store.sender.stop()  # what it counts is counted then
    seconds = ticks - ticks // 2
    return figures | {
        "influxd_cpu_percent_at_1_hz": 100 * cost.cpu_seconds / seconds,
        "influxd_cpu_ns_per_value": 1e9 * cost.cpu_seconds / gpus / seconds / METRICS,
        "influxd_peak_rss_mib": cost.peak_rss_mib,
        "points": sent.delivered,
        "sent_bytes_per_second": sent.delivered_bytes / ticks,
        "requests": sent.requests,
    }


def _caught_up(store: InfluxStore) -> float:
    """Wait until the server has all data; return the seconds."""
    began = time.monotonic()
    while store.spool.points and time.monotonic() < began + CATCH_UP_SECONDS:
        time.sleep(0.05)
    return time.monotonic() - began


def _written(write: Callable[[Batch], int], gpus: int, ticks: int, half: Callable[[], None]) -> dict[str, float]:
    took: list[float] = []
    # From a whole minute: when the run begins decides nothing about how many roll-ups it has.
    start = (time.time_ns() // SECOND - ticks) // 60 * 60 * SECOND
    cpu = 0.0
    for number, tick in enumerate(fleet_ticks(gpus, ticks, start)):
        if number == ticks // 2:
            half()
            took, cpu = [], 0.0
        batch = batch_of([tick], number, named=number == 0)
        batch.at = tick.at
        began, before = time.perf_counter(), cpu_seconds(os.getpid())
        write(batch)
        took.append(time.perf_counter() - began)
        cpu += cpu_seconds(os.getpid()) - before
    took.sort()
    return {
        "commit_milliseconds_p50": took[len(took) // 2] * 1e3,
        "commit_milliseconds_max": took[-1] * 1e3,
        "cpu_milliseconds_per_tick": cpu / len(took) * 1e3,
    }


def _settings(url: str, folder: Path, every: float) -> AggregatorConfig:
    influx = InfluxConfig(url=url, every_seconds=every)
    with InfluxClient(influx) as client:
        prepare(client, lambda _: None)
    store = StoreConfig(kind=StoreKind.INFLUXDB, influxdb=influx, seal_seconds=LONG)
    return AggregatorConfig(data_dir=folder, store=store)


@contextmanager
def _server(folder: Path) -> Iterator[Influxd]:
    server = Influxd(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _timed(work: Callable[[], int]) -> float:
    """Return the best of three, CPU seconds: other processes may use the machine."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


# -- Latency -------------------------------------------------------------------------------------


def latency(gpus: int, seconds: int) -> dict[str, Any]:
    """Return times from sample to verdict and from fault to page, for each state of InfluxDB."""
    found: dict[str, Any] = {"embedded": _paged(gpus, seconds, None)}
    found["down"] = _paged(gpus, seconds, f"http://127.0.0.1:{free_port()}")
    over = threading.Event()

    def slowly(_: object) -> Reply:
        over.wait(SLOW_SECONDS)
        return Reply()

    for name, answer in (("slow", slowly), ("full", lambda _: Reply(503, "", {"Retry-After": "1"}))):
        scripted = Scripted(answer)
        found[name] = _paged(gpus, seconds, scripted.url)
        over.set()
        scripted.close()
    if shutil.which("influxd") is not None:
        with tempfile.TemporaryDirectory(prefix="kilowatch-bench-") as folder, _server(Path(folder)) as server:
            _settings(server.url, Path(folder), 10.0)
            found["up"] = _paged(gpus, seconds, server.url)
    return found


def _paged(gpus: int, seconds: int, url: str | None) -> dict[str, Any]:
    """Measure one run; `url` is None for the embedded store. A spool of 1 MiB is full within the run."""
    settings = ""
    named = {}
    if url is not None:
        named = {"KILOWATCH__AGGREGATOR__STORE__KIND": "influxdb"}
        settings = f'[aggregator.store.influxdb]\nurl = "{url}"\nspool_bytes = {1 << 20}\nsetup = false\n'
    os.environ.update(named)
    try:
        run = paging.measure(gpus, seconds, settings)
    finally:
        for name in named:
            del os.environ[name]
    return {
        "faults": run["faults"],
        "paged": run["paged"],
        "page_seconds": run["page_seconds"],
        "judged_seconds": run["judged_seconds"],
        "aggregator_cpu_percent": run["processes"]["aggregator"]["cpu_percent"],
        "aggregator_peak_rss_mib": run["processes"]["aggregator"]["peak_rss_mib"],
    }


def measure(gpus: int, ticks: int, seconds: int) -> dict[str, Any]:
    """Run all measurements."""
    gpus -= gpus % 8
    (tick,) = fleet_ticks(gpus, 1, time.time_ns() // SECOND * SECOND)
    found: dict[str, Any] = {"lines": lines(tick)}
    with tempfile.TemporaryDirectory(prefix="kilowatch-bench-") as folder:
        found["stores"] = stores(Path(folder), gpus, ticks)
    if seconds:
        found["latency"] = latency(gpus, seconds)
    return found


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.influx", description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument(
        "--latency", type=int, default=0, metavar="SECONDS", help="page through the server's troubles, so long for each"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.gpus, options.ticks, options.latency), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
