"""Which notices are sent of an incident, and when: trigger, updates, reminders, resolve."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from alerts.incidents.clock import SteadyClock
from alerts.incidents.flap import HOUR, recurs
from alerts.incidents.index import SEVERITIES, IncidentIndex, worst
from alerts.incidents.plain import plain_notice
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import IncidentRecord, TrackedAlert
from alerts.incidents.titles import incident_of
from alerts.notice import Notice
from api.alerts import Action, Alert, AlertState, NotificationState, Severity
from telemetry.runtime.isolation import FIRST_RETRY, Isolation

NEVER = float("inf")


class NotificationScheduler:
    """Evaluates incidents that have changed or are due, and makes their notices."""

    def __init__(
        self, index: IncidentIndex, clock: SteadyClock, timings: NotificationTimings, aside: Isolation
    ) -> None:
        """`aside`: notes the incidents that raise; the alerts of one that was not notified yet are
        notified by themselves."""
        self.aside = aside
        self._index = index
        self._clock = clock
        self._timings = timings
        self._due = {key: 0.0 for key, record in index.incidents.items() if record.closed is None}
        """When each open incident must be evaluated."""
        self._closed = [(record.closed, key) for key, record in index.incidents.items() if record.closed is not None]
        heapq.heapify(self._closed)
        self._notices: list[Notice] = []
        self._ready: list[IncidentRecord] = []

    def continue_from(self, before: NotificationScheduler) -> None:
        """Take over the notices that were made and not drained."""
        self._notices = before._notices

    def evaluate(self) -> None:
        """Evaluate all incidents that have changed or are due."""
        index, time = self._index, self._clock.time
        keys = dict.fromkeys(key for key, due in self._due.items() if due <= time)
        keys.update(index.changed_incidents())
        for key in list(keys):
            found = index.incidents.get(key)
            if found is not None and found.storm:
                keys[found.storm] = None
        records = [index.incidents[key] for key in keys if key in index.incidents]
        for record in sorted(records, key=lambda one: one.order):
            if record.closed is None:
                self.reschedule(record)
        while self._closed and time - self._closed[0][0] >= HOUR:
            index.remove_incident(heapq.heappop(self._closed)[1])

    def next_due(self) -> float:
        """Return when the next incident must be evaluated."""
        return min(self._due.values(), default=NEVER)

    def reschedule(self, record: IncidentRecord) -> None:
        """Evaluate an incident, and note when it is due next."""
        part, time = f"incident/{record.key}", self._clock.time
        if not self.aside.due(part, time):
            return
        try:
            self._due[record.key] = self._evaluate(record)
        except Exception as error:
            self.failed(record, error)
            return
        if len(self.aside):
            self.aside.works(part)

    def failed(self, record: IncidentRecord, error: Exception) -> None:
        """Set an incident aside after an exception, and notify its alerts by themselves."""
        part, time = f"incident/{record.key}", self._clock.time
        if part not in self.aside and (record.notified is None or record.notified_at == time):
            for tracked in self._index.members(record):
                if tracked.firing and tracked.state is NotificationState.NOTIFIED:
                    self.add_plain(tracked.alert)
        self.aside.fail(part, error, time)
        self._due[record.key] = time + FIRST_RETRY

    def add_plain(self, alert: Alert) -> None:
        """Make a notice of an alert that can't be grouped or worded as usual."""
        if alert.state is AlertState.FIRING and alert.severity is not Severity.INFO:
            self._notices.append(plain_notice(alert, self._clock.wall))

    def drain_notices(self) -> tuple[Notice, ...]:
        """Return the notices that were made since the last call."""
        notices, self._notices = self._notices, []
        return tuple(notices)

    def drain_ready(self) -> list[IncidentRecord]:
        """Return the incidents whose first notification is due; the storm limiter makes it."""
        ready, self._ready = self._ready, []
        return ready

    # -- What is due -----------------------------------------------------------------------------

    def _evaluate(self, record: IncidentRecord) -> float:
        """Make the notices that are due; return when to evaluate again."""
        active = self._index.active(record)
        audible = [one for one in active if one.state is NotificationState.NOTIFIED]
        storm = self._index.incidents.get(record.storm)
        if storm is not None and worse(record.severity, storm.severity):
            self._index.leave_storm(record)
        if record.notified is None and record.storming is not None:  # the storm limiter sends its page
            return NEVER if active else self._quiet(record)
        if record.notified is None and not record.storm:
            return self._first(record, active, audible)
        if not active:
            return self._quiet(record)
        record.quiet_since = None
        return NEVER if record.storm else self._further(record, active, audible)

    def _first(self, record: IncidentRecord, active: Sequence[TrackedAlert], audible: Sequence[TrackedAlert]) -> float:
        if self._clock.time < record.wait_until and self._index.size(record):
            return record.wait_until
        if not active:
            self.finish(record)
        elif audible:
            record.severity = worst(one.alert.severity for one in audible)
            self._ready.append(record)
        return NEVER

    def _quiet(self, record: IncidentRecord) -> float:
        time = self._clock.time
        if record.quiet_since is None:
            record.quiet_since = time
        over = record.quiet_since + self._settle(record, record.quiet_since)
        if time < over:
            return over
        self.finish(record)
        return NEVER

    def _settle(self, record: IncidentRecord, quiet: float) -> float:
        again = any(recurs(one, quiet) for one in self._index.members(record))
        return self._timings.settle_recurring if again else self._timings.settle

    def _further(
        self, record: IncidentRecord, active: Sequence[TrackedAlert], audible: Sequence[TrackedAlert]
    ) -> float:
        """Make the next notice of an incident that was notified and goes on."""
        time = self._clock.time
        if record.ack_until is not None and record.ack_until <= time:
            record.ack, record.ack_until, record.repeat_at = None, None, time
            self.resume_escalation(record)
            record.add_event(self._clock.wall, "lapsed")
        due = NEVER if record.ack_until is None else record.ack_until
        if not audible:
            return due
        severity = worst(one.alert.severity for one in audible)
        if record.notified is None or worse(severity, record.notified):
            record.ack, record.ack_until = None, None
            self.resume_escalation(record)
            self.trigger(record, "worse", active)
        elif record.ack is None and record.repeat_at is not None and record.repeat_at <= time:
            self.trigger(record, "repeat", active)
        elif any(one.flaps for one in active) and not record.notified_flapping:
            self.update(record, "flapping", active)
        if record.ack is None and record.repeat_at is not None:
            due = min(due, record.repeat_at)
        return min(due, self._escalate(record), self._resized(record, active))

    def _escalate(self, record: IncidentRecord) -> float:
        """Make the notices of escalation that are due; return when the next one is."""
        steps = self._timings.escalate
        if record.ack is not None or record.escalates_from is None:
            return NEVER
        for step in range(record.escalated, len(steps)):
            due = record.escalates_from + steps[step]
            if self._clock.time < due:
                return due
            record.escalated = step + 1
            self._add_notice(record, Action.TRIGGER, "escalated", step + 1)
        return NEVER

    def resume_escalation(self, record: IncidentRecord) -> None:
        """Count the time to the next step of escalation from now: an acknowledgement has ended."""
        if record.escalates_from is not None:
            done = self._timings.escalate[: record.escalated]
            record.escalates_from = self._clock.time - max(done, default=0.0)

    def _resized(self, record: IncidentRecord, active: Sequence[TrackedAlert]) -> float:
        """Make an update when the number of alerts has changed; return when it is due."""
        if record.storming is not None:
            return NEVER
        firing, total = len(active), self._index.size(record)
        if (firing, total) == (record.notified_firing, record.notified_total):
            return NEVER
        if self._clock.time < record.next_update:
            return record.next_update
        more = total > record.notified_total or firing > record.notified_firing
        self.update(record, "more" if more else "fewer", active)
        return NEVER

    # -- Notices ---------------------------------------------------------------------------------

    def trigger(self, record: IncidentRecord, reason: str, active: Sequence[TrackedAlert]) -> None:
        """Make a notice that pages."""
        time, timings = self._clock.time, self._timings
        audible = (one.alert.severity for one in active if one.state is NotificationState.NOTIFIED)
        record.notified = worst([*audible, record.notified or record.severity])
        if reason != "repeat":
            record.notified_at = time
        if record.notified is Severity.PAGE and record.escalates_from is None:
            record.escalates_from = time
        page = record.severity is Severity.PAGE
        every = timings.repeat_page if page else timings.repeat_ticket
        record.repeat_at = time + every if every else None
        record.next_update = max(record.next_update, time + timings.ticket_wait)
        self._notify(record, Action.TRIGGER, reason, active)

    def update(self, record: IncidentRecord, reason: str, active: Sequence[TrackedAlert]) -> None:
        """Make a notice for channels that show how an incident develops."""
        record.next_update = self._clock.time + self._timings.more_every
        self._notify(record, Action.UPDATE, reason, active)

    def acknowledge(self, record: IncidentRecord) -> None:
        """Make the notice that somebody has acknowledged an incident."""
        self._add_notice(record, Action.ACKNOWLEDGE, "acknowledged")

    def finish(self, record: IncidentRecord, reason: str = "resolved") -> None:
        """Close an incident, and make a notice of it if any was sent before. One whose last alert ended
        because its node was removed did not resolve: it is `forgotten`; or `moved`, where another member of a
        cluster of aggregators has the node now and nobody is to be told."""
        if reason == "resolved":
            last = max(self._index.members(record), key=lambda one: one.alert.changed, default=None)
            reason = (last.alert.ended if last is not None else "") or reason
        record.ended, record.closed = self._clock.wall, self._clock.time
        record.changed = self._clock.wall
        record.add_event(self._clock.wall, "ended", why=reason)
        if record.notified is not None and reason != "moved":
            self._add_notice(record, Action.RESOLVE, reason)
        self._index.close(record, incident_of(record, self._index))
        self._due.pop(record.key, None)
        heapq.heappush(self._closed, (record.closed, record.key))

    def _notify(self, record: IncidentRecord, action: Action, reason: str, active: Sequence[TrackedAlert]) -> None:
        record.notified_firing, record.notified_total = len(active), self._index.size(record)
        record.notified_flapping = record.notified_flapping or any(one.flaps for one in active)
        record.changed = self._clock.wall
        self._add_notice(record, action, reason)

    def _add_notice(self, record: IncidentRecord, action: Action, reason: str, escalation: int = 0) -> None:
        record.notices += 1
        if action in {Action.TRIGGER, Action.UPDATE}:  # the other two have an event of their own
            record.add_event(self._clock.wall, "told", why=reason)
        incident = incident_of(record, self._index)
        record.title = incident.title
        self._notices.append(
            Notice(
                id=f"{record.key}.{record.notices}",
                action=action,
                incident=incident,
                at=self._clock.wall,
                reason=reason,
                escalation=escalation,
            )
        )


def worse(one: Severity, other: Severity) -> bool:
    """Whether one severity is worse than another."""
    return SEVERITIES.index(one) < SEVERITIES.index(other)
