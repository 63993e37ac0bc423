"""The storm limiter: when too many incidents open within a minute, one notice represents them all.

Incidents of one severity are counted by themselves, so that a flood of tickets never suppresses a
page. Suppressed incidents are listed as usual; the storm's own incident counts them, is notified
again when more pages have come, and ends with the last of them.

A node counts with a few incidents only. The others are suppressed under a storm of its own, so that
no node, whatever it reports, suppresses a page of another. In the storm of all, too, a node's first
incident within a minute is notified by itself, unless so many nodes have one that they are the storm.
"""

from __future__ import annotations

from alerts.incidents.clock import SteadyClock
from alerts.incidents.grouping import IncidentGrouping
from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.notification_schedule import NotificationScheduler
from alerts.incidents.places import Place
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import IncidentRecord
from api.alerts import Severity

MINUTE = 60.0
MOST_NODES = 1000
"""Nodes whose incidents of the last minute are kept before old ones are searched for."""


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
        self._share = max(2, timings.storm_size // 4)
        """Incidents of one node within a minute that are notified, and count for the storm of all."""
        self._of_node: dict[Place, list[float]] = {}
        """When a node's last incidents of a severity were ready, by the place of its storm."""
        self._restore()
        self._places = {one.place for one in index.incidents.values() if one.storming is not None}
        """Where storms of single nodes are, or were."""

    def notify(self) -> None:
        """Notify or suppress the incidents that are ready; begin, continue and end storms."""
        ready = self._scheduler.drain_ready()
        for severity in SEVERITIES:
            here = [one for one in ready if one.severity is severity]
            aside, part = self._scheduler.aside, f"storms/{severity.value}"
            try:
                self._notify(severity, here)
                if len(aside):
                    aside.works(part)
            except Exception as error:  # each is notified without regard to a storm
                aside.fail(part, error, self._clock.time)
                for record in here:
                    self._scheduler.failed(record, error)

    def next_due(self) -> float:
        """Return when a storm may end, or is notified again."""
        return min(
            (min(self._ends(one), one.next_update) for one in self._storms() if one.storming),
            default=float("inf"),
        )

    def _notify(self, severity: Severity, ready: list[IncidentRecord]) -> None:
        counted: list[IncidentRecord] = []
        first: set[str] = set()
        excess: dict[Place, list[IncidentRecord]] = {}
        for record in ready:
            node = record.group.get("node")
            place = _storm_of(severity, node)
            if node is None or self._counts(place, record):
                counted.append(record)
                if node is not None and len(self._of_node[place]) == 1:
                    first.add(record.key)
            else:
                excess.setdefault(place, []).append(record)
        self._notify_counted(severity, counted, first)
        for place, records in excess.items():
            group = {"rule": "storm", "severity": severity.value, "node": records[0].group["node"]}
            self._suppress(severity, place, group, records)
        for storm in self._storms():
            if storm.severity is severity and storm.storming:
                self._continue(storm)
        self._places = {place for place in self._places if self._index.open_at(place)}

    def _restore(self) -> None:
        """Count again what counted before a restart."""
        counted = [
            (record.counted_at, record)
            for record in self._index.incidents.values()
            if record.counted_at is not None and self._clock.time - record.counted_at < MINUTE
        ]
        for at, record in sorted(counted, key=lambda one: (one[0], one[1].order)):
            place = _storm_of(record.severity, record.group.get("node"))
            self._of_node[place] = [*self._of_node.get(place, ()), at][-(self._share + 1) :]

    def _counts(self, place: Place, record: IncidentRecord) -> bool:
        """Return whether a further incident of a node is within its share of a minute; note it."""
        time = self._clock.time
        if len(self._of_node) > MOST_NODES:
            self._of_node = {
                key: times for key, times in self._of_node.items() if time - times[-1] < MINUTE
            }
        times = [at for at in self._of_node.get(place, ()) if time - at < MINUTE]
        self._of_node[place] = [*times, time][-(self._share + 1) :]
        record.counted_at = time
        return len(times) < self._share

    def _few_nodes(self, severity: Severity) -> bool:
        """Return whether fewer nodes have incidents of a severity within a minute than make a storm."""
        time, of = self._clock.time, _storm_of(severity, "")[1]
        recent = (
            place[1].startswith(of) and time - times[-1] < MINUTE
            for place, times in self._of_node.items()
        )
        return sum(recent) <= self._timings.storm_size

    def _notify_counted(
        self, severity: Severity, ready: list[IncidentRecord], first: set[str]
    ) -> None:
        """Notify incidents, or suppress them in the storm of all. `first`: keys of those that are the
        first of their node within a minute."""
        time, size = self._clock.time, self._timings.storm_size
        arrivals = self._clock.state.arrivals
        if ready:
            recent = [at for at in arrivals.get(severity, ()) if time - at < MINUTE]
            arrivals[severity] = [*recent, *[time] * len(ready)][-(size + 1) :]
        place = ("storm", severity.value)
        storm = next(iter(self._index.open_at(place)), None)
        goes_on = storm is not None and bool(storm.storming)
        if ready and (goes_on or len(arrivals[severity]) > size):
            group = {"rule": "storm", "severity": severity.value}
            alone = first if self._few_nodes(severity) else set()
            rest = [record for record in ready if record.key not in alone]
            if rest:
                self._suppress(severity, place, group, rest)
            ready = [record for record in ready if record.key in alone]
        for record in ready:
            active = self._index.active(record)
            flaps = any(one.flaps for one in active)
            try:
                self._scheduler.trigger(record, "flapping" if flaps else "new", active)
            except Exception as error:
                self._scheduler.failed(record, error)
                continue
            self._scheduler.reschedule(record)

    def _suppress(
        self, severity: Severity, place: Place, group: dict[str, str], ready: list[IncidentRecord]
    ) -> None:
        """Suppress incidents under the storm incident of a place, which begins if there is none."""
        storm = next(iter(self._index.open_at(place)), None)
        if storm is None:
            storm = self._grouping.open(group, place, severity)
            storm.storming = False
            self._places.add(place)
        for record in ready:
            self._index.join_storm(record, storm)
        if not storm.storming or storm.notified is None:
            storm.storming = True
            self._send(storm, pages=True)

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
        if storm.place == ("storm", storm.severity.value):
            size, arrivals = (
                self._timings.storm_size,
                self._clock.state.arrivals.get(storm.severity),
            )
        else:
            size, arrivals = self._share, self._of_node.get(storm.place)
        calm = size // 2
        return arrivals[-calm - 1] + MINUTE if arrivals and len(arrivals) > calm else 0.0

    def _storms(self) -> list[IncidentRecord]:
        places = [*(("storm", severity.value) for severity in SEVERITIES), *self._places]
        return [record for place in dict.fromkeys(places) for record in self._index.open_at(place)]


def _storm_of(severity: Severity, node: str | None) -> Place:
    """Return the place of the storm of one node."""
    return ("storm", f"{severity.value}/{node}")
