"""The cabinet: all cases, dossiers and windows, found by what the desk asks for, and what of them
must be written down."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from alerts.incidents.places import Place, around, reach, same_kind
from alerts.incidents.policy import RulePolicy, hidden_by
from alerts.incidents.state import IncidentMemory, IncidentRecord, RecordKey, TrackedAlert
from api.alerts import Alert, Incident, NotificationState, Severity

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_DEFAULT = RulePolicy()
_KEYS = dict[str, None]
"""A set that keeps its order, so that a desk does the same after a restart."""
SEVERITIES = tuple(Severity)
"""The worst first."""


def worst(severities: Iterable[Severity]) -> Severity:
    """Return the worst of some severities."""
    return min(severities, key=SEVERITIES.index)


class IncidentIndex:
    """What the desk has before it."""

    def __init__(self, policies: Mapping[str, RulePolicy], memory: IncidentMemory) -> None:
        self._policies = dict(policies)
        self._hidden_by = hidden_by(self._policies)
        self.cases: dict[str, TrackedAlert] = {}
        self.dossiers: dict[str, IncidentRecord] = {}
        """Those that are open, and those closed within the hour."""
        self.windows = {
            window.silence.id: window
            for window in sorted(memory.windows, key=lambda one: one.order)
        }
        self.effects: dict[str, _KEYS] = {}
        """By key of an alert: those that are held back because of it."""
        self.held: dict[str, _KEYS] = {}
        """By key of a storm: the incidents that it tells of."""
        self._parted: _KEYS = {}
        """Alerts that left their incident since the last `drain_parted`."""
        self.touched_cases: _KEYS = {}
        self.touched_dossiers: _KEYS = {}
        self.touched_windows: _KEYS = {}
        self._causes: dict[tuple[str, Place], _KEYS] = {}
        self._below: dict[Place, _KEYS] = {}
        self._open_at: dict[Place, dict[str, int]] = {}
        """By place: open incidents there, and for how many reasons they are."""
        known = {dossier.key for dossier in memory.dossiers}
        for dossier in sorted(memory.dossiers, key=lambda one: one.order):
            if dossier.storm not in known:
                dossier.storm = ""
            self.file(dossier)
        for case in sorted(memory.cases, key=lambda one: one.order):
            self._restore(case)

    def _restore(self, case: TrackedAlert) -> None:
        key = case.alert.key
        self.cases[key] = case
        if case.firing:
            self.enter(case)
        if case.standing is NotificationState.INHIBITED:
            self.effects.setdefault(case.by, {})[key] = None
        dossier = self.dossiers.get(case.incident)
        if dossier is not None and dossier.closed is None:
            self.join(case, dossier)
        else:
            case.incident = ""

    def loose(self) -> Iterator[str]:
        """Return keys of alerts that fire and refer to what was lost with a part of the journal."""
        for key, case in self.cases.items():
            if not case.firing or case.release is not None:
                continue
            match case.standing:
                case NotificationState.INHIBITED:
                    cause = self.cases.get(case.by)
                    lost = cause is None or not cause.firing
                case NotificationState.SILENCED | NotificationState.MAINTENANCE:
                    lost = case.by not in self.windows
                case _:
                    lost = not case.incident
            if lost:
                yield key

    # -- Alerts ----------------------------------------------------------------------------------

    def policy(self, rule: str) -> RulePolicy:
        """Return what is known of a rule; of one that is gone, the defaults."""
        return self._policies.get(rule, _DEFAULT)

    def enter(self, case: TrackedAlert) -> None:
        """An alert fires: it may be a cause, and have one."""
        alert = case.alert
        if self.policy(alert.rule).inhibits:
            for place in self.reach(alert):
                self._causes.setdefault((alert.rule, place), {})[alert.key] = None
        if self._hidden_by.get(alert.rule):
            for place in around(alert):
                self._below.setdefault(place, {})[alert.key] = None

    def leave(self, case: TrackedAlert) -> None:
        """It does not any more."""
        alert = case.alert
        if self.policy(alert.rule).inhibits:
            for place in self.reach(alert):
                _drop(self._causes, (alert.rule, place), alert.key)
        if self._hidden_by.get(alert.rule):
            for place in around(alert):
                _drop(self._below, place, alert.key)

    def reach(self, alert: Alert) -> tuple[Place, ...]:
        """Return where the consequences of an alert may be."""
        return reach(alert, self.policy(alert.rule).within)

    def cause_of(self, case: TrackedAlert) -> str:
        """Return the key of the alert whose consequence this one is; "" where there is none."""
        alert = case.alert
        rules = self._hidden_by.get(alert.rule, ())
        if not rules:
            return ""
        places = around(alert)
        found = (
            key
            for rule in rules
            for place in places
            for key in self._causes.get((rule, place), ())
            if key != alert.key
        )
        return min(found, key=lambda key: self.cases[key].order, default="")

    def may_follow(self, case: TrackedAlert) -> Iterator[str]:
        """Return keys of alerts that fire and may be a consequence of this one."""
        rules = self.policy(case.alert.rule).inhibits
        for place in self.reach(case.alert) if rules else ():
            for key in self._below.get(place, ()):
                if self.cases[key].alert.rule in rules:
                    yield key

    def consequences(self, key: str) -> Iterator[str]:
        """Return what is held back because of an alert, and because of that in turn."""
        for effect in self.effects.get(key, ()):
            yield effect
            yield from self.consequences(effect)

    def stand(self, case: TrackedAlert, standing: NotificationState, by: str) -> None:
        """Let an alert be told, or held back by something."""
        key = case.alert.key
        if case.standing is NotificationState.INHIBITED:
            _drop(self.effects, case.by, key)
        if standing is NotificationState.INHIBITED:
            self.effects.setdefault(by, {})[key] = None
        case.standing, case.by, case.release = standing, by, None
        self.touched_cases[key] = None

    def forget(self, key: str) -> None:
        """Remove a case that is over."""
        del self.cases[key]
        self.touched_cases[key] = None

    # -- Incidents -------------------------------------------------------------------------------

    def file(self, dossier: IncidentRecord) -> None:
        """Add a dossier."""
        self.dossiers[dossier.key] = dossier
        self.touched_dossiers[dossier.key] = None
        if dossier.storm:
            self.held.setdefault(dossier.storm, {})[dossier.key] = None
        if dossier.closed is None:
            self._mark(dossier.place, dossier.key)

    def move(self, dossier: IncidentRecord, place: Place) -> None:
        """Let it be about another place: that of the cause which showed up behind it."""
        self._unmark(dossier.place, dossier.key)
        dossier.place = place
        self._mark(place, dossier.key)

    def join(self, case: TrackedAlert, dossier: IncidentRecord) -> None:
        """Add an alert to an incident."""
        key = case.alert.key
        case.incident = dossier.key
        dossier.members[key] = None
        for place in _marks(case.alert):
            self._mark(place, dossier.key)
        self.touched_cases[key] = None
        self.touched_dossiers[dossier.key] = None

    def part(self, case: TrackedAlert) -> None:
        """Take an alert out of its incident."""
        dossier = self.dossiers.get(case.incident)
        if dossier is not None:
            del dossier.members[case.alert.key]
            for place in _marks(case.alert):
                self._unmark(place, dossier.key)
            self.touched_dossiers[dossier.key] = None
        case.incident = ""
        self._parted[case.alert.key] = None
        self.touched_cases[case.alert.key] = None

    def drain_parted(self) -> _KEYS:
        """Return the keys of alerts that left their incident since the last call."""
        parted, self._parted = self._parted, {}
        return parted

    def open_at(self, place: Place) -> list[IncidentRecord]:
        """Return the open incidents at a place, the newest first."""
        found = [self.dossiers[key] for key in self._open_at.get(place, ())]
        return sorted(found, key=lambda one: one.order, reverse=True)

    def close(self, dossier: IncidentRecord, final: Incident) -> None:
        """An incident is over; its alerts are no longer its."""
        self.release(dossier)
        for key in list(dossier.members):
            self.part(self.cases[key])
        self._unmark(dossier.place, dossier.key)
        dossier.final = final
        self.touched_dossiers[dossier.key] = None

    def _mark(self, place: Place, key: str) -> None:
        at = self._open_at.setdefault(place, {})
        at[key] = at.get(key, 0) + 1

    def _unmark(self, place: Place, key: str) -> None:
        self._open_at[place][key] -= 1
        if not self._open_at[place][key]:
            _drop(self._open_at, place, key)

    def hold(self, dossier: IncidentRecord, storm: IncidentRecord) -> None:
        """Let a storm tell of an incident."""
        dossier.storm = storm.key
        storm.held += 1
        self.held.setdefault(storm.key, {})[dossier.key] = None
        self.touched_dossiers[dossier.key] = self.touched_dossiers[storm.key] = None
        for key in dossier.members:
            self.touched_cases[key] = None

    def release(self, dossier: IncidentRecord) -> None:
        """Let it not any more."""
        if dossier.storm:
            _drop(self.held, dossier.storm, dossier.key)
            self.touched_dossiers[dossier.storm] = None
        dossier.storm = ""
        self.touched_dossiers[dossier.key] = None

    def members(self, dossier: IncidentRecord) -> Iterator[TrackedAlert]:
        """Return the alerts of an incident; of a storm's, those of all that it holds back."""
        for key in dossier.members:
            yield self.cases[key]
        for held in self.held.get(dossier.key, ()):
            for key in self.dossiers[held].members:
                yield self.cases[key]

    def active(self, dossier: IncidentRecord) -> list[TrackedAlert]:
        """Return those that fire, or flap."""
        return [case for case in self.members(dossier) if case.firing or case.flaps]

    # -- Records ---------------------------------------------------------------------------------

    def records(self) -> dict[RecordKey, bytes | None]:
        """Return what has changed since the last call, for the journal."""
        found: dict[RecordKey, bytes | None] = {}
        for kind, keys, things in (
            ("case", self.touched_cases, self.cases),
            ("dossier", self.touched_dossiers, self.dossiers),
            ("window", self.touched_windows, self.windows),
        ):
            for key in keys:
                thing: msgspec.Struct | None = things.get(key)
                found[RecordKey(kind, key)] = None if thing is None else _encode(thing)
        return found

    def clean(self) -> None:
        """All that was touched is in a step now."""
        self.touched_cases, self.touched_dossiers, self.touched_windows = {}, {}, {}


def _encode(thing: msgspec.Struct) -> bytes:
    if isinstance(thing, IncidentRecord) and thing.members:
        members, thing.members = thing.members, {}
        body = msgspec.json.encode(thing)
        thing.members = members
        return body
    return msgspec.json.encode(thing)


def _drop(index: dict[_K, dict[str, _V]], at: _K, key: str) -> None:
    keys = index.get(at)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[at]


def _marks(alert: Alert) -> Iterator[Place]:
    """Where an incident is looked for by an alert that is one of its own."""
    if alert.gpu is not None:
        yield "gpu", alert.gpu
        yield same_kind(alert)
