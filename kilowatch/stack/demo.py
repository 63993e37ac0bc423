"""`kilowatch demo`: a simulated cluster with real broker, collectors and aggregator."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from aggregator.config import AggregatorConfig
from collector.simulated import scenario
from kilowatch.stack.broker import client_of
from kilowatch.stack.demo_site import site_of
from kilowatch.stack.ports import free_port
from kilowatch.stack.simulators import simulated_collectors
from kilowatch.stack.stack import StackOutcome, run_stack
from kilowatch.stack.start import StartReport
from telemetry.text import counted


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
    stop: asyncio.Event,
    announce: Callable[[str], None],
    report: Callable[[StartReport], None],
) -> StackOutcome:
    """Run a scenario until `stop`. Raises `ConfigError` for an unknown scenario."""
    start_tick = int(time.time())
    cluster = scenario(name, nodes=nodes, gpus=gpus, seed=seed, start_tick=start_tick, faults=faults)
    folder = (data or Path(tempfile.mkdtemp(prefix="kilowatch-demo-"))).absolute()
    broker = client_of("127.0.0.1", free_port(), folder)
    aggregator = AggregatorConfig(
        broker=broker, listen=f"{http[0]}:{http[1]}", data_dir=folder / "data", power=site_of(cluster)
    )
    announce(
        f"SIMULATED data: {name}, {counted(len(cluster.nodes), 'node')}, seed {seed}\n"
        f"http://{aggregator.listen}  (kilowatch top {aggregator.listen})\n"
        f"kilowatch circuits --http {aggregator.listen}\n"
        f"MQTT 127.0.0.1:{broker.port}  (kilowatch tap --broker 127.0.0.1:{broker.port})"
    )
    try:
        outcome = await run_stack(
            simulated_collectors(cluster, broker.port, folder),
            aggregator,
            folder,
            stop=stop,
            scenario=name,
            seconds=seconds,
            report=report,
        )
    finally:
        if data is None:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)
    return outcome if data else msgspec.structs.replace(outcome, data="")
