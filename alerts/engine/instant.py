"""Rules on power snapshots without history: what fires now, whatever its hold time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from alerts.engine.engine import RuleEngine
from alerts.rules.rule import Rule, conditions_of
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
    columns = {snapshot.kind: snapshot.columns for snapshot in snapshots}
    engine = RuleEngine([
        msgspec.structs.replace(rule, hold=0.0, keep=0.0, settle=0.0)
        for rule in rules
        if rule.table.snapshot_kind in columns and _instant(rule, columns[rule.table.snapshot_kind])
    ])  # fmt: skip
    inhibits = {rule.name: rule.inhibits for rule in engine.rules}
    firing: dict[tuple[SnapshotKind, str], dict[str, str]] = {}
    for alert in engine.evaluate(Fleet(), 0.0, 0, snapshots=snapshots):
        row = SnapshotKind(alert.subject), alert.name
        firing.setdefault(row, {})[alert.rule] = alert.id or alert.rule
    found: dict[SnapshotKind, dict[str, list[str]]] = {kind: {} for kind in columns}
    for (kind, name), ids in firing.items():
        inhibited = {other for rule in ids for other in inhibits[rule]}
        found[kind][name] = sorted({ids[rule] for rule in ids.keys() - inhibited})
    return found


def _instant(rule: Rule, columns: Mapping[str, object]) -> bool:
    parts = list(conditions_of(rule.when))
    known = all(name in columns for part in parts for name in part.metrics())
    return known and not any(part.edge or part.remembers for part in parts)
