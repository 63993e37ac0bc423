"""The isolation of rules: each is evaluated by itself, and an exception costs it alone, or the events that it raises on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from alerts.engine.isolation import NodeFaults, culprits
from alerts.engine.pending_events import PendingEvents
from alerts.engine.rule_evaluator import RuleEvaluator
from alerts.rules.input import FleetSnapshot
from api.alerts import AlertState
from telemetry.runtime.isolation import Isolation, PartKind

Entries = list[tuple[Any, AlertState]]
"""Entries that began to fire or have resolved."""


class IsolatedRules:
    """Evaluates rules, and sets those aside that raise; the events that they miss meanwhile wait for them."""

    def __init__(self, pending: PendingEvents) -> None:
        self.aside = Isolation(PartKind.RULE, passes=(NodeFaults,))
        self._pending = pending

    @np.errstate(over="ignore", invalid="ignore")  # a counter may be 1e308: its growth is inf
    def step(self, evaluator: RuleEvaluator, snapshot: FleetSnapshot) -> Entries:
        """Evaluate a rule; return the entries that began to fire or have resolved, none where it raises."""
        part = evaluator.part
        set_aside = len(self.aside) > 0 and part in self.aside
        if set_aside or part in self._pending.missed:
            if not self.aside.due(part, snapshot.now):
                self._miss(evaluator, snapshot)
                return []
            snapshot = self._pending.with_missed(part, evaluator.subject.table, snapshot)
        try:
            entries = evaluator.step(snapshot)
        except Exception as error:  # noqa: BLE001 - reported by the rule's name
            return self._after(error, evaluator, snapshot)
        if set_aside:
            self.aside.works(part)
        return entries

    def _after(self, error: Exception, evaluator: RuleEvaluator, snapshot: FleetSnapshot) -> Entries:
        """Return the changes of a rule without the events that it raises on; where these are not the
        cause, set the rule aside: its alerts stay as they are, and its events are evaluated later."""
        part, table, now = evaluator.part, evaluator.subject.table, snapshot.now
        evaluator.repair()
        events = [] if table is None else snapshot.events[table]
        bad = culprits(events, lambda some: not evaluator.raises_on(snapshot, some))
        if table is not None and bad and len(bad) < max(2, len(events)):
            good = [pair for pair in events if pair not in bad]
            try:
                entries = evaluator.step(replace(snapshot, events={**snapshot.events, table: good}))
            except Exception:  # noqa: BLE001 - the first one is reported
                evaluator.repair()
            else:
                for _, event in bad:
                    self._pending.fail(event, error, now)
                self._pending.miss(part, [event for _, event in bad])
                self.aside.works(part)
                return entries
        self.aside.fail(part, error, now)
        self._miss(evaluator, snapshot)
        return []

    def _miss(self, evaluator: RuleEvaluator, snapshot: FleetSnapshot) -> None:
        """Keep the events of this tick for the time at which a rule works again."""
        table = evaluator.subject.table
        if table is not None:
            self._pending.miss(evaluator.part, [event for _, event in snapshot.events[table]])
