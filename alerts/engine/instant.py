"""Rules on power snapshots without history: what fires now, whatever its hold time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alerts.rules.condition import BAD
from alerts.rules.gpu_jobs import GpuJobs
from alerts.rules.input import FleetSnapshot, RuleInput
from alerts.rules.row_memory import Flags, RowMemory
from alerts.rules.rule import Rule, conditions_of
from api.alerts import Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.fleet import Fleet


def firing_ids(
    rules: Sequence[Rule], snapshots: Sequence[PowerSnapshot]
) -> dict[SnapshotKind, dict[str, list[str]]]:
    """Return the ids of the rules that fire on each row, by the row's name.

    A rule that needs history, or a quantity that its snapshot does not have, is left out; so is one
    that another firing rule inhibits on the same row.
    """
    return {snapshot.kind: _ids(rules, snapshot) for snapshot in snapshots}


def _ids(rules: Sequence[Rule], snapshot: PowerSnapshot) -> dict[str, list[str]]:
    size = len(snapshot.names)
    none = np.zeros(0, np.intp)
    fleet = FleetSnapshot(
        Fleet(), {snapshot.kind: snapshot}, {}, 0.0, 0, -np.inf, {}, {},
        lambda _: np.zeros(0, np.bool_), lambda _: (none, 0), GpuJobs(), lambda *_: {},
    )  # fmt: skip
    inputs = RuleInput(fleet, Subject(snapshot.kind.value), size, np.zeros(size, np.int8))
    instant = [r for r in rules if r.table is inputs.subject and _instant(r, snapshot.columns)]
    bad = {rule.name: _bad(rule, inputs) for rule in instant}
    found: dict[str, set[str]] = {}
    for rule in instant:
        firing = bad[rule.name].copy()
        for other in instant:
            if any(one.rule == rule.name for one in other.inhibits):
                firing &= ~bad[other.name]
        for row in np.flatnonzero(firing):
            found.setdefault(snapshot.names[row], set()).add(rule.id or rule.name)
    return {name: sorted(ids) for name, ids in found.items()}


def _instant(rule: Rule, columns: Mapping[str, object]) -> bool:
    parts = [*conditions_of(rule.when), *(conditions_of(rule.unless) if rule.unless else ())]
    known = all(name in columns for part in parts for name in part.metrics())
    return known and not any(part.edge or part.remembers for part in parts)


def _bad(rule: Rule, inputs: RuleInput) -> Flags:
    bad: Flags = rule.when.evaluate(inputs, RowMemory(inputs.size)).verdicts == BAD
    if rule.unless is not None:
        bad &= rule.unless.evaluate(inputs, RowMemory(inputs.size)).verdicts != BAD
    return bad
