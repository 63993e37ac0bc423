"""Which incident an alert joins: an open one at the same place, or a new one.

Alerts of one rule in one group (a GPU, a node, a rack, a circuit, as the rule defines) are one
incident; so are alerts of other rules at that place, or on the same GPU, within a minute of the
last. Where the rule allows it, its alerts on other GPUs of the node join too, so that a fault of
eight GPUs at once is one incident.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from alerts.incidents.clock import SteadyClock
from alerts.incidents.index import IncidentIndex, worst
from alerts.incidents.places import Place, common, group, same_kind
from alerts.incidents.policy import NotificationTimings, RuleScope
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Severity

ACKNOWLEDGED_CALM = 3600.0
"""Seconds: an alert joins no acknowledged incident that has had no new alert for so long. It opens
another, which notifies again."""


class IncidentGrouping:
    """Assigns each alert that may be notified to an incident."""

    def __init__(
        self, index: IncidentIndex, clock: SteadyClock, timings: NotificationTimings
    ) -> None:
        self._index = index
        self._clock = clock
        self._timings = timings
        self._used: Counter[str] = Counter()
        """How many incidents there were of each group within these ten minutes."""
        self._bucket = -1

    def assign(self, tracked: TrackedAlert, withdrawn: Mapping[str, Sequence[str]]) -> None:
        """Add an alert to an incident. `withdrawn`: see `AlertSuppressor.withdrawn`."""
        alert = tracked.alert
        place = common(alert, self._index.policy(alert.rule).group)
        record = self._find(tracked, place) or self._adopted(tracked, place, withdrawn)
        if record is None:
            record = self.open(group(alert, place), place, alert.severity)
        elif record.key in withdrawn and not self._index.active(record):
            record.group = group(alert, record.place)
            record.new_cause = True
        self._join(tracked, record)

    def open(self, group: dict[str, str], place: Place, severity: Severity) -> IncidentRecord:
        """Open an incident."""
        clock = self._clock
        key, base = self._key(group)
        record = IncidentRecord(
            key=key,
            base=base,
            order=clock.order(),
            group=group,
            place=place,
            severity=severity,
            began=clock.wall,
            changed=clock.wall,
            opened=clock.time,
            joined=clock.time,
            wait_until=clock.time + self._wait(severity),
        )
        self._index.add_incident(record)
        return record

    def _find(self, tracked: TrackedAlert, place: Place) -> IncidentRecord | None:
        alert = tracked.alert
        places = [place, ("gpu", alert.gpu or "")]
        if self._index.policy(alert.rule).group is RuleScope.BURST:
            places.append(same_kind(alert))
        for at in dict.fromkeys(places):
            for record in self._index.open_at(at):
                if self._joins(tracked, place, record):
                    return record
        return None

    def _joins(self, tracked: TrackedAlert, place: Place, record: IncidentRecord) -> bool:
        if record.storming is not None:
            return False
        calm = self._clock.time - record.joined
        if record.ack is not None and calm > ACKNOWLEDGED_CALM:
            return False
        alike = tracked.alert.rule in record.rules and record.place == place
        return alike or calm <= self._timings.together

    def _adopted(
        self, tracked: TrackedAlert, place: Place, withdrawn: Mapping[str, Sequence[str]]
    ) -> IncidentRecord | None:
        """Return the oldest notified incident that had only consequences of this alert: it goes on
        as the cause's, so that nobody is paged twice."""
        if not withdrawn:
            return None
        below = set(self._index.consequences(tracked.alert.key))
        for key, lost in withdrawn.items():
            record = self._index.incidents[key]
            if record.closed is None and not self._index.active(record) and below >= set(lost):
                self._index.move(record, place)
                return record
        return None

    def _join(self, tracked: TrackedAlert, record: IncidentRecord) -> None:
        severity, clock = tracked.alert.severity, self._clock
        record.joined = clock.time
        record.changed = clock.wall
        record.severity = worst((record.severity, severity))
        if record.notified is None:
            record.wait_until = min(record.wait_until, clock.time + self._wait(severity))
        if tracked.alert.rule not in record.rules:
            record.rules = (*record.rules, tracked.alert.rule)
        self._index.join(tracked, record)

    def _wait(self, severity: Severity) -> float:
        timings = self._timings
        return timings.page_wait if severity is Severity.PAGE else timings.ticket_wait

    def _key(self, group: dict[str, str]) -> tuple[str, str]:
        """Return a key that was never used, and what it is made of. Two aggregators with the same
        input make the same key, by which the pager deduplicates."""
        bucket = self._clock.bucket
        if bucket != self._bucket:
            self._bucket = bucket
            self._used = Counter(
                record.base
                for record in self._index.incidents.values()
                if record.base.startswith(f"{bucket}/")
            )
        base = f"{bucket}/" + "/".join(f"{name}={value}" for name, value in sorted(group.items()))
        self._used[base] += 1
        digest = hashlib.sha256(f"{base}/{self._used[base]}".encode()).hexdigest()[:20]
        return f"{group['rule'][:100]}-{digest}", base
