"""The public incident, made from the index: its title, its alerts and its consequences."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Incident
from present.alert.incident import more_alerts, on_nodes
from telemetry.text import counted

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
    nodes = len({one.alert.node for one in members if one.alert.node})
    if record.storming is not None:
        return f"Storm: {counted(record.suppressed, 'incident')} suppressed{on_nodes(nodes)}; {head.summary}"
    alike = all(one.alert.rule == head.rule for one in members)
    return head.summary + more_alerts(len(members) - 1, alike=alike, nodes=nodes)
