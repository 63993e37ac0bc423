"""Who uses the GPUs of this machine now, read once: no broker, no ring, no running collector."""

from __future__ import annotations

import asyncio
import time

from collector.config import CollectorConfig
from collector.jobs.service import JobsService
from collector.jobs.source import KnowsJobs
from collector.sampling.reading import read
from collector.sampling.sampler import BOTH
from collector.source import ListsProcesses, Source
from collector.sources import is_elsewhere, make_source
from telemetry.errors import ConfigError
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import NodeJobs

OPENING_SECONDS = 30.0
"""Seconds that a driver may take to open."""
ANSWER_SECONDS = 20.0
"""Seconds that the sources of jobs may take to answer: more than `collector.jobs.service.HUNG_SECONDS`."""
POLL_SECONDS = 0.1
DEADLINE = 2.0
GRACE = 0.5


async def jobs_once(config: CollectorConfig, source: Source | None = None) -> tuple[Inventory, NodeJobs]:
    """Return the devices of this machine, and who uses them. Raises `ConfigError` or `SourceError` when the
    source can't be opened, or is one that knows no jobs."""
    if source is None:
        source = make_source(config.source, config, time.time_ns() / 1e9)
    if is_elsewhere(config.source) and not isinstance(source, KnowsJobs):
        raise ConfigError(
            "collector.source",
            f"{config.source} has readings, and nobody's jobs",
            "Ask on the node itself, or `kilowatch who NODE` where the node publishes them.",
        )
    jobs = JobsService(config.jobs, config.node, 0, source, lambda _payload: None, host_root=config.host_root)
    try:
        await source.open()
        await _listed(source, config)
        return source.inventory, await jobs.once(ANSWER_SECONDS)
    finally:
        jobs.close()
        await source.close()


async def _listed(source: Source, config: CollectorConfig) -> None:
    """Read until the driver is open and each GPU that is there has listed its processes."""
    deadline = asyncio.get_running_loop().time() + OPENING_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        now_ns = time.time_ns()
        await read(source, BOTH, int(now_ns / 1e9 / config.interval), now_ns, DEADLINE, GRACE)
        opening = source.inventory.driver_state == "unknown"
        present = {gpu.uuid for gpu in source.inventory.gpus if gpu.present}
        listed = source.listed_processes().keys() if isinstance(source, ListsProcesses) else present
        if not opening and present <= set(listed):
            return
        await asyncio.sleep(POLL_SECONDS)
