"""The interface of a running aggregator to HTTP and remote write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from aggregator.impairments import Impairments
from aggregator.jobs.service import JobService
from aggregator.load.shedding import Shedding
from aggregator.register.node_register import NodeRegister
from aggregator.store.executor import StoreExecutor
from alerts.message.picture_link import PictureLink
from alerts.notice import Delivery
from api.alerts import Alert, ChannelRow, Incident, TestReply
from api.evidence import EvidenceReply
from api.stats import Stats
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.supervision import ProgressMarks


class AlertStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the journal and the heartbeat since the start."""

    commits: int = 0
    commit_errors: int = 0
    commit_seconds: float = 0.0
    journal_ok: bool = True
    heartbeat_at: int | None = None
    """When the last ping was answered, ns since 1970."""
    heartbeat_failed: int | None = None
    """None without a heartbeat."""


class DeliveryView(Protocol):
    """Notifications and their deliveries, and the journal that holds them."""

    async def saved(self, seconds: float) -> bool:
        """Wait until all decisions are on disk; False when that takes too long."""

    async def history(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that are open or ended since a time (ns), newest first."""

    async def deliveries(
        self, since: int, limit: int, incident: str | None = None
    ) -> list[Delivery]:
        """Return deliveries made since a time (ns), newest first; all, or those of one incident."""

    async def evidence(self, key: str, incident: Incident | None) -> EvidenceReply | None:
        """Return the evidence of an incident, by its key where it is over for more than an hour; None
        where there is none."""

    async def picture(self, link: PictureLink, wall: int) -> bytes | None:
        """Return the picture, a PNG, that a signed link opens at a wall time (ns); None for any other."""

    def channels(self) -> list[ChannelRow]:
        """Return all channels with their state."""

    async def test(self, channel: str) -> TestReply:
        """Send a test notice to a channel now."""

    def alert_stats(self) -> AlertStats:
        """Return the counters of journal and heartbeat."""


class FlushBroadcast:
    """The number of the last flush of readings into the fleet. It wakes viewers that wait for the next; a
    slow viewer misses flushes and delays no other."""

    def __init__(self) -> None:
        self.number = 0
        self._next: asyncio.Future[None] | None = None

    def tick(self) -> None:
        """Count a flush, and wake all waiting viewers."""
        self.number += 1
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def after(self, number: int) -> int:
        """Wait until there was a later flush than `number`; return the number of the last."""
        while self.number <= number:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next)
        return self.number


class AggregatorView(Protocol):
    """The parts of an aggregator that HTTP reads and controls."""

    fleet: Fleet
    stats: Stats
    store: StoreExecutor
    cluster: str
    started_at: int
    """ns since 1970."""
    impairments: Impairments
    """The parts that do not work now."""
    marks: ProgressMarks
    """When each part last made progress."""
    shedding: Shedding
    """Work that is not done now because of the load."""
    flushes: FlushBroadcast
    """Wakes the viewers of the stream."""
    electrical: ElectricalService
    """Circuits, budgets and energy."""
    register: NodeRegister
    """The nodes that are expected, retired and renamed."""

    jobs: JobService
    """Jobs, their allocations and use."""

    @property
    def pipeline(self) -> AlertPipeline:
        """Rules, alerts, incidents, silences."""

    @property
    def delivery(self) -> DeliveryView:
        """Deliveries and channels."""

    def now(self) -> float:
        """The monotonic clock that the fleet's ages are counted with, seconds."""

    def wall(self) -> int:
        """The wall clock, ns since 1970."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts that are pending, firing or just resolved, worst first."""

    async def forget(self, node: str) -> bool:
        """Remove a node that is gone for good, and what the broker retained of it; return whether it was
        known. Its history stays. Raises `NodeError`, `BusError` or `ConfigError`."""

    def record_event(self, event: Event) -> None:
        """Add an event of the aggregator's own about a node to the store and the newest events. Raises
        `NodeError`."""

    def recent_events(self) -> Sequence[Event]:
        """The last events in memory, newest first, a thousand at most."""
