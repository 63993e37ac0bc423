"""Time from a bad reading to a page on the wire, while a whole fleet is ingested.

    python -m bench.paging --gpus 10000 --seconds 60 [--json]

Broker, aggregator and the fleet's generator are real processes, the rules are those that are shipped.
Beside the fleet stand a few nodes whose GPUs fail one after the other: half of them by a reading
(the driver has lost the GPU), half by an event (XID 79). A receiver on loopback gets the pages as a
webhook; measured is the time from the sample, or the XID, to the page's arrival. It has the
half second in it that a page waits for others of its kind (`alerts.group_wait_seconds`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench import wire
from bench.load import BASES, CLUSTER, Load, make_load
from bench.processes import CpuMeter
from bench.report import show
from bench.testbed import Testbed, wait_until
from collector.simulated import scenario
from collector.simulated.cluster import cluster as simulated_cluster
from telemetry.devices import Event
from telemetry.gap import DEVICE_LOST
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.schema import GPU_FAST
from telemetry.wire.topics import Topic, topic

GPUS_PER_NODE = 8
WARM_SECONDS = 5
EVERY = 4.0
"""Seconds between two faults: with more, the storm limiter would join them in one page."""
LATEST = 20.0
"""Seconds after the last fault in which its page may still come."""


class Receiver:
    """Webhook receiver that records when the page of each GPU came."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}
        """By UUID, seconds since 1970."""
        self.pages = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                at = time.time()
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.receive(at, body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """URL of the receiver."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def receive(self, at: float, body: dict[str, Any]) -> None:
        """Record the GPUs of a page."""
        self.pages += 1
        for alert in body["alerts"]:
            self.came.setdefault(alert["labels"].get("uuid", ""), at)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class Probes:
    """Nodes whose GPUs fail: one connection, a frame a second each."""

    def __init__(self, load: Load, port: int, first: int, count: int) -> None:
        self._load = load
        self._nodes = range(first, first + count)
        fleet = simulated_cluster(scenario("fleet", nodes=BASES, gpus=load.gpus, seed=7, faults=""))
        self._rows = fleet.node(fleet.scenario.nodes[0]).fast(0)[GPU_FAST]
        self._connection = wire.connect("127.0.0.1", port, "bench-probes")
        self._lost: set[tuple[int, int]] = set()
        self._seq = 0
        self.failed: dict[str, float] = {}
        """By UUID, when it failed, seconds since 1970."""
        for node in self._nodes:
            status = wire.publish(self._topic(node, Topic.STATUS), load.status(node), retain=True)
            inventory = load.inventory(node)
            whole = wire.publish(self._topic(node, Topic.INVENTORY), inventory, retain=True)
            self._connection.sendall(status + whole)

    def tick(self) -> None:
        """Send a frame of each node."""
        for node in self._nodes:
            self._frame(node)
        self._seq += 1

    def fail(self, number: int) -> None:
        """Make the next GPU fail, by a reading or by an event."""
        node = self._nodes[number % len(self._nodes)]
        gpu = number // len(self._nodes) % self._load.gpus
        uuid = f"GPU-{node:08x}-0000-4000-8000-{gpu:012x}"
        self.failed[uuid] = time.time()
        if number % 2:
            event = Event(
                id=f"{self._load.session(node)}-{number}",
                node=self._load.name(node),
                at=time.time_ns(),
                kind="xid",
                gpu=uuid,
                data={"xid": 79},
            )
            body = messages.encode(event)
            self._connection.sendall(wire.publish(self._topic(node, Topic.EVENT), body))
        else:
            self._lost.add((node, gpu))
            for other in self._nodes:  # of all nodes, so that the numbers have no hole
                self._frame(other)
            self._seq += 1

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _frame(self, node: int) -> None:
        lost = [DEVICE_LOST] * len(self._rows[0])
        rows = [lost if (node, gpu) in self._lost else row for gpu, row in enumerate(self._rows)]
        session = self._load.session(node)
        frame = frames.build(session, self._seq, time.time_ns(), {GPU_FAST: rows})
        self._connection.sendall(wire.publish(self._topic(node, Topic.FRAME), frames.encode(frame)))

    def _topic(self, node: int, kind: Topic) -> str:
        return topic(CLUSTER, self._load.name(node), kind)


def measure(gpus: int, seconds: int, settings: str = "") -> dict[str, Any]:
    """Run once; `seconds` counts from the first fault to the last."""
    nodes = max(1, gpus // GPUS_PER_NODE)
    count = max(2, int(seconds / EVERY))
    receiver = Receiver()
    channel = f'[alerts.channels.bench]\ntype = "webhook"\nurl = "{receiver.url}"\n'
    try:
        with Testbed("mosquitto", f"{settings}\n{channel}") as testbed:
            testbed.start_aggregator()
            testbed.start_generator(nodes=nodes, gpus=GPUS_PER_NODE, seconds=seconds + 2 * WARM_SECONDS + int(LATEST))
            probes = Probes(make_load(nodes, GPUS_PER_NODE), testbed.port, nodes, min(8, count))
            wait_until(
                "all inventories", lambda: testbed.page().sum("kilowatch_cluster_nodes") >= nodes + min(8, count), 300
            )
            testbed.proceed()
            _tick(probes, WARM_SECONDS)
            before = testbed.page()
            meter = CpuMeter(**testbed.pids)
            meter.start()
            for number in range(count):
                probes.fail(number)
                _tick(probes, EVERY)
            costs, after = meter.stop(), testbed.page()
            deadline = time.monotonic() + LATEST
            while len(receiver.came) < count and time.monotonic() < deadline:
                _tick(probes, 1)
            probes.close()
            runs = after.own("rules_seconds_count") - before.own("rules_seconds_count")
            rule_seconds = after.own("rules_seconds_sum") - before.own("rules_seconds_sum")
            judged = after.lags("judged").since(before.lags("judged"))
            complaints = [line for line in testbed.log("aggregator").splitlines() if "WARN" not in line]
    finally:
        receiver.close()
    took = sorted(receiver.came[uuid] - at for uuid, at in probes.failed.items() if uuid in receiver.came)
    return {
        "gpus": nodes * GPUS_PER_NODE,
        "faults": count,
        "paged": len(took),
        "pages": receiver.pages,
        "page_seconds": {"p50": _rank(took, 0.5), "p99": _rank(took, 0.99), "max": _rank(took, 1)},
        "judged_seconds": {"p50": judged.quantile(0.5), "p99": judged.quantile(0.99)},
        "rule_runs_per_second": runs / costs["aggregator"].cpu_seconds * costs["aggregator"].cpu_percent / 100,
        "rule_run_seconds": rule_seconds / runs if runs else None,
        "processes": {name: asdict(cost) for name, cost in costs.items()},
        "complaints": complaints[:5],
    }


def _tick(probes: Probes, seconds: float) -> None:
    """Wait, and send a frame of each probe a second."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        probes.tick()
        time.sleep(min(1.0, left))


def _rank(took: list[float], share: float) -> float | None:
    """Return the lowest time that `share` of all stay at or below."""
    return took[max(0, math.ceil(share * len(took)) - 1)] if took else None


def main(arguments: list[str]) -> int:
    """Measure and print; 1 when a fault was not paged."""
    parser = argparse.ArgumentParser(prog="python -m bench.paging", description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--set", default="", help="a line of [aggregator], as rule_seconds = 0.5")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.gpus, options.seconds, options.set)
    show(found, as_json=options.json)
    return 0 if found["paged"] == found["faults"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
