"""Alerts, incidents and notices, for tests of notifications."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from alerts.delivery.clock import DeliveryClock
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal, Route
from alerts.notice import Notice
from api.alerts import Action, Alert, AlertState, Incident, IncidentNote, Remediation, Severity, Subject

MINUTE = 60_000_000_000
NOON = 1_785_585_600_000_000_000
"""Saturday 2026-08-01 12:00:00 UTC."""
_numbers = itertools.count(1)


def alert(
    rule: str = "gpu_lost",
    node: str = "dgx-01",
    gpu: int | None = 3,
    *,
    state: AlertState = AlertState.FIRING,
    severity: Severity = Severity.PAGE,
    since: int = NOON,
    labels: dict[str, str] | None = None,
) -> Alert:
    """One GPU's alert, with all that is known of it."""
    uuid = None if gpu is None else f"GPU-{gpu:08x}-0000-0000-0000-{gpu:012x}"
    known = {
        "cluster": "hall-1",
        "gpu": str(gpu),
        "uuid": uuid or "",
        "serial": "1652622032001",
        "pci": "00000000:3B:00.0",
        "slot": "4",
        "model": "NVIDIA H100 80GB HBM3",
        "rack": "r12",
        "circuits": "PDU-A-12,PDU-B-12",
        "job": "4711",
        "user": "ada",
    }
    if gpu is None:
        known = {"cluster": "hall-1", "rack": "r12"}
    where = node if gpu is None else f"{node} GPU {gpu}"
    return Alert(
        key=f"{rule}/{node}/{uuid or 'node'}",
        rule=rule,
        state=state,
        severity=severity,
        node=node,
        gpu=uuid,
        subject=Subject.NODE if gpu is None else Subject.GPU,
        labels={**known, **(labels or {})},
        since=since,
        changed=since,
        value=79.0,
        value_text="XID 79",
        summary=f"{where} fell off the bus",
        act="Drain the node, power it off and on, and run dcgmi.",
        description="The driver has lost it.",
        runbook="gpu-lost",
        remediation=Remediation.COLD_START,
    )


def incident(
    key: str = "i-1",
    alerts: Iterable[Alert] | None = None,
    *,
    severity: Severity = Severity.PAGE,
    began: int = NOON,
    ended: int | None = None,
    acknowledged: IncidentNote | None = None,
) -> Incident:
    """Return an incident with these alerts."""
    listed = tuple([alert(severity=severity, since=began)] if alerts is None else alerts)
    firing = sum(one.state is AlertState.FIRING for one in listed)
    return Incident(
        key=key,
        group={"rule": listed[0].rule, "node": listed[0].node} if listed else {},
        severity=severity,
        title=listed[0].summary if listed else "many",
        began=began,
        changed=began,
        ended=ended,
        alerts=listed,
        firing=0 if ended else firing,
        total=len(listed),
        acknowledged=acknowledged,
    )


def notice(
    action: Action = Action.TRIGGER,
    key: str = "i-1",
    *,
    at: int = NOON,
    reason: str = "",
    about: Incident | None = None,
    severity: Severity = Severity.PAGE,
) -> Notice:
    """Return one notice."""
    over = action is Action.RESOLVE
    reasons = {Action.TRIGGER: "new", Action.UPDATE: "more", Action.RESOLVE: "resolved"}
    found = about or incident(
        key, severity=severity, began=min(at, NOON) if at < NOON else at, ended=at if over else None
    )
    return Notice(
        id=f"{key}-{next(_numbers)}-{at}",
        action=action,
        incident=found,
        at=at,
        reason=reason or reasons.get(action, "acknowledged"),
    )


class NoticeWriter:
    """Writes notices into a real journal, as the incident manager does."""

    def __init__(self, path: Path, clock: DeliveryClock, route: Route) -> None:
        self.clock = clock
        self.route = route
        self.journal = Journal.open(path, clock.wall())

    def write(
        self,
        action: Action = Action.TRIGGER,
        key: str = "i-1",
        *,
        reason: str = "",
        severity: Severity = Severity.PAGE,
        about: Incident | None = None,
    ) -> Notice:
        """Decide something, now."""
        return self.write_all([(action, key)], reason=reason, severity=severity, about=about)[0]

    def write_all(
        self,
        told: Iterable[tuple[Action, str]],
        *,
        reason: str = "",
        severity: Severity = Severity.PAGE,
        about: Incident | None = None,
    ) -> list[Notice]:
        """Decide several things in one step."""
        now = self.clock.wall()
        made = [notice(action, key, at=now, reason=reason, severity=severity, about=about) for action, key in told]
        step = IncidentChanges(notices=tuple(made), incidents=tuple(one.incident for one in made), wall_ns=now)
        assert self.journal.commit(step, self.route)
        return made
