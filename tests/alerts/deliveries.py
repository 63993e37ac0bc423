"""A desk with a clock that tests wind, a memory that survives restarts, and the post it sends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import PATIENCE, NotificationTimings, RulePolicy, RuleScope
from alerts.incidents.state import (
    IncidentMemory,
    IncidentRecord,
    ManagerClock,
    RecordKey,
    SilenceWindow,
    StateChanges,
    TrackedAlert,
)
from alerts.notice import Notice
from api.alerts import Alert, AlertState, Incident, NotificationState, Severity, Subject

SECOND = 1_000_000_000
NOON = 1_800_000_000 * SECOND

POLICIES: Mapping[str, RulePolicy] = {
    "circuit_trip_suspected": RulePolicy(
        group=RuleScope.CIRCUIT,
        within=RuleScope.CIRCUIT,
        inhibits=("node_silent", "gpu_lost", "gpu_hung"),
    ),
    "node_silent": RulePolicy(
        group=RuleScope.RACK,
        within=RuleScope.NODE,
        inhibits=("gpu_lost", "gpu_hung", "nvlink_down"),
    ),
    "driver_down": RulePolicy(group=RuleScope.NODE, within=RuleScope.NODE, inhibits=("gpu_hung",)),
    "gpu_lost": RulePolicy(
        group=RuleScope.GPU, within=RuleScope.GPU, inhibits=("nvlink_down", "ecc_contained")
    ),
    "gpu_hung": RulePolicy(group=RuleScope.NODE),
    "nvswitch_errors": RulePolicy(group=RuleScope.NODE, edge=True),
    "nvlink_errors": RulePolicy(group=RuleScope.NODE),
    "nvlink_down": RulePolicy(group=RuleScope.NODE),
    "recovery_action": RulePolicy(group=RuleScope.NODE),
    "power_brake": RulePolicy(group=RuleScope.CIRCUIT),
    "ecc_contained": RulePolicy(group=RuleScope.NODE, edge=True),
    "ecc_uncontained": RulePolicy(group=RuleScope.GPU, edge=True),
    "thermal": RulePolicy(group=RuleScope.GPU),
}


def alert(
    rule: str,
    node: str = "dgx-01",
    gpu: str | None = None,
    *,
    link: int | None = None,
    severity: Severity = Severity.PAGE,
    subject: Subject | None = None,
    **labels: str,
) -> Alert:
    """Return an alert that fires, as the engine gives it: of a node, a GPU, or a link."""
    device = "node" if gpu is None else gpu if link is None else f"{gpu}/{link}"
    if subject is None:
        subject = Subject.NODE if gpu is None else Subject.GPU if link is None else Subject.LINK
    return Alert(
        key=f"{rule}/{node}/{device}",
        rule=rule,
        state=AlertState.FIRING,
        severity=severity,
        node=node,
        gpu=gpu,
        subject=subject,
        labels=labels,
        since=NOON,
        changed=NOON,
        summary=f"{rule} on {node} {device}",
    )


def trip(circuit: str, severity: Severity = Severity.PAGE, **labels: str) -> Alert:
    """Return the alert that a breaker has probably tripped."""
    return Alert(
        key=f"circuit_trip_suspected/circuit/{circuit}",
        rule="circuit_trip_suspected",
        state=AlertState.FIRING,
        severity=severity,
        node="",
        subject=Subject.CIRCUIT,
        name=circuit,
        labels={"circuit": circuit, **labels},
        summary=f"circuit {circuit} has probably tripped",
    )


def over(one: Alert) -> Alert:
    """Return the end of an alert."""
    return msgspec.structs.replace(one, state=AlertState.RESOLVED)


def memory_of(records: Mapping[RecordKey, bytes]) -> IncidentMemory:
    """Return what a desk remembers, as the journal gives it back."""
    decode = msgspec.json.decode
    of = {
        kind: [records[key] for key in sorted(records) if key.kind == kind]
        for kind in ("case", "dossier", "window", "pulse")
    }
    return IncidentMemory(
        cases=[decode(body, type=TrackedAlert) for body in of["case"]],
        dossiers=[decode(body, type=IncidentRecord) for body in of["dossier"]],
        windows=[decode(body, type=SilenceWindow) for body in of["window"]],
        pulse=next((decode(body, type=ManagerClock) for body in of["pulse"]), None),
    )


class Office:
    """One desk, second by second."""

    def __init__(
        self,
        policies: Mapping[str, RulePolicy] = POLICIES,
        patience: NotificationTimings = PATIENCE,
        now: float = 1000.0,
    ) -> None:
        self.policies = policies
        self.patience = patience
        self.now = now
        self.wall = NOON
        self.records: dict[RecordKey, bytes] = {}
        self.sent: list[Notice] = []
        self.desk = self._desk()

    def _desk(self) -> IncidentManager:
        return IncidentManager(
            self.policies,
            memory_of(self.records),
            patience=self.patience,
            now=self.now,
            wall_ns=self.wall,
        )

    def tick(
        self, *changes: Alert, seconds: float = 1.0, recovering: Collection[str] = frozenset()
    ) -> list[Notice]:
        """Let time pass, then tell the desk what changed; return what it says."""
        self.now += seconds
        self.wall += round(seconds * SECOND)
        return self.keep(self.desk.take(changes, self.now, self.wall, recovering))

    def wait(self, seconds: float, every: float = 1.0) -> list[Notice]:
        """Let time pass, tick by tick; return all that is said."""
        said: list[Notice] = []
        for _ in range(round(seconds / every)):
            said += self.tick(seconds=every)
        return said

    def keep(self, step: StateChanges) -> list[Notice]:
        """Write a step down."""
        for key, body in step.records.items():
            if body is None:
                self.records.pop(key, None)
            else:
                self.records[key] = body
        self.sent += step.notices
        return list(step.notices)

    def restart(self, down: float = 0.0, now: float = 5.0) -> None:
        """Let the process die and come back: another monotonic clock, the same wall clock."""
        self.wall += round(down * SECOND)
        self.now = now
        self.desk = self._desk()

    def only(self) -> Incident:
        """Return the one open incident."""
        [incident] = self.desk.incidents()
        return incident

    def standing(self, one: Alert) -> NotificationState | None:
        """Return whether anybody is told of an alert."""
        held = self.desk.held(one.key)
        return None if held is None else held.standing


def said(notices: Sequence[Notice]) -> list[str]:
    """Return notices in short: `trigger new`."""
    return [f"{notice.action} {notice.reason}" for notice in notices]
