"""Records of alert quality, as the journal stores them; they outlive the incidents that they are of."""

from __future__ import annotations

import msgspec

from api.alerts import IncidentNote, Severity

MOST_ALERTS = 20
"""Alerts that are kept of one notification."""


class SentAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of a notification, with what replaying its history needs."""

    key: str
    rule: str
    since: int
    """When its condition was first true, ns since 1970."""
    fired: int
    """When it began to fire."""


class QualityRecord(msgspec.Struct, kw_only=True):
    """A new page or ticket: a notification that asks a person to act. Reminders are none."""

    id: str
    """That of the notice."""
    incident: str
    rule: str
    """Rule of the alert for which it was sent."""
    severity: Severity
    title: str
    at: int
    """When it was sent, ns since 1970."""
    alerts: tuple[SentAlert, ...] = ()
    acknowledged: int | None = None
    """When a person acknowledged it."""
    ended: int | None = None
    """When the last of its incident's alerts resolved; None while it goes on."""
    end: str = ""
    """How its incident ended: `resolved`, `merged` or `forgotten`."""
    flapping: bool = False
    false: IncidentNote | None = None
    """Who marked it as false, when and why."""


class SilencedCount(msgspec.Struct, kw_only=True):
    """Alerts of a rule that began on one day while a silence or maintenance window held them back."""

    rule: str
    day: int
    """Days since 1970, in UTC."""
    count: int = 0


class QualityStart(msgspec.Struct, frozen=True, kw_only=True):
    """When the recording of alert quality began."""

    at: int
    """ns since 1970."""


class QualityMemory(msgspec.Struct, kw_only=True):
    """Records of alert quality, as the journal returns them."""

    start: QualityStart | None = None
    """None before the first step."""
    sent: list[QualityRecord] = []
    silenced: list[SilencedCount] = []
