"""`kilowatch demo`: a simulated cluster with real broker, collectors and aggregator."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from aggregator.config import AggregatorConfig
from collector.config import CollectorConfig
from collector.simulated import SimulatedSource, scenario
from kilowatch.stack.broker import client_of
from kilowatch.stack.demo_site import site_of
from kilowatch.stack.ports import free_port
from kilowatch.stack.signals import stop_on_signals
from kilowatch.stack.stack import StackOutcome, StackPart, run_stack


async def run_demo(
    name: str,
    *,
    nodes: int | None,
    gpus: int | None,
    seed: int,
    faults: str | None,
    http: tuple[str, int],
    data: Path | None,
    seconds: float | None,
    until_eof: bool,
    announce: Callable[[str], None],
) -> StackOutcome:
    """Run a scenario until a signal or end of input. Raises `ConfigError` for an unknown scenario."""
    start_tick = int(time.time())
    cluster = scenario(
        name, nodes=nodes, gpus=gpus, seed=seed, start_tick=start_tick, faults=faults
    )
    stop = stop_on_signals(until_eof=until_eof)
    folder = (data or Path(tempfile.mkdtemp(prefix="kilowatch-demo-"))).absolute()
    broker = client_of("127.0.0.1", free_port(), folder)
    parts = [
        StackPart(
            CollectorConfig(
                node=node,
                source=f"simulated:{name}/{node}",
                state_dir=folder / "nodes" / node,
                broker=broker,
                kernel_log=None,
                ring_bytes=64 * 1024 * 1024,
            ),
            SimulatedSource(cluster, node),
        )
        for node in cluster.nodes
    ]
    aggregator = AggregatorConfig(
        broker=broker,
        listen=f"{http[0]}:{http[1]}",
        data_dir=folder / "data",
        power=site_of(cluster),
    )
    announce(
        f"SIMULATED data: {name}, {len(parts)} nodes, seed {seed}\n"
        f"http://{aggregator.listen}  (kilowatch top {aggregator.listen})\n"
        f"kilowatch circuits --http {aggregator.listen}\n"
        f"MQTT 127.0.0.1:{broker.port}  (kilowatch tap --broker 127.0.0.1:{broker.port})"
    )
    try:
        outcome = await run_stack(
            parts, aggregator, folder, stop=stop, scenario=name, seconds=seconds
        )
    finally:
        if data is None:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)
    return outcome if data else msgspec.structs.replace(outcome, data="")
