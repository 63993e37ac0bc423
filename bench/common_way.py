"""The common way to carry GPU readings: JSON over aiomqtt, points through influxdb-client.

    python -m bench.common_way [--nodes 100,300,500,750,1000] [--seconds 10] [--json]

One message a node and second (which is kind: many send one a metric), readings of eight GPUs as
JSON; a subscriber with aiomqtt that makes points and hands them to influxdb-client's batching
writer, with which it comes, in front of VictoriaMetrics where that is installed, else of a server
that discards it. The load grows until it breaks: the subscriber is not done two seconds after
the last message, or its p99 lag is above two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiomqtt

from bench import wire
from bench.load import BASES, SLOTS, TICKS
from bench.processes import CpuMeter
from bench.report import show
from bench.testbed import Testbed
from collector.simulated import scenario
from collector.simulated.cluster import cluster as simulated_cluster
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.brokers import free_port, wait_for_port

LADDER = (100, 300, 500, 750, 1000)
GPUS = 8
LATEST_LAG = 2.0
"""Seconds of lag at which it counts as broken."""
METRICS = len(SCHEMA.blocks[GPU_FAST].names)
TOPIC = "gpus"


def ladder(nodes: tuple[int, ...] = LADDER, seconds: int = 10) -> dict[str, Any]:
    """Run with increasing numbers of nodes until it breaks; `breaks_at_gpus` is None when it does not."""
    steps: list[dict[str, Any]] = []
    for count in nodes:
        steps.append(step(count, seconds))
        if steps[-1]["broken"]:
            break
    carried = [each for each in steps if not each["broken"]]
    return {
        "carries_gpus": carried[-1]["gpus"] if carried else 0,
        "breaks_at_gpus": steps[-1]["gpus"] if steps[-1]["broken"] else None,
        "cpu_seconds_per_million_values": carried[-1]["cpu_seconds_per_million_values"] if carried else None,
        "steps": {str(each["gpus"]): each for each in steps},
    }


def step(nodes: int, seconds: int) -> dict[str, Any]:
    """Run with that many nodes."""
    with Testbed() as testbed:
        store = _start_store(testbed)
        us = [sys.executable, "-m", "bench.common_way"]
        subscriber = subprocess.Popen(
            [*us, "--subscribe", f"{testbed.port},{store},{seconds}"], stdout=subprocess.PIPE, text=True
        )
        assert subscriber.stdout is not None
        subscriber.stdout.readline()  # it listens
        testbed.start("generator", [*us, "--generate", f"{testbed.port},{nodes},{seconds}"])
        meter = CpuMeter(**testbed.pids, subscriber=subscriber.pid)
        meter.start()
        subscriber.stdout.readline()  # the time is over
        costs = meter.stop()
        output, _ = subscriber.communicate(timeout=120)
        found: dict[str, Any] = json.loads(output)
    sent = nodes * seconds
    values = found["received"] * GPUS * METRICS
    late = found["lag_p99"] is None or found["lag_p99"] > LATEST_LAG
    return {
        "gpus": nodes * GPUS,
        "values_per_second": nodes * GPUS * METRICS,
        "sent": sent,
        **found,
        "broken": found["received"] < sent or late,
        "cpu_seconds_per_million_values": costs["subscriber"].cpu_seconds / max(values, 1) * 1e6,
        "processes": {name: asdict(cost) for name, cost in costs.items()},
    }


def _start_store(testbed: Testbed) -> str:
    port = free_port()
    engine = shutil.which("victoria-metrics")
    if engine is None:
        testbed.start("store", [sys.executable, "-m", "bench.common_way", "--discard", str(port)])
        path = ""
    else:
        testbed.start(
            "store",
            [engine, f"-storageDataPath={testbed.folder / 'vm'}", f"-httpListenAddr=127.0.0.1:{port}",
             "-retentionPeriod=1"],
        )  # fmt: skip
        path = "/influx"
    wait_for_port(port)
    return f"http://127.0.0.1:{port}{path}"


def generate(port: int, nodes: int, seconds: int) -> None:
    """Send every node's readings once a second, each at its own time."""
    fleet = simulated_cluster(scenario("fleet", nodes=BASES, gpus=GPUS, seed=7, faults=""))
    names = SCHEMA.blocks[GPU_FAST].names
    bodies = [
        [
            json.dumps(
                [
                    {k: v for k, v in zip(names, row, strict=True) if not math.isnan(v)}
                    for row in fleet.node(node).fast(tick)[GPU_FAST]
                ]
            ).encode()
            for tick in range(TICKS)
        ]
        for node in fleet.scenario.nodes
    ]
    connection = wire.connect("127.0.0.1", port, "bench-json")
    began = time.time()
    for tick in range(seconds):
        for slot in range(SLOTS):
            due = began + tick + slot / SLOTS
            time.sleep(max(0.0, due - time.time()))
            packets = [
                wire.publish(
                    f"{TOPIC}/node-{node}",
                    b'{"node":"node-%d","time":%d,"gpus":%b}'
                    % (node, due * 1e9, bodies[node % BASES][(tick + node) % TICKS]),
                )
                for node in range(slot, nodes, SLOTS)
            ]
            connection.sendall(b"".join(packets))
    time.sleep(60 * LATEST_LAG)  # its CPU is counted until it is ended


async def subscribe(port: int, store: str, seconds: int) -> dict[str, Any]:
    """Receive messages for that long and a little longer; return their number and lags."""
    influxdb: Any = importlib.import_module("influxdb_client")  # only here, and it has no types
    lags: list[float] = []
    with (
        influxdb.InfluxDBClient(url=store, token="none", org="-") as influx,
        influx.write_api(influxdb.WriteOptions(batch_size=5000, flush_interval=1000)) as writer,
    ):

        async def receive() -> None:
            async for message in client.messages:
                document = json.loads(message.payload)
                points = []
                for index, gpu in enumerate(document["gpus"]):
                    point = influxdb.Point("gpu").tag("node", document["node"]).tag("gpu", str(index))
                    for name, value in gpu.items():
                        point.field(name, value)
                    points.append(point.time(document["time"]))
                writer.write(bucket="bench", record=points)
                lags.append(time.time() - document["time"] / 1e9)

        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe(f"{TOPIC}/#")
            print("listening", flush=True)
            try:
                await asyncio.wait_for(receive(), seconds + LATEST_LAG)
            except TimeoutError:
                print("over", flush=True)
        received = len(lags)
    lags.sort()
    quantile = {share: lags[min(received - 1, int(share * received))] if lags else None for share in (0.5, 0.99)}
    return {"received": received, "lag_p50": quantile[0.5], "lag_p99": quantile[0.99]}


class Discard(BaseHTTPRequestHandler):
    """Server that accepts and discards every write."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Discard a write."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main(arguments: list[str]) -> int:
    """Run all loads, or one of the processes of a run."""
    parser = argparse.ArgumentParser(prog="python -m bench.common_way", description=__doc__)
    parser.add_argument("--nodes", default=",".join(map(str, LADDER)))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    for role in ("--subscribe", "--generate", "--discard"):
        parser.add_argument(role, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.generate:
        generate(*map(int, options.generate.split(",")))
    elif options.subscribe:
        port, store, seconds = options.subscribe.split(",")
        print(json.dumps(asyncio.run(subscribe(int(port), store, int(seconds)))), flush=True)
    elif options.discard:
        ThreadingHTTPServer(("127.0.0.1", int(options.discard)), Discard).serve_forever()
    else:
        nodes = tuple(map(int, options.nodes.split(",")))
        show(ladder(nodes, options.seconds), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
