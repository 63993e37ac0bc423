"""The store: inserting, sealing, bytes a value, queries; against InfluxDB and VictoriaMetrics.

    python -m bench.store [--gpus 10000] [--ticks 20] [--history-gpus 64] [--peers] [--json]

Two loads. *Fleet*: one row a GPU and tick, many GPUs, as they arrive from the bus. *History*: an
hour at 1 Hz of a few GPUs, simulated as they behave in a long job (about a quarter of the values
change from one second to the next), sealed to Parquet; and again, *lively*, as in the recordings of
loads that come and go. `--peers` gives the same rows as line protocol to those of
the others that are installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aggregator.config import StoreConfig
from aggregator.store.embedded import EmbeddedStore
from bench import store_peers
from bench.exposition import best, make_fleet
from bench.load import SECOND, make_load
from bench.report import show
from bench.store_ticks import GPUS, LONG, METRICS, Tick, batch_of, fleet_ticks, history_ticks, uuid
from telemetry.fleet import Fleet

HISTORY_SECONDS = 3600
BATCH_SECONDS = 60
AGES = (100 * LONG,) * 3
TOP = 50
METRIC = "gpu_power_watts"


def insert(folder: Path, gpus: int, ticks: int) -> dict[str, Any]:
    """Return the cost of committing a tick of the whole fleet."""
    folder.mkdir()
    store = EmbeddedStore(StoreConfig(seal_seconds=LONG), folder)
    took = []
    for number, tick in enumerate(fleet_ticks(gpus, ticks, time.time_ns())):
        batch = batch_of([tick], number, named=number == 0)
        began = time.perf_counter()
        store.write(batch)
        took.append(time.perf_counter() - began)
    store.close()
    took.sort()
    values = gpus * METRICS
    return {
        "gpus": gpus,
        "ticks": ticks,
        "commit_milliseconds_p50": took[ticks // 2] * 1e3,
        "commit_milliseconds_max": took[-1] * 1e3,
        "ns_per_value": took[ticks // 2] / values * 1e9,
        "hot_bytes_per_value": (folder / "hot.duckdb").stat().st_size / values / ticks,
    }


def history(folder: Path, gpus: int, seconds: int, start: int, *, lively: bool = False) -> dict[str, Any]:
    """Return the cost and the result of sealing, and the time of a query of one GPU's hour."""
    folder.mkdir()
    config = StoreConfig(seal_seconds=LONG, raw_age_seconds=100 * LONG, rollup_age_seconds=AGES)
    store = EmbeddedStore(config, folder)
    gathered: list[Tick] = []
    for number, tick in enumerate(history_ticks(gpus, seconds, start, lively=lively)):
        gathered.append(tick)
        if len(gathered) == BATCH_SECONDS or number == seconds - 1:
            first = number + 1 - len(gathered)
            store.write(batch_of(gathered, first, named=first == 0))
            gathered = []
    end = start + seconds * SECOND

    def ask() -> int:
        return len(store.history(uuid(gpus // 2), METRIC, start, end, 0).at)

    hot = best(ask, 5)
    began, pieces, longest = time.perf_counter(), 0, 0.0
    while True:
        piece = time.perf_counter()
        more = store.maintain(start + int(3 * LONG * SECOND))  # far enough on for the period to be over
        longest = max(longest, time.perf_counter() - piece)
        if not more:
            break
        store.seal()
        pieces += 1
    sealing = time.perf_counter() - began
    first_time = best(ask, 1)
    again = best(ask, 5)
    values, size, found = gpus * seconds * METRICS, store.size(), ask()
    store.close()
    return {
        "gpus": gpus,
        "seconds": seconds,
        "values": values,
        "sealed_bytes_per_value": size["sealed"] / values,
        "rollup_bytes_per_value": size["rollups"] / values,
        "sealing_ns_per_value": sealing / values * 1e9,
        "sealing_longest_step_milliseconds": longest * 1e3,
        "sealing_steps": pieces,
        "one_gpu_one_metric_rows": found,
        "one_gpu_one_metric_hot_milliseconds": hot,
        "one_gpu_one_metric_sealed_first_milliseconds": first_time,
        "one_gpu_one_metric_sealed_milliseconds": again,
    }


def top(gpus: int) -> dict[str, Any]:
    """Return the time to find the hottest GPUs in the fleet's matrix, with their names."""
    fleet = make_fleet(make_load(gpus // GPUS, GPUS))
    found: Callable[[], object] = lambda: fleet_top(fleet, METRIC, TOP, 0.0)  # noqa: E731
    return {"gpus": gpus, "milliseconds": best(found, 20)}


def fleet_top(fleet: Fleet, metric: str, count: int, now: float) -> list[tuple[str, str, float]]:
    """Return node, GPU and value of the highest readings."""
    values = fleet.column(metric, now)
    known = np.nan_to_num(values, nan=-np.inf)
    rows = np.argpartition(known, -count)[-count:]
    rows = rows[np.argsort(known[rows])[::-1]]
    named = [(fleet.gpus[row], float(values[row])) for row in rows.tolist()]
    return [(entry[0], entry[1].uuid, value) for entry, value in named if entry is not None]


def measure(gpus: int, ticks: int, history_gpus: int, seconds: int, *, peers: bool) -> dict[str, Any]:
    """Run all measurements."""
    gpus, history_gpus = gpus - gpus % GPUS, history_gpus - history_gpus % GPUS
    start = time.time_ns() // SECOND * SECOND - (seconds + 100) * SECOND
    with tempfile.TemporaryDirectory(prefix="kilowatch-bench-") as folder:
        place = Path(folder)
        found: dict[str, Any] = {
            "insert": insert(place / "fleet", gpus, ticks),
            "history": history(place / "history", history_gpus, seconds, start),
            "lively": history(place / "lively", history_gpus, seconds, start, lively=True),
            "top_50": top(gpus),
        }
        if peers:
            wide = list(fleet_ticks(gpus, 3, time.time_ns() - 3 * SECOND))
            for name in store_peers.PEERS:
                few = history_ticks(history_gpus, seconds, start)
                found[name] = store_peers.measure(name, place / name, wide, few, (start, seconds))
            from bench import influx  # noqa: PLC0415 - it imports this module

            found["stores"] = influx.stores(place / "stores", gpus, ticks)
    return found


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--history-gpus", type=int, default=64)
    parser.add_argument("--history-seconds", type=int, default=HISTORY_SECONDS)
    parser.add_argument("--peers", action="store_true", help="InfluxDB and VictoriaMetrics too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.gpus, options.ticks, options.history_gpus, options.history_seconds, peers=options.peers)
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
