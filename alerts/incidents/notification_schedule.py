"""What is said of an incident, and when: a trigger, updates, repetitions, its end."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from alerts.incidents.clock import SteadyClock
from alerts.incidents.flap import HOUR, restless
from alerts.incidents.index import SEVERITIES, IncidentIndex, worst
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import IncidentRecord, TrackedAlert
from alerts.incidents.titles import incident_of
from alerts.notice import Notice
from api.alerts import Action, NotificationState, Severity

NEVER = float("inf")


class NotificationScheduler:
    """Looks at incidents that have changed or are due, and decides what to say of them."""

    def __init__(
        self, cabinet: IncidentIndex, clock: SteadyClock, patience: NotificationTimings
    ) -> None:
        self._cabinet = cabinet
        self._clock = clock
        self._patience = patience
        self._due = {
            key: 0.0 for key, dossier in cabinet.dossiers.items() if dossier.closed is None
        }
        """When each open incident must be looked at."""
        self._closed = [
            (dossier.closed, key)
            for key, dossier in cabinet.dossiers.items()
            if dossier.closed is not None
        ]
        heapq.heapify(self._closed)
        self.notices: list[Notice] = []
        self.ready: list[IncidentRecord] = []
        """Those to be told for the first time, unless there are too many of them."""

    def look(self) -> None:
        """Look at all that has changed or is due."""
        cabinet, time = self._cabinet, self._clock.time
        keys = dict.fromkeys(key for key, due in self._due.items() if due <= time)
        keys.update(cabinet.touched_dossiers)
        for key in cabinet.touched_cases:
            case = cabinet.cases.get(key)
            if case is not None and case.incident:
                keys[case.incident] = None
        for key in list(keys):
            dossier = cabinet.dossiers.get(key)
            if dossier is not None and dossier.storm:
                keys[dossier.storm] = None
        found = [cabinet.dossiers[key] for key in keys if key in cabinet.dossiers]
        for dossier in sorted(found, key=lambda one: one.order):
            if dossier.closed is None:
                self._due[dossier.key] = self._look(dossier)
        self._forget()

    def next_due(self) -> float:
        """Return when the next incident must be looked at."""
        return min(self._due.values(), default=NEVER)

    def again(self, dossier: IncidentRecord) -> None:
        """Look at an incident that was just told, for when it is due next."""
        self._due[dossier.key] = self._look(dossier)

    # -- What is due -----------------------------------------------------------------------------

    def _look(self, dossier: IncidentRecord) -> float:
        """Say what is due; return when to look again."""
        active = self._cabinet.active(dossier)
        voiced = [case for case in active if case.standing is NotificationState.NOTIFIED]
        storm = self._cabinet.dossiers.get(dossier.storm)
        if storm is not None and worse(dossier.severity, storm.severity):
            self._cabinet.release(dossier)
        if dossier.told is None and not dossier.storm:
            return self._first(dossier, active, voiced)
        if not active:
            return self._quiet(dossier)
        if dossier.quiet_since is not None:
            dossier.quiet_since = None
            self._cabinet.touched_dossiers[dossier.key] = None
        return NEVER if dossier.storm else self._further(dossier, active, voiced)

    def _first(
        self,
        dossier: IncidentRecord,
        active: Sequence[TrackedAlert],
        voiced: Sequence[TrackedAlert],
    ) -> float:
        if self._clock.time < dossier.wait_until and dossier.members:
            return dossier.wait_until
        if not active:
            self.finish(dossier)
        elif voiced:
            dossier.severity = worst(case.alert.severity for case in voiced)
            self.ready.append(dossier)
        return NEVER

    def _quiet(self, dossier: IncidentRecord) -> float:
        time = self._clock.time
        if dossier.quiet_since is None:
            dossier.quiet_since = time
            self._cabinet.touched_dossiers[dossier.key] = None
        over = dossier.quiet_since + self._settle(dossier)
        if time < over:
            return over
        self.finish(dossier)
        return NEVER

    def _settle(self, dossier: IncidentRecord) -> float:
        patience, quiet = self._patience, dossier.quiet_since or 0.0
        again = any(restless(case, quiet) for case in self._cabinet.members(dossier))
        return patience.settle_restless if again else patience.settle

    def _further(
        self,
        dossier: IncidentRecord,
        active: Sequence[TrackedAlert],
        voiced: Sequence[TrackedAlert],
    ) -> float:
        """Say what is to be said of an incident that was told and goes on."""
        time = self._clock.time
        if dossier.ack_until is not None and dossier.ack_until <= time:
            dossier.ack, dossier.ack_until, dossier.repeat_at = None, None, time
            dossier.happened(self._clock.wall, "lapsed")
            self._cabinet.touched_dossiers[dossier.key] = None
        due = NEVER if dossier.ack_until is None else dossier.ack_until
        if not voiced:
            return due
        severity = worst(case.alert.severity for case in voiced)
        if dossier.told is None or worse(severity, dossier.told):
            dossier.ack, dossier.ack_until = None, None
            self.trigger(dossier, "worse", active)
        elif dossier.ack is None and dossier.repeat_at is not None and dossier.repeat_at <= time:
            self.trigger(dossier, "repeat", active)
        elif any(case.flaps for case in active) and not dossier.told_flaps:
            self._update(dossier, "flapping", active)
        if dossier.ack is None and dossier.repeat_at is not None:
            due = min(due, dossier.repeat_at)
        return min(due, self._grown(dossier, active))

    def _grown(self, dossier: IncidentRecord, active: Sequence[TrackedAlert]) -> float:
        if dossier.storming is not None:
            return NEVER
        firing, total = len(active), len(dossier.members)
        known = (firing, total) == (dossier.told_firing, dossier.told_total)
        if known and not dossier.cause_untold:
            return NEVER
        if self._clock.time < dossier.next_update:
            return dossier.next_update
        more = total > dossier.told_total or firing > dossier.told_firing
        reason = "cause" if dossier.cause_untold else "more" if more else "fewer"
        self._update(dossier, reason, active)
        return NEVER

    # -- Saying it -------------------------------------------------------------------------------

    def trigger(self, dossier: IncidentRecord, reason: str, active: Sequence[TrackedAlert]) -> None:
        """Call somebody."""
        time, patience = self._clock.time, self._patience
        voiced = (
            case.alert.severity for case in active if case.standing is NotificationState.NOTIFIED
        )
        dossier.told = worst([*voiced, dossier.told or dossier.severity])
        if reason != "repeat":
            dossier.told_at = time
        page = dossier.severity is Severity.PAGE
        every = patience.repeat_page if page else patience.repeat_ticket
        dossier.repeat_at = time + every if every else None
        dossier.next_update = max(dossier.next_update, time + patience.ticket_wait)
        self._say(dossier, Action.TRIGGER, reason, active)

    def _update(self, dossier: IncidentRecord, reason: str, active: Sequence[TrackedAlert]) -> None:
        dossier.next_update = self._clock.time + self._patience.more_every
        self._say(dossier, Action.UPDATE, reason, active)

    def update(self, dossier: IncidentRecord, reason: str) -> None:
        """Tell those who look that there is more."""
        self._update(dossier, reason, self._cabinet.active(dossier))

    def acknowledge(self, dossier: IncidentRecord) -> None:
        """Tell all who were told that somebody takes care of it."""
        self._notice(dossier, Action.ACKNOWLEDGE, "acknowledged")

    def finish(self, dossier: IncidentRecord, reason: str = "resolved") -> None:
        """An incident is over; who was told of it is told so."""
        dossier.ended, dossier.closed = self._clock.wall, self._clock.time
        dossier.changed = self._clock.wall
        dossier.happened(self._clock.wall, "ended", why=reason)
        if dossier.told is not None:
            self._notice(dossier, Action.RESOLVE, reason)
        self._cabinet.close(dossier, incident_of(dossier, self._cabinet))
        self._due.pop(dossier.key, None)
        heapq.heappush(self._closed, (dossier.closed, dossier.key))

    def _say(
        self, dossier: IncidentRecord, action: Action, reason: str, active: Sequence[TrackedAlert]
    ) -> None:
        dossier.told_firing, dossier.told_total = len(active), len(dossier.members)
        dossier.cause_untold = False
        dossier.told_flaps = dossier.told_flaps or any(case.flaps for case in active)
        dossier.changed = self._clock.wall
        self._notice(dossier, action, reason)

    def _notice(self, dossier: IncidentRecord, action: Action, reason: str) -> None:
        dossier.notices += 1
        if action in {Action.TRIGGER, Action.UPDATE}:  # the other two have a line of their own
            dossier.happened(self._clock.wall, "told", why=reason)
        self._cabinet.touched_dossiers[dossier.key] = None
        incident = incident_of(dossier, self._cabinet)
        dossier.title = incident.title
        self.notices.append(
            Notice(
                id=f"{dossier.key}.{dossier.notices}",
                action=action,
                incident=incident,
                at=self._clock.wall,
                reason=reason,
            )
        )

    def _forget(self) -> None:
        """Forget what has been over for an hour."""
        while self._closed and self._clock.time - self._closed[0][0] >= HOUR:
            _, key = heapq.heappop(self._closed)
            del self._cabinet.dossiers[key]
            self._cabinet.touched_dossiers[key] = None


def worse(one: Severity, other: Severity) -> bool:
    """Whether one severity is worse than another."""
    return SEVERITIES.index(one) < SEVERITIES.index(other)
