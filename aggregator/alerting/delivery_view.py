"""Notifications as those see them who show them: what alerting has decided, sent and kept."""

from __future__ import annotations

from typing import Protocol

import msgspec

from alerts.message.picture_link import PictureLink
from alerts.notice import Delivery
from api.alerts import ChannelRow, Incident, TestReply
from api.evidence import EvidenceReply


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

    async def deliveries(self, since: int, limit: int, incident: str | None = None) -> list[Delivery]:
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
