"""The incident manager: opens, groups, suppresses and closes incidents, and makes their notices.

Pure: `now` (monotonic seconds) and `wall_ns` (ns since 1970) are arguments of every call, one after
the other from one thread. Every call returns `IncidentChanges`; `alerts.journal.journal` stores them,
and only what is stored is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from alerts.incidents.actions import record_of, required, silence_of, window_of
from alerts.incidents.clock import SteadyClock, clock_of
from alerts.incidents.grouping import IncidentGrouping
from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.lifecycle import AlertLifecycle, alerts_of, key_of_all
from alerts.incidents.notification_schedule import NotificationScheduler
from alerts.incidents.policy import DEFAULT_TIMINGS, NotificationTimings, RulePolicy, check_inhibitions
from alerts.incidents.shared import Traits
from alerts.incidents.state import (
    IncidentChanges,
    IncidentMemory,
    IncidentRecord,
    ManagerClock,
    RecordKey,
    SilenceWindow,
    TrackedAlert,
)
from alerts.incidents.storm import StormLimiter
from alerts.incidents.suppression import AlertSuppressor, end_window
from alerts.incidents.titles import incident_of
from api.alerts import Alert, AlertState, Incident, IncidentEvent, IncidentNote, Matcher, NotificationState, Silence
from telemetry.errors import IncidentError
from telemetry.runtime.isolation import Isolation, PartKind
from telemetry.text.decoders import of_json

T = TypeVar("T")
Other = TypeVar("Other")


class SuppressionStatus(NamedTuple):
    """Whether a firing alert is notified, and if not, why."""

    state: NotificationState
    by: str
    """The reason: key of the alert that is its cause, id of the silence, key of the storm
    incident; "" where nothing does."""
    incident: str
    """Key of the incident that it belongs to; "" where it belongs to none."""


@dataclass(frozen=True, slots=True)
class _RecordParts:
    """Parts of the manager that share one index."""

    index: IncidentIndex
    suppressor: AlertSuppressor
    lifecycle: AlertLifecycle
    grouping: IncidentGrouping
    scheduler: NotificationScheduler
    storms: StormLimiter


class IncidentManager:
    """Incidents, silences and inhibitions of all alerts that fire."""

    def __init__(
        self,
        policies: Mapping[str, RulePolicy],
        memory: IncidentMemory | None = None,
        *,
        timings: NotificationTimings = DEFAULT_TIMINGS,
        now: float,
        wall_ns: int,
    ) -> None:
        """Continue from `memory` (`Journal.memory`). `policies`: `policies_of(rules)`. Raises
        `ConfigError` where rules inhibit one another."""
        check_inhibitions(policies)
        memory = memory or IncidentMemory()
        self._policies, self._timings = policies, timings
        self._clock = SteadyClock(clock_of(memory, wall_ns), now, wall_ns)
        self.traits: Callable[[], Mapping[str, Traits]] = dict
        """Returns what each node of the fleet is, by node; assigned by its owner."""
        self.aside = Isolation(PartKind.NOTIFICATION, _by_rule)
        """Alerts and incidents that raised: each is notified by itself and tried again."""
        self._again: dict[str, Alert] = {}
        """Alerts that could not be applied, by key."""
        self._doubtful = False
        """Whether an exception may have left the indexes half changed."""
        self._failures = 0
        """Failures that `aside` had counted at the end of the last step."""
        self._set(self._parts(memory))

    def copied(self, now: float, wall_ns: int) -> IncidentManager:
        """Return a manager of copies of all records, which goes on by itself."""
        memory = self.index.memory()
        memory.clock = of_json(ManagerClock).decode(msgspec.json.encode(self._clock.state))
        return IncidentManager(self._policies, memory, timings=self._timings, now=now, wall_ns=wall_ns)

    def _parts(self, memory: IncidentMemory) -> _RecordParts:
        """Return the parts that work on the records of `memory`."""
        clock, timings = self._clock, self._timings
        index = IncidentIndex(self._policies, memory)
        suppressor = AlertSuppressor(index, timings, self.aside)
        lifecycle = AlertLifecycle(index, clock, suppressor, timings)
        grouping = IncidentGrouping(index, clock, timings)
        scheduler = NotificationScheduler(index, clock, timings, self.aside)
        storms = StormLimiter(index, clock, timings, grouping, scheduler, lambda: self.traits())  # noqa: PLW0108 - it is assigned later
        suppressor.pending.update(dict.fromkeys(index.dangling()))
        return _RecordParts(index, suppressor, lifecycle, grouping, scheduler, storms)

    def _set(self, parts: _RecordParts) -> None:
        self.index, self._suppressor, self._lifecycle = (parts.index, parts.suppressor, parts.lifecycle)
        self._grouping, self._scheduler, self._storms = (parts.grouping, parts.scheduler, parts.storms)

    def _rebuild(self) -> None:
        """Make the parts again from their own records, as after a restart: an exception in the middle
        of a change may have left an incident without its alerts, to which the next alert of the same
        place would be added, and notify nobody."""
        parts = self._parts(self.index.memory())
        parts.index.add_changes(self.index)
        parts.scheduler.continue_from(self._scheduler)
        self._set(parts)

    def receive(
        self, changes: Sequence[Alert], now: float, wall_ns: int, recovering: Collection[str] = frozenset()
    ) -> IncidentChanges:
        """Apply the alerts that `RuleEngine.evaluate` returned, and do what is due; called at every
        tick of the rules and at `next_due`.

        `recovering`: keys of alerts that fire only because their `keep` has not passed: these are
        not notified when a silence, a maintenance window or their cause ends.
        """
        self._clock.advance(now, wall_ns)
        if self._doubtful or "indexes" in self.aside:  # also where the last try raised
            self._run("indexes", self._rebuild, None)
        self._doubtful = True
        again = [one for key, one in self._again.items() if self.aside.due(f"alert/{key}", self._clock.time)]
        for alert in (*again, *changes):
            self._apply(alert)
        return self._advance(recovering)

    def over(self, firing: Collection[str]) -> list[Alert]:
        """Return the end of each alert that is tracked as firing and whose key is not in `firing`."""
        return [
            msgspec.structs.replace(tracked.alert, state=AlertState.RESOLVED, changed=self._clock.wall)
            for key, tracked in self.index.alerts.items()
            if tracked.firing and key not in firing and key_of_all(tracked.alert) not in firing
        ]

    def reconcile(self, firing: Iterable[Alert], now: float, wall_ns: int) -> IncidentChanges:
        """Apply all alerts that fire now, once after a start: tracked alerts that are not among
        them have resolved meanwhile, or their rule is gone."""
        fires = {alert.key: alert for alert in firing if alert.state is AlertState.FIRING}
        self._clock.advance(now, wall_ns)
        over = self.over(fires.keys())
        return self.receive([*over, *fires.values()], now, wall_ns)

    def next_due(self) -> float | None:
        """Return when `receive` must be called at the latest, monotonic seconds; None: any time."""
        time = self._clock.time
        due = min(
            self._lifecycle.next_due(),
            self._suppressor.next_window(),
            self._suppressor.next_release(time),
            self._scheduler.next_due(),
            self._storms.next_due(),
        )
        return None if due == float("inf") else self._clock.monotonic(due)

    # Faults of our own: each costs the form of one notification.

    def _apply(self, alert: Alert) -> None:
        """Apply one alert; where that raises, it is evaluated and applied again all the same."""
        key, part = alert.key, f"alert/{alert.key}"
        before = part in self.aside
        with self.aside.attempt(part, self._clock.time):
            self._lifecycle.receive(alert)
        if part not in self.aside:
            self._again.pop(key, None)
            return
        self._again[key] = alert
        if key in self.index.alerts:
            self._suppressor.pending[key] = None
        elif not before:
            self._scheduler.add_plain(alert)

    def _try_again(self, time: float) -> None:
        """Evaluate alerts again whose suppression raised, and forget what is over."""
        kept = []
        for part in self.aside.reasons():
            kind, _, key = part.partition("/")
            if kind == "incident":
                record = self.index.incidents.get(key)
                over = record is None or record.closed is not None
                if not over and self.aside.due(part, time):
                    self.index.touch(key)
            else:
                tracked = self.index.alerts.get(key)
                over = kind in {"suppression", "group"} and (tracked is None or not tracked.firing)
                if kind == "group" and tracked is not None:
                    over = over or not self._lacks_incident(tracked)
                if kind == "suppression" and not over and self.aside.due(part, time):
                    self._suppressor.pending[key] = None
            if not over:
                kept.append(part)
        self.aside.keep(kept)

    def _lacks_incident(self, tracked: TrackedAlert) -> bool:
        """Return whether an alert must still be added to an incident: not one that is suppressed now, nor
        one that had joined when an exception came, once the indexes are whole again."""
        if tracked.state is not NotificationState.NOTIFIED:
            return False
        return not tracked.incident or "indexes" in self.aside

    def _assign(self, tracked: TrackedAlert) -> None:
        """Add an alert to an incident; where that raises, notify it by itself and try again."""
        part = f"group/{tracked.alert.key}"
        before = part in self.aside
        self._run(part, partial(self._grouping.assign, tracked), None)
        if part in self.aside:
            self._suppressor.pending[tracked.alert.key] = None
            if not before:
                self._scheduler.add_plain(tracked.alert)

    def _schedule(self, released: Iterable[TrackedAlert]) -> None:
        """Make the notices that are due. While that raises as a whole, the alerts of incidents that were
        not notified are notified by themselves, and so are those that join one."""
        before = "schedule" in self.aside
        self._run("schedule", self._scheduler.evaluate, None)
        if "schedule" not in self.aside:
            return
        alone = {tracked.alert.key: tracked for tracked in released if tracked.incident}
        if not before:
            alone |= {tracked.alert.key: tracked for tracked in self.index.unnotified()}
        for tracked in alone.values():
            self._scheduler.add_plain(tracked.alert)

    def _run(self, part: str, step: Callable[[], T], otherwise: Other) -> T | Other:
        """Return what a step returns, or `otherwise` where it raises or is set aside."""
        return self.aside.run(part, self._clock.time, step, otherwise)

    # Actions of people. Each returns the record that it changed and the changes of the step, and
    # raises `IncidentError` for an invalid request.

    def acknowledge(
        self, key: str, *, who: str, why: str, until: int | None, now: float, wall_ns: int
    ) -> tuple[Incident, IncidentChanges]:
        """Acknowledge an incident, until its end or `until` (ns since 1970).

        `key`: the incident's, a unique prefix of it, or the key of one of its alerts.
        """
        time = self._clock.advance(now, wall_ns)
        record = self._open(key)
        if until is not None and until <= wall_ns:
            raise IncidentError("acknowledge: its end has passed. Give a later one, or none.")
        who, why = required("acknowledge: who", who), " ".join(why.split())[:500]
        record.ack = IncidentNote(who=who, why=why, at=wall_ns, until=until)
        record.ack_until = None if until is None else self._clock.at(until)
        record.add_event(wall_ns, "acknowledged", who, why)
        record.joined = time
        record.changed = wall_ns
        if record.notified is not None:
            self._scheduler.acknowledge(record)
        step = self._advance()
        return incident_of(record, self.index), step

    def unacknowledge(
        self, key: str, *, who: str, why: str, now: float, wall_ns: int
    ) -> tuple[Incident, IncidentChanges]:
        """Remove the acknowledgement; reminders resume."""
        time = self._clock.advance(now, wall_ns)
        record = self._open(key)
        who = required("unacknowledge: who", who)
        if record.ack is None:
            raise IncidentError(f"nobody has acknowledged {record.key}. There is no acknowledgement to remove.")
        record.ack, record.ack_until = None, None
        record.repeat_at, record.changed = time, wall_ns
        self._scheduler.resume_escalation(record)
        record.add_event(wall_ns, "taken_back", who, " ".join(why.split())[:500])
        step = self._advance()
        return incident_of(record, self.index), step

    def annotate(
        self, key: str, what: str, *, who: str, why: str, now: float, wall_ns: int
    ) -> tuple[Incident, IncidentChanges]:
        """Add an event to the timeline of an incident that is open or ended within the hour."""
        self._clock.advance(now, wall_ns)
        record = record_of(key, self.index)
        record.add_event(wall_ns, what, who, why)
        step = self._advance()
        return incident_of(record, self.index), step

    def silence(
        self,
        matchers: Sequence[Matcher],
        *,
        who: str,
        why: str,
        starts: int | None = None,
        ends: int,
        maintenance: bool = False,
        now: float,
        wall_ns: int,
    ) -> tuple[Silence, IncidentChanges]:
        """Suppress alerts that match all of `matchers`, between two times in ns since 1970."""
        self._clock.advance(now, wall_ns)
        clock = self._clock
        silence = silence_of(matchers, who, why, starts, ends, maintenance, clock)
        self.index.add_window(
            SilenceWindow(
                silence=silence, order=clock.order(), starts=clock.at(silence.starts), ends=clock.at(silence.ends)
            )
        )
        return silence, self._advance(silences=[silence])

    def unsilence(self, key: str, *, who: str, why: str, now: float, wall_ns: int) -> tuple[Silence, IncidentChanges]:
        """End a silence or maintenance window now; `key` is its id or a unique prefix of it."""
        time = self._clock.advance(now, wall_ns)
        window = window_of(key, self.index)
        required("unsilence: who", who)
        if window.over or window.ends <= time:
            raise IncidentError(f"silence {window.silence.id} is over already. There is nothing to end.")
        end_window(window, time, wall_ns)
        return window.silence, self._advance(silences=[window.silence])

    # Queries.

    def incidents(self) -> list[Incident]:
        """Return all open incidents, worst first, those that a storm suppresses included."""
        found = [one for one in self.index.incidents.values() if one.closed is None]
        found.sort(key=lambda one: (SEVERITIES.index(one.severity), one.order))
        return [incident_of(record, self.index) for record in found]

    def recent(self) -> list[Incident]:
        """Return the incidents that ended within the last hour, newest first."""
        found = [one for one in self.index.incidents.values() if one.closed is not None]
        found.sort(key=lambda one: (one.closed or 0.0, one.order), reverse=True)
        return [incident_of(record, self.index) for record in found]

    def incident(self, key: str) -> Incident:
        """Return an incident, open or ended within the last hour; `key` as in `acknowledge`."""
        return incident_of(record_of(key, self.index), self.index)

    def timeline(self, key: str) -> tuple[IncidentEvent, ...]:
        """Return the events of an incident, oldest first; `key` as in `acknowledge`."""
        return record_of(key, self.index).timeline

    def status(self, alert_key: str) -> SuppressionStatus | None:
        """Return whether a firing alert is notified; None for one that is not tracked: pending,
        resolved, or of severity info."""
        tracked = self.index.alerts.get(alert_key)
        if tracked is None or not tracked.firing:
            return None
        if tracked.state is not NotificationState.NOTIFIED:
            return SuppressionStatus(tracked.state, tracked.by, tracked.incident)
        record = self.index.incidents.get(tracked.incident)
        if record is not None and record.storm:  # first: that it flaps was not notified
            return SuppressionStatus(NotificationState.STORM, record.storm, tracked.incident)
        state = NotificationState.FLAPPING if tracked.flaps else NotificationState.NOTIFIED
        return SuppressionStatus(state, "", tracked.incident)

    def alerts_of(self, alert: Alert) -> list[Alert]:
        """Return the alerts that are notified of an alert of the rules: one of each of its faults, with
        the texts of its own."""
        found = []
        for one in alerts_of(alert):
            tracked = self.index.alerts.get(one.key) if one.faults else None
            found.append(one if tracked is None or not tracked.firing else tracked.alert)
        return found

    def silences(self) -> list[Silence]:
        """Return silences and windows: active, to come, and those that ended within the day."""
        windows = self.index.windows.values()
        return sorted((window.silence for window in windows), key=lambda one: one.starts)

    # One step.

    def _advance(self, recovering: Collection[str] = frozenset(), silences: Sequence[Silence] = ()) -> IncidentChanges:
        """Do all that is due, and return the changes of this step."""
        self._doubtful = True
        suppressor = self._suppressor
        time = self._clock.time
        begun: list[Silence] = self._run("silences", lambda: suppressor.update_windows(time), [])
        turned = {one.id: one for one in (*silences, *begun)}
        self._run("flapping", self._lifecycle.expire, None)
        if len(self.aside):
            self._try_again(time)
        released = suppressor.evaluate(self._clock.time, recovering)
        released.sort(key=lambda one: (SEVERITIES.index(one.alert.severity), one.order))
        for tracked in released:
            self._assign(tracked)
        self._schedule(released)
        self._storms.notify()
        step = self._changes(tuple(turned.values()))
        self._doubtful = self.aside.failures != self._failures
        self._failures = self.aside.failures
        return step

    def _changes(self, silences: tuple[Silence, ...]) -> IncidentChanges:
        index, clock = self.index, self._clock
        records: dict[RecordKey, bytes | None] = self._run("records", index.changed_records, {})
        if clock.is_due(bool(records)):
            records[RecordKey("pulse", "")] = msgspec.json.encode(clock.state)
        keys: Collection[str] = self._run("incidents", index.changed_incidents, ())
        alerts: tuple[str, ...] = self._run("alerts", index.changed_alerts, ())
        changed = [index.incidents[key] for key in keys if key in index.incidents]
        incidents = [
            self._run(f"incident/{record.key}", partial(incident_of, record, index), None) for record in changed
        ]
        self._run("records", index.clear_changes, None)
        return IncidentChanges(  # last: no exception may lose the notices
            notices=self._scheduler.drain_notices(),
            incidents=tuple(one for one in incidents if one is not None),
            silences=silences,
            alerts=alerts,
            records=records,
            wall_ns=clock.wall,
        )

    def _open(self, key: str) -> IncidentRecord:
        record = record_of(key, self.index)
        if record.closed is not None:
            raise IncidentError(f"incident {record.key} is over. It can't be acknowledged any more.")
        return record


def _by_rule(part: str) -> str:
    """Return a part of the incident manager with the rule in place of the key of an alert or incident:
    a fault that concerns all alerts is a few parts, and its own alert adds none."""
    kind, _, key = part.partition("/")
    rule = key.rpartition("-")[0] if kind == "incident" else key.partition("/")[0]
    return f"{kind}/{rule}" if rule else part
