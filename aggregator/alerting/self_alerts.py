"""Problems of the monitor itself, as a snapshot for the rules of `alerts/rules/monitor.toml`.

Each part that can fail is a row: the aggregator, every impaired part, the journal, every channel. A column is 1 while
the part reports the problem of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from aggregator.impairments import Impairments, MonitorPart
from alerts.journal.journal import Journal
from alerts.rules.names import MONITOR_QUANTITIES
from api.alerts import ChannelRow
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot

LOST_SHOWN_NS = 86_400_000_000_000
"""For how long the loss of a journal is reported."""


def aggregator_key(cluster: str) -> str:
    """Return the key of the aggregator's own row."""
    return f"aggregator/{cluster}"


def impairment_parts(cluster: str, impairments: Impairments) -> list[MonitorPart]:
    """Return the row of the aggregator, and one for each part that is or was impaired."""
    own = aggregator_key(cluster)
    facts: dict[str, Mapping[str, str]] = {own: {"name": "kilowatch"}}
    problems: dict[str, dict[str, str]] = {}
    for part, its in impairments.recent().items():
        facts.setdefault(part, its)
    for one in impairments.current():
        facts.setdefault(one.part, one.facts)
        problems.setdefault(one.part, {})[one.rule] = one.reason
    return [
        MonitorPart(part, {"cluster": cluster, **_named(part), **its}, problems.get(part, {}))
        for part, its in facts.items()
    ]


def _named(part: str) -> dict[str, str]:
    kind, _, name = part.partition("/")
    return {"name": name, **({"node": name} if kind == "node" else {})}


def journal_part(journal: Journal, wall_ns: int) -> MonitorPart:
    """Return the row of the journal of alerts."""
    problems = {"journal_unwritable": journal.trouble} if journal.trouble else {}
    if journal.lost and wall_ns - journal.opened_at < LOST_SHOWN_NS:
        problems["journal_lost"] = journal.lost
    facts = {"node": "aggregator", "path": str(journal.path)}
    return MonitorPart("aggregator/journal", facts, problems)


def channel_parts(channels: Iterable[ChannelRow]) -> list[MonitorPart]:
    """Return a row for each channel."""
    return [
        MonitorPart(
            f"channel/{each.name}",
            {"name": each.name, "channel": each.name, "waiting": str(each.waiting)},
            {"delivery_failing": each.failing} if each.failing else {},
        )
        for each in channels
    ]


def monitor_snapshot(parts: Sequence[MonitorPart]) -> PowerSnapshot:
    """Return the snapshot that the monitor's rules evaluate."""
    names = {quantity.name: quantity.name.removeprefix("monitor_") for quantity in MONITOR_QUANTITIES}
    return PowerSnapshot(
        SnapshotKind.MONITOR,
        1,
        tuple(part.key for part in parts),
        {name: np.array([problem in part.problems for part in parts], np.float64) for name, problem in names.items()},
        [{**part.facts, **{f"monitor_{name}": why for name, why in part.problems.items()}} for part in parts],
    )
