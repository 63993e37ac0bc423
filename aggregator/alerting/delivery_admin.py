"""What goes out to people, for those who look at it: deliveries, channels, tests."""

from __future__ import annotations

import asyncio
import time

from aggregator.alerting.journal_writer import JournalWriter
from aggregator.view import AlertStats
from alerts.config import AlertsConfig
from alerts.delivery.heartbeat import Heartbeat
from alerts.delivery.outbox import ChannelHealth, Outbox, deliver_test
from alerts.journal.journal import Journal
from alerts.notice import Delivery
from alerts.notifiers.result import Delivered, Later
from api.alerts import ChannelRow, Incident, TestReply
from telemetry.errors import ConfigError


class DeliveryAdmin:
    """Journal and outbox, seen from outside (`aggregator.view.DeliveryView`)."""

    def __init__(
        self,
        config: AlertsConfig,
        cluster: str,
        journal: Journal,
        clerk: JournalWriter,
        outbox: Outbox,
        heartbeat: Heartbeat | None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._journal = journal
        self._outbox = outbox
        self._heartbeat = heartbeat
        self._clerk = clerk

    async def saved(self, seconds: float) -> bool:
        """Wait until all that was decided is on disk; False when that takes too long."""
        return await self._clerk.saved(seconds)

    async def history(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that are open or ended since a time (ns), newest first."""
        return await asyncio.to_thread(self._journal.incidents, since, limit)

    async def deliveries(
        self, since: int, limit: int, incident: str | None = None
    ) -> list[Delivery]:
        """Return deliveries made since a time (ns), newest first; all, or those of one incident."""
        return await asyncio.to_thread(self._journal.history, since, limit, incident)

    def channels(self) -> list[ChannelRow]:
        """Return all channels, and how they do."""
        return [_row(health) for health in self._outbox.health()]

    async def test(self, channel: str) -> TestReply:
        """Send a test notice to a channel now."""
        began = time.monotonic()
        try:
            answer = await deliver_test(self._config, channel, cluster=self._cluster)
        except ConfigError as error:
            return TestReply(channel, False, 0.0, str(error))
        took = round(time.monotonic() - began, 3)
        match answer:
            case Delivered():
                return TestReply(channel, True, took)
            case Later(reason, _):
                return TestReply(channel, False, took, reason)
            case refused:
                return TestReply(channel, False, took, refused.reason)

    def figures(self) -> AlertStats:
        """Return what journal and heartbeat say of themselves."""
        clerk, beat = self._clerk, None if self._heartbeat is None else self._heartbeat.tally
        return AlertStats(
            commits=clerk.commits,
            commit_errors=clerk.errors,
            commit_seconds=clerk.seconds,
            journal_ok=not self._journal.trouble,
            heartbeat_at=None if beat is None else beat.last_delivered,
            heartbeat_failed=None if beat is None else beat.failed,
        )


def _row(health: ChannelHealth) -> ChannelRow:
    return ChannelRow(
        name=health.name,
        kind=health.kind,
        waiting=health.waiting,
        oldest_seconds=health.oldest_seconds,
        delivered=health.delivered,
        failed=health.failed,
        refused=health.refused,
        expired=health.expired,
        superseded=health.superseded,
        failing=health.failing,
        last_error=health.last_error,
        last_delivered=health.last_delivered,
    )
