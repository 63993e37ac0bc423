"""Backfill of ten minutes of a whole fleet, while new frames go on: duration and lags.

    python -m bench.backfill [--nodes 1250] [--backlog 600] [--json]

The state after an outage of the broker: every node comes back with `backlog` frames in its ring and
goes on at 1 Hz. `bench.generator` answers the aggregator's requests as collectors do, but not held
to their 2 MB/s a node. Live lag is from sampled to present in the fleet, live frames only.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import Any

from bench.processes import CpuMeter
from bench.report import show
from bench.testbed import Testbed, wait_until

GPUS = 8
LONGEST = 600.0
"""Seconds after which a drain has failed."""


def measure(nodes: int, backlog: int, seconds: int, broker: str, settings: str) -> dict[str, Any]:
    """Run once; live frames go on for `seconds`, and the run waits for the drain."""
    with Testbed(broker, settings) as testbed:
        testbed.start_aggregator()
        testbed.start_generator(nodes=nodes, gpus=GPUS, seconds=seconds, backlog=backlog)
        wait_until("all inventories", lambda: testbed.page().sum("kilowatch_cluster_nodes") >= nodes)
        meter = CpuMeter(**testbed.pids)
        meter.start()
        began = time.monotonic()
        before = testbed.page()
        testbed.proceed()
        target = nodes * backlog
        wait_until("the backlog", lambda: testbed.page().own("frames_backfilled_total") >= target, LONGEST)
        drained = time.monotonic() - began
        costs, after = meter.stop(), testbed.page()
        testbed.expect("done")
        testbed.wait_until_stored(target + nodes * seconds)
        sent = testbed.end_generator()
        testbed.end_aggregator()
        found = testbed.audit()
    total = target + sent["sent"]
    live = after.lags("shown").since(before.lags("shown"))
    highest = after.own("shown_lag_highest_seconds")
    return {
        "nodes": nodes,
        "backlog_frames": target,
        "backlog_values": target * GPUS * sent["metrics"],
        "live_seconds": seconds,
        "drain_seconds": drained,
        "frames_per_second": target / drained,
        "live_lag": {
            "p50": min(live.quantile(0.5) or 0.0, highest),
            "p99": min(live.quantile(0.99) or 0.0, highest),
            "max": highest,
        },
        "frames_lost": total - found["distinct"],
        "frames_duplicated": found["frames"] - found["distinct"],
        "frames_sent_twice": sent["resent"] - target,
        "processes": {name: asdict(cost) for name, cost in costs.items()},
    }


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.backfill", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--backlog", type=int, default=600, help="frames in each node's ring")
    parser.add_argument("--seconds", type=int, default=120, help="of live frames")
    parser.add_argument("--broker", choices=["mosquitto", "embedded"], default="mosquitto")
    parser.add_argument("--set", default="", help="a line of [aggregator], as flush_seconds = 0.1")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.nodes, options.backlog, options.seconds, options.broker, options.set)
    show(found, as_json=options.json)
    return 1 if found["frames_lost"] or found["frames_duplicated"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
