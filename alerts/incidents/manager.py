"""The desk: it takes what began to fire or resolved, and decides who is told of what, and when.

Pure: `now` (monotonic seconds) and `wall_ns` (for people) are arguments of every call, one after the
other from one thread. Every call gives a `StateChanges`; `alerts.journal.journal` writes it down, and only what is
written down is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from alerts.incidents.actions import dossier_of, said, silence_of, window_of
from alerts.incidents.clock import SteadyClock, pulse_of
from alerts.incidents.grouping import IncidentGrouping
from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.lifecycle import AlertLifecycle
from alerts.incidents.notification_schedule import NotificationScheduler
from alerts.incidents.policy import PATIENCE, NotificationTimings, RulePolicy, check_inhibitions
from alerts.incidents.state import IncidentMemory, IncidentRecord, RecordKey, StateChanges
from alerts.incidents.storm import StormLimiter
from alerts.incidents.suppression import AlertSuppressor, cut, make
from alerts.incidents.titles import incident_of
from api.alerts import (
    Alert,
    AlertState,
    Incident,
    IncidentEvent,
    IncidentNote,
    Matcher,
    NotificationState,
    Silence,
)
from telemetry.errors import DeskError


class AlertStanding(NamedTuple):
    """Whether anybody is told of an alert that fires."""

    standing: NotificationState
    by: str
    """What holds it back: key of the alert that is its cause, id of the silence, key of the storm's
    incident; "" where nothing does."""
    incident: str
    """Key of the incident that it belongs to; "" where it belongs to none."""


class IncidentManager:
    """All open incidents, and what holds alerts back."""

    def __init__(
        self,
        policies: Mapping[str, RulePolicy],
        memory: IncidentMemory | None = None,
        *,
        patience: NotificationTimings = PATIENCE,
        now: float,
        wall_ns: int,
    ) -> None:
        """Go on where `memory` (`Journal.memory`) ends. `policies`: `policies_of(rules)`. Raises
        `ConfigError` where rules hide one another."""
        check_inhibitions(policies)
        memory = memory or IncidentMemory()
        self._clock = clock = SteadyClock(pulse_of(memory, wall_ns), now, wall_ns)
        self._cabinet = cabinet = IncidentIndex(policies, memory)
        self._holding = AlertSuppressor(cabinet, patience)
        self._intake = AlertLifecycle(cabinet, clock, self._holding, patience)
        self._grouping = IncidentGrouping(cabinet, clock, patience)
        self._telling = NotificationScheduler(cabinet, clock, patience)
        self._brake = StormLimiter(cabinet, clock, patience, self._grouping, self._telling)
        cabinet.clean()
        self._holding.asked.update(dict.fromkeys(cabinet.loose()))

    def take(
        self,
        changes: Sequence[Alert],
        now: float,
        wall_ns: int,
        recovering: Collection[str] = frozenset(),
    ) -> StateChanges:
        """Take what `Engine.evaluate` returned, and do what is due; call it at every tick of the
        rules and at `next_due`.

        `recovering`: keys of alerts that fire only because their `keep` has not passed: nobody is
        told of these when a silence, a maintenance window or their cause ends.
        """
        self._clock.advance(now, wall_ns)
        for alert in changes:
            self._intake.learn(alert)
        return self._go_on(recovering)

    def reconcile(self, firing: Iterable[Alert], now: float, wall_ns: int) -> StateChanges:
        """Take all that fires now, once after a start: what the desk has as firing and is not
        among them has resolved meanwhile, or its rule is gone."""
        fires = {alert.key: alert for alert in firing if alert.state is AlertState.FIRING}
        over = [
            msgspec.structs.replace(case.alert, state=AlertState.RESOLVED, changed=wall_ns)
            for key, case in self._cabinet.cases.items()
            if case.firing and key not in fires
        ]
        return self.take([*over, *fires.values()], now, wall_ns)

    def next_due(self) -> float | None:
        """When `take` must be called at the latest, monotonic seconds; None is whenever."""
        time = self._clock.time
        due = min(
            self._intake.next_due(),
            self._holding.next_turn(),
            self._holding.next_release(time),
            self._telling.next_due(),
            self._brake.next_due(),
        )
        return None if due == float("inf") else self._clock.monotonic(due)

    # What people do; each returns what they changed, and the step. Raise `DeskError` with what was
    # wrong. `who` and `why` must say something.

    def acknowledge(
        self, key: str, *, who: str, why: str, until: int | None, now: float, wall_ns: int
    ) -> tuple[Incident, StateChanges]:
        """Somebody takes care of an incident, for ever or `until` (ns since 1970).

        `key`: the incident's, or what no other incident's key begins with, or that of one of its
        alerts.
        """
        time = self._clock.advance(now, wall_ns)
        dossier = self._open(key)
        if until is not None and until <= wall_ns:
            raise DeskError("acknowledge: its end has passed. Give a later one, or none.")
        who, why = said("acknowledge: who takes it", who), " ".join(why.split())[:500]
        dossier.ack = IncidentNote(who=who, why=why, at=wall_ns, until=until)
        dossier.ack_until = None if until is None else self._clock.at(until)
        dossier.happened(wall_ns, "acknowledged", who, why)
        dossier.joined = time
        dossier.changed = wall_ns
        if dossier.told is not None:
            self._telling.acknowledge(dossier)
        return self._answer(dossier)

    def unacknowledge(
        self, key: str, *, who: str, why: str, now: float, wall_ns: int
    ) -> tuple[Incident, StateChanges]:
        """Nobody does any more: it is told again when it is due."""
        time = self._clock.advance(now, wall_ns)
        dossier = self._open(key)
        who = said("unacknowledge: who says so", who)
        if dossier.ack is None:
            raise DeskError(
                f"nobody has acknowledged {dossier.key}. There is nothing to take back."
            )
        dossier.ack, dossier.ack_until = None, None
        dossier.repeat_at, dossier.changed = time, wall_ns
        dossier.happened(wall_ns, "taken_back", who, " ".join(why.split())[:500])
        return self._answer(dossier)

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
    ) -> tuple[Silence, StateChanges]:
        """Tell nobody of alerts that match all of `matchers`, between two times in ns since 1970."""
        self._clock.advance(now, wall_ns)
        silence = silence_of(matchers, who, why, starts, ends, maintenance, self._clock)
        make(silence, self._clock, self._cabinet)
        return silence, self._go_on(silences=[silence])

    def unsilence(
        self, key: str, *, who: str, why: str, now: float, wall_ns: int
    ) -> tuple[Silence, StateChanges]:
        """End a silence or a maintenance window now; `key` is its id or how only that begins."""
        time = self._clock.advance(now, wall_ns)
        window = window_of(key, self._cabinet)
        said("unsilence: who ends it", who)
        if window.over or window.ends <= time:
            raise DeskError(
                f"silence {window.silence.id} is over already. There is nothing to end."
            )
        cut(window, time, wall_ns)
        self._cabinet.touched_windows[window.silence.id] = None
        return window.silence, self._go_on(silences=[window.silence])

    # What there is to see.

    def incidents(self) -> list[Incident]:
        """Return all open incidents, worst first; those held back by a storm too."""
        found = [one for one in self._cabinet.dossiers.values() if one.closed is None]
        found.sort(key=lambda one: (SEVERITIES.index(one.severity), one.order))
        return [incident_of(dossier, self._cabinet) for dossier in found]

    def recent(self) -> list[Incident]:
        """Return those that ended within the last hour, newest first."""
        found = [one for one in self._cabinet.dossiers.values() if one.closed is not None]
        found.sort(key=lambda one: (one.closed or 0.0, one.order), reverse=True)
        return [incident_of(dossier, self._cabinet) for dossier in found]

    def incident(self, key: str) -> Incident:
        """Return one, open or ended within the last hour; `key` as in `acknowledge`."""
        return incident_of(dossier_of(key, self._cabinet), self._cabinet)

    def story(self, key: str) -> tuple[IncidentEvent, ...]:
        """Return what happened to an incident, oldest first; `key` as in `acknowledge`."""
        return tuple(dossier_of(key, self._cabinet).story)

    def held(self, alert_key: str) -> AlertStanding | None:
        """Return the standing of an alert that fires; None for one that the desk does not know:
        pending, resolved, or of severity info."""
        case = self._cabinet.cases.get(alert_key)
        if case is None or not case.firing:
            return None
        if case.standing is not NotificationState.NOTIFIED:
            return AlertStanding(case.standing, case.by, case.incident)
        dossier = self._cabinet.dossiers.get(case.incident)
        if dossier is not None and dossier.storm:  # first: that it flaps was told to nobody
            return AlertStanding(NotificationState.STORM, dossier.storm, case.incident)
        if case.flaps:
            return AlertStanding(NotificationState.FLAPPING, "", case.incident)
        return AlertStanding(NotificationState.NOTIFIED, "", case.incident)

    def silences(self) -> list[Silence]:
        """Return silences and windows: in force, to come, and those that ended within the hour."""
        windows = self._cabinet.windows.values()
        return sorted((window.silence for window in windows), key=lambda one: one.starts)

    # How it goes.

    def _go_on(
        self, recovering: Collection[str] = frozenset(), silences: Sequence[Silence] = ()
    ) -> StateChanges:
        """Do all that is due, and return what must be written down."""
        holding, cabinet = self._holding, self._cabinet
        turned = {one.id: one for one in (*silences, *holding.turn(self._clock.time))}
        self._intake.look()
        free = holding.settle(self._clock.time, recovering)
        free.sort(key=lambda case: (SEVERITIES.index(case.alert.severity), case.order))
        left, holding.left = holding.left, {}
        for case in free:
            self._grouping.place(case, left)
        for key in left:
            dossier = cabinet.dossiers[key]
            if dossier.closed is None and not cabinet.active(dossier):
                self._telling.finish(dossier, "merged")
        self._telling.look()
        self._brake.tell()
        return self._step(tuple(turned.values()))

    def _step(self, silences: tuple[Silence, ...]) -> StateChanges:
        cabinet, clock = self._cabinet, self._clock
        notices, self._telling.notices = tuple(self._telling.notices), []
        records = cabinet.records()
        if clock.must_be_kept(bool(records)):
            records[RecordKey("pulse", "")] = msgspec.json.encode(clock.pulse)
        keys = dict.fromkeys(cabinet.touched_dossiers)
        cases = (cabinet.cases.get(key) for key in cabinet.touched_cases)
        keys.update((case.incident, None) for case in cases if case is not None and case.incident)
        changed = (cabinet.dossiers[key] for key in keys if key in cabinet.dossiers)
        step = StateChanges(
            notices=notices,
            incidents=tuple(incident_of(dossier, cabinet) for dossier in changed),
            silences=silences,
            alerts=tuple(cabinet.touched_cases),
            records=records,
            wall_ns=clock.wall,
        )
        cabinet.clean()
        return step

    def _open(self, key: str) -> IncidentRecord:
        dossier = dossier_of(key, self._cabinet)
        if dossier.closed is not None:
            raise DeskError(f"incident {dossier.key} is over. Nobody needs to take it.")
        return dossier

    def _answer(self, dossier: IncidentRecord) -> tuple[Incident, StateChanges]:
        self._cabinet.touched_dossiers[dossier.key] = None
        step = self._go_on()
        return incident_of(dossier, self._cabinet), step
