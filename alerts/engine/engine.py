"""The rule engine: every rule on every row of the fleet and the power snapshots, once a tick.

Pure: it reads no clock and does no I/O; the aggregator's loop passes the fleet, the power snapshots,
the time and the events.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from alerts.engine.isolated_rules import IsolatedRules
from alerts.engine.isolation import FleetWithout, NodeFaults
from alerts.engine.job_index import JobsByNode
from alerts.engine.kept_memory import KeptMemory, MemoryCopy, keep_memory, resume_memory
from alerts.engine.peer_groups import PeerGroups
from alerts.engine.pending_events import PendingEvents
from alerts.engine.recent_events import DisturbanceTracker, EvaluatedEvents, place_events
from alerts.engine.repeated_faults import RepeatedFaultFinder
from alerts.engine.restore import AlertRecord, RestoredAlerts, end_of
from alerts.engine.row_index import RowChange, RowIndex, SnapshotRowIndex, devices
from alerts.engine.row_texts import RowTexts
from alerts.engine.rule_evaluator import RuleEvaluator
from alerts.engine.subjects import RowSubject, subject_info
from alerts.engine.traits import traits_of
from alerts.rules.conditions import event_part
from alerts.rules.gpu_jobs import OF_JOBS
from alerts.rules.input import AlertPhase, FleetSnapshot
from alerts.rules.recurs import Recurs
from alerts.rules.row_memory import Floats
from alerts.rules.rule import Rule, conditions_of
from api.alerts import Alert, AlertState, Incident, Severity, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.runtime.isolation import Isolation, PartFault, PartKind

if TYPE_CHECKING:
    from alerts.rules.peers_elsewhere import PeersElsewhere

Outcome = TypeVar("Outcome")

RESOLVED_SHOWN = 900.0
"""Seconds for which a resolved alert is still listed, so that the person who was paged sees it."""
STALL = 5.0
"""Seconds. A pause between two ticks that is longer than this, and than three of the usual ones, is a
stall of the aggregator itself: no node's frames arrive in it."""
_MOST_PAUSES = 3
"""Most long pauses in a row; more are a new period, or else no node would ever be silent again."""
_PIECE = 50
"""Alerts that are made between two yields: a few milliseconds."""
_DISTURBANCES = "disturbances"
"""Part that finds resets by counters that went back."""
_EVENT_AGE = 3_600_000_000_000
"""ns: an event that comes an hour late is not evaluated, unless its rule keeps firing for longer."""


@dataclass(slots=True)
class _TextState:
    """State of the alerts' texts."""

    turns: int = 0
    """Number of changes to what is listed."""
    fresh: bool = False
    """Whether they are those of the last evaluation."""
    busy: bool = False
    """Whether an evaluation is under way."""


class RuleEngine:
    """The rules with their memories, and the states of their alerts."""

    _elsewhere: PeersElsewhere | None = None
    _behind = 0.0

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.events_unplaced = 0
        """Number of events of unknown nodes."""
        self._evaluators = list(_evaluators(rules))
        self._row_index, self._peer_groups = RowIndex(), PeerGroups()
        self._snapshots: dict[SnapshotKind, PowerSnapshot] = {}
        self._snapshot_rows = SnapshotRowIndex()
        self.texts = RowTexts(self._row_index, self._snapshot_rows, self._peer_groups)
        """Names, readings and owners of rows."""
        self._restored = RestoredAlerts()
        self._evaluated = EvaluatedEvents()
        self._disturbances = DisturbanceTracker()
        self._repeated = _repeated_faults(rules)
        self._resolved: deque[tuple[float, Alert]] = deque()
        self._fleet = Fleet()
        self._last_tick = self._now = self._listening_since = -np.inf
        self._period: float | None = None
        """Usual seconds between two calls."""
        self._long_pauses = 0
        """Number of longer pauses in a row."""
        self._forgotten: dict[str, str] = {}
        """Nodes that were removed since the last tick, and why their alerts end."""
        self._turns = 0
        self._texts = _TextState()
        self._pending = PendingEvents(max([_EVENT_AGE, *(int(rule.keep * 1e9) for rule in rules)]))
        self._isolated = IsolatedRules(self._pending)
        self.rules_aside = self._isolated.aside
        """Rules that raised; all others are evaluated."""
        self.nodes_aside = Isolation(PartKind.NODE)
        """Nodes whose rows or times raised; the fleet is evaluated without them."""
        self.alerts_aside = Isolation(PartKind.TEXT)
        """Rules whose alerts have plain texts, because their own can't be made."""
        self._isolations = self.rules_aside, self.nodes_aside, self._pending.aside
        self._settled = 0
        """Failures and recoveries that the owner has made up for."""
        self._without = FleetWithout()
        self._plain_texts: set[str] = set()
        """Rules of the alerts that got a plain text since the last tick."""
        self._rows_known = True
        """Whether the rows of the alerts are those of the fleet."""
        self._wall = 0

    @property
    def unsettled(self) -> bool:
        """Whether an exception may have lost the begin or end of an alert; its owner compares `alerts` with what
        it knows, and calls `settle`."""
        return self._settled != sum(one.turns for one in self._isolations)

    def settle(self) -> None:
        """Note that what exceptions may have lost is made up for."""
        self._settled = sum(one.turns for one in self._isolations)

    @property
    def jobs(self) -> JobsByNode:
        """Newest list of the jobs of each node; its owner fills it."""
        return self._peer_groups.jobs.newest

    def join(self, elsewhere: PeersElsewhere) -> None:
        """Compare the GPUs of jobs also with those that other aggregators have."""
        self._elsewhere = elsewhere
        self._peer_groups.identify()

    # -- Every tick ------------------------------------------------------------------------------

    def evaluate(
        self,
        fleet: Fleet,
        now: float,
        wall_ns: int,
        events: Sequence[Event] = (),
        *,
        listening: bool = True,
        behind: float = 0.0,
        snapshots: Sequence[PowerSnapshot] = (),
    ) -> list[Alert]:
        """Evaluate all rules once; return the alerts that began to fire or resolved at this tick. The
        arguments are those of `steps`."""
        return outcome(self.steps(fleet, now, wall_ns, events, listening=listening, behind=behind, snapshots=snapshots))

    def steps(
        self,
        fleet: Fleet,
        now: float,
        wall_ns: int,
        events: Sequence[Event] = (),
        *,
        listening: bool = True,
        behind: float = 0.0,
        snapshots: Sequence[PowerSnapshot] = (),
    ) -> Generator[None, None, list[Alert]]:
        """Evaluate all rules once, and yield after each, so that the caller may do other work; the fleet
        must not change meanwhile. Return the alerts that began to fire or resolved at this tick.

        `now`: the fleet's monotonic clock, seconds. `events`: the events since the last call.
        `listening`: whether the aggregator receives from the bus; while it does not, no node becomes
        silent. `behind`: seconds by which it is itself behind with what it receives; by so much later a node
        counts as silent. `snapshots`: the present power snapshots; a rule on a kind that is missing waits.
        """
        self._now, self._wall, self._behind = now, wall_ns, behind
        fresh = self._run("events seen", lambda: self._evaluated.filter_new(events))
        if fresh is None:  # one that is evaluated twice is better than none
            fresh = list(events)
        self.events_unplaced += sum(event.node not in fleet.nodes for event in fresh)
        self._pending.add(fresh)
        self._settle_texts()
        self._snapshots = {snapshot.kind: snapshot for snapshot in snapshots}
        if not listening or self._paused(now):
            self._listening_since = now
        changes: list[Alert] = []
        self._texts.fresh = False
        self._texts.busy = True
        try:
            snapshot = self._snapshot(fleet, now, wall_ns, changes)
            for evaluator in self._evaluators:
                try:
                    if not snapshot.has(evaluator.subject) or (
                        evaluator.of_jobs and not self.jobs.newest
                    ):  # no row, or no node says whose its GPUs are
                        self.rules_aside.works(evaluator.rule.name)
                        continue
                    yield from self._evaluate(evaluator, snapshot, changes)
                except Exception as error:
                    self.rules_aside.fail(evaluator.rule.name, error, now)
                yield
        finally:
            self._texts.busy = False
            self._remember(changes, now)
        if "events" not in self.rules_aside:
            self._pending.evaluated()
        for name, fault in snapshot.faults.items():
            self._set_aside_node(name, fault)
        self._forget_faults(fleet, snapshot.faults)
        return changes

    def _snapshot(self, fleet: Fleet, now: float, wall_ns: int, changes: list[Alert]) -> FleetSnapshot:
        """Return the fleet as the rules see it, without the nodes that are set aside; add the alerts
        that end with their device."""
        self._texts.fresh = False
        while True:
            self._fleet = self._without.of(fleet, self.nodes_aside.waiting(now))
            self.texts.fleet, self.texts.now = self._fleet, now
            self._rows_known = False
            try:
                changes += self._update_rows(wall_ns)
                self._rows_known = True
                placed = self._run("events", lambda: self._pending.place(self._fleet, now, wall_ns, self._disturb))
                self._run("peer groups", self._follow_peers)
                break
            except NodeFaults as faults:  # each time there are fewer nodes
                for name, error in faults.errors.items():
                    if name not in self._fleet.nodes:
                        raise
                    self._set_aside_node(name, error)
        snapshot = FleetSnapshot(
            self._fleet,
            self._snapshots,
            self._row_index.owner,
            now,
            wall_ns,
            self._listening_since,
            {table: [] for table in Table} if placed is None else placed,
            self._run("disturbances/at", lambda: self._disturbances.at) or self._never(),
            self._row_index.drivers,
            self._peer_groups.groups,
            self._peer_groups.jobs.rows,
            partial(self._repeated.find, self._fleet, wall_ns),
            behind=self._behind,
            elsewhere=self._elsewhere,
        )
        self._run(_DISTURBANCES, lambda: self._watch(snapshot))
        return snapshot

    def _run(self, part: str, step: Callable[[], Outcome]) -> Outcome | None:
        """Return what a step returns that serves some rules only; None where it raises or is set aside."""
        return self.rules_aside.run(part, self._now, step, None)

    def _follow_peers(self) -> None:
        peers = self._peer_groups
        peers.follow(self._fleet, self._row_index, self.texts.node_labels)
        if self._elsewhere is not None:
            groups, _ = peers.groups("job")
            self._elsewhere.follow(peers.version, groups, peers.identities, peers.jobs.rows)

    def _watch(self, snapshot: FleetSnapshot) -> None:
        """Find the GPUs whose counter of energy went back."""
        energy = snapshot.values("gpu_energy_joules_total", Subject.GPU)
        self._disturbances.watch(energy, self._row_index.owner[Table.LINK], snapshot.now)

    def _disturb(self, event: Event) -> None:
        self._disturbances.disturb(self._fleet, event, self._now)

    def _never(self) -> dict[Table, Floats]:
        return {table: np.full(self._fleet.size(table), -np.inf) for table in Table}

    # -- One rule --------------------------------------------------------------------------------

    def _evaluate(
        self, evaluator: RuleEvaluator, snapshot: FleetSnapshot, changes: list[Alert]
    ) -> Generator[None, None, None]:
        """Evaluate a rule, and add its changes; yield now and then while they are many."""
        evaluator.shown.fresh.clear()
        entries = self._isolated.step(evaluator, snapshot)
        while evaluator.faults:
            self._note_text(evaluator.rule.name, evaluator.faults.pop())
        for number, (entry, state) in enumerate(entries, 1):
            alert = self._alert(evaluator, entry, state, snapshot.wall)
            if alert is not None:
                changes.append(alert)
            if state is AlertState.RESOLVED:
                evaluator.forget(int(entry["row"]))
            if number % _PIECE == 0:
                yield

    # -- Nodes that are set aside ----------------------------------------------------------------

    def _set_aside_node(self, name: str, error: Exception) -> None:
        """Evaluate the fleet without a node until its next try. Its alerts stay as they are: they wait
        for its devices, as after a restart."""
        self.nodes_aside.fail(name, error, self._now)
        for evaluator in self._evaluators:
            rows = [row for row, alert in evaluator.shown.items() if alert.node == name]
            self._park(evaluator, rows)

    def _park(self, evaluator: RuleEvaluator, rows: Iterable[int]) -> None:
        """Make the alerts of some rows wait for their devices."""
        for row in list(rows):
            number, alert = evaluator.machine.find(row), evaluator.shown.get(row)
            if number is None or alert is None:
                continue
            entry = evaluator.machine.entries[number]
            record = evaluator.record(alert, entry, self._now, self._wall)
            self._restored.add([record], self._now, self._wall)
            self._texts.turns += 1
            evaluator.remove(row)

    def _forget_faults(self, fleet: Fleet, failed: Collection[str]) -> None:
        """Note which nodes and rules work again."""
        if len(self.nodes_aside):
            out = set(self.nodes_aside.waiting(self._now))
            for name in self.nodes_aside.reasons():
                if name not in out and name not in failed:
                    self.nodes_aside.works(name)
            self.nodes_aside.keep(fleet.nodes)
        self._pending.settle()

    def _settle_texts(self) -> None:
        """Note whose texts could be made again since the last tick."""
        if len(self.alerts_aside):
            for name in self.alerts_aside.reasons():
                if name not in self._plain_texts:
                    self.alerts_aside.works(name)
        self._plain_texts.clear()

    def traits(self) -> dict[str, dict[str, list[str]]]:
        """Return what each node is, by node: rack, driver and more."""
        return traits_of(self._fleet, self.texts.node_labels)

    def part_faults(self) -> Iterator[PartFault]:
        """Yield what is to be reported of the rules, nodes, events and texts that are set aside."""
        blind = len(self.rules_aside) >= max(1, len(self.rules))
        for fault in self.rules_aside.faults():
            yield fault._replace(whole=blind)
        yield from self._pending.faults()
        yield from self.nodes_aside.faults()
        yield from self.alerts_aside.faults()

    def alerts(self) -> list[Alert]:
        """Return the alerts that are pending, firing or lately resolved, the worst first."""
        self._refresh_all()
        listed = [alert for _, alert in self._resolved]
        listed += [alert for _, _, alert in self._active()]
        listed += [record.alert for record in self._restored.records()]
        return sorted(listed, key=worst_first)

    @property
    def text_turns(self) -> int:
        """Number of changes to what `alerts` returns."""
        return self._texts.turns + self.turns

    def refresh(self) -> Generator[None, None, None]:
        """Make the texts again of the alerts that have changed since the last tick, and yield now and then;
        `alerts` and `snapshot` do it by themselves otherwise."""
        self._texts.fresh = True
        if not self._rows_known:  # the alerts stay as they are
            return
        done = 0
        context = id(self._fleet), self._fleet.version, self.texts.node_labels, self.jobs.version
        for evaluator in self._evaluators:
            if not len(evaluator.machine.entries) and not evaluator.shown:
                continue
            for entry, state in evaluator.outdated(context, partial(self.texts.source, evaluator)):
                self._alert(evaluator, entry, state, int(entry["changed"]))
                self._texts.turns += 1
                done += 1
                if done % _PIECE == 0:
                    yield
            evaluator.shown.fresh.clear()

    def _refresh_all(self) -> None:
        if not self._texts.busy and not self._texts.fresh:
            outcome(self.refresh())

    # -- Restarts --------------------------------------------------------------------------------

    @property
    def turns(self) -> int:
        """Number of changes to the records that `snapshot` returns."""
        return self._turns + sum(evaluator.machine.turns for evaluator in self._evaluators)

    @property
    def bytes(self) -> int:
        """Bytes of the memories of all rules."""
        return sum(evaluator.memory.bytes for evaluator in self._evaluators) + self._disturbances.bytes

    def snapshot(self, wall_ns: int) -> list[AlertRecord]:
        """Return the records of all pending and firing alerts, for `restore` after a restart."""
        return outcome(self.records(wall_ns))

    def records(self, wall_ns: int) -> Generator[None, None, list[AlertRecord]]:
        """Return what `snapshot` does, and yield now and then. Only those that have changed are made."""
        self._refresh_all()
        records = []
        made = 0
        for evaluator, number, alert in self._active():
            entry = evaluator.machine.entries[number]
            found = evaluator.record_again(int(entry["row"]), alert, float(entry["good_since"]))
            if found is None:
                made += 1
                if made % _PIECE == 0:
                    yield
                found = self._record(evaluator, entry, alert, wall_ns)
            records.append(found)
        return records + list(self._restored.records())

    def _record(self, evaluator: RuleEvaluator, entry: Any, alert: Alert, wall_ns: int) -> AlertRecord:
        try:
            return evaluator.record(alert, entry, self._now, wall_ns)
        except Exception as error:  # its alert survives a restart all the same
            self._note_text(evaluator.rule.name, error)
            return AlertRecord(alert=alert, device=alert.key.split("/", 2)[2])

    def note_incidents(self, incidents: Iterable[Incident]) -> None:
        """Remember the faults of boards and slots: the incidents of the last 30 days at a start, and
        each that changes. The removal of a node forgets none of them."""
        self._repeated.index.note(incidents)

    def forget(self, node: str, why: str = "forgotten") -> None:
        """Note that a node was removed, by a person or at its expiry: its alerts end as `forgotten` at the next tick;
        or as `moved`, where another member has it now."""
        self._forgotten[node] = why

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
        self._now, self._wall = now, wall_ns
        self._snapshots = {}
        self._snapshot(fleet, now, wall_ns, [])
        self._turns += 1
        known = self._evaluated.filter_new(events)
        placed = place_events(fleet, known, wall_ns - 86_400_000_000_000).placed
        for evaluator in self._evaluators:
            if evaluator.subject.table is not None:
                for row, event in placed[evaluator.subject.table]:
                    try:
                        evaluator.recall(event, row, now - max(0.0, (wall_ns - event.at) / 1e9))
                    except Exception as error:  # costs a count of repetitions
                        self._note_text(evaluator.rule.name, error)

    def keep_memory(self, wall_ns: int) -> MemoryCopy:
        """Return a copy of the memory of windowed outliers, for `resume_memory` after a restart."""
        return keep_memory(self._evaluators, self._fleet, self._now, wall_ns)

    def resume_memory(self, kept: KeptMemory, now: float, wall_ns: int) -> int:
        """Go on with the memory of windowed outliers of before a restart, after `recall`; return how many
        rules went on."""
        return resume_memory(kept, self._evaluators, self._fleet, now, wall_ns)

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
        for kind, snapshot in list(self._snapshots.items()):
            part, moved = f"rows/{kind}", None
            with self.rules_aside.attempt(part, self._now):
                moved = self._snapshot_rows.update(snapshot)
            if part in self.rules_aside:  # its rules wait, as they do without a snapshot
                del self._snapshots[kind]
            elif moved is not None:
                changes[Subject(kind)] = moved
        resolved: list[Alert] = []
        for evaluator in self._evaluators:
            change_here = changes.get(evaluator.subject)
            if change_here is not None:
                try:
                    resolved += self._resolve_gone(evaluator, change_here, wall)
                    evaluator.move(change_here)
                except Exception as error:  # the rule begins anew, and its alerts go on
                    self.rules_aside.fail(evaluator.part, error, self._now)
                    self._park(evaluator, evaluator.shown)
                    evaluator.reset(change_here.size)
        try:
            self._disturbances.move(changes, self._now)
        except Exception as error:
            self.rules_aside.fail(_DISTURBANCES, error, self._now)
            self._disturbances = DisturbanceTracker()
            self._disturbances.resize({table: self._fleet.size(table) for table in Table})
        ended = resolved + self._place_restored(wall)
        if self._forgotten:
            ended = [
                msgspec.structs.replace(alert, ended=self._forgotten[alert.node])
                if alert.node in self._forgotten
                else alert
                for alert in ended
            ]
            self._forgotten.clear()
        return ended

    def _resolve_gone(self, evaluator: RuleEvaluator, change: RowChange, wall: int) -> Iterator[Alert]:
        for row, found in change.gone if evaluator.machine.active else ():
            number = evaluator.machine.find(row)
            if number is not None and evaluator.machine.phase[row] == AlertPhase.FIRING:
                entry = evaluator.machine.entries[number]
                try:
                    info = subject_info(found, self.texts.node_labels, self.texts.labels_of_job(found))
                    reading = self.texts.reading(evaluator, row)
                    yield evaluator.alert(
                        entry, AlertState.RESOLVED, wall, info, reading, self.texts.owner(evaluator, found)
                    )
                except Exception as error:
                    yield self._plain(evaluator, entry, AlertState.RESOLVED, wall, found, error)

    def _place_restored(self, wall: int) -> list[Alert]:
        """Return restored alerts to the rows of their devices; end those whose device is gone."""
        if not len(self._restored):
            return []
        evaluators = {(evaluator.rule.name, evaluator.shown_as): evaluator for evaluator in self._evaluators}

        def decided(record: AlertRecord) -> bool:
            evaluator = evaluators.get((record.alert.rule, record.alert.subject))
            if evaluator is None:
                return True
            if evaluator.part in self.rules_aside or record.alert.rule in self.alerts_aside:
                return False
            kind, node = evaluator.subject.snapshot_kind, record.alert.node
            if node in self._forgotten:
                return True
            return kind in self._snapshots if kind is not None else self._row_index.has(node)

        ends = []
        for waiting in self._restored.remove(decided) + self._restored.remove_expired(self._now):
            self._turns += 1
            rule = waiting.record.alert.rule
            evaluator = evaluators.get((rule, waiting.record.alert.subject))
            try:
                row = None if evaluator is None else self._row(waiting.record, evaluator.subject)
                if evaluator is not None and row is not None:
                    evaluator.resume(waiting, row)
                elif (end := end_of(waiting.record, wall)) is not None:
                    ends.append(end)
            except Exception as error:  # the alert stays listed as it was
                self._note_text(rule, error)
                self._restored.wait_again(waiting)
        return ends

    def _row(self, record: AlertRecord, subject: Subject) -> int | None:
        """Return the present row of a record's device."""
        if subject.snapshot_kind is not None:
            snapshot = self._snapshots.get(subject.snapshot_kind)
            names = () if snapshot is None else snapshot.names
            name = record.alert.key.split("/", 1)[1] if subject is Subject.MONITOR else record.device
            return names.index(name) if name in names else None
        node = self._fleet.nodes.get(record.alert.node)
        if node is None or subject.table is None:
            return None
        return devices(node.inventory, node.rows[subject.table], subject.table).get(record.device)

    # -- Texts -----------------------------------------------------------------------------------

    def _active(self) -> Iterator[tuple[RuleEvaluator, int, Alert]]:
        """Yield the number of the entry and the alert of each row that is pending or firing."""
        for evaluator in self._evaluators:
            shown = evaluator.shown
            for number, row in enumerate(evaluator.machine.entries["row"].tolist()):
                alert = shown.get(row)
                if alert is not None:
                    yield evaluator, number, alert

    def _alert(self, evaluator: RuleEvaluator, entry: Any, state: AlertState, at: int) -> Alert | None:
        row = int(entry["row"])
        if not self._rows_known and row in evaluator.shown:
            return evaluator.shown_again(entry, state, at)
        found = None
        try:
            found = self.texts.subject(evaluator.subject, row)
            if found is None:
                evaluator.shown.pop(row, None)
                return None
            job = _job_hit(evaluator.shown.get(row), entry) or self.texts.labels_of_job(found)
            info, reading = (subject_info(found, self.texts.node_labels, job), self.texts.reading(evaluator, row))
            source = self.texts.source_of(found)
            alert = evaluator.alert(entry, state, at, info, reading, self.texts.owner(evaluator, found))
        except Exception as error:  # a plain text is better than no page
            alert = self._plain(evaluator, entry, state, at, found, error)
            evaluator.shown.stale.add(row)  # tried again at the next tick
        else:
            evaluator.shown.fresh.add(row)
            evaluator.shown.sources[row] = source
        evaluator.shown[row] = alert
        if state is AlertState.FIRING:
            self._restored.forget(alert.key)  # else it would be listed twice
        return alert

    def _plain(
        self,
        evaluator: RuleEvaluator,
        entry: Any,
        state: AlertState,
        at: int,
        subject: RowSubject | None,
        error: Exception,
    ) -> Alert:
        """Return an alert whose texts can't be made: as it was last shown, else without a text."""
        self._note_text(evaluator.rule.name, error)
        if int(entry["row"]) in evaluator.shown:
            return evaluator.shown_again(entry, state, at)
        info = None
        if subject is not None:
            with contextlib.suppress(Exception):
                info = subject_info(subject, {}, {})
        if info is None:
            with contextlib.suppress(Exception):
                info = self.texts.bare_info(evaluator.subject, int(entry["row"]))
        return evaluator.plain_alert(entry, state, at, info, error)

    def _note_text(self, rule: str, error: Exception) -> None:
        self._plain_texts.add(rule)
        self.alerts_aside.fail(rule, error, self._now)

    def _remember(self, changes: Iterable[Alert], now: float) -> None:
        for alert in changes:
            self._texts.turns += 1
            if alert.state is AlertState.RESOLVED:
                self._resolved.append((now, alert))
        again = {alert.key for alert in changes if alert.state is AlertState.FIRING}
        if again:
            self._resolved = deque(kept for kept in self._resolved if kept[1].key not in again)
        while self._resolved and now - self._resolved[0][0] > RESOLVED_SHOWN:
            self._resolved.popleft()
            self._texts.turns += 1


def outcome(steps: Generator[None, None, Outcome]) -> Outcome:
    """Run all steps without a pause; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            found: Outcome = over.value
            return found


def _evaluators(rules: Iterable[Rule]) -> Iterable[RuleEvaluator]:
    for rule in rules:
        yield RuleEvaluator(rule, rule.table, rule.when)
        events = event_part(rule.when)
        if events is not None and rule.table is Subject.GPU:
            # An XID of an unknown GPU is still an XID: it belongs to the node.
            yield RuleEvaluator(msgspec.structs.replace(rule, unless=None, load=None), Subject.NODE, events)


def _repeated_faults(rules: Sequence[Rule]) -> RepeatedFaultFinder:
    recurs = [rule.name for rule in rules if any(isinstance(part, Recurs) for part in conditions_of(rule.when))]
    return RepeatedFaultFinder({rule.name: rule.remediation for rule in rules}, recurs)


def _job_hit(shown: Alert | None, entry: Any) -> dict[str, str]:
    """Return the labels of the job that an alert has hit: they outlive the job, which may have ended of
    it."""
    if shown is None or shown.since != int(entry["began"]):
        return {}
    return {name: shown.labels[name] for name in OF_JOBS if name in shown.labels}


def worst_first(alert: Alert) -> tuple[int, int, bool, int, str]:
    """Order alerts for people; a network port whose job runs comes before one that nobody uses."""
    idle = alert.subject is Subject.PORT and "job" not in alert.labels
    return (_STATES.index(alert.state), _SEVERITIES.index(alert.severity), idle, alert.since, alert.key)


_STATES = (AlertState.FIRING, AlertState.PENDING, AlertState.RESOLVED)
_SEVERITIES = tuple(Severity)
