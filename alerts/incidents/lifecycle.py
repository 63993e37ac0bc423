"""Alerts as they come in: begun, resolved, seen again; and what becomes of their cases."""

from __future__ import annotations

import heapq

from alerts.incidents.clock import SteadyClock
from alerts.incidents.flap import HOUR, calms_at, flipped
from alerts.incidents.index import IncidentIndex
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import TrackedAlert
from alerts.incidents.suppression import AlertSuppressor
from api.alerts import Alert, AlertState, NotificationState, Severity


class AlertLifecycle:
    """Keeps a case of every alert that fires, and for an hour after it did."""

    def __init__(
        self,
        cabinet: IncidentIndex,
        clock: SteadyClock,
        holding: AlertSuppressor,
        patience: NotificationTimings,
    ) -> None:
        self._cabinet = cabinet
        self._clock = clock
        self._holding = holding
        self._patience = patience
        self._looks: list[tuple[float, str]] = []
        """When to look at a case: it may have calmed down, or be over."""
        for case in cabinet.cases.values():
            self._watch(case)

    def learn(self, alert: Alert) -> None:
        """Take one alert that began to fire or resolved."""
        case = self._cabinet.cases.get(alert.key)
        fires = alert.state is AlertState.FIRING and alert.severity is not Severity.INFO
        if not fires:
            if case is not None and case.firing and alert.state is not AlertState.PENDING:
                self._resolve(case, alert)
        elif case is None or not case.firing:
            self._fire(case, alert)
        elif case.alert != alert:
            self._cabinet.leave(case)
            case.alert = alert
            self._enter(case)

    def look(self) -> None:
        """Let alerts calm down, and forget what is over."""
        time = self._clock.time
        for key in self._cabinet.drain_parted():
            if (parted := self._cabinet.cases.get(key)) is not None:
                self._watch(parted)
        while self._looks and self._looks[0][0] <= time:
            _, key = heapq.heappop(self._looks)
            case = self._cabinet.cases.get(key)
            if case is None:
                continue
            if case.flaps and calms_at(case, self._patience) <= time:
                case.flaps = False
                self._cabinet.touched_cases[key] = None
            if case.flaps or (not case.firing and over_at(case) > time):
                self._watch(case)
            elif not case.firing and not case.incident:
                self._cabinet.forget(key)

    def next_due(self) -> float:
        """Return when the next case must be looked at."""
        return self._looks[0][0] if self._looks else float("inf")

    def _fire(self, case: TrackedAlert | None, alert: Alert) -> None:
        if case is None:
            case = TrackedAlert(order=self._clock.order(), alert=alert)
            self._cabinet.cases[alert.key] = case
        case.alert, case.firing, case.since = alert, True, self._clock.time
        flipped(case, self._clock.time, self._patience)
        self._watch(case)
        self._enter(case)

    def _enter(self, case: TrackedAlert) -> None:
        self._cabinet.enter(case)
        self._cabinet.touched_cases[case.alert.key] = None
        self._holding.asked[case.alert.key] = None
        self._holding.asked.update(dict.fromkeys(self._cabinet.may_follow(case)))

    def _resolve(self, case: TrackedAlert, alert: Alert) -> None:
        self._cabinet.leave(case)
        self._holding.asked.update(self._cabinet.effects.get(alert.key, {}))
        self._cabinet.stand(case, NotificationState.NOTIFIED, "")
        case.alert, case.firing = alert, False
        flipped(case, self._clock.time, self._patience)
        self._watch(case)

    def _watch(self, case: TrackedAlert) -> None:
        """Look at a case again when it may have calmed down or be over."""
        if case.flaps:
            heapq.heappush(self._looks, (calms_at(case, self._patience), case.alert.key))
        elif not case.firing:
            heapq.heappush(self._looks, (over_at(case), case.alert.key))


def over_at(case: TrackedAlert) -> float:
    """Return when an alert that has resolved, and belongs to no incident, is removed."""
    return (case.flips[-1] if case.flips else 0.0) + HOUR
