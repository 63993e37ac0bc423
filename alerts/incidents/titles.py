"""The public incident, made from the index: its title, its alerts and its consequences."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Incident

LISTED = 100
"""Alerts that an incident lists."""


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
        owner=listed[0].alert.owner if listed else None,
    )


def _rank(tracked: TrackedAlert, index: IncidentIndex) -> tuple[bool, int, bool, int]:
    """Return the sort key: firing before resolved, then the worst, causes, the oldest."""
    key = tracked.alert.key
    severity = SEVERITIES.index(tracked.alert.severity)
    return not tracked.firing, severity, key not in index.effects, tracked.order


def _title(
    record: IncidentRecord, listed: Sequence[TrackedAlert], members: Sequence[TrackedAlert]
) -> str:
    if not listed:
        return record.title
    head = listed[0].alert
    if record.storming is not None:
        return f"Storm: {_count(record.suppressed, 'incident')} suppressed{_where(members)}; {head.summary}"
    title = head.summary
    if len(members) > 1:
        alike = all(one.alert.rule == head.rule for one in members)
        title += f" (and {len(members) - 1} more{' alike' if alike else ''}{_where(members)})"
    return title


def _where(members: Sequence[TrackedAlert]) -> str:
    nodes = {one.alert.node for one in members if one.alert.node}
    return f" on {len(nodes)} nodes" if len(nodes) > 1 else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
