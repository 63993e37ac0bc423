"""The storm limiter: when too many incidents open within a minute, one notice represents them all.

Incidents of one severity are counted by themselves, so that a flood of tickets never suppresses a
page. Suppressed incidents are listed as usual; the storm's own incident counts them, is notified
again when more pages have come, and ends with the last of them.
"""

from __future__ import annotations

from alerts.incidents.clock import SteadyClock
from alerts.incidents.grouping import IncidentGrouping
from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.notification_schedule import NotificationScheduler
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import IncidentRecord
from api.alerts import Severity

MINUTE = 60.0


class StormLimiter:
    """Makes the first notice of each new incident, or suppresses it under a storm incident."""

    def __init__(
        self,
        index: IncidentIndex,
        clock: SteadyClock,
        timings: NotificationTimings,
        grouping: IncidentGrouping,
        scheduler: NotificationScheduler,
    ) -> None:
        self._index = index
        self._clock = clock
        self._timings = timings
        self._grouping = grouping
        self._scheduler = scheduler

    def notify(self) -> None:
        """Notify or suppress the incidents that are ready; begin, continue and end storms."""
        ready = self._scheduler.drain_ready()
        for severity in SEVERITIES:
            here = [one for one in ready if one.severity is severity]
            try:
                self._notify(severity, here)
            except Exception as error:  # each is notified without regard to a storm
                for record in here:
                    self._scheduler.failed(record, error)

    def next_due(self) -> float:
        """Return when a storm may end, or is notified again."""
        return min(
            (min(self._ends(one), one.next_update) for one in self._storms() if one.storming),
            default=float("inf"),
        )

    def _notify(self, severity: Severity, ready: list[IncidentRecord]) -> None:
        time, size = self._clock.time, self._timings.storm_size
        arrivals = self._clock.state.arrivals
        if ready:
            recent = [at for at in arrivals.get(severity, ()) if time - at < MINUTE]
            arrivals[severity] = [*recent, *[time] * len(ready)][-(size + 1) :]
        storm = next((one for one in self._storms() if one.severity is severity), None)
        goes_on = storm is not None and storm.storming
        if ready and (goes_on or len(arrivals[severity]) > size):
            storm = storm or self._begin(severity)
            for record in ready:
                self._index.join_storm(record, storm)
            if not storm.storming or storm.notified is None:
                storm.storming = True
                self._send(storm, pages=True)
        else:
            for record in ready:
                active = self._index.active(record)
                flaps = any(one.flaps for one in active)
                try:
                    self._scheduler.trigger(record, "flapping" if flaps else "new", active)
                except Exception as error:
                    self._scheduler.failed(record, error)
                    continue
                self._scheduler.reschedule(record)
        if storm is not None and storm.storming:
            self._continue(storm)

    def _begin(self, severity: Severity) -> IncidentRecord:
        storm = self._grouping.open(
            {"rule": "storm", "severity": severity.value}, ("storm", severity.value), severity
        )
        storm.storming = False
        return storm

    def _continue(self, storm: IncidentRecord) -> None:
        """Send the new number of incidents, at intervals and when the storm ends."""
        if self._clock.time >= self._ends(storm):
            storm.storming = False
        elif self._clock.time < storm.next_update:
            return
        if storm.suppressed > storm.notified_suppressed:
            self._send(storm, pages=storm.severity is Severity.PAGE)
        else:
            storm.next_update = self._clock.time + self._timings.more_every

    def _send(self, storm: IncidentRecord, *, pages: bool) -> None:
        storm.notified_suppressed = storm.suppressed
        send = self._scheduler.trigger if pages else self._scheduler.update
        send(storm, "storm", self._index.active(storm))
        storm.next_update = self._clock.time + self._timings.more_every
        self._scheduler.reschedule(storm)

    def _ends(self, storm: IncidentRecord) -> float:
        """Return when fewer than half of what makes a storm will have come within a minute."""
        calm = self._timings.storm_size // 2
        arrivals = self._clock.state.arrivals.get(storm.severity, [])
        return arrivals[-calm - 1] + MINUTE if len(arrivals) > calm else 0.0

    def _storms(self) -> list[IncidentRecord]:
        return [
            record
            for severity in SEVERITIES
            for record in self._index.open_at(("storm", severity.value))
        ]
