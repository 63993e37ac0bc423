"""Which incident an alert joins: an open one at the same place, or a new one.

Alerts of one rule in one group (a GPU, a node, a rack, a circuit, as the rule defines) are one
incident; so are alerts of other rules at that place, or on the same GPU, within a minute of the
last. Where the rule allows it, its alerts on other GPUs of the node join too, so that a fault of
eight GPUs at once is one incident.

A page that a person does not know joins no incident that was notified or acknowledged: it would ring
nobody, for receivers call a person once for an incident. It opens another. Only what follows within
seconds is a cascade, and joins.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from alerts.incidents.clock import SteadyClock
from alerts.incidents.index import IncidentIndex, worst
from alerts.incidents.lifecycle import key_of_all
from alerts.incidents.places import Place, common, group, moved, own, paged_node, same_kind
from alerts.incidents.policy import NotificationTimings, RuleScope
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Alert, Remediation, Severity
from telemetry.runtime.backoff import STEADY, Backoff

ACKNOWLEDGED_CALM = 3600.0
"""Seconds: an alert joins no acknowledged incident that has had no new alert for so long. It opens
another, which notifies again."""
_WIDE = {RuleScope.RACK, RuleScope.CIRCUIT, RuleScope.SWITCH, RuleScope.SERVER, RuleScope.RULE}


class IncidentGrouping:
    """Assigns each alert that may be notified to an incident."""

    def __init__(self, index: IncidentIndex, clock: SteadyClock, timings: NotificationTimings) -> None:
        self._index = index
        self._clock = clock
        self._timings = timings
        self._again = Backoff(timings.again, timings.more_every, STEADY)
        """Waits of the third page of a rule at a place, and of those after it."""
        self._used: Counter[str] = Counter()
        """How many incidents there were of each group within these ten minutes."""
        self._bucket = -1

    def assign(self, tracked: TrackedAlert) -> None:
        """Add an alert to an incident."""
        alert = tracked.alert
        place = common(alert, self._index.policy(alert.rule).group)
        record = self._find(tracked, place)
        if record is None:
            wait = self._wait_again(alert, place)
            record = self.open(group(alert, place), place, alert.severity, wait)
        self._join(tracked, record)

    def open(self, group: dict[str, str], place: Place, severity: Severity, wait: float = 0.0) -> IncidentRecord:
        """Open an incident that is notified after `wait` seconds, or after its severity's wait."""
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
            wait_until=clock.time + max(wait, self._wait(severity)),
            held=wait > 0,
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
                elsewhere = at[0] == "gpu" and self._was_elsewhere(alert, record)
                if not elsewhere and self._joins(tracked, place, record):
                    return record
        if alert.node and alert.severity is Severity.PAGE:
            for record in self._index.open_at(paged_node(alert)):
                if self._cascades(alert, record):
                    return record
        return None

    def _joins(self, tracked: TrackedAlert, place: Place, record: IncidentRecord) -> bool:
        if record.storming is not None or (record.held and tracked.alert.rule not in record.rules):
            return False
        calm = self._clock.time - record.joined
        if record.ack is not None and calm > ACKNOWLEDGED_CALM:
            return False
        if self._is_known(record):
            if self._must_ring(tracked.alert, record):
                return self._spreads(tracked.alert, record)
            if tracked.alert.severity is Severity.PAGE:
                return True
        alike = tracked.alert.rule in record.rules and record.place == place
        return alike or calm <= self._timings.together

    def _was_elsewhere(self, alert: Alert, record: IncidentRecord) -> bool:
        """Whether the incident is of the time when this board was in another node or slot: its fault here
        is news."""
        theirs = [one.alert for one in self._index.members(record) if one.alert.gpu == alert.gpu]
        return all(moved(before, alert) for before in theirs)

    @staticmethod
    def _is_known(record: IncidentRecord) -> bool:
        """Whether a person knows an incident, so that a page that joins it rings nobody."""
        return record.notified is not None or record.ack is not None

    def _must_ring(self, alert: Alert, record: IncidentRecord) -> bool:
        """Whether an alert must be heard of beside an incident that a person knows: a page that it has not named; a
        ticket of another rule beside a ticket, on another device or with a worse remedy; a worse fault of the same
        rule. Beside a page a ticket is a consequence."""
        if alert.severity is Severity.PAGE or self._rings_beside(alert):
            return not self._is_named(alert, record)
        if record.severity is not Severity.TICKET or alert.rule in record.rules:
            return False
        members = [one.alert for one in self._index.members(record)]
        worst = max((_remedy(one) for one in members), default=-1)
        return _remedy(alert) > worst or all(_device(one) != _device(alert) for one in members)

    def _rings_beside(self, alert: Alert) -> bool:
        """Whether a ticket is heard even beside a page: a worse fault or a further unit of its rule. The first unit of
        a reading is no more news than the reading."""
        first = bool(alert.units) and key_of_all(alert) == alert.key
        return bool(alert.faults) and not (first and not self._index.policy(alert.rule).edge)

    def _pages(self, record: IncidentRecord) -> bool:
        """Whether a page of an incident still fires: a ticket may keep it open for weeks."""
        return any(one.alert.severity is Severity.PAGE for one in self._index.active(record))

    def _is_named(self, alert: Alert, record: IncidentRecord) -> bool:
        """Whether an incident has an alert of the same rule on the same device: another link of a
        GPU is no news."""
        named = {(one.alert.rule, _device(one.alert)) for one in self._index.members(record)}
        return (alert.rule, _device(alert)) in named

    def _spreads(self, alert: Alert, record: IncidentRecord) -> bool:
        """Whether a page is part of the cascade that an incident, opened moments ago, is about: the
        same rule, or the same GPU."""
        timings = self._timings
        wide = self._index.policy(alert.rule).group in _WIDE and alert.rule in record.rules
        window = timings.cascade_wide if wide else timings.cascade
        return record.ack is None and self._clock.time - record.opened <= window

    def _cascades(self, alert: Alert, record: IncidentRecord) -> bool:
        """Whether a page is part of the cascade of an incident elsewhere on its node: one rule is the
        cause of the other, although perhaps not at this place."""
        if record.storming is not None or record.ack is not None or record.held:
            return False
        if record.severity is not Severity.PAGE:
            return False
        recent = self._clock.time - record.opened <= self._timings.cascade
        return recent and any(alert.rule != rule and self._index.related(alert.rule, rule) for rule in record.rules)

    def _wait_again(self, alert: Alert, place: Place) -> float:
        """Return how long the next page of a rule at a place waits, to collect what comes meanwhile:
        a fault that spreads slowly is a few pages, each after twice the time of the last."""
        if alert.severity is not Severity.PAGE:
            return 0.0
        before = sum(
            record.storming is None and self._is_known(record) and alert.rule in record.rules and self._pages(record)
            for record in self._index.open_at(place)
            if record.place == place
        )
        return self._again.after(before - 1)

    def _join(self, tracked: TrackedAlert, record: IncidentRecord) -> None:
        severity, clock = tracked.alert.severity, self._clock
        record.joined = clock.time
        record.changed = clock.wall
        record.severity = worst((record.severity, severity))
        if record.notified is None and not record.held:
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
                record.base for record in self._index.incidents.values() if record.base.startswith(f"{bucket}/")
            )
        base = f"{bucket}/" + "/".join(f"{name}={value}" for name, value in sorted(group.items()))
        self._used[base] += 1
        digest = hashlib.sha256(f"{base}/{self._used[base]}".encode()).hexdigest()[:20]
        return f"{group['rule'][:100]}-{digest}", base


_REMEDIES = (Remediation.RESET, Remediation.REBOOT, Remediation.COLD_START, Remediation.REPLACE)


def _remedy(alert: Alert) -> int:
    """Return how much the remedy of an alert costs, among those of a GPU and its node."""
    return _REMEDIES.index(alert.remediation) if alert.remediation in _REMEDIES else -1


def _device(alert: Alert) -> Place:
    """Return the GPU of an alert, or what else it is about: of several faults at one place, its own."""
    if alert.faults:
        return ("fault", alert.key)
    return ("gpu", alert.gpu) if alert.gpu is not None else own(alert)
