"""The storm limiter: when too many incidents open within a minute, one notice represents them all.

Incidents of one severity are counted by themselves, so that a flood of tickets never suppresses a
page. Suppressed incidents are listed as usual; the storm's own incident counts them, rings once, is
updated when more have come, and ends with the last of them. It has what rang in the minute before it. A fault
of another rule than the storm's stays audible.

A node counts with a few incidents only. The others are suppressed under a storm of its own, so that
no node, whatever it reports, suppresses a page of another. In the storm of all, too, a node's first
incident within a minute is notified by itself, unless so many nodes have one that they are the storm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from alerts.incidents.clock import SteadyClock
from alerts.incidents.grouping import IncidentGrouping
from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.notification_schedule import NotificationScheduler
from alerts.incidents.places import Place
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.shared import Traits, shared
from alerts.incidents.state import IncidentRecord
from api.alerts import Severity

MINUTE = 60.0
GATHER, GATHER_NODES = 5.0, 5
"""Seconds for which pages of one rule wait that come on so many nodes, and for which a storm waits for its number."""
CALM = 2.0
"""Seconds without a new incident after which the number of a storm is known."""
STORM_UPDATE = 30.0
"""Seconds between two updates of the number of a storm."""
LONGEST_TAIL = 300.0
"""Seconds within which what comes a minute after the last incident is still of the storm."""
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
        traits: Callable[[], Mapping[str, Traits]] = dict,
    ) -> None:
        """`traits`: returns what each node of the fleet is."""
        self._traits = traits
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
            (min(self._ends(one), max(one.next_update, self._known_at(one))) for one in self._storms() if one.storming),
            default=float("inf"),
        )

    def _notify(self, severity: Severity, ready: list[IncidentRecord]) -> None:
        ready = self._gathered(severity, ready)
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
            self._suppress(self._open(severity, place, group), records)
        for storm in self._storms():
            if storm.severity is severity and storm.storming:
                self._continue(storm)
        self._places = {place for place in self._places if self._index.open_at(place)}

    def _gathered(self, severity: Severity, ready: list[IncidentRecord]) -> list[IncidentRecord]:
        """Return the incidents that need not wait: where one rule fires on several nodes within moments, each waits
        for as long as a storm takes to show itself, or the first ones of it would ring one by one."""
        time = self._clock.time
        if not ready or severity is not Severity.PAGE or self._going(("storm", severity.value)):
            return ready
        nodes = self._nodes(severity, GATHER)
        several = {rule for rule, its in nodes.items() if len(its) >= GATHER_NODES}
        alone = []
        for record in ready:
            if several.intersection(record.rules) and time - record.opened < GATHER:
                record.wait_until = record.opened + GATHER
                self._scheduler.reschedule(record)
            else:
                alone.append(record)
        return alone

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
            self._of_node = {key: times for key, times in self._of_node.items() if time - times[-1] < MINUTE}
        times = [at for at in self._of_node.get(place, ()) if time - at < MINUTE]
        self._of_node[place] = [*times, time][-(self._share + 1) :]
        record.counted_at = time
        return len(times) < self._share

    def _nodes(self, severity: Severity, seconds: float) -> dict[str, set[str]]:
        """Return the nodes whose incidents were opened within some seconds, by rule."""
        nodes: dict[str, set[str]] = {}
        for record in self._index.incidents.values():
            if record.severity is severity and self._clock.time - record.opened < seconds:
                for rule in record.rules if "node" in record.group else ():
                    nodes.setdefault(rule, set()).add(record.group["node"])
        return nodes

    def _few_nodes(self, nodes: set[str], storm: IncidentRecord | None) -> bool:
        """Return whether fewer nodes have incidents of a severity within a minute, or in its storm, than make a
        storm."""
        if storm is not None and len(nodes) <= self._timings.storm_size:
            nodes = nodes | {one.group.get("node", "") for one in self._index.in_storm(storm)}
        return len(nodes) <= self._timings.storm_size

    def _going(self, place: Place) -> IncidentRecord | None:
        """Return the storm that goes on at a place."""
        storm = next(iter(self._index.open_at(place)), None)
        return storm if storm is not None and storm.storming else None

    def _recent(self, severity: Severity) -> list[IncidentRecord]:
        """Return the open incidents of a severity of the last minute that no storm has."""
        return [
            record
            for record in self._index.incidents.values()
            if record.closed is None
            and record.severity is severity
            and record.storming is None
            and not record.storm
            and self._clock.time - record.opened < MINUTE
        ]

    def _rules_of(self, severity: Severity) -> tuple[str, ...]:
        """Return the rules that a storm is of which begins now; a fault of none of them stays audible."""
        counts = Counter(rule for record in self._recent(severity) for rule in record.rules)
        common = {rule for rule, count in counts.items() if count > self._share}
        return tuple(sorted(common or counts))

    def _begin(self, severity: Severity, place: Place, group: dict[str, str], rules: tuple[str, ...]) -> IncidentRecord:
        """Open a storm incident, and let it have what rang before it."""
        recent = self._recent(severity)
        storm = self._open(severity, place, group)
        storm.rules = rules
        for record in recent:
            known = record.notified is not None and record.ack is None
            if known and set(record.rules).intersection(rules):
                self._index.join_storm(record, storm)
        return storm

    def _is_unlike(self, severity: Severity, rules: tuple[str, ...], record: IncidentRecord) -> bool:
        """Return whether an incident is another fault than a storm's, and one of few of its rule within a minute."""
        if not record.rules or set(record.rules).intersection(rules):
            return False
        time, arrivals = self._clock.time, self._clock.state.arrivals
        part = f"{severity.value}/{record.rules[0]}"
        times = [at for at in arrivals.get(part, ()) if time - at < MINUTE]
        arrivals[part] = [*times, time][-(self._share + 1) :]
        return len(times) < self._share

    def _notify_counted(self, severity: Severity, ready: list[IncidentRecord], first: set[str]) -> None:
        """Notify incidents, or suppress them in the storm of all. `first`: keys of those that are the
        first of their node within a minute."""
        time, size = self._clock.time, self._timings.storm_size
        arrivals = self._clock.state.arrivals
        if ready:
            recent = [at for at in arrivals.get(severity, ()) if time - at < MINUTE]
            arrivals[severity] = [*recent, *[time] * len(ready)][-(size + 1) :]
        place = ("storm", severity.value)
        storm = self._going(place)
        nodes = self._nodes(severity, MINUTE) if ready else {}
        spreads = any(len(its) > size for its in nodes.values())
        if ready and (storm is not None or spreads or len(arrivals[severity]) > size):
            rules = self._rules_of(severity) if storm is None else storm.rules
            few = self._few_nodes(set().union(*nodes.values()), storm)
            alone = set(first) if few else set()
            alone |= {record.key for record in ready if self._is_unlike(severity, rules, record)}
            rest = [record for record in ready if record.key not in alone]
            if rest:
                group = {"rule": "storm", "severity": severity.value}
                storm = storm or self._begin(severity, place, group, rules)
                new = [rule for record in rest for rule in record.rules[:1]]
                storm.rules = tuple(dict.fromkeys([*storm.rules, *new]))
                self._suppress(storm, rest)
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

    def _open(self, severity: Severity, place: Place, group: dict[str, str]) -> IncidentRecord:
        """Return the storm incident of a place, which begins if there is none."""
        storm = next(iter(self._index.open_at(place)), None)
        if storm is None:
            storm = self._grouping.open(group, place, severity)
            storm.storming = False
            self._places.add(place)
        return storm

    def _suppress(self, storm: IncidentRecord, ready: list[IncidentRecord]) -> None:
        """Suppress incidents under a storm incident; it is notified when its number is nearly known."""
        for record in ready:
            self._index.join_storm(record, storm)
            storm.joined = self._clock.time
        if ready and not storm.storming:
            storm.storming = True
            storm.next_update = self._clock.time

    def _continue(self, storm: IncidentRecord) -> None:
        """Send the page of a storm, and the new number of incidents, at intervals and when it ends: one that has
        rung does not ring again."""
        time = self._clock.time
        if time >= self._ends(storm):
            storm.storming = False
        elif time < max(storm.next_update, self._known_at(storm)):
            return
        if storm.notified is None or storm.suppressed > storm.notified_suppressed:
            self._send(storm)
        else:
            storm.next_update = time + STORM_UPDATE

    def _known_at(self, storm: IncidentRecord) -> float:
        """Return when the number of a storm that has not rung is known well enough: no more come, or many have."""
        if storm.notified is not None or "node" in storm.group:
            return 0.0
        return min(storm.joined + CALM, storm.opened + GATHER)

    def _send(self, storm: IncidentRecord) -> None:
        storm.notified_suppressed = storm.suppressed
        active = self._index.active(storm)
        nodes = {one.alert.node for one in active if one.alert.node}
        if "node" not in storm.group:
            with self._scheduler.aside.attempt("traits", self._clock.time):  # else it says less
                storm.shared = shared(nodes, self._traits())
        send = self._scheduler.trigger if storm.notified is None else self._scheduler.update
        send(storm, "storm", active)
        storm.next_update = self._clock.time + STORM_UPDATE
        self._scheduler.reschedule(storm)

    def _ends(self, storm: IncidentRecord) -> float:
        """Return when fewer than half of what makes a storm will have come within a minute; and none, in its first
        minutes: what comes last rings nobody."""
        if storm.place == ("storm", storm.severity.value):
            size, arrivals = (self._timings.storm_size, self._clock.state.arrivals.get(storm.severity))
        else:
            size, arrivals = self._share, self._of_node.get(storm.place)
        calm = size // 2
        if not arrivals or len(arrivals) <= calm:
            return 0.0
        last = min(arrivals[-1] + MINUTE, storm.opened + LONGEST_TAIL)
        return max(arrivals[-calm - 1] + MINUTE, last)

    def _storms(self) -> list[IncidentRecord]:
        places = [*(("storm", severity.value) for severity in SEVERITIES), *self._places]
        return [record for place in dict.fromkeys(places) for record in self._index.open_at(place)]


def _storm_of(severity: Severity, node: str | None) -> Place:
    """Return the place of the storm of one node."""
    return ("storm", f"{severity.value}/{node}")
