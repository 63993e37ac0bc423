"""Alerting on a stage: a fleet that a test drives, real journal, incident manager, outbox and pager."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.alerting.service import AlertingService
from aggregator.config import AggregatorConfig
from alerts.config import AlertsConfig
from alerts.incidents.policy import NotificationTimings
from alerts.rules.rule import Rule, load
from api.fleet import StoredEvent
from api.stats import Stats
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import inventory

RULES = """
[[rule]]
name = "hot"
when = { type = "above", metric = "gpu_temperature_celsius", level = 88 }
severity = "page"
remediation = "facility"
summary = "{where} is at {value}"
description = "Let it cool."
runbook = "hot"

[[rule]]
name = "off_the_bus"
when = { type = "event", kinds = ["xid"], xids = [79] }
keep = 600
severity = "page"
remediation = "reboot"
summary = "{where} is off the bus"
description = "Reboot {node}."
runbook = "off-the-bus"

[[rule]]
name = "warm"
when = { type = "above", metric = "gpu_temperature_celsius", level = 80 }
severity = "info"
remediation = "facility"
summary = "{where} is warm"
description = "It is for nobody."
runbook = "warm"
"""
_BLOCK = SCHEMA.blocks[GPU_FAST]
_TEMPERATURE = _BLOCK.names.index("gpu_temperature_celsius")


def rules(folder: Path) -> Sequence[Rule]:
    """The rules above, read from a file as an operator's are."""
    path = folder / "rules.toml"
    path.write_text(RULES)
    return load([path], shipped=False)


class Scene:
    """What a test moves: one node of two GPUs, events, the store, the bus."""

    def __init__(self, folder: Path, channel: dict[str, Any] | None = None, **more: Any) -> None:
        self.folder = folder
        self.stats = Stats(bus_connected=True, bus_connects=1)
        self.fleet = Fleet()
        self.node = self.fleet.place(inventory("n1"))
        self.events: list[Event] = []
        self.stored: list[StoredEvent] = []
        self.store_error: Exception | None = None
        self.snapshots: Callable[[], Sequence[PowerSnapshot]] = tuple
        self.bus: dict[str, bytes] = {}
        self.published = 0
        channels = {} if channel is None else {"oncall": channel}
        self.config = AggregatorConfig(
            data_dir=folder / "data",
            rule_seconds=0.1,
            alerts=AlertsConfig(channels=channels, group_wait_seconds=0, **more),
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.alerting = self._new()

    def _new(self) -> AlertingService:
        timings = NotificationTimings(page_wait=0, settle=0.2)
        return AlertingService(self.config, rules(self.folder), self.stats, timings)

    def set(self, *temperatures: float) -> None:
        """Read the GPUs."""
        gauges = np.full((2, len(_BLOCK.gauges)), 1.0, np.float32)
        gauges[:, _TEMPERATURE] = temperatures
        counters = np.zeros((2, len(_BLOCK.counters)))
        now = time.monotonic()
        self.fleet.store(GPU_FAST, self.node.rows[_BLOCK.table], gauges, counters, now)
        self.fleet.set_intervals(self.node, 1000.0, 1000.0)  # nothing grows stale while a test waits
        self.node.seen = now
        self.alerting.note_readings()

    def xid(self, number: int, gpu: int = 0, xid: int = 79) -> Event:
        """Make an XID of a GPU."""
        return Event(id=f"7-{number}", node="n1", at=time.time_ns(), kind="xid", gpu=f"GPU-n1-{gpu}", data={"xid": xid})

    def happen(self, event: Event) -> None:
        """Let the bus bring an event."""
        self.events.append(event)
        self.stored.append(StoredEvent(event, time.time_ns()))
        self.alerting.note_event()

    def drain_events(self) -> list[Event]:
        """As the aggregator's ingest."""
        events, self.events = self.events, []
        return events

    def drain_sample_times(self) -> npt.NDArray[np.int64]:
        """As the aggregator's ingest."""
        return np.zeros(0, np.int64)

    async def stored_events(self, start: int, end: int, *_: object) -> list[StoredEvent]:
        """The events, newest first."""
        if self.store_error is not None:
            raise self.store_error
        return [one for one in reversed(self.stored) if start <= one.event.at < end]

    def publish(self, topic: str, payload: bytes) -> bool:
        """A broker that retains."""
        self.published += 1
        if payload:
            self.bus[topic] = payload
        else:
            self.bus.pop(topic, None)
        return True

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[AlertingService]:
        """A life: from the start of a process to its planned end."""
        self.alerting = self._new()
        async with self.alerting.opened(self.fleet, self.stored_events):
            task = asyncio.create_task(self.alerting.run(self.fleet, self, lambda *_: self.snapshots(), self.publish))
            try:
                yield self.alerting
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled(), task.exception()
