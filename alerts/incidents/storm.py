"""The storm brake: when too many incidents begin within a minute, one notice tells of them all.

Incidents of one severity are counted by themselves, so that a flood of tickets never holds a page
back. What is held back is shown as ever; a storm's own incident counts it, is told again when more
pages have come, and ends with the last of them.
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
    """Tells new incidents one by one, or holds them back."""

    def __init__(
        self,
        cabinet: IncidentIndex,
        clock: SteadyClock,
        patience: NotificationTimings,
        grouping: IncidentGrouping,
        telling: NotificationScheduler,
    ) -> None:
        self._cabinet = cabinet
        self._clock = clock
        self._patience = patience
        self._grouping = grouping
        self._telling = telling

    def tell(self) -> None:
        """Tell what is ready; begin, go on with and end storms."""
        ready, self._telling.ready = self._telling.ready, []
        for severity in SEVERITIES:
            self._tell(severity, [one for one in ready if one.severity is severity])

    def next_due(self) -> float:
        """Return when a storm may end, or is told again."""
        return min(
            (min(self._ends(one), one.next_update) for one in self._storms() if one.storming),
            default=float("inf"),
        )

    def _tell(self, severity: Severity, ready: list[IncidentRecord]) -> None:
        time, size = self._clock.time, self._patience.storm_size
        arrivals = self._clock.pulse.arrivals
        if ready:
            recent = [at for at in arrivals.get(severity, ()) if time - at < MINUTE]
            arrivals[severity] = [*recent, *[time] * len(ready)][-(size + 1) :]
        storm = next((one for one in self._storms() if one.severity is severity), None)
        goes_on = storm is not None and storm.storming
        if ready and (goes_on or len(arrivals[severity]) > size):
            storm = storm or self._begin(severity)
            for dossier in ready:
                self._cabinet.hold(dossier, storm)
            if not storm.storming or storm.told is None:
                storm.storming = True
                self._say(storm, calls=True)
        else:
            for dossier in ready:
                active = self._cabinet.active(dossier)
                flaps = any(case.flaps for case in active)
                self._telling.trigger(dossier, "flapping" if flaps else "new", active)
                self._telling.again(dossier)
        if storm is not None and storm.storming:
            self._go_on(storm)

    def _begin(self, severity: Severity) -> IncidentRecord:
        storm = self._grouping.begin(
            {"rule": "storm", "severity": severity.value}, ("storm", severity.value), severity
        )
        storm.storming = False
        return storm

    def _go_on(self, storm: IncidentRecord) -> None:
        """Say how many there are by now, at times and when it is over."""
        if self._clock.time >= self._ends(storm):
            storm.storming = False
            self._cabinet.touched_dossiers[storm.key] = None
        elif self._clock.time < storm.next_update:
            return
        if storm.held > storm.told_held:
            self._say(storm, calls=storm.severity is Severity.PAGE)
        else:
            storm.next_update = self._clock.time + self._patience.more_every

    def _say(self, storm: IncidentRecord, *, calls: bool) -> None:
        storm.told_held = storm.held
        if calls:
            self._telling.trigger(storm, "storm", self._cabinet.active(storm))
        else:
            self._telling.update(storm, "storm")
        storm.next_update = self._clock.time + self._patience.more_every
        self._telling.again(storm)

    def _ends(self, storm: IncidentRecord) -> float:
        """Return when fewer than half of what makes a storm will have come within a minute."""
        calm = self._patience.storm_size // 2
        arrivals = self._clock.pulse.arrivals.get(storm.severity, [])
        return arrivals[-calm - 1] + MINUTE if len(arrivals) > calm else 0.0

    def _storms(self) -> list[IncidentRecord]:
        return [
            dossier
            for severity in SEVERITIES
            for dossier in self._cabinet.open_at(("storm", severity.value))
        ]
