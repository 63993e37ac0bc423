"""Incidents as retained messages on MQTT, for screens and other programs.

`kilowatch/1/<cluster>/alerts/<key>/state` is JSON while an incident is open and for a quarter of an
hour after its end; then the retained message is cleared by an empty one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from aggregator.mqtt.retained import RetainedTopics
from api.alerts import Incident, IncidentNote, Severity
from telemetry.wire.topics import ROOT, state_topic

SHOWN = 900.0
"""Seconds for which an incident that is over stays retained."""


class IncidentTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The retained message of an incident."""

    by: str
    """The aggregator that published it: its shards, or `all`."""
    key: str
    state: str
    """`firing`, `acknowledged` or `resolved`."""
    severity: Severity
    title: str
    group: dict[str, str]
    began: int
    """ns since 1970."""
    changed: int
    ended: int | None
    firing: int
    """Number of its alerts that fire now."""
    total: int
    acknowledged: IncidentNote | None


class IncidentTopics:
    """Publishes the incidents of an aggregator."""

    def __init__(self, cluster: str, shards: Iterable[str]) -> None:
        self._cluster = cluster
        self._by = ",".join(shards) or "all"
        self.states = RetainedTopics(f"{ROOT}/{cluster}/alerts/", self._by)
        self._over: deque[tuple[float, str, int]] = deque()
        self._ends: dict[str, int] = {}

    def show(self, incidents: Iterable[Incident], now: float) -> None:
        """Update the messages of incidents, and clear those that ended long ago."""
        for incident in incidents:
            topic = state_topic(self._cluster, "alerts", incident.key)
            self.states.put(topic, msgspec.json.encode(self._message(incident)))
            if incident.ended is None:
                self._ends.pop(topic, None)
            elif self._ends.get(topic) != incident.ended:
                self._ends[topic] = incident.ended
                self._over.append((now, topic, incident.ended))
        while self._over and now - self._over[0][0] > SHOWN:
            _, topic, ended = self._over.popleft()
            if self._ends.get(topic) == ended:
                del self._ends[topic]
                self.states.clear(topic)

    def _message(self, incident: Incident) -> IncidentTopic:
        state = "firing" if incident.acknowledged is None else "acknowledged"
        return IncidentTopic(
            by=self._by,
            key=incident.key,
            state=state if incident.ended is None else "resolved",
            severity=incident.severity,
            title=incident.title,
            group=incident.group,
            began=incident.began,
            changed=incident.changed,
            ended=incident.ended,
            firing=incident.firing,
            total=incident.total,
            acknowledged=incident.acknowledged,
        )
