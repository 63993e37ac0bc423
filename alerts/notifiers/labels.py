"""An alert in the form of Alertmanager: labels are its identity, annotations are not.

Severities carry the words that Prometheus' users route by: a page is `critical`, a ticket `warning`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from alerts.message.commands import gpu_condition, silence_of
from alerts.message.page import Links, dashboard_of
from alerts.message.text import clean
from api.alerts import Alert, AlertState, Severity
from present.alert.incident import place_of
from telemetry.text import rfc3339

SEVERITY = {Severity.PAGE: "critical", Severity.TICKET: "warning", Severity.INFO: "info"}
NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time: the end of what has not ended."""
_IDENTITY = frozenset({
    "cluster", "rack", "gpu", "uuid", "serial", "pci", "slot", "model", "link", "port", "domain",
    "circuit", "panel", "ups", "budget", "supply", "channel", "fault",
})  # fmt: skip
"""Labels that identify an alert. All others (`job`, a circuit's amps) may change while it fires; as
part of its identity they would make it another alert every second."""
_AROUND = 1_800_000_000_000
"""ns after the beginning that a dashboard shows: an annotation must not change all the time."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Names that an Alertmanager of version 0.25 accepts."""


def identity_of(alert: Alert, cluster: str = "") -> dict[str, str]:
    """Return the labels that identify an alert."""
    found = {name: value for name, value in alert.labels.items() if name in _IDENTITY} | {
        "alertname": alert.rule,
        "severity": SEVERITY[alert.severity],
        "subject": alert.subject.value,
        "cluster": alert.labels.get("cluster", cluster),
        "node": alert.node,
        "name": alert.name,
        "uuid": alert.gpu or alert.labels.get("uuid", ""),
        "rule_id": alert.id,
        "remediation": alert.remediation or "",
        "owner": alert.owner or "",
    }
    return {name: plain for name, value in found.items() if (plain := clean(value, 256))}


def remarks_of(alert: Alert, links: Links) -> dict[str, str]:
    """Return what people read: summary, description, value, runbook, and what is known beside."""
    of = f"node={alert.node}" if alert.node else f"name={alert.name}"
    found = {
        name: value
        for name, value in sorted(alert.labels.items())
        if name not in _IDENTITY and name != "name" and _NAME.fullmatch(name)
    } | {
        "summary": alert.summary,
        "description": alert.advice,
        "where": place_of(alert),
        "value": alert.value_text,
        "limit": alert.limit_text,
        "runbook_url": links.runbook_of(alert.rule, alert.runbook),
        "incident_url": links.incident_of(alert.key),
        "evidence_url": links.evidence_of(alert.key),
        "dashboard_url": dashboard_of(alert, links, alert.since, alert.since + _AROUND) if links.dashboard else "",
        "silence": silence_of([f"rule={alert.rule}", of, *gpu_condition([alert])]),
    }
    return {name: plain for name, value in found.items() if (plain := clean(value, 2000))}


def fingerprint(identity: dict[str, str]) -> str:
    """Return 16 hex digits that represent a set of labels."""
    joined = "\xff".join(f"{name}\xff{value}" for name, value in sorted(identity.items()))
    return hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()


def ended(alert: Alert) -> str:
    """Return when an alert ended, as Alertmanager writes it."""
    return rfc3339(alert.changed) if alert.state is AlertState.RESOLVED else NEVER


def common(tables: list[dict[str, str]]) -> dict[str, str]:
    """Return what all tables have, with the same value."""
    if not tables:
        return {}
    first, *rest = tables
    return {name: value for name, value in first.items() if all(table.get(name) == value for table in rest)}


def posted(alert: Alert, links: Links) -> dict[str, Any]:
    """Return an alert as in a webhook's body."""
    identity = identity_of(alert, links.cluster)
    return {
        "status": "resolved" if alert.state is AlertState.RESOLVED else "firing",
        "labels": identity,
        "annotations": remarks_of(alert, links),
        "startsAt": rfc3339(alert.since),
        "endsAt": ended(alert),
        "generatorURL": links.external,
        "fingerprint": fingerprint(identity),
    }
