"""A kill of the aggregator: how long until it serves again with all nodes that it knew.

    python -m bench.restart [--gpus 100000] [--times 3] [--json]

Nodes introduce themselves through a real broker, send three frames and fall silent. Then the aggregator is killed with
SIGKILL and started anew; all times count from the start of the new process: until it answers, until it serves all nodes
as the store knows them, and until it has heard of each what the broker retains.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import urllib.request
from typing import Any

from aggregator.ingest.router import INVENTORIES_AT_ONCE
from bench.processes import cpu_seconds, memory
from bench.report import show
from bench.testbed import Testbed, wait_until

GPUS = 8
POLL_SECONDS = 0.02
FRAMES = 3
"""Of each node: with the first its inventory is stored."""
STORE_SECONDS = 3.0
"""In which the frames are stored, with so many inventories each second."""
SETTLE_SECONDS = 20.0
"""In which the inventories that the broker retains are compared with those of the store."""
GOAL_SECONDS = 3.0
LONGEST = 300.0
"""Seconds after which a start has failed."""


def measure(gpus: int, times: int, broker: str = "mosquitto") -> dict[str, Any]:
    """Kill and start so many times; return the medians, seconds and CPU seconds of the new process."""
    nodes = max(1, gpus // GPUS)
    with Testbed(broker) as testbed:
        testbed.start_aggregator()
        testbed.start_generator(nodes=nodes, gpus=min(gpus, GPUS), seconds=FRAMES)
        wait_until("all inventories", lambda: _known(testbed) >= nodes, 600)
        testbed.proceed()
        testbed.expect("done")
        time.sleep(STORE_SECONDS + nodes / INVENTORIES_AT_ONCE)
        rows = [_once(testbed, nodes) for _ in range(times)]
    return {
        "gpus": nodes * min(gpus, GPUS),
        "nodes": nodes,
        "broker": broker,
        **{name: statistics.median(row[name] for row in rows) for name in rows[0]},
        "worst_seconds": max(row["serves_seconds"] for row in rows),
        "goal_seconds": GOAL_SECONDS,
    }


def _once(testbed: Testbed, nodes: int) -> dict[str, float]:
    testbed.kill_aggregator()
    began = time.monotonic()
    pid = testbed.launch_aggregator()
    found: dict[str, float] = {}

    def reached(name: str, ready: bool) -> None:
        if ready and name not in found:
            found[name] = time.monotonic() - began

    while "heard_seconds" not in found:
        time.sleep(POLL_SECONDS)
        if time.monotonic() > began + LONGEST:
            raise TimeoutError(f"of {nodes} nodes not all came within {LONGEST:.0f} s: {found}")
        health = _get(testbed, "/healthz")
        reached("answers_seconds", bool(health))
        if health and "serves_seconds" not in found:
            reached("serves_seconds", _get(testbed, "/api/v1/status").get("nodes", 0) >= nodes)
            found["cpu_seconds"] = cpu_seconds(pid)
        reached("heard_seconds", health.get("nodes_expected", 0) >= nodes)
    time.sleep(SETTLE_SECONDS)
    return found | {"settled_cpu_seconds": cpu_seconds(pid), "rss_mib": memory(pid)["rss_mib"]}


def _known(testbed: Testbed) -> int:
    count: int = _get(testbed, "/healthz").get("nodes_expected", 0)
    return count


def _get(testbed: Testbed, path: str) -> dict[str, Any]:
    """Return what is answered; nothing while nobody serves."""
    try:
        with urllib.request.urlopen(f"http://{testbed.http}{path}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
    except OSError:
        return {}
    return found


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.restart", description=__doc__)
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--broker", choices=["mosquitto", "embedded"], default="mosquitto")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.gpus, options.times, options.broker), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
