"""A rule on one table or snapshot: its memory, and the states and texts of its alerts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from alerts.engine.restore import AlertRecord, WaitingAlert
from alerts.engine.shown_alerts import PlaceFacts, ShownAlerts
from alerts.engine.state_machine import AlertStateMachine, step
from alerts.engine.subjects import SubjectInfo
from alerts.engine.units import UnitIndex
from alerts.rules.condition import BAD, GOOD, UNKNOWN, Evaluation
from alerts.rules.conditions import Condition
from alerts.rules.input import AlertPhase, FleetSnapshot, RuleInput
from alerts.rules.names import WORDS
from alerts.rules.row_memory import Flags, RowMemory, RowMove
from alerts.rules.rule import OF_JOBS, Rule, conditions_of
from alerts.xid.event import explain, unit_labels
from api.alerts import Alert, AlertState, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from present.device.gpu import gpu_name
from telemetry.devices import Event

_STATES = {AlertPhase.PENDING: AlertState.PENDING, AlertPhase.FIRING: AlertState.FIRING}
UNKNOWN_TEXT = "unknown"
UNHEARD = "circuit_unheard_ratio"
"""Text of a field that is not known."""
MOST_FAULTS = 16
"""Different faults of one row that are alerts of their own while a rule fires there."""
MOST_AT_ONCE, FEWEST_AT_ONCE = 100, 20
"""Alerts of a rule whose texts are made again in one tick because of a number alone; fewer for rows of
snapshots, of which each takes up to a millisecond."""
Reading = Callable[[str], str]
"""Returns the present value of a metric as text."""


class RuleEvaluator:
    """A rule on one subject: the rows of a table or of a snapshot."""

    def __init__(self, rule: Rule, subject: Subject, when: Condition) -> None:
        self.rule = rule
        self.subject = subject
        self.when = when
        self.memory = RowMemory()
        self.machine = AlertStateMachine(self.memory)
        self._when_memory = self.memory.part(0)
        self._unless_memory = self.memory.part(1)
        self._load_memory = self.memory.part(2)
        self._causes: dict[int, _Cause] = {}
        """Texts of the event that caused each active row, where it has one."""
        self._degrees = {value: self.when.describe(value).replace(" ", "-") for value in rule.worse}
        """Words of the values that a rule has put in order, the mildest first."""
        self.of_jobs = any(isinstance(part, OF_JOBS) for part in conditions_of(when))
        """Whether it needs to know whose the GPUs are."""
        self._units = self._unit_index()
        self.faults: list[Exception] = []
        """Exceptions that cost a text, until the engine notes them."""
        self.shown = ShownAlerts()
        """The alert of each active row as it was last made."""
        self._records: dict[int, tuple[Alert, float, AlertRecord]] = {}
        """By row: a record, with the alert and the `good_since` that it was made of."""
        self._needs_all = subject is Subject.CIRCUIT and UNHEARD not in self.when.metrics()
        """Whether it is about the load of a circuit, all of it."""
        self.lively = names_readings(rule) or subject.snapshot_kind not in {None, SnapshotKind.MONITOR}
        """Whether its texts name more than the numbers of the entry."""

    @property
    def part(self) -> str:
        """Name under which it is set aside."""
        rule, subject = self.rule, self.subject
        return rule.name if subject is rule.table else f"{rule.name}/{subject}"

    @property
    def shown_as(self) -> Subject:
        """Subject of its alerts."""
        return Subject.NODE if self.subject is Subject.MONITOR else self.subject

    def move(self, change: RowMove) -> None:
        """Move the state of the devices to their new rows."""
        self.machine.move(change)
        self.memory.move(change)
        self.shown.move(change)
        if self._causes:
            moved = dict(zip(change.old.tolist(), change.new.tolist(), strict=True))
            gone = set(change.touched.tolist()) - set(moved)
            self._causes = {moved.get(row, row): cause for row, cause in self._causes.items() if row not in gone}

    def repair(self) -> None:
        """Make the states consistent after an exception in `step`: no alert begins or ends by it."""
        self.machine.repair()

    def remove(self, row: int) -> Any | None:
        """Make a row inactive, and return the entry that it had; its alert goes on elsewhere."""
        number = self.machine.find(row)
        if number is None:
            return None
        entry = self.machine.entries[number].copy()
        self.machine.end(np.arange(len(self.machine.entries)) == number)
        self.forget(row)
        return entry

    def reset(self, size: int) -> None:
        """Forget all rows: their states can't be told any more."""
        self.memory = RowMemory(size)
        self.machine = AlertStateMachine(self.memory)
        self._when_memory, self._unless_memory = self.memory.part(0), self.memory.part(1)
        self._load_memory = self.memory.part(2)
        self._units = self._unit_index()
        self._causes, self._records, self.shown = {}, {}, ShownAlerts()

    @property
    def _ages(self) -> list[int]:
        """Numbers of the parts of the condition whose value is for how long it has been so."""
        return [number for number, part in enumerate(self.when.parts or (self.when,)) if part.IS_AGE]

    def _unit_index(self) -> UnitIndex | None:
        """Return the units behind the readings of the rule; None of a rule that is about no reading of a node."""
        metrics = set(self.when.metrics())
        of_node = self.subject is Subject.NODE and metrics
        return UnitIndex(self.memory.part(3), self.rule.name, metrics) if of_node else None

    def step(self, snapshot: FleetSnapshot) -> list[tuple[Any, AlertState]]:
        """Evaluate all rows and advance their states; return the entries of
        `alerts.engine.state_machine` that began to fire, and of those that have resolved."""
        rule = self.rule
        phase = self.machine.phase
        inputs = RuleInput(snapshot, self.subject, self.memory.size, phase)
        evaluation = self.when.evaluate(inputs, self._when_memory)
        bad = evaluation.verdicts == BAD
        if self.machine.active or np.count_nonzero(bad):
            self._mask(inputs, evaluation)
        fires, resolves = step(
            self.machine,
            evaluation,
            now=snapshot.now,
            wall=snapshot.wall,
            hold=rule.hold,
            keep=rule.keep,
            under_load=rule.load is not None,
            ages=self._ages,
        )
        further = [row for row, event in evaluation.causes.items() if phase[row] and self._note_cause(row, event)]
        if self._degrees and self.machine.active:
            further += self._note_degrees(set(fires))
        if self._units is not None:
            further += self._note_units(self._units, inputs, set(fires))
        if self.subject is Subject.MONITOR:
            self._note_reasons(snapshot.snapshots[SnapshotKind.MONITOR], bad)
        if further:
            fires = [*fires, *(row for row in further if phase[row] == AlertPhase.FIRING)]
            self.machine.turns += 1
        if not fires and not len(resolves):
            return []
        fired = self.machine.entries[np.isin(self.machine.entries["row"], fires)]
        return [(entry, AlertState.FIRING) for entry in fired] + [(entry, AlertState.RESOLVED) for entry in resolves]

    def _note_cause(self, row: int, event: Event) -> bool:
        """Store the texts of the event that made a row bad; return whether it is a further fault of a row
        that has one already. The text is that of the newest fault: an older one that comes again
        changes nothing."""
        before = self._causes.get(row, _Cause())
        faults = before.faults
        try:
            fault = self.when.fault_of_alert(event)
            known = fault in faults
            if known and fault != faults[-1]:
                return False
            if fault and not known and len(faults) < MOST_FAULTS:
                faults = (*faults, fault)
            of_unit = unit_labels(event) if fault else {}
            units = {**before.units, fault: of_unit} if of_unit else before.units
            cause = _cause(event)._replace(faults=faults, units=units)
        except Exception as error:  # noqa: BLE001 - the alert is notified without its line
            cause = _Cause(faults=faults, units=before.units)
            self.faults.append(error)
        self._causes[row] = cause
        self.shown.stale.add(row)
        return bool(before.faults) and faults != before.faults

    def _note_degrees(self, fired: Collection[int]) -> list[int]:
        """Store the worst value that each firing row has had, as its newest fault; return the rows that got worse
        since they fired."""
        risen = []
        words = list(self._degrees.values())
        entries = self.machine.entries
        firing = entries[self.machine.phase[entries["row"]] == AlertPhase.FIRING]
        for row, value in zip(firing["row"].tolist(), firing["value"].tolist(), strict=True):
            word = self._degrees.get(value)
            cause = self._causes.get(row, _Cause())
            # Faults of before a restart may have words that the rule's file no longer has.
            worst = max((words.index(each) for each in cause.faults if each in words), default=-1)
            if word is not None and words.index(word) > worst:
                self._causes[row] = cause._replace(faults=(*cause.faults, word))
                self.shown.stale.add(row)
                if cause.faults and row not in fired:
                    risen.append(row)
        return risen

    def _note_units(self, index: UnitIndex, inputs: RuleInput, fired: Collection[int]) -> list[int]:
        """Store the units of the readings of firing rows, one a row and tick, each as its newest fault; return the
        rows that have got one since they fired."""
        now = inputs.snapshot.now
        for row, event in inputs.events():
            index.note(row, event, now - inputs.snapshot.age(event))
        if not index or not self.machine.active:
            return []
        entries = self.machine.entries["row"]
        further = []
        for row in entries[self.machine.phase[entries] == AlertPhase.FIRING].tolist():
            cause = self._causes.get(row, _Cause())
            unnamed = (one for one in index.current(row, now) if one["unit"] not in cause.faults)
            labels = next(unnamed, None)
            if labels is None or len(cause.faults) >= MOST_FAULTS:
                continue
            unit = labels["unit"]
            self._causes[row] = cause._replace(faults=(*cause.faults, unit), units={**cause.units, unit: labels})
            self.shown.stale.add(row)
            if row not in fired:
                further.append(row)
        return further

    def _mask(self, inputs: RuleInput, evaluation: Evaluation) -> None:
        """Make rows unknown whose readings are disturbed, or on which `unless` is bad, good rows whose device is
        not under load, and good circuits of whose load a part is not heard: what is heard of it is too little."""
        rule, verdicts = self.rule, evaluation.verdicts
        if self._needs_all:
            verdicts[(inputs.values(UNHEARD) > 0.0) & (verdicts == GOOD)] = UNKNOWN
        if rule.unless is not None:
            verdicts[rule.unless.evaluate(inputs, self._unless_memory).verdicts == BAD] = UNKNOWN
        if rule.load is not None:
            idle = rule.load.evaluate(inputs, self._load_memory).verdicts != BAD
            idle &= ~rule.load.abstains(inputs)
            verdicts[idle & (verdicts == GOOD)] = UNKNOWN
        if rule.settle and self.subject.table is not None:
            verdicts[inputs.snapshot.now < inputs.disturbed_at() + rule.settle] = UNKNOWN

    def _note_reasons(self, snapshot: PowerSnapshot, bad: Flags) -> None:
        """Store the reasons of the bad rows; they are shown until the alert is over."""
        metric = next(self.when.metrics())
        for row in np.flatnonzero(bad).tolist():
            cause = _Cause(snapshot.facts[row].get(metric, ""))
            if self._causes.get(row) != cause:
                self._causes[row] = cause
                self.shown.stale.add(row)

    def forget(self, row: int) -> None:
        """Drop the cause of an alert that is over."""
        self._causes.pop(row, None)
        self._drop_texts(row)

    def _drop_texts(self, row: int) -> None:
        self._records.pop(row, None)
        self.shown.pop(row, None)
        self.shown.sources.pop(row, None)

    def raises_on(self, snapshot: FleetSnapshot, events: Sequence[tuple[int, Event]]) -> bool:
        """Return whether the condition raises on some events, in a memory that is not used again."""
        table = self.subject.table
        if table is None:
            return False
        trial = replace(snapshot, events={**snapshot.events, table: list(events)}, elsewhere=None)
        inputs = RuleInput(trial, self.subject, self.memory.size, self.machine.phase.copy())
        try:
            self.when.evaluate(inputs, RowMemory(self.memory.size))
            if self.rule.unless is not None:
                self.rule.unless.evaluate(inputs, RowMemory(self.memory.size))
        except Exception:  # noqa: BLE001 - the answer to the question
            return True
        return False

    def recall(self, event: Event, row: int, at: float) -> None:
        """Make the condition remember an event of before the start."""
        self.when.recall(event, row, self._when_memory, at)
        if self._units is not None:
            self._units.note(row, event, at)

    # -- Texts -----------------------------------------------------------------------------------

    def alert(
        self, entry: Any, state: AlertState, at: int, info: SubjectInfo, reading: Reading, owner: str = ""
    ) -> Alert:
        """Return the alert of an entry of `alerts.engine.state_machine`. `owner`: person or team, "" for none."""
        rule = self.rule
        part = self.when.parts[int(entry["part"])] if self.when.parts else self.when
        value, limit = _number(entry["value"]), _number(entry["limit"])
        if self.subject is Subject.MONITOR:
            value = None  # 1: adds nothing to the alert itself
        value_text = "" if value is None else part.describe(value)
        limit_text = "" if limit is None else part.describe(limit)
        cause = self._causes.get(int(entry["row"]), _Cause())
        process = cause.process
        of_unit = cause.units.get(cause.faults[-1], {}) if cause.faults else {}
        unit = of_unit.get("unit", "")
        values = {
            "value": value_text or "no reading",
            "limit": limit_text,
            "line": cause.line,
            "process": process,
            "meaning": cause.meaning,
            "remedy": cause.remedy,
            "unit": unit,
        }
        summary = _fill(rule.summary, info, values, reading)
        labels = {**info.labels, **of_unit}
        return Alert(
            key=f"{rule.name}/{info.holder}/{info.device}",
            rule=rule.name,
            id=rule.id,
            state=state,
            severity=rule.severity,
            node=info.node,
            gpu=None if info.gpu is None else info.gpu.uuid,
            subject=info.subject,
            name=info.name,
            labels={**labels, "process": process} if process else labels,
            since=int(entry["began"]),
            changed=at,
            value=value,
            limit=limit,
            value_text="" if value is None else part.shown(value),
            limit_text=limit_text,
            summary=f"{summary}: {unit}" if unit and unit not in summary else summary,
            act=_fill(_act(rule, cause, info), info, values, reading),
            description=_fill(rule.description, info, values, reading),
            runbook=rule.runbook,
            remediation=rule.remediation,
            owner=owner,
            faults=cause.faults,
            units=cause.units,
        )

    def shown_again(self, entry: Any, state: AlertState, at: int) -> Alert:
        """Return the alert of an entry with the texts that it was last shown with."""
        before = self.shown[int(entry["row"])]
        return msgspec.structs.replace(before, state=state, changed=at)

    def plain_alert(self, entry: Any, state: AlertState, at: int, info: SubjectInfo | None, error: Exception) -> Alert:
        """Return the alert of an entry whose texts can't be made, with the name of its rule in place
        of a text: it is notified rather than lost."""
        row, rule = int(entry["row"]), self.rule
        holder, device = str(self.subject), f"row {row}"
        node, where = "", f"{self.subject} {row}"
        if info is not None:
            holder, device, node, where = info.holder, info.device, info.node, info.where
        return Alert(
            key=f"{rule.name}/{holder}/{device}",
            rule=rule.name,
            id=rule.id,
            state=state,
            severity=rule.severity,
            node=node,
            subject=self.shown_as,
            gpu=None if info is None or info.gpu is None else info.gpu.uuid,
            name=where if info is None else info.name,
            labels={} if info is None else info.labels,
            since=int(entry["began"]),
            changed=at,
            summary=f"{rule.name} on {where}",
            description=f"Its text can't be made ({type(error).__name__}); the aggregator's log has the cause.",
            runbook=rule.runbook,
            remediation=rule.remediation,
        )

    def outdated(self, context: object, source: Callable[[int], PlaceFacts | None]) -> Iterator[tuple[Any, AlertState]]:
        """Yield entry and state of each row that is pending or firing and whose alert must be made.

        `source` returns what the alert of a row says about its place; `context` differs from that of the
        last call where any of that may have changed.
        """
        entries, shown = self.machine.entries, self.shown
        rows = entries["row"]
        if len(shown) > len(rows):
            for row in shown.keys() - set(rows.tolist()):
                self._drop_texts(row)
        monitor = self.subject is Subject.MONITOR
        single = monitor or self.subject.table is not None  # facts of circuits take long
        if len(rows) and single and (monitor or context != shown.context):
            for row in rows.tolist():
                known = shown.sources.get(row)
                if known is None or known != source(row):
                    shown.stale.add(row)
        shown.context = context
        most = MOST_AT_ONCE if single else FEWEST_AT_ONCE
        numbers = shown.outdated(entries, self.machine.phase[rows], most, always=self.lively)
        for number in numbers:
            entry = entries[number]
            yield entry, _STATES[AlertPhase(self.machine.phase[entry["row"]])]

    # -- Restarts --------------------------------------------------------------------------------

    def record_again(self, row: int, alert: Alert, good_since: float) -> AlertRecord | None:
        """Return the record of a row as it was last made; None where it has changed."""
        known = self._records.get(row)
        if known is None or known[0] is not alert:
            return None
        same = known[1] == good_since or (np.isnan(known[1]) and np.isnan(good_since))
        return known[2] if same else None

    def record(self, alert: Alert, entry: Any, now: float, wall: int) -> AlertRecord:
        """Return the record of an alert, to go on with it after a restart."""
        row, good = int(entry["row"]), float(entry["good_since"])
        found = self._record(alert, entry, now, wall)
        self._records[row] = alert, good, found
        return found

    def _record(self, alert: Alert, entry: Any, now: float, wall: int) -> AlertRecord:
        good = float(entry["good_since"])
        cause = self._causes.get(int(entry["row"]), _Cause())
        return AlertRecord(
            alert=alert,
            device=alert.key.split("/", 2)[2],
            good_since=None if np.isnan(good) else wall - int((now - good) * 1e9),
            part=int(entry["part"]),
            **cause._asdict(),
        )

    def resume(self, waiting: WaitingAlert, row: int) -> None:
        """Set a row to the state that it had before the restart."""
        record = waiting.record
        alert = record.alert
        self.machine.put(
            row,
            AlertPhase.FIRING if alert.state is AlertState.FIRING else AlertPhase.PENDING,
            since=waiting.since,
            good_since=np.nan if waiting.good_since is None else waiting.good_since,
            began=alert.since,
            changed=alert.changed,
            value=np.nan if alert.value is None else alert.value,
            limit=np.nan if alert.limit is None else alert.limit,
            part=min(record.part, max(0, len(self.when.parts) - 1)),
        )
        if record.line or record.process or record.faults:
            self._causes[row] = _Cause(
                record.line, record.process, record.meaning, record.remedy, record.faults, record.units
            )


def names_readings(rule: Rule) -> bool:
    """Return whether a rule's texts name present values of metrics."""
    names = {name for text in rule.texts for _, name, *_ in Formatter().parse(text) if name}
    return "cost" in names or any(name in WORDS for name in names)


def _number(value: Any) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number


class _Cause(NamedTuple):
    """Texts of the event that caused an alert; "" for what it does not tell."""

    line: str = ""
    """The raw line, or the message of an event without one."""
    process: str = ""
    meaning: str = ""
    """Meaning and remedy of what the driver stated, by the catalogues."""
    remedy: str = ""
    faults: tuple[str, ...] = ()
    """Faults of the alert so far, the newest last."""
    units: dict[str, dict[str, str]] = {}  # noqa: RUF012 - never changed
    """Labels of the unit that a fault is about, by fault."""


def _cause(event: Event) -> _Cause:
    """Return the texts of an event."""
    data = event.data
    line = str(data.get("line") or event.message)
    if not line and event.kind == "xid":
        line = f"XID {data.get('xid')}, as NVML reports it"
    process, pid = data.get("process"), data.get("pid")
    named = " ".join(str(word) for word in (process, pid and f"(pid {pid})") if word)
    return _Cause(line, named, *explain(event))


def _act(rule: Rule, cause: _Cause, info: SubjectInfo) -> str:
    """Return what to do: of an event that no catalogue has a remedy for, the first step of the runbook."""
    if "{remedy}" in rule.act and not cause.remedy and not info.facts.get("remedy"):
        return rule.steps[0] if rule.steps else ""
    return rule.act


def _fill(template: str, info: SubjectInfo, values: Mapping[str, str], reading: Callable[[str], str]) -> str:
    """Fill in a rule's template.

    `values`: value, limit and the texts of the cause. `reading` returns the present value of a metric as text.
    """
    return template.format_map(_Facts(info, values, reading))


class _Facts(dict[str, Any]):
    """Fields by name; one that is not known is `unknown`."""

    def __init__(self, info: SubjectInfo, values: Mapping[str, str], reading: Callable[[str], str]) -> None:
        super().__init__()
        self._info = info
        self._values = values
        self._reading = reading

    def __missing__(self, name: str) -> str:
        info = self._info
        if self._values.get(name):
            return self._values[name]
        match name:
            case "where":
                return info.where
            case "node":
                return info.node or UNKNOWN_TEXT
            case "gpu" if info.gpu is not None:
                return gpu_name("", info.gpu.index)
            case "index":
                return info.labels.get("gpu", UNKNOWN_TEXT)
            case "name" if info.gpu is not None:
                return info.gpu.name
        if name in WORDS or name == "cost":
            return self._reading(name)
        return info.facts.get(name) or info.labels.get(name) or UNKNOWN_TEXT
