"""Alerts on kilowatch itself for Prometheus: above all that it is down, which only another system
can report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alerts.notifiers.labels import SEVERITY
from alerts.rules.rule import monitor_rules
from api.alerts import Remediation, Severity
from telemetry.text import exact_duration
from telemetry.wire.exposition import PREFIX

_A = f"{PREFIX}aggregator_"


@dataclass(frozen=True, slots=True)
class SelfAlertRule:
    """An alert on kilowatch itself."""

    name: str
    expr: str
    hold: float
    severity: Severity
    summary: str
    description: str


_EXPRESSIONS = {
    "bus_lost": f"{_A}bus_connected == 0",
    "rules_failing": f"rate({_A}rules_seconds_count[2m]) == 0",
    "store_failing": f"{_A}store_ok == 0",
    "influxdb_failing": f"{PREFIX}influxdb_connected == 0 and {PREFIX}influxdb_spool_points > 0",
}
"""Expressions over its metrics page for those of its own alerts that show there."""

WATCHES = (
    SelfAlertRule(
        "aggregator_down",
        f"absent({_A}uptime_seconds)",
        60,
        Severity.PAGE,
        "kilowatch's aggregator is down",
        "Look on its machine: systemctl status kilowatch-aggregator, and its log. Nothing is monitored: no rule is evaluated "
        "and nobody is paged. The collectors keep all frames and send them when it is back.",
    ),
    *(
        SelfAlertRule(
            own.name, _EXPRESSIONS[own.name], own.hold, own.severity, own.summary.removesuffix(": {line}"), own.advice
        )
        for own in monitor_rules()
        if own.name in _EXPRESSIONS
    ),
    SelfAlertRule(
        "delivery_failing",
        f"{PREFIX}channel_failing == 1",
        0,
        Severity.PAGE,
        "kilowatch's channel {{ $labels.channel }} delivers nothing",
        "Run `kilowatch notify list`: it has the cause. Its pages don't arrive.",
    ),
)


def group(runbook: str) -> dict[str, Any]:
    """Return these alerts as a group of a rule file."""
    own = monitor_rules()[0]
    return {
        "name": "kilowatch-itself",
        "rules": [
            {
                "alert": watch.name,
                "expr": watch.expr,
                **({"for": exact_duration(watch.hold)} if watch.hold else {}),
                "keep_firing_for": exact_duration(own.keep),
                "labels": {
                    "severity": SEVERITY[watch.severity],
                    "subject": "kilowatch",
                    "remediation": Remediation.MONITOR.value,
                },
                "annotations": {
                    "summary": watch.summary,
                    "description": watch.description,
                    "runbook_url": f"{runbook}#{own.runbook}",
                },
            }
            for watch in WATCHES
        ],
    }
