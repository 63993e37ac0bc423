"""Rules without history, on power snapshots or on one reading of a node: what fires now, whatever its hold time."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from alerts.rules.condition import BAD, GOOD
from alerts.rules.gpu_jobs import GpuJobs
from alerts.rules.input import FleetSnapshot, RuleInput
from alerts.rules.row_memory import Flags, RowMemory
from alerts.rules.rule import Rule, conditions_of
from api.alerts import Severity, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA


def firing_ids(rules: Sequence[Rule], snapshots: Sequence[PowerSnapshot]) -> dict[SnapshotKind, dict[str, list[str]]]:
    """Return the ids of the rules that fire on each row, by the row's name.

    A rule that needs history, or a quantity that its snapshot does not have, is left out; so is one
    that `hides` says of another firing rule on the same row.
    """
    return {snapshot.kind: _ids(rules, snapshot) for snapshot in snapshots}


class NodeVerdict(NamedTuple):
    """Answer of one rule about one reading of a node."""

    rule: Rule
    verdict: int
    """`GOOD`, `BAD`, or `UNKNOWN` where a metric that it reads is absent."""
    value: float
    """Of the metric that it compares; NaN where that is absent."""


def node_verdicts(
    rules: Sequence[Rule], inventory: Inventory, rows: Mapping[int, Sequence[Sequence[float]]]
) -> list[NodeVerdict]:
    """Return what the rules about nodes say of a reading. `rows`: by block of the schema, as a source reads
    them. A rule that needs history, or silence, which one reading can't show, is left out."""
    fleet = Fleet()
    node = fleet.place(inventory)
    for number, block in enumerate(SCHEMA.blocks):
        if block.table is Table.NODE and number in rows:
            values = np.asarray(rows[number], np.float64)
            split = len(block.gauges)
            fleet.store(number, node.rows[Table.NODE], values[:, :split].astype(np.float32), values[:, split:], 0.0)
    size = fleet.size(Table.NODE)
    none = np.zeros(0, np.intp)
    snapshot = FleetSnapshot(
        fleet,
        {},
        {Table.NODE: np.arange(size)},
        0.0,
        0,
        -np.inf,
        {},
        {},
        lambda states: np.full(size, inventory.driver_state in states),
        lambda _: (none, 0),
        GpuJobs(),
        lambda *_: {},
    )
    inputs = RuleInput(snapshot, Subject.NODE, size, np.zeros(size, np.int8))
    names = {name for block in SCHEMA.blocks if block.table is Table.NODE for name in block.names}
    row = node.row
    found = []
    for rule in rules:
        if rule.table is Subject.NODE and any(rule.when.metrics()) and _instant(rule, names):
            verdicts = rule.when.evaluate(inputs, RowMemory(size))
            verdict = int(verdicts.verdicts[row])
            if verdict == BAD and not _bad(rule, inputs)[row]:
                verdict = GOOD
            value = inputs.values(next(iter(rule.when.metrics())))[row]
            found.append(NodeVerdict(rule, verdict, float(value)))
    return found


def _ids(rules: Sequence[Rule], snapshot: PowerSnapshot) -> dict[str, list[str]]:
    size = len(snapshot.names)
    none = np.zeros(0, np.intp)
    fleet = FleetSnapshot(
        Fleet(),
        {snapshot.kind: snapshot},
        {},
        0.0,
        0,
        -np.inf,
        {},
        {},
        lambda _: np.zeros(0, np.bool_),
        lambda _: (none, 0),
        GpuJobs(),
        lambda *_: {},
    )
    inputs = RuleInput(fleet, Subject(snapshot.kind.value), size, np.zeros(size, np.int8))
    instant = [r for r in rules if r.table is inputs.subject and _instant(r, snapshot.columns)]
    bad = {rule.name: _bad(rule, inputs) for rule in instant}
    found: dict[str, set[str]] = {}
    for rule in instant:
        firing = bad[rule.name].copy()
        for other in instant:
            if hides(other, rule):
                firing &= ~bad[other.name]
        for row in np.flatnonzero(firing):
            found.setdefault(snapshot.names[row], set()).add(rule.id or rule.name)
    return {name: sorted(ids) for name, ids in found.items()}


def hides(cause: Rule, rule: Rule) -> bool:
    """Whether a rule need not be named beside another one that fires on the same row: it is inhibited by it, and is its
    milder level or a ticket. One page is enough for a load, but a plan names each limit that the load exceeds."""
    inhibited = any(one.rule == rule.name for one in cause.inhibits)
    return inhibited and (cause.id == rule.id or rule.severity is not Severity.PAGE)


def _instant(rule: Rule, columns: Container[str]) -> bool:
    parts = [*conditions_of(rule.when), *(conditions_of(rule.unless) if rule.unless else ())]
    known = all(name in columns for part in parts for name in part.metrics())
    return known and not any(part.edge or part.remembers for part in parts)


def _bad(rule: Rule, inputs: RuleInput) -> Flags:
    bad: Flags = rule.when.evaluate(inputs, RowMemory(inputs.size)).verdicts == BAD
    if rule.unless is not None:
        bad &= rule.unless.evaluate(inputs, RowMemory(inputs.size)).verdicts != BAD
    return bad
