"""One rule on one table or power snapshot: its memory and its alerts' lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from alerts.engine.restore import AlertRecord, WaitingAlert
from alerts.engine.row_memory import RowChange, RowMemory
from alerts.engine.snapshot import FleetSnapshot, RuleInput
from alerts.engine.state_machine import AlertPhase, AlertStateMachine, step
from alerts.engine.subjects import SubjectInfo
from alerts.engine.templates import fill
from alerts.rules.condition import BAD, UNKNOWN, Flags, Judgement
from alerts.rules.conditions import Condition
from alerts.rules.rule import Rule
from api.alerts import Alert, AlertState, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.inventory import Event

_STATES = {AlertPhase.PENDING: AlertState.PENDING, AlertPhase.FIRING: AlertState.FIRING}
Reading = Callable[[str], str]
"""Gives a metric's value now, in words."""


class RuleEvaluator:
    """One rule on one subject."""

    def __init__(self, rule: Rule, subject: Subject, when: Condition) -> None:
        self.rule = rule
        self.subject = subject
        self.when = when
        self.rows = RowMemory()
        self.life = AlertStateMachine(self.rows)
        self.memory = self.rows.part(0)
        self._excuse = self.rows.part(1)
        self._causes: dict[int, tuple[str, str]] = {}
        """Line and process of the event behind each active row that has one."""

    @property
    def shown_as(self) -> Subject:
        """Subject of its alerts."""
        return Subject.NODE if self.subject is Subject.MONITOR else self.subject

    def move(self, change: RowChange) -> None:
        """Follow the devices to their new rows."""
        self.life.move(change)
        self.rows.move(change)
        if self._causes:
            stands = dict(zip(change.old.tolist(), change.new.tolist(), strict=True))
            gone = set(change.touched.tolist()) - set(stands)
            self._causes = {
                stands.get(row, row): cause
                for row, cause in self._causes.items()
                if row not in gone
            }

    def step(self, look: FleetSnapshot) -> list[tuple[Any, AlertState]]:
        """Judge all rows and move them on; return the entries (`alerts.engine.state_machine`) of those that now
        fire and of those that have resolved."""
        rule = self.rule
        phase = self.life.phase
        sight = RuleInput(look, self.subject, self.rows.size, phase)
        judgement = self.when.judge(sight, self.memory)
        verdicts = judgement.verdicts
        if self.life.active or (verdicts == BAD).any():
            self._excused(look, sight, judgement)
        fires, resolves = step(
            self.life, judgement, now=look.now, wall=look.wall, hold=rule.hold, keep=rule.keep
        )
        for row, event in judgement.causes.items():
            if phase[row]:
                self._causes[row] = _said(event)
        if self.subject is Subject.MONITOR:
            self._note_reasons(look.snapshots[SnapshotKind.MONITOR], verdicts == BAD)
        if not len(fires) and not len(resolves):
            return []
        fired = self.life.entries[np.isin(self.life.entries["row"], fires)]
        return [(entry, AlertState.FIRING) for entry in fired] + [
            (entry, AlertState.RESOLVED) for entry in resolves
        ]

    def _note_reasons(self, snapshot: PowerSnapshot, bad: Flags) -> None:
        """Keep what the bad parts of the monitor report; it is shown until the alert is over."""
        metric = next(self.when.metrics())
        for row in np.flatnonzero(bad).tolist():
            self._causes[row] = snapshot.facts[row].get(metric, ""), ""

    def _excused(self, look: FleetSnapshot, sight: RuleInput, judgement: Judgement) -> None:
        """Take back what is judged while readings are disturbed, or the rule says to leave it."""
        rule, verdicts = self.rule, judgement.verdicts
        if rule.unless is not None:
            verdicts[rule.unless.judge(sight, self._excuse).verdicts == BAD] = UNKNOWN
        if rule.settle and self.subject.table is not None:
            verdicts[look.now < look.calm_at[self.subject.table] + rule.settle] = UNKNOWN

    def forget(self, row: int) -> None:
        """Drop what was kept for the words of an alert that is over."""
        self._causes.pop(row, None)

    def recall(self, event: Event, row: int, at: float) -> None:
        """Let the condition remember an event of before the start."""
        self.when.recall(event, row, self.memory, at)

    # -- Words -----------------------------------------------------------------------------------

    def alert(
        self, entry: Any, state: AlertState, at: int, place: SubjectInfo, reading: Reading
    ) -> Alert:
        """Put one entry of `alerts.engine.state_machine` into words."""
        rule = self.rule
        part = self.when.parts[int(entry["part"])] if self.when.parts else self.when
        value, limit = _number(entry["value"]), _number(entry["limit"])
        if self.subject is Subject.MONITOR:
            value = None  # 1: it says no more than the alert itself
        value_text = "" if value is None else part.said(value)
        limit_text = "" if limit is None else part.said(limit)
        line, process = self._causes.get(int(entry["row"]), ("", ""))
        said = {
            "value": value_text or "no reading",
            "limit": limit_text,
            "line": line,
            "process": process,
        }
        return Alert(
            key=f"{rule.name}/{place.holder}/{place.device}",
            rule=rule.name,
            id=rule.id,
            state=state,
            severity=rule.severity,
            node=place.node,
            gpu=None if place.gpu is None else place.gpu.uuid,
            subject=place.subject,
            name=place.name,
            labels={**place.labels, "process": process} if process else place.labels,
            since=int(entry["began"]),
            changed=at,
            value=value,
            limit=limit,
            value_text="" if value is None else part.shown(value),
            limit_text=limit_text,
            summary=fill(rule.summary, place, said, reading),
            description=fill(rule.description, place, said, reading),
            runbook=rule.runbook,
        )

    def standing(self) -> Iterator[tuple[Any, AlertState]]:
        """Entry and state of everything that is pending or firing."""
        for entry in self.life.entries:
            yield entry, _STATES[AlertPhase(self.life.phase[entry["row"]])]

    # -- Restarts --------------------------------------------------------------------------------

    def record(self, alert: Alert, entry: Any, now: float, wall: int) -> AlertRecord:
        """Write an alert down."""
        good = float(entry["good_since"])
        line, process = self._causes.get(int(entry["row"]), ("", ""))
        return AlertRecord(
            alert=alert,
            device=alert.key.split("/", 2)[2],
            good_since=None if np.isnan(good) else wall - int((now - good) * 1e9),
            part=int(entry["part"]),
            line=line,
            process=process,
        )

    def resume(self, waiting: WaitingAlert, row: int) -> None:
        """Let a row stand where it stood before the restart."""
        record = waiting.record
        alert = record.alert
        self.life.put(
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
        if record.line or record.process:
            self._causes[row] = record.line, record.process


def _number(value: Any) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number


def _said(event: Event) -> tuple[str, str]:
    """Return the raw line of an event, or what it says; and the process it names."""
    data = event.data
    line = str(data.get("line") or event.message)
    process, pid = data.get("process"), data.get("pid")
    return line, " ".join(str(word) for word in (process, pid and f"(pid {pid})") if word)
