"""The rule engine: every rule on every row of the fleet and the power snapshots, once a tick.

Pure: it reads no clock and does no I/O; the aggregator's loop passes the fleet, the power snapshots,
the time and the events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.engine.peer_groups import PeerGroups
from alerts.engine.recent_events import DisturbanceTracker, EvaluatedEvents, place_events
from alerts.engine.restore import AlertRecord, RestoredAlerts, end_of
from alerts.engine.row_index import (
    RowChange,
    RowIndex,
    SnapshotRowIndex,
    device_subject,
    devices,
    snapshot_subject,
)
from alerts.engine.rule_evaluator import UNKNOWN_TEXT, Reading, RuleEvaluator
from alerts.engine.subjects import RowSubject, subject_info
from alerts.rules.conditions import event_part
from alerts.rules.input import AlertPhase, FleetSnapshot
from alerts.rules.names import format_value, home
from alerts.rules.rule import Rule
from api.alerts import Alert, AlertState, Severity, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.metric import Table

RESOLVED_SHOWN = 900.0
"""Seconds for which a resolved alert is still listed, so that the person who was paged sees it."""
STALL = 5.0
"""Seconds. A pause between two ticks that is longer than this, and than three of the usual ones, is a
stall of the aggregator itself: no node's frames arrive in it."""
_MOST_PAUSES = 3
"""Most long pauses in a row; more are a new period, or else no node would ever be silent again."""
_EVENT_AGE = 3_600_000_000_000
"""ns: an event that comes an hour late is not evaluated, unless its rule keeps firing for longer."""


class RuleEngine:
    """The rules with their memories, and the states of their alerts."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.node_labels: Mapping[str, Mapping[str, str]] = {}
        """Labels of each node from elsewhere: `circuits`, `rack`, `job`. Assign another mapping when
        they change."""
        self.tariff: tuple[float, str] | None = None
        """Price of a kWh and its currency, where it is configured."""
        self.events_unplaced = 0
        """Number of events of unknown nodes."""
        self._evaluators = list(_evaluators(rules))
        self._row_index = RowIndex()
        self._snapshots: dict[SnapshotKind, PowerSnapshot] = {}
        self._snapshot_rows = SnapshotRowIndex()
        self._restored = RestoredAlerts()
        self._evaluated = EvaluatedEvents()
        self._disturbances = DisturbanceTracker()
        self._peer_groups = PeerGroups()
        self._resolved: deque[tuple[float, Alert]] = deque()
        self._fleet = Fleet()
        self._last_tick = -np.inf
        self._now = -np.inf
        self._period: float | None = None
        """Usual seconds between two calls."""
        self._long_pauses = 0
        """Number of longer pauses in a row."""
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
        """Evaluate all rules once; return the alerts that began to fire or resolved at this tick.

        `now`: the fleet's monotonic clock, seconds. `events`: the events since the last call.
        `listening`: whether the aggregator receives from the bus; while it does not, no node becomes
        silent. `snapshots`: the present power snapshots; a rule on a kind that is missing waits.
        """
        self._fleet, self._now = fleet, now
        self._snapshots = {snapshot.kind: snapshot for snapshot in snapshots}
        if not listening or self._paused(now):
            self._listening_since = now
        changes = self._update_rows(wall_ns)
        fresh = self._evaluated.filter_new(events)
        placed, unplaced = place_events(fleet, fresh, wall_ns - self._event_age)
        self.events_unplaced += unplaced
        self._disturbances.disturb(fleet, placed, now)
        self._peer_groups.follow(fleet, self._row_index, self.node_labels)
        snapshot = FleetSnapshot(
            fleet,
            self._snapshots,
            self._row_index.owner,
            now,
            wall_ns,
            self._listening_since,
            placed,
            self._disturbances.at,
            self._row_index.drivers,
            self._peer_groups.groups,
        )
        energy = snapshot.values("gpu_energy_joules_total", Subject.GPU)
        self._disturbances.watch(energy, self._row_index.owner[Table.LINK], now)
        for evaluator in self._evaluators:
            if not snapshot.has(evaluator.subject):
                continue
            for entry, state in evaluator.step(snapshot):
                alert = self._alert(evaluator, entry, state, wall_ns)
                if alert is not None:
                    changes.append(alert)
                if state is AlertState.RESOLVED:
                    evaluator.forget(int(entry["row"]))
        self._remember(changes, now)
        return changes

    def alerts(self) -> list[Alert]:
        """Return the alerts that are pending, firing or lately resolved, the worst first."""
        listed = [alert for _, alert in self._resolved]
        listed += [alert for _, _, alert in self._active()]
        listed += [record.alert for record in self._restored.records()]
        return sorted(listed, key=_worst_first)

    # -- Restarts --------------------------------------------------------------------------------

    @property
    def turns(self) -> int:
        """Number of changes to the records that `snapshot` returns."""
        return self._turns + sum(evaluator.machine.turns for evaluator in self._evaluators)

    @property
    def bytes(self) -> int:
        """Bytes of the memories of all rules."""
        return (
            sum(evaluator.memory.bytes for evaluator in self._evaluators) + self._disturbances.bytes
        )

    def snapshot(self, wall_ns: int) -> list[AlertRecord]:
        """Return the records of all pending and firing alerts, for `restore` after a restart."""
        records = [
            evaluator.record(alert, entry, self._now, wall_ns)
            for evaluator, entry, alert in self._active()
        ]
        return records + list(self._restored.records())

    def restore(self, records: Iterable[AlertRecord], now: float, wall_ns: int) -> None:
        """Go on with the alerts of before a restart: they are listed at once, return to the rows of
        their devices when those appear, and none fires again."""
        self._restored.add(records, now, wall_ns)
        self._turns += 1

    def recall(self, fleet: Fleet, events: Iterable[Event], now: float, wall_ns: int) -> None:
        """Remember the events of the last day, oldest first, that were evaluated before a restart, so
        that repetitions are counted on and no event is evaluated twice. Nothing fires.

        An event that was stored but perhaps not evaluated goes to `evaluate` instead: where its alert
        fires already, there is no second page. The nodes must be in the fleet by then.
        """
        self._fleet, self._now = fleet, now
        for _ in self._update_rows(wall_ns):
            self._turns += 1
        known = self._evaluated.filter_new(events)
        placed, _ = place_events(fleet, known, wall_ns - 86_400_000_000_000)
        for evaluator in self._evaluators:
            if evaluator.subject.table is not None:
                for row, event in placed[evaluator.subject.table]:
                    evaluator.recall(event, row, now - max(0.0, (wall_ns - event.at) / 1e9))

    # -- Rows ------------------------------------------------------------------------------------

    def _paused(self, now: float) -> bool:
        """Return whether the pause since the last call was longer than the usual period."""
        pause, self._last_tick = now - self._last_tick, now
        if pause <= max(STALL, 3 * (self._period or 0.0)):
            self._period, self._long_pauses = pause, 0
            return False
        self._long_pauses += 1
        first = self._period is None and np.isfinite(pause)
        if first or self._long_pauses > _MOST_PAUSES:
            # Rules may run seldom on purpose, or from now on because the machine is too slow.
            self._period, self._long_pauses = pause, 0
            return False
        return True

    def _update_rows(self, wall: int) -> list[Alert]:
        """Move every rule's memory with its devices. Alerts of devices that have left the inventory
        resolve, and restored alerts return to their rows."""
        changes: dict[Subject, RowChange] = {}
        for table, change in (self._row_index.update(self._fleet) or {}).items():
            changes[Subject(table)] = change
        for kind, snapshot in self._snapshots.items():
            moved = self._snapshot_rows.update(snapshot)
            if moved is not None:
                changes[Subject(kind)] = moved
        resolved: list[Alert] = []
        for evaluator in self._evaluators:
            change_here = changes.get(evaluator.subject)
            if change_here is not None:
                resolved += self._resolve_gone(evaluator, change_here, wall)
                evaluator.move(change_here)
        self._disturbances.move(changes, self._now)
        return resolved + self._place_restored(wall)

    def _resolve_gone(
        self, evaluator: RuleEvaluator, change: RowChange, wall: int
    ) -> Iterator[Alert]:
        for row, found in change.gone if evaluator.machine.active else ():
            number = evaluator.machine.find(row)
            if number is not None and evaluator.machine.phase[row] == AlertPhase.FIRING:
                entry = evaluator.machine.entries[number]
                yield evaluator.alert(
                    entry,
                    AlertState.RESOLVED,
                    wall,
                    subject_info(found, self.node_labels),
                    self._reading(evaluator, row),
                )

    def _place_restored(self, wall: int) -> list[Alert]:
        """Return restored alerts to the rows of their devices; end those whose device is gone."""
        if not len(self._restored):
            return []
        evaluators = {
            (evaluator.rule.name, evaluator.shown_as): evaluator for evaluator in self._evaluators
        }
        arrived = set(self._row_index.arrived)

        def decided(record: AlertRecord) -> bool:
            evaluator = evaluators.get((record.alert.rule, record.alert.subject))
            if evaluator is None:
                return True
            kind = evaluator.subject.snapshot_kind
            return kind in self._snapshots if kind is not None else record.alert.node in arrived

        ends = []
        for waiting in self._restored.remove(decided) + self._restored.remove_expired(self._now):
            self._turns += 1
            evaluator = evaluators.get((waiting.record.alert.rule, waiting.record.alert.subject))
            row = None if evaluator is None else self._row(waiting.record, evaluator.subject)
            if evaluator is not None and row is not None:
                evaluator.resume(waiting, row)
            elif (end := end_of(waiting.record, wall)) is not None:
                ends.append(end)
        return ends

    def _row(self, record: AlertRecord, subject: Subject) -> int | None:
        """Return the present row of a record's device."""
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

    # -- Texts -----------------------------------------------------------------------------------

    def _active(self) -> Iterator[tuple[RuleEvaluator, Any, Alert]]:
        for evaluator in self._evaluators:
            for entry, state in evaluator.active():
                alert = self._alert(evaluator, entry, state, int(entry["changed"]))
                if alert is not None:
                    yield evaluator, entry, alert

    def _alert(
        self, evaluator: RuleEvaluator, entry: Any, state: AlertState, at: int
    ) -> Alert | None:
        row = int(entry["row"])
        found = self._subject(evaluator.subject, row)
        if found is None:
            return None
        return evaluator.alert(
            entry, state, at, subject_info(found, self.node_labels), self._reading(evaluator, row)
        )

    def _subject(self, subject: Subject, row: int) -> RowSubject | None:
        if subject.table is not None:
            return device_subject(self._fleet, subject.table, row)
        snapshot = self._snapshot_rows.known.get(SnapshotKind(subject))
        return (
            None
            if snapshot is None or row >= len(snapshot.names)
            else snapshot_subject(snapshot, row)
        )

    def _reading(self, evaluator: RuleEvaluator, row: int) -> Reading:
        """Return a function that returns the present value of a metric of a row as text."""

        def reading(metric: str) -> str:
            if metric == "cost":
                return self._cost(evaluator.subject, row)
            subject, at = evaluator.subject, row
            if subject.snapshot_kind is not None:
                snapshot = self._snapshot_rows.known.get(subject.snapshot_kind)
                return format_value(
                    metric, float("nan" if snapshot is None else snapshot.column(metric)[at])
                )
            while subject is not home(metric) and subject is not Subject.NODE:
                at = int(self._row_index.owner[Table(subject)][at])
                subject = Subject.GPU if subject is Subject.LINK else Subject.NODE
            return format_value(metric, self._fleet.reading(metric, at, self._now))

        return reading

    def _cost(self, subject: Subject, row: int) -> str:
        """Return a GPU's energy a day at its present draw, with its cost where a tariff is known."""
        if subject is not Subject.GPU:
            return UNKNOWN_TEXT
        kwh = self._fleet.reading("gpu_power_watts", row, self._now) * 24 / 1000
        if np.isnan(kwh):
            return UNKNOWN_TEXT
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


def _evaluators(rules: Iterable[Rule]) -> Iterable[RuleEvaluator]:
    for rule in rules:
        yield RuleEvaluator(rule, rule.table, rule.when)
        events = event_part(rule.when)
        if events is not None and rule.table is Subject.GPU:
            # An XID of an unknown GPU is still an XID: it belongs to the node.
            yield RuleEvaluator(msgspec.structs.replace(rule, unless=None), Subject.NODE, events)


def _worst_first(alert: Alert) -> tuple[int, int, int, str]:
    return _STATES.index(alert.state), _SEVERITIES.index(alert.severity), alert.since, alert.key


_STATES = (AlertState.FIRING, AlertState.PENDING, AlertState.RESOLVED)
_SEVERITIES = tuple(Severity)
