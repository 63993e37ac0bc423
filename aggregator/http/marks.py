"""Marks of circuits, nodes and GPUs: the worst alert that fires on each."""

from __future__ import annotations

from collections.abc import Iterable

from api.alerts import Alert, AlertState, Severity, Subject


def status_of(alerts: Iterable[Alert]) -> dict[str, int]:
    """Return how bad the worst alert of each circuit is: 2 a page, 1 a ticket."""
    found: dict[str, int] = {}
    bad_of = {Severity.PAGE: 2, Severity.TICKET: 1}
    for alert in alerts:
        if alert.subject is Subject.CIRCUIT and alert.state is AlertState.FIRING:
            found[alert.name] = max(found.get(alert.name, 0), bad_of.get(alert.severity, 0))
    return found


def marks_of(alerts: Iterable[Alert]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the worst severity of what fires on each node, and on each GPU of each."""
    nodes: dict[str, str] = {}
    gpus: dict[str, dict[str, str]] = {}
    for alert in alerts:
        if alert.state is not AlertState.FIRING or not alert.node:
            continue
        if alert.severity not in {Severity.PAGE, Severity.TICKET}:
            continue
        worst = [alert.severity.value]
        nodes[alert.node] = min([nodes.get(alert.node, "ticket"), *worst])  # by their names, too
        if alert.gpu:
            its = gpus.setdefault(alert.node, {})
            its[alert.gpu] = min([its.get(alert.gpu, "ticket"), *worst])
    return nodes, gpus
