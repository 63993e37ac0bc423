"""The life of tracked alerts: they fire, resolve, stop flapping, and are removed after an hour."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from alerts.incidents.clock import SteadyClock
from alerts.incidents.flap import HOUR, add_flip, last_flip, recurs, stable_at
from alerts.incidents.index import IncidentIndex
from alerts.incidents.places import moved
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import TrackedAlert
from alerts.incidents.suppression import AlertSuppressor
from api.alerts import UNIT_LABELS, Alert, AlertState, NotificationState, Severity


class AlertLifecycle:
    """Tracks every alert while it fires, and for an hour after."""

    def __init__(
        self, index: IncidentIndex, clock: SteadyClock, suppressor: AlertSuppressor, timings: NotificationTimings
    ) -> None:
        self._index = index
        self._clock = clock
        self._suppressor = suppressor
        self._timings = timings
        self._due: list[tuple[float, str]] = []
        """When an alert may stop flapping or be removed."""
        for tracked in index.alerts.values():
            self._schedule(tracked)

    def receive(self, alert: Alert) -> None:
        """Apply one alert that began to fire, changed or resolved; of several faults each by itself."""
        for one in alerts_of(alert):
            self._receive(one, newest=one.faults[-1:] == alert.faults[-1:])

    def _receive(self, alert: Alert, *, newest: bool) -> None:
        tracked = self._index.alerts.get(alert.key)
        fires = alert.state is AlertState.FIRING and alert.severity is not Severity.INFO
        if not fires:
            if tracked is not None and tracked.firing and alert.state is not AlertState.PENDING:
                self._resolve(tracked, alert if newest else _ended(tracked.alert, alert))
        elif tracked is None or not tracked.firing:
            self._fire(tracked, alert)
        elif tracked.alert != alert and newest:  # the text is that of the newest fault
            self._index.remove_inhibition(tracked)
            tracked.alert = alert
            self._add_inhibition(tracked)

    def expire(self) -> None:
        """End flapping that is over, and remove alerts that resolved an hour ago."""
        time = self._clock.time
        for tracked in self._index.drain_detached():
            self._schedule(tracked)
        while self._due and self._due[0][0] <= time:
            _, key = heapq.heappop(self._due)
            found = self._index.alerts.get(key)
            if found is None:
                continue
            if found.flaps and stable_at(found, self._timings) <= time:
                found.flaps = False
            if found.flaps or (not found.firing and _removed_at(found) > time):
                self._schedule(found)
            elif not found.firing and not found.incident:
                self._index.remove_alert(key)

    def next_due(self) -> float:
        """Return when `expire` has something to do."""
        return self._due[0][0] if self._due else float("inf")

    def _fire(self, tracked: TrackedAlert | None, alert: Alert) -> None:
        if tracked is None:
            tracked = TrackedAlert(order=self._clock.order(), alert=alert)
            self._index.add_alert(tracked)
        elif tracked.incident and alert.gpu is not None and moved(tracked.alert, alert):
            self._index.detach(tracked)  # of the board in its slot of before
        elif tracked.incident and self._rings_again(tracked):
            self._index.detach(tracked)
        tracked.alert, tracked.firing, tracked.since = alert, True, self._clock.time
        add_flip(tracked, self._clock.time, self._timings)
        self._schedule(tracked)
        self._add_inhibition(tracked)

    def _rings_again(self, tracked: TrackedAlert) -> bool:
        """Whether a page fires again in an incident that tickets alone have kept open: its page was over,
        and another must ring. A ticket about a board that fails often stays for weeks."""
        record = self._index.incidents.get(tracked.incident)
        if record is None or record.notified is not Severity.PAGE:
            return False
        pages: list[TrackedAlert] = []
        tickets: list[TrackedAlert] = []
        for one in self._index.members(record):
            (pages if one.alert.severity is Severity.PAGE else tickets).append(one)
        if tracked not in pages or any(one.firing or one.flaps for one in pages):
            return False
        if not any(one.firing or one.flaps for one in tickets):
            return False  # it is open for a moment only
        quiet = max(last_flip(one) for one in pages)
        again = any(recurs(one, quiet) for one in pages)
        settle = self._timings.settle_recurring if again else self._timings.settle
        return self._clock.time - quiet >= settle

    def _add_inhibition(self, tracked: TrackedAlert) -> None:
        self._index.add_inhibition(tracked)
        self._suppressor.pending[tracked.alert.key] = None
        self._suppressor.pending.update(dict.fromkeys(self._index.may_follow(tracked)))

    def _resolve(self, tracked: TrackedAlert, alert: Alert) -> None:
        self._index.remove_inhibition(tracked)
        self._suppressor.pending.update(self._index.effects.get(alert.key, {}))
        self._index.set_state(tracked, NotificationState.NOTIFIED, "")
        tracked.alert, tracked.firing = alert, False
        add_flip(tracked, self._clock.time, self._timings)
        self._schedule(tracked)

    def _schedule(self, tracked: TrackedAlert) -> None:
        """Schedule the check of an alert that flaps, or that has resolved."""
        if tracked.flaps:
            heapq.heappush(self._due, (stable_at(tracked, self._timings), tracked.alert.key))
        elif not tracked.firing:
            heapq.heappush(self._due, (_removed_at(tracked), tracked.alert.key))


def alerts_of(alert: Alert) -> Iterator[Alert]:
    """Yield the alerts that are notified of an alert: one of each of its faults, of which the first has
    its key."""
    if not alert.faults:
        yield alert
    for number, fault in enumerate(alert.faults):
        key = f"{alert.key}/{fault}" if number else alert.key
        place = {name: each for name, each in alert.labels.items() if name not in UNIT_LABELS}
        labels = {**place, "fault": fault, **alert.units.get(fault, {})}
        yield msgspec.structs.replace(alert, key=key, faults=(fault,), labels=labels)


def key_of_all(alert: Alert) -> str:
    """Return the key of the alert of which an alert is one fault."""
    return alert.key.removesuffix(f"/{alert.faults[0]}") if alert.faults else alert.key


def _ended(before: Alert, alert: Alert) -> Alert:
    """Return the end of an alert with the texts that it had."""
    return msgspec.structs.replace(before, state=alert.state, changed=alert.changed, ended=alert.ended)


def _removed_at(tracked: TrackedAlert) -> float:
    """Return when an alert that has resolved, and belongs to no incident, is removed."""
    return last_flip(tracked) + HOUR
