"""Ingest of a fleet by a real aggregator through a real broker: losses, lags, CPU and memory.

    python -m bench.ingest --gpus 10000 --seconds 60 [--broker embedded] [--common] [--json]

Frames are prepared (`bench.load`) and sent by `bench.generator`; broker and aggregator are
the real processes. Stored frames are counted in the store afterwards. `--common` sends the same
load through the common way as well (`bench.common_way`), ever more of it until that breaks.
`--overload` finds the load that the machine carries, and sends twice that (`bench.overload`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import common_way, overload
from bench.processes import CpuMeter, MemoryTrend
from bench.report import show
from bench.testbed import NEVER_SEAL, Lags, Testbed, wait_until
from telemetry.wire.schema import GPU_FAST, SCHEMA

GPUS_PER_NODE = 8
WARM_SECONDS = 3
STAGES = ("shown", "judged", "committed")
WORK = ("flush", "rules", "store")
"""Pieces of the aggregator's work, seconds each."""
METRICS = len(SCHEMA.blocks[GPU_FAST].names)
BYTES_PER_VALUE, SPARE_BYTES = 2.0, 10**9
"""Most bytes of a store while nothing is sealed: ten minutes of 100,000 GPUs are 5 GB."""


def measure(
    gpus: int,
    seconds: int,
    broker: str,
    metrics: int | None = None,
    connections: int | None = None,
    settings: str = "",
    seal: int = NEVER_SEAL,
) -> dict[str, Any]:
    """Run once; `seconds` counts from the first frame on, CPU and lags leave out the first three."""
    nodes = max(1, gpus // GPUS_PER_NODE)
    with Testbed(broker, settings, seal) as testbed:
        testbed.start_aggregator()
        options = {"nodes": nodes, "gpus": min(gpus, GPUS_PER_NODE), "seconds": seconds}
        if metrics is not None:
            options["metrics"] = metrics
        if connections is not None:
            options["connections"] = connections
        testbed.start_generator(**options)
        wait_until("all inventories", lambda: _nodes(testbed) >= nodes, 300)
        meter = CpuMeter(**testbed.pids)
        testbed.proceed()
        time.sleep(min(WARM_SECONDS, seconds / 2))
        before = testbed.awaited_page()
        meter.start()
        trend = MemoryTrend(testbed.pids["aggregator"])
        with trend:
            testbed.expect("done", lambda: _report_progress(testbed, nodes * seconds))
        costs, after = meter.stop(), testbed.awaited_page()
        _report_progress(testbed, nodes * seconds)
        testbed.wait_until_stored(nodes * seconds)
        last = testbed.awaited_page()
        sent = testbed.end_generator()
        testbed.end_aggregator()
        found = testbed.audit()
        disk = sum(f.stat().st_size for f in (testbed.folder / "data").iterdir() if f.is_file())
        complaints = [line for line in testbed.log("aggregator").splitlines() if "WARN" not in line]
    frames, gpus = sent["sent"], nodes * options["gpus"]
    values = gpus * sent["metrics"]
    window = costs["aggregator"].cpu_seconds / costs["aggregator"].cpu_percent * 100
    return {
        "gpus": gpus,
        "nodes": nodes,
        "metrics": sent["metrics"],
        "broker": broker,
        "seconds": seconds,
        "values_per_second": values,
        "frames_sent": frames,
        "frames_stored": found["frames"],
        "frames_lost": frames - found["distinct"],
        "frames_duplicated": found["frames"] - found["distinct"],
        "rows_wrong": abs(frames * options["gpus"] - found["distinct_rows"]) + found["rows"] - found["distinct_rows"],
        "frames_resent": sent["resent"],
        "generator_latest_seconds": sent["latest_seconds"],
        "lags": {
            kind: _lags(after.lags(kind).since(before.lags(kind)), last.own(f"{kind}_lag_highest_seconds"))
            for kind in STAGES
        },
        "work": {
            name: {"mean": after.mean(name, before), "highest": last.own(f"{name}_highest_seconds")} for name in WORK
        },
        "aggregator_memory_slope_mib_per_hour": trend.slope(),
        "aggregator_memory_lowest_mib": trend.lowest(),
        "hot_bytes_per_value": None if seal < NEVER_SEAL else disk / (found["rows"] * sent["metrics"]),
        "aggregator_cpu_seconds_per_million_values": costs["aggregator"].cpu_seconds / (values * window / 1e6),
        "processes": {name: asdict(cost) for name, cost in costs.items()},
        "complaints": complaints[:5],
    }


def lacks_room(values: int, place: Path) -> str:
    """Return why the store of a run would not fit on a disk; "" where it does."""
    needed, free = SPARE_BYTES + int(values * BYTES_PER_VALUE), shutil.disk_usage(place).free
    if free >= needed:
        return ""
    return (
        f"{place}: {free / 1e9:.0f} GB are free, and this run takes up to {needed / 1e9:.0f}: set "
        "TMPDIR to a folder on a larger disk, or choose fewer --seconds"
    )


def _report_progress(testbed: Testbed, frames: int) -> None:
    """Report the progress on standard error."""
    page = testbed.page()
    stored, late = page.own("frames_stored_total"), page.lags("committed").quantile(0.99)
    memory = page.sum("process_resident_memory_bytes") / 1e6
    print(
        f"{time.strftime('%H:%M:%S')} {stored:,.0f} of {frames:,} frames stored, "
        f"{page.own('holes_open'):,.0f} missing, p99 {late or 0:.2f} s, {memory:,.0f} MB",
        file=sys.stderr,
        flush=True,
    )


def _nodes(testbed: Testbed) -> float:
    return testbed.page().sum("kilowatch_cluster_nodes")


def _lags(lags: Lags, highest: float) -> dict[str, float | None]:
    """Return p50, p99 and max; a quantile is inexact within its bucket, but not above the max."""
    found = {"p50": lags.quantile(0.5), "p99": lags.quantile(0.99)}
    return {name: None if value is None else min(value, highest) for name, value in found.items()} | {"max": highest}


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.ingest", description=__doc__)
    parser.add_argument("--gpus", type=int, help="with --overload where to begin. [10000]")
    parser.add_argument("--metrics", type=int, help="readings of a GPU; whole blocks. [all fast]")
    parser.add_argument("--hz", type=float, default=1, choices=[1.0], help="frames a second")
    parser.add_argument("--seconds", type=int, help="[60, with --overload 300]")
    parser.add_argument("--broker", choices=["mosquitto", "embedded"], default="mosquitto")
    parser.add_argument("--connections", type=int, help="of the generator; a node has one. [100]")
    parser.add_argument("--set", default="", help="a line of [aggregator], as flush_seconds = 0.1")
    parser.add_argument(
        "--seal",
        type=int,
        default=NEVER_SEAL,
        metavar="SECONDS",
        help="seal periods of so long meanwhile; an hour is usual. [never]",
    )
    parser.add_argument("--common", action="store_true", help="the common way too, until it breaks")
    group = parser.add_argument_group("overload")
    group.add_argument("--overload", action="store_true", help="twice the load that is carried")
    group.add_argument("--cap", type=float, default=1.0, help="cores of the aggregator. [1]")
    group.add_argument("--probe-seconds", type=int, default=40, help="of each load that is tried")
    group.add_argument("--memory", type=int, default=3072, help="MiB of the aggregator. [3072]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.overload:
        found = overload.measure(
            options.cap, options.seconds or 300, options.memory, options.gpus or 0, options.probe_seconds, options.set
        )
        show(found, as_json=options.json)
        return 0 if all(found["overload"]["holds"].values()) else 1
    options.gpus, options.seconds = options.gpus or 10_000, options.seconds or 60
    values = options.gpus * (options.metrics or METRICS) * options.seconds
    if problem := lacks_room(values, Path(tempfile.gettempdir())):
        parser.error(problem)
    found = measure(
        options.gpus, options.seconds, options.broker, options.metrics, options.connections, options.set, options.seal
    )
    if options.common:
        found["common_way"] = common_way.ladder()
    show(found, as_json=options.json)
    return 1 if found["frames_lost"] or found["frames_duplicated"] or found["rows_wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
