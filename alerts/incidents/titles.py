"""The public incident, made from the index: its title, its alerts and its consequences."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Incident
from present.alert.incident import on_nodes, title_of
from telemetry.text import counted

LISTED = 100
"""Alerts that an incident lists."""
_OWNERS = 3
"""Owners of an incident that are named."""
_RULES = 3
"""Rules of a storm that its title counts."""


def incident_of(record: IncidentRecord, index: IncidentIndex) -> Incident:
    """Return the public form of an incident."""
    if record.final is not None:
        return record.final
    members = list(index.members(record))
    listed = heapq.nsmallest(LISTED, members, key=lambda one: _rank(one, index))
    firing = sum(one.firing for one in members)
    hidden = sorted(effect for one in members for effect in index.consequences(one.alert.key))
    return Incident(
        key=record.key,
        group=dict(record.group),
        severity=record.severity,
        title=_title(record, listed, members),
        began=record.began,
        changed=record.changed,
        ended=record.ended,
        alerts=tuple(one.alert for one in listed),
        firing=firing,
        total=len(members),
        acknowledged=record.ack,
        inhibited=tuple(hidden[:LISTED]),
        hidden=len(hidden),
        remediation=listed[0].alert.remediation if listed and record.storming is None else None,
        owner=", ".join(_owners(listed)[:_OWNERS]),
        shared=record.shared,
    )


def _rank(tracked: TrackedAlert, index: IncidentIndex) -> tuple[bool, int, bool, int]:
    """Return the sort key: firing before resolved, then the worst, causes, the oldest."""
    key = tracked.alert.key
    severity = SEVERITIES.index(tracked.alert.severity)
    return not tracked.firing, severity, key not in index.effects, tracked.order


def _owners(listed: Sequence[TrackedAlert]) -> list[str]:
    """Return the owners of alerts, each once: a storm may be of several."""
    return list(dict.fromkeys(one.alert.owner for one in listed if one.alert.owner))


def _title(record: IncidentRecord, listed: Sequence[TrackedAlert], members: Sequence[TrackedAlert]) -> str:
    if not listed:
        return record.title
    if record.storming is not None:
        return _storm_title(record, members)
    return title_of(listed[0].alert, [one.alert for one in members])


def _storm_title(record: IncidentRecord, members: Sequence[TrackedAlert]) -> str:
    """Return how many of what, where, and what they share."""
    counts = Counter(one.alert.rule for one in members)
    rules = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{rule} {count:,}" for rule, count in rules[:_RULES])
    more = ", and others" if len(rules) > _RULES else ""
    only = f"; they share {', '.join(record.shared)}" if record.shared else ""
    where = on_nodes(len({one.alert.node for one in members if one.alert.node}))
    return f"Storm: {counted(record.suppressed, 'incident')}{where}: {named}{more}{only}"
