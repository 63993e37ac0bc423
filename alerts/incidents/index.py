"""An index in memory of all alerts, incidents and silences of the incident manager.

Marks by itself which records have changed since the last step: records report assignments to their
fields, and the index what concerns two records.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from alerts.incidents.places import Place, around, paged_node, reach, same_kind
from alerts.incidents.policy import RulePolicy, RuleScope, inhibited_by, related
from alerts.incidents.state import IncidentMemory, IncidentRecord, RecordKey, SilenceWindow, StoredRecord, TrackedAlert
from api.alerts import Alert, Incident, NotificationState, Severity
from telemetry.text.decoders import of_json

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_R = TypeVar("_R", bound=StoredRecord)
_DEFAULT = RulePolicy()
_KEYS = dict[str, None]
"""A set that keeps its order, so that the manager does the same after a restart."""
SEVERITIES = tuple(Severity)
"""The worst first."""


def worst(severities: Iterable[Severity]) -> Severity:
    """Return the worst of some severities."""
    return min(severities, key=SEVERITIES.index)


def _copy(record: _R) -> _R:
    """Return a record as the journal would return it."""
    return of_json(type(record)).decode(msgspec.json.encode(record))


class _Table(dict[str, _R]):
    """Records of one kind by key, and the keys of those that have changed."""

    def __init__(self) -> None:
        self.changed: _KEYS = {}

    def __setitem__(self, key: str, record: _R) -> None:
        super().__setitem__(key, record)
        record.report_to(self.changed, key)
        self.changed[key] = None

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.changed[key] = None


class IncidentIndex:
    """Alerts, incidents and silences, found by place, cause and storm."""

    def __init__(self, policies: Mapping[str, RulePolicy], memory: IncidentMemory) -> None:
        self._policies = dict(policies)
        self._inhibited_by = inhibited_by(self._policies)
        self._alerts: _Table[TrackedAlert] = _Table()
        self._incidents: _Table[IncidentRecord] = _Table()
        self._windows: _Table[SilenceWindow] = _Table()
        self.alerts: Mapping[str, TrackedAlert] = self._alerts
        """Alerts that fire, belong to an open incident, or have resolved within the hour."""
        self.incidents: Mapping[str, IncidentRecord] = self._incidents
        """Incidents that are open or were closed within the hour."""
        self.windows: Mapping[str, SilenceWindow] = self._windows
        """Silences and maintenance windows by id, oldest first."""
        self.effects: dict[str, _KEYS] = {}
        """By key of an alert: those that it inhibits."""
        self._in_storm: dict[str, _KEYS] = {}
        """By key of a storm incident: the incidents that it suppresses."""
        self._members: dict[str, _KEYS] = {}
        """By key of an incident: its alerts."""
        self._detached: _KEYS = {}
        """Alerts that left their incident since the last `drain_detached`."""
        self._causes: dict[tuple[str, RuleScope, Place], _KEYS] = {}
        """By rule, scope and place: alerts whose consequences are there."""
        self._below: dict[Place, _KEYS] = {}
        self._open_at: dict[Place, dict[str, int]] = {}
        """By place: open incidents there, and for how many reasons they are."""
        self._load(memory)
        self.clear_changes()

    def memory(self) -> IncidentMemory:
        """Return copies of all records, to build another index of; the clock is not among them."""
        return IncidentMemory(
            alerts=[_copy(one) for one in self.alerts.values()],
            incidents=[_copy(one) for one in self.incidents.values()],
            windows=[_copy(one) for one in self.windows.values()],
        )

    def add_changes(self, before: IncidentIndex) -> None:
        """Count all records as changed, and those as removed that `before` has removed since the last
        step."""
        for table, old in (
            (self._alerts, before._alerts),
            (self._incidents, before._incidents),
            (self._windows, before._windows),
        ):
            table.changed.update(old.changed)
            table.changed.update(dict.fromkeys(table))

    def _load(self, memory: IncidentMemory) -> None:
        for window in sorted(memory.windows, key=lambda one: one.order):
            self.add_window(window)
        known = {record.key for record in memory.incidents}
        for record in sorted(memory.incidents, key=lambda one: one.order):
            if record.storm not in known:
                record.storm = ""
            self.add_incident(record)
        for tracked in sorted(memory.alerts, key=lambda one: one.order):
            self._load_alert(tracked)

    def _load_alert(self, tracked: TrackedAlert) -> None:
        self.add_alert(tracked)
        if tracked.firing:
            self.add_inhibition(tracked)
        if tracked.state is NotificationState.INHIBITED:
            self.effects.setdefault(tracked.by, {})[tracked.alert.key] = None
        record = self.incidents.get(tracked.incident)
        if record is not None and record.closed is None:
            self.join(tracked, record)
        else:
            tracked.incident = ""

    def dangling(self) -> Iterator[str]:
        """Return keys of firing alerts that refer to a record which the journal has lost, or that is over."""
        for key, tracked in self.alerts.items():
            if not tracked.firing or tracked.release is not None:
                continue
            match tracked.state:
                case NotificationState.INHIBITED:
                    cause = self.alerts.get(tracked.by)
                    lost = cause is None or not cause.firing
                case NotificationState.SILENCED | NotificationState.MAINTENANCE:
                    window = self.windows.get(tracked.by)
                    lost = window is None or window.over
                case _:
                    lost = not tracked.incident
            if lost:
                yield key

    # -- Alerts ----------------------------------------------------------------------------------

    def policy(self, rule: str) -> RulePolicy:
        """Return the policy of a rule; the default for one that no longer exists."""
        return self._policies.get(rule, _DEFAULT)

    def related(self, one: str, other: str) -> bool:
        """Whether one rule inhibits the other, or both are the same."""
        return related(self._policies, one, other)

    def add_alert(self, tracked: TrackedAlert) -> None:
        """Add an alert."""
        self._alerts[tracked.alert.key] = tracked

    def remove_alert(self, key: str) -> None:
        """Remove an alert that resolved long ago and belongs to no incident."""
        del self._alerts[key]

    def add_inhibition(self, tracked: TrackedAlert) -> None:
        """Add a firing alert to the inhibition index, as a cause and as a consequence."""
        alert = tracked.alert
        for scope, place in self._reach(alert):
            self._causes.setdefault((alert.rule, scope, place), {})[alert.key] = None
        if self._inhibited_by.get(alert.rule):
            for place in around(alert):
                self._below.setdefault(place, {})[alert.key] = None

    def remove_inhibition(self, tracked: TrackedAlert) -> None:
        """Remove a resolved alert from the inhibition index."""
        alert = tracked.alert
        for scope, place in self._reach(alert):
            _drop(self._causes, (alert.rule, scope, place), alert.key)
        if self._inhibited_by.get(alert.rule):
            for place in around(alert):
                _drop(self._below, place, alert.key)

    def _reach(self, alert: Alert) -> Iterator[tuple[RuleScope, Place]]:
        """Yield where the consequences of an alert may be, by the scope of the inhibition."""
        for scope in dict.fromkeys(self.policy(alert.rule).inhibits.values()):
            for place in reach(alert, scope):
                yield scope, place

    def cause_of(self, tracked: TrackedAlert) -> str:
        """Return the key of the alert that inhibits this one, or ""."""
        alert = tracked.alert
        rules = self._inhibited_by.get(alert.rule, ())
        if not rules:
            return ""
        places = around(alert)
        found = (
            key
            for rule in rules
            for place in places
            for key in self._causes.get((rule, self.policy(rule).inhibits[alert.rule], place), ())
            if key != alert.key
        )
        return min(found, key=lambda key: self.alerts[key].order, default="")

    def may_follow(self, tracked: TrackedAlert) -> Iterator[str]:
        """Return keys of firing alerts that may be a consequence of this one."""
        scopes = self.policy(tracked.alert.rule).inhibits
        for scope, place in self._reach(tracked.alert):
            for key in self._below.get(place, ()):
                if scopes.get(self.alerts[key].alert.rule) is scope:
                    yield key

    def consequences(self, key: str) -> Iterator[str]:
        """Return keys of the alerts that an alert inhibits, directly or through another."""
        for effect in self.effects.get(key, ()):
            yield effect
            yield from self.consequences(effect)

    def set_state(self, tracked: TrackedAlert, state: NotificationState, by: str) -> None:
        """Set whether an alert is notified or what suppresses it."""
        key = tracked.alert.key
        if tracked.state is NotificationState.INHIBITED:
            _drop(self.effects, tracked.by, key)
        if state is NotificationState.INHIBITED:
            self.effects.setdefault(by, {})[key] = None
        tracked.state, tracked.by, tracked.release = state, by, None

    # -- Silences --------------------------------------------------------------------------------

    def add_window(self, window: SilenceWindow) -> None:
        """Add a silence or maintenance window."""
        self._windows[window.silence.id] = window

    def remove_window(self, key: str) -> None:
        """Remove a window that ended long ago."""
        del self._windows[key]

    # -- Incidents -------------------------------------------------------------------------------

    def add_incident(self, record: IncidentRecord) -> None:
        """Add an incident."""
        self._incidents[record.key] = record
        if record.storm:
            self._in_storm.setdefault(record.storm, {})[record.key] = None
        if record.closed is None:
            self._open(record.place, record.key)

    def remove_incident(self, key: str) -> None:
        """Remove an incident that closed long ago."""
        del self._incidents[key]

    def touch(self, key: str) -> None:
        """Note that an incident must be evaluated and shown again."""
        if key in self._incidents:
            self._incidents.changed[key] = None

    def join(self, tracked: TrackedAlert, record: IncidentRecord) -> None:
        """Add an alert to an incident."""
        key = tracked.alert.key
        tracked.incident = record.key
        self._members.setdefault(record.key, {})[key] = None
        for place in _marks(tracked.alert):
            self._open(place, record.key)
        self._incidents.changed[record.key] = None

    def detach(self, tracked: TrackedAlert) -> None:
        """Remove an alert from its incident."""
        key = tracked.incident
        if key in self.incidents:
            _drop(self._members, key, tracked.alert.key)
            for place in _marks(tracked.alert):
                self._unopen(place, key)
            self._incidents.changed[key] = None
        tracked.incident = ""
        self._detached[tracked.alert.key] = None

    def drain_detached(self) -> Iterator[TrackedAlert]:
        """Return the alerts that left their incident since the last call."""
        detached, self._detached = self._detached, {}
        return (self.alerts[key] for key in detached if key in self.alerts)

    def open_at(self, place: Place) -> list[IncidentRecord]:
        """Return the open incidents at a place, the newest first."""
        found = [self.incidents[key] for key in self._open_at.get(place, ())]
        return sorted(found, key=lambda one: one.order, reverse=True)

    def close(self, record: IncidentRecord, final: Incident) -> None:
        """Close an incident and detach its alerts."""
        self.leave_storm(record)
        for key in list(self._members.get(record.key, ())):
            self.detach(self.alerts[key])
        self._unopen(record.place, record.key)
        record.final = final

    def _open(self, place: Place, key: str) -> None:
        at = self._open_at.setdefault(place, {})
        at[key] = at.get(key, 0) + 1

    def _unopen(self, place: Place, key: str) -> None:
        self._open_at[place][key] -= 1
        if not self._open_at[place][key]:
            _drop(self._open_at, place, key)

    def join_storm(self, record: IncidentRecord, storm: IncidentRecord) -> None:
        """Suppress an incident under a storm incident."""
        record.storm = storm.key
        storm.suppressed += 1
        self._in_storm.setdefault(storm.key, {})[record.key] = None
        self._alerts.changed.update(self._members.get(record.key, {}))

    def in_storm(self, storm: IncidentRecord) -> Iterator[IncidentRecord]:
        """Yield the incidents that a storm incident suppresses."""
        for key in self._in_storm.get(storm.key, ()):
            yield self.incidents[key]

    def leave_storm(self, record: IncidentRecord) -> None:
        """Stop suppressing an incident under its storm incident."""
        if not record.storm:
            return
        _drop(self._in_storm, record.storm, record.key)
        self._incidents.changed[record.storm] = None
        self._alerts.changed.update(self._members.get(record.key, {}))
        record.storm = ""

    def size(self, record: IncidentRecord) -> int:
        """Return the number of alerts of an incident, those of suppressed incidents apart."""
        return len(self._members.get(record.key, ()))

    def members(self, record: IncidentRecord) -> Iterator[TrackedAlert]:
        """Return the alerts of an incident; of a storm incident those of all that it suppresses."""
        for one in (record.key, *self._in_storm.get(record.key, ())):
            for key in self._members.get(one, ()):
                yield self.alerts[key]

    def active(self, record: IncidentRecord) -> list[TrackedAlert]:
        """Return the alerts of an incident that fire or flap."""
        return [tracked for tracked in self.members(record) if tracked.firing or tracked.flaps]

    def unnotified(self) -> list[TrackedAlert]:
        """Return the alerts that nothing suppresses, of open incidents that nobody was notified of."""
        waiting = [
            record
            for record in self.incidents.values()
            if record.closed is None and record.notified is None and not record.storm
        ]
        return [
            tracked
            for record in waiting
            for tracked in self.members(record)
            if tracked.firing and tracked.state is NotificationState.NOTIFIED
        ]

    # -- Changes ---------------------------------------------------------------------------------

    def changed_alerts(self) -> tuple[str, ...]:
        """Return the keys of alerts that have changed since the last step."""
        return tuple(self._alerts.changed)

    def changed_incidents(self) -> _KEYS:
        """Return the keys of incidents that have changed, or an alert of them, since the last
        step."""
        keys = dict(self._incidents.changed)
        alerts = (self.alerts.get(key) for key in self._alerts.changed)
        keys.update((one.incident, None) for one in alerts if one is not None and one.incident)
        return keys

    def changed_records(self) -> dict[RecordKey, bytes | None]:
        """Return the records that have changed since the last step, as the journal stores them."""
        tables: tuple[tuple[str, _Table[TrackedAlert] | _Table[IncidentRecord] | _Table[SilenceWindow]], ...] = (
            ("case", self._alerts),
            ("dossier", self._incidents),
            ("window", self._windows),
        )
        return {
            RecordKey(kind, key): msgspec.json.encode(table[key]) if key in table else None
            for kind, table in tables
            for key in table.changed
        }

    def clear_changes(self) -> None:
        """Begin the next step: nothing has changed."""
        for changed in (self._alerts.changed, self._incidents.changed, self._windows.changed):
            changed.clear()


def _drop(index: dict[_K, dict[str, _V]], at: _K, key: str) -> None:
    keys = index.get(at)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[at]


def _marks(alert: Alert) -> Iterator[Place]:
    """Return further places at which the incident of an alert is found."""
    if alert.node and alert.severity is Severity.PAGE:
        yield paged_node(alert)
    if alert.gpu is not None:
        yield "gpu", alert.gpu
        yield same_kind(alert)
