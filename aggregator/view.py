"""The interface of a running aggregator to HTTP and remote write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from aggregator.store.executor import StoreExecutor
from alerts.notice import Delivery
from api.alerts import Alert, ChannelRow, Incident, TestReply
from api.stats import Stats
from telemetry.devices import Event
from telemetry.fleet import Fleet


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

    def channels(self) -> list[ChannelRow]:
        """Return all channels with their state."""

    async def test(self, channel: str) -> TestReply:
        """Send a test notice to a channel now."""

    def alert_stats(self) -> AlertStats:
        """Return the counters of journal and heartbeat."""


class AggregatorView(Protocol):
    """The parts of an aggregator that HTTP reads and controls."""

    fleet: Fleet
    stats: Stats
    store: StoreExecutor
    cluster: str
    started_at: int
    """ns since 1970."""
    electrical: ElectricalService
    """Circuits, budgets and energy."""

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

    def recent_events(self) -> Sequence[Event]:
        """The last events in memory, newest first, a thousand at most."""

    def subscribe(self) -> TickQueue:
        """Return a queue that gets a token after every flush; for the WebSocket."""


class TickQueue(Protocol):
    """Wakes a viewer once a flush; slow viewers miss ticks instead of holding up ingest."""

    async def wait(self) -> int:
        """Wait for the next flush after the last one seen; returns its number."""

    def close(self) -> None:
        """Stop listening."""
