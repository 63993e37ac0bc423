"""The alerts that an Alertmanager must know: those that fire, and those that have just ended.

Pure. An Alertmanager identifies an alert by its labels alone; an alert whose labels change is, for
it, one that ends and another that begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from alerts.message.page import Links
from alerts.notifiers.labels import fingerprint, identity_of, remarks_of
from api.alerts import Alert, AlertState
from telemetry.text import rfc3339
from telemetry.text.decoders import of_json


class ActiveAlert(msgspec.Struct, kw_only=True):
    """An alert as the Alertmanager knows it: a set of labels."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    """Set at its end; while it fires they are made from the alert."""
    starts: int
    """ns since 1970."""
    ends: int | None = None
    """None while it fires."""
    forget: int = 0
    """ns since 1970: until when its end is sent."""
    version: int = 0
    """Changes when it begins, ends or begins again."""


class AlertmanagerState:
    """Alerts to send, by fingerprint."""

    def __init__(self, links: Links, keep_seconds: float, state: bytes | None) -> None:
        self._links = links
        self._keep = round(keep_seconds * 1e9)
        self._version = 0
        self._alerts: dict[str, Alert] = {}
        """Firing alerts by key."""
        self._marks: dict[str, str] = {}
        """Fingerprint of each firing alert, by key."""
        self.entries: dict[str, ActiveAlert] = _restored(state)
        self.unsaved = False
        """Whether the state has changed since the last `encode`."""

    def update(self, alerts: Mapping[str, Alert], now: int) -> bool:
        """Set all alerts that are notified now, by key; return whether any began or ended."""
        before = self._version
        for key, alert in alerts.items():
            if alert.state is AlertState.FIRING:
                known = self._alerts.get(key)
                self._alerts[key] = alert
                if known is None or _differ(known, alert):
                    self._begin(alert, now)
            elif alert.state is AlertState.RESOLVED and key not in self._alerts:
                self._end_unseen(alert, now)
        for key in [key for key in self._alerts if not _fires(alerts.get(key))]:
            alert = self._alerts.pop(key)
            end = alerts.get(key)
            self._end(self._marks.pop(key), end or alert, end.changed if end else now, now)
        return self._version != before

    def forget(self, now: int) -> None:
        """Remove ends that were sent for long enough."""
        for mark in [mark for mark, one in self.entries.items() if one.ends and one.forget <= now]:
            del self.entries[mark]
            self.unsaved = True

    def bodies(self, marks: Iterable[str], now: int, ahead: int) -> list[dict[str, Any]]:
        """Return the bodies to post; a firing alert ends by itself `ahead` ns from now."""
        alerts = {mark: self._alerts[key] for key, mark in self._marks.items()}
        return [self._body(self.entries[mark], alerts.get(mark), now + ahead) for mark in marks]

    def encode(self) -> bytes:
        """Return the state that must survive a restart: ends that are still being sent."""
        self.unsaved = False
        return msgspec.json.encode({m: one for m, one in self.entries.items() if one.ends})

    def _begin(self, alert: Alert, now: int) -> None:
        identity = identity_of(alert, self._links.cluster)
        mark = fingerprint(identity)
        before = self._marks.get(alert.key)
        if before is not None and before != mark:
            self._end(before, alert, now, now)
        self._marks[alert.key] = mark
        known = self.entries.get(mark)
        if known is not None and known.ends is None and known.starts == alert.since:
            return
        self.unsaved |= known is not None
        self._version += 1
        self.entries[mark] = ActiveAlert(labels=identity, starts=alert.since, version=self._version)

    def _end(self, mark: str, alert: Alert, at: int, now: int) -> None:
        entry = self.entries[mark]
        self._version += 1
        entry.version = self._version
        entry.annotations = remarks_of(alert, self._links)
        entry.ends = max(at, entry.starts)  # an end before the beginning is refused
        entry.forget = now + self._keep
        self.unsaved = True

    def _end_unseen(self, alert: Alert, now: int) -> None:
        """Add the end of an alert that this process has not seen firing: it began before a restart."""
        identity = identity_of(alert, self._links.cluster)
        mark = fingerprint(identity)
        if mark not in self.entries and alert.changed + self._keep > now:
            self.entries[mark] = ActiveAlert(labels=identity, starts=alert.since)
            self._end(mark, alert, alert.changed, now)

    def _body(self, entry: ActiveAlert, alert: Alert | None, ahead: int) -> dict[str, Any]:
        annotations = entry.annotations if alert is None else remarks_of(alert, self._links)
        return {
            "labels": entry.labels,
            "annotations": annotations,
            "startsAt": rfc3339(entry.starts),
            "endsAt": rfc3339(ahead if entry.ends is None else entry.ends),
            "generatorURL": self._links.external,
        }


def _differ(one: Alert, other: Alert) -> bool:
    return (one.labels, one.severity, one.since) != (other.labels, other.severity, other.since)


def _fires(alert: Alert | None) -> bool:
    return alert is not None and alert.state is AlertState.FIRING


def _restored(state: bytes | None) -> dict[str, ActiveAlert]:
    if not state:
        return {}
    try:
        return of_json(dict[str, ActiveAlert]).decode(state)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}  # of a later version; the Alertmanager lets these end by itself
