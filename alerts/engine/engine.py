"""The engine: every rule on every row of the fleet and the power snapshots, once a tick.

Pure: it reads no clock and does no I/O; the aggregator's loop hands it the fleet, the power snapshots, the
time and what happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.engine.peer_groups import PeerGroups
from alerts.engine.recent_events import DisturbanceTracker, EvaluatedEvents, place_events
from alerts.engine.restore import AlertRecord, RestoredAlerts, ended
from alerts.engine.row_index import RowIndex, SnapshotRowIndex, devices, line_of, spot_of
from alerts.engine.row_memory import RowChange
from alerts.engine.rule_evaluator import Reading, RuleEvaluator
from alerts.engine.snapshot import FleetSnapshot
from alerts.engine.state_machine import AlertPhase
from alerts.engine.subjects import RowSubject, place_of
from alerts.engine.templates import UNKNOWN
from alerts.rules.conditions import happenings_of
from alerts.rules.names import home, say
from alerts.rules.rule import Rule
from api.alerts import Alert, AlertState, Severity, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.fleet import Fleet
from telemetry.inventory import Event
from telemetry.metric import Table

RESOLVED_SHOWN = 900.0
"""Seconds for which a resolved alert is still listed: long enough to be seen by who was paged."""
STALL = 5.0
"""Seconds. A pause between two ticks that is longer than this, and than three of the usual ones, is
our own: nobody was heard in it."""
_STILL = 3
"""Long pauses in a row that are no stall but a new rhythm: else nobody would be silent ever again."""
_EVENT_AGE = 3_600_000_000_000
"""ns: an event that comes an hour late is history, unless its rule would keep firing for longer."""


class RuleEngine:
    """All rules, and what they remember."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.places: Mapping[str, Mapping[str, str]] = {}
        """Labels of each node that others know: `circuits`, `rack`, `job`. Give another mapping
        when they change; it is read as it is."""
        self.tariff: tuple[float, str] | None = None
        """Price of a kWh and its currency, where the operator told it."""
        self.events_unplaced = 0
        """Events of nodes that the fleet did not know; only grows."""
        self._tracks = list(_tracks(rules))
        self._census = RowIndex()
        self._snapshots: dict[SnapshotKind, PowerSnapshot] = {}
        self._snapshot_census = SnapshotRowIndex()
        self._lobby = RestoredAlerts()
        self._judged = EvaluatedEvents()
        self._calm = DisturbanceTracker()
        self._likeness = PeerGroups()
        self._resolved: deque[tuple[float, Alert]] = deque()
        self._fleet = Fleet()
        self._last_tick = -np.inf
        self._now = -np.inf
        self._rhythm: float | None = None
        """Seconds between two calls, as a rule."""
        self._long_pauses = 0
        """How many in a row were longer than that."""
        self._listening_since = -np.inf
        self._event_age = max([_EVENT_AGE, *(int(rule.keep * 1e9) for rule in rules)])
        self._turns = 0

    # -- Every tick ------------------------------------------------------------------------------

    def evaluate(
        self,
        fleet: Fleet,
        now: float,
        wall_ns: int,
        events: Sequence[Event] = (),
        *,
        listening: bool = True,
        snapshots: Sequence[PowerSnapshot] = (),
    ) -> list[Alert]:
        """Judge everything once; return the alerts that began to fire or resolved at this tick.

        `now`: the fleet's monotonic clock, seconds. `events`: those since the last call, each once.
        `listening`: whether the aggregator hears the bus; while it does not, and for as long as it
        then takes, no node is called silent. `snapshots`: those that there are now; a rule on a power snapshot
        that is not among them waits.
        """
        self._fleet, self._now = fleet, now
        self._snapshots = {snapshot.kind: snapshot for snapshot in snapshots}
        if not listening or self._slept(now):
            self._listening_since = now
        changes = self._follow(wall_ns)
        fresh = self._judged.sift(events)
        placed, unplaced = place_events(fleet, fresh, wall_ns - self._event_age)
        self.events_unplaced += unplaced
        self._calm.disturb(fleet, placed, now)
        self._likeness.follow(fleet, self._census, self.places)
        look = FleetSnapshot(
            fleet, self._snapshots, self._census, now, wall_ns, self._listening_since, placed,
            self._likeness, self._calm.since,
        )  # fmt: skip
        energy = look.values("gpu_energy_joules_total", Subject.GPU)
        self._calm.watch(energy, self._census.owner[Table.LINK], now)
        for track in self._tracks:
            if not look.has(track.subject):
                continue
            for entry, state in track.step(look):
                alert = self._alert(track, entry, state, wall_ns)
                if alert is not None:
                    changes.append(alert)
                if state is AlertState.RESOLVED:
                    track.forget(int(entry["row"]))
        self._remember(changes, now)
        return changes

    def alerts(self) -> list[Alert]:
        """Return all that is pending, firing or resolved not long ago, worst first."""
        listed = [alert for _, alert in self._resolved]
        listed += [alert for _, _, alert in self._standing()]
        listed += [record.alert for record in self._lobby.records()]
        return sorted(listed, key=_worst_first)

    # -- Restarts --------------------------------------------------------------------------------

    @property
    def turns(self) -> int:
        """Counts up whenever `snapshot` would say something else than before: worth writing."""
        return self._turns + sum(track.life.turns for track in self._tracks)

    @property
    def bytes(self) -> int:
        """What the rules remember of all rows together."""
        return sum(track.rows.bytes for track in self._tracks) + self._calm.bytes

    def snapshot(self, wall_ns: int) -> list[AlertRecord]:
        """Return everything pending or firing, to be given to `restore` after a restart."""
        records = [
            track.record(alert, entry, self._now, wall_ns)
            for track, entry, alert in self._standing()
        ]
        return records + list(self._lobby.records())

    def restore(self, records: Iterable[AlertRecord], now: float, wall_ns: int) -> None:
        """Go on with the alerts of before a restart: they are listed at once, stand in their
        devices' rows when those appear, and none fires anew."""
        self._lobby.enter(records, now, wall_ns)
        self._turns += 1

    def recall(self, fleet: Fleet, events: Iterable[Event], now: float, wall_ns: int) -> None:
        """Take in the events of the last day, oldest first, that were judged before a restart: so
        that repetitions are counted on and none of them is judged twice. Nothing fires.

        An event that was stored but perhaps not judged is given to `evaluate` instead: where its
        alert fires already, that makes no second page. Nodes must be in the fleet by then.
        """
        self._fleet, self._now = fleet, now
        for _ in self._follow(wall_ns):
            self._turns += 1
        known = self._judged.sift(events)
        placed, _ = place_events(fleet, known, wall_ns - 86_400_000_000_000)
        for track in self._tracks:
            if track.subject.table is not None:
                for row, event in placed[track.subject.table]:
                    track.recall(event, row, now - max(0.0, (wall_ns - event.at) / 1e9))

    # -- Rows ------------------------------------------------------------------------------------

    def _slept(self, now: float) -> bool:
        """Whether the pause since the last call was longer than our rhythm."""
        pause, self._last_tick = now - self._last_tick, now
        if pause <= max(STALL, 3 * (self._rhythm or 0.0)):
            self._rhythm, self._long_pauses = pause, 0
            return False
        self._long_pauses += 1
        first = self._rhythm is None and np.isfinite(pause)
        if first or self._long_pauses > _STILL:
            # Rules may run seldom on purpose, or from now on, because the machine can no more.
            self._rhythm, self._long_pauses = pause, 0
            return False
        return True

    def _follow(self, wall: int) -> list[Alert]:
        """Let every rule's memory follow its devices; what fires on a device that has left the
        inventory resolves, what waited for one that is there goes on."""
        changes: dict[Subject, RowChange] = {}
        for table, change in (self._census.update(self._fleet) or {}).items():
            changes[Subject(table)] = change
        for kind, snapshot in self._snapshots.items():
            moved = self._snapshot_census.update(snapshot)
            if moved is not None:
                changes[Subject(kind)] = moved
        resolved: list[Alert] = []
        for track in self._tracks:
            change_here = changes.get(track.subject)
            if change_here is not None:
                resolved += self._leave(track, change_here, wall)
                track.move(change_here)
        self._calm.move(changes, self._now)
        return resolved + self._welcome(wall)

    def _leave(self, track: RuleEvaluator, change: RowChange, wall: int) -> Iterator[Alert]:
        for row, spot in change.gone if track.life.active else ():
            number = track.life.find(row)
            if number is not None and track.life.phase[row] == AlertPhase.FIRING:
                entry = track.life.entries[number]
                yield track.alert(
                    entry,
                    AlertState.RESOLVED,
                    wall,
                    place_of(spot, self.places),
                    self._reading(track, row),
                )

    def _welcome(self, wall: int) -> list[Alert]:
        """Let what waited stand where its device is; end what waited for one that is not."""
        if not len(self._lobby):
            return []
        tracks = {(track.rule.name, track.shown_as): track for track in self._tracks}
        arrived = set(self._census.arrived)

        def decided(record: AlertRecord) -> bool:
            track = tracks.get((record.alert.rule, record.alert.subject))
            if track is None:
                return True
            kind = track.subject.snapshot_kind
            return kind in self._snapshots if kind is not None else record.alert.node in arrived

        ends = []
        for waiting in self._lobby.leave(decided) + self._lobby.expired(self._now):
            self._turns += 1
            track = tracks.get((waiting.record.alert.rule, waiting.record.alert.subject))
            row = None if track is None else self._row(waiting.record, track.subject)
            if track is not None and row is not None:
                track.resume(waiting, row)
            elif (end := ended(waiting.record, wall)) is not None:
                ends.append(end)
        return ends

    def _row(self, record: AlertRecord, subject: Subject) -> int | None:
        """Return the row where a record's device stands now."""
        if subject.snapshot_kind is not None:
            snapshot = self._snapshots.get(subject.snapshot_kind)
            names = () if snapshot is None else snapshot.names
            name = (
                record.alert.key.split("/", 1)[1] if subject is Subject.MONITOR else record.device
            )
            return names.index(name) if name in names else None
        node = self._fleet.nodes.get(record.alert.node)
        if node is None or subject.table is None:
            return None
        return devices(node.inventory, node.rows[subject.table], subject.table).get(record.device)

    # -- Words -----------------------------------------------------------------------------------

    def _standing(self) -> Iterator[tuple[RuleEvaluator, Any, Alert]]:
        for track in self._tracks:
            for entry, state in track.standing():
                alert = self._alert(track, entry, state, int(entry["changed"]))
                if alert is not None:
                    yield track, entry, alert

    def _alert(self, track: RuleEvaluator, entry: Any, state: AlertState, at: int) -> Alert | None:
        row = int(entry["row"])
        spot = self._spot(track.subject, row)
        if spot is None:
            return None
        return track.alert(entry, state, at, place_of(spot, self.places), self._reading(track, row))

    def _spot(self, subject: Subject, row: int) -> RowSubject | None:
        if subject.table is not None:
            return spot_of(self._fleet, subject.table, row)
        snapshot = self._snapshot_census.known.get(SnapshotKind(subject))
        return None if snapshot is None or row >= len(snapshot.names) else line_of(snapshot, row)

    def _reading(self, track: RuleEvaluator, row: int) -> Reading:
        """Return what gives any metric of a row in words, now."""

        def reading(metric: str) -> str:
            if metric == "cost":
                return self._cost(track.subject, row)
            subject, at = track.subject, row
            if subject.snapshot_kind is not None:
                snapshot = self._snapshot_census.known.get(subject.snapshot_kind)
                return say(
                    metric, float("nan" if snapshot is None else snapshot.column(metric)[at])
                )
            while subject is not home(metric) and subject is not Subject.NODE:
                at = int(self._census.owner[Table(subject)][at])
                subject = Subject.GPU if subject is Subject.LINK else Subject.NODE
            return say(metric, self._fleet.reading(metric, at, self._now))

        return reading

    def _cost(self, subject: Subject, row: int) -> str:
        """What a GPU's present draw is in a day, and what it costs where a tariff is known."""
        if subject is not Subject.GPU:
            return UNKNOWN
        kwh = self._fleet.reading("gpu_power_watts", row, self._now) * 24 / 1000
        if np.isnan(kwh):
            return UNKNOWN
        if self.tariff is None:
            return f"{kwh:.1f} kWh a day"
        price, currency = self.tariff
        return f"{kwh:.1f} kWh or {kwh * price:.2f} {currency} a day"

    def _remember(self, changes: Iterable[Alert], now: float) -> None:
        for alert in changes:
            if alert.state is AlertState.RESOLVED:
                self._resolved.append((now, alert))
        again = {alert.key for alert in changes if alert.state is AlertState.FIRING}
        if again:
            self._resolved = deque(kept for kept in self._resolved if kept[1].key not in again)
        while self._resolved and now - self._resolved[0][0] > RESOLVED_SHOWN:
            self._resolved.popleft()


def _tracks(rules: Iterable[Rule]) -> Iterable[RuleEvaluator]:
    for rule in rules:
        yield RuleEvaluator(rule, rule.table, rule.when)
        events = happenings_of(rule.when)
        if events is not None and rule.table is Subject.GPU:
            # An XID of a GPU that nobody knows is still an XID: it is its node's.
            yield RuleEvaluator(msgspec.structs.replace(rule, unless=None), Subject.NODE, events)


def _worst_first(alert: Alert) -> tuple[int, int, int, str]:
    return _STATES.index(alert.state), _SEVERITIES.index(alert.severity), alert.since, alert.key


_STATES = (AlertState.FIRING, AlertState.PENDING, AlertState.RESOLVED)
_SEVERITIES = tuple(Severity)
