"""Incidents as people see them: put together from what lies in the cabinet."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from alerts.incidents.index import SEVERITIES, IncidentIndex
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Incident

LISTED = 100
"""Alerts that an incident lists."""


def incident_of(dossier: IncidentRecord, cabinet: IncidentIndex) -> Incident:
    """Return an incident as it stands."""
    if dossier.final is not None:
        return dossier.final
    cases = list(cabinet.members(dossier))
    listed = heapq.nsmallest(LISTED, cases, key=lambda case: _rank(case, cabinet))
    firing = sum(case.firing for case in cases)
    hidden = sorted(effect for case in cases for effect in cabinet.consequences(case.alert.key))
    return Incident(
        key=dossier.key,
        group=dossier.group,
        severity=dossier.severity,
        title=_title(dossier, listed, cases),
        began=dossier.began,
        changed=dossier.changed,
        ended=dossier.ended,
        alerts=tuple(case.alert for case in listed),
        firing=firing,
        total=len(cases),
        acknowledged=dossier.ack,
        inhibited=tuple(hidden[:LISTED]),
        hidden=len(hidden),
    )


def _rank(case: TrackedAlert, cabinet: IncidentIndex) -> tuple[bool, int, bool, int]:
    """What fires first, of that the worst, of that what has consequences, of that the oldest."""
    key = case.alert.key
    severity = SEVERITIES.index(case.alert.severity)
    return not case.firing, severity, key not in cabinet.effects, case.order


def _title(
    dossier: IncidentRecord, listed: Sequence[TrackedAlert], cases: Sequence[TrackedAlert]
) -> str:
    if not listed:
        return dossier.title
    head = listed[0].alert
    if dossier.storming is not None:
        return f"Storm: {_count(dossier.held, 'incident')} held back{_where(cases)}; {head.summary}"
    title = head.summary
    if len(cases) > 1:
        alike = all(case.alert.rule == head.rule for case in cases)
        title += f" (and {len(cases) - 1} more{' alike' if alike else ''}{_where(cases)})"
    return title


def _where(cases: Sequence[TrackedAlert]) -> str:
    nodes = {case.alert.node for case in cases if case.alert.node}
    return f" on {len(nodes)} nodes" if len(nodes) > 1 else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
