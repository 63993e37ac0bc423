"""An incident manager with a clock that tests set, records that survive restarts, and its notices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from alerts.incidents.manager import IncidentManager
from alerts.incidents.matchers import parse_all
from alerts.incidents.policy import DEFAULT_TIMINGS, NotificationTimings, RulePolicy, RuleScope
from alerts.incidents.state import (
    IncidentChanges,
    IncidentMemory,
    IncidentRecord,
    ManagerClock,
    RecordKey,
    SilenceWindow,
    TrackedAlert,
)
from alerts.notice import Notice
from api.alerts import Alert, AlertState, Incident, NotificationState, Severity, Silence, Subject

SECOND = 1_000_000_000
NOON = 1_800_000_000 * SECOND

POLICIES: Mapping[str, RulePolicy] = {
    "circuit_trip_suspected": RulePolicy(
        group=RuleScope.CIRCUIT, inhibits=dict.fromkeys(("node_silent", "gpu_lost", "gpu_hung"), RuleScope.CIRCUIT)
    ),
    "node_silent": RulePolicy(
        group=RuleScope.RACK, inhibits=dict.fromkeys(("gpu_lost", "gpu_hung", "nvlink_down"), RuleScope.NODE)
    ),
    "driver_down": RulePolicy(group=RuleScope.NODE, inhibits={"gpu_hung": RuleScope.NODE}),
    "gpu_lost": RulePolicy(
        group=RuleScope.GPU, inhibits=dict.fromkeys(("nvlink_down", "ecc_contained"), RuleScope.GPU)
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
    """Return the records of a manager, as the journal returns them."""
    decode = msgspec.json.decode
    of = {
        kind: [records[key] for key in sorted(records) if key.kind == kind]
        for kind in ("case", "dossier", "window", "pulse")
    }
    return IncidentMemory(
        alerts=[decode(body, type=TrackedAlert) for body in of["case"]],
        incidents=[decode(body, type=IncidentRecord) for body in of["dossier"]],
        windows=[decode(body, type=SilenceWindow) for body in of["window"]],
        clock=next((decode(body, type=ManagerClock) for body in of["pulse"]), None),
    )


class ManagerHarness:
    """An incident manager, advanced second by second."""

    def __init__(
        self,
        policies: Mapping[str, RulePolicy] = POLICIES,
        timings: NotificationTimings = DEFAULT_TIMINGS,
        now: float = 1000.0,
    ) -> None:
        self.policies = policies
        self.timings = timings
        self.now = now
        self.wall = NOON
        self.records: dict[RecordKey, bytes] = {}
        self.sent: list[Notice] = []
        self.manager = self._manager()

    def _manager(self) -> IncidentManager:
        return IncidentManager(
            self.policies, memory_of(self.records), timings=self.timings, now=self.now, wall_ns=self.wall
        )

    def tick(self, *changes: Alert, seconds: float = 1.0, recovering: Collection[str] = frozenset()) -> list[Notice]:
        """Let time pass, then apply changed alerts; return the notices."""
        self.now += seconds
        self.wall += round(seconds * SECOND)
        return self.keep(self.manager.receive(changes, self.now, self.wall, recovering))

    def wait(self, seconds: float, every: float = 1.0) -> list[Notice]:
        """Let time pass, tick by tick; return all notices."""
        notices: list[Notice] = []
        for _ in range(round(seconds / every)):
            notices += self.tick(seconds=every)
        return notices

    def keep(self, step: IncidentChanges) -> list[Notice]:
        """Store the changes of a step."""
        for key, body in step.records.items():
            if body is None:
                self.records.pop(key, None)
            else:
                self.records[key] = body
        self.sent += step.notices
        return list(step.notices)

    def restart(self, down: float = 0.0, now: float = 5.0) -> None:
        """Restart the manager: with another monotonic clock, and the same wall clock."""
        self.wall += round(down * SECOND)
        self.now = now
        self.manager = self._manager()

    def only(self) -> Incident:
        """Return the one open incident."""
        [incident] = self.manager.incidents()
        return incident

    def state(self, one: Alert) -> NotificationState | None:
        """Return the notification state of an alert."""
        status = self.manager.status(one.key)
        return None if status is None else status.state


def described(notices: Sequence[Notice]) -> list[str]:
    """Return notices in short: `trigger new`."""
    return [f"{notice.action} {notice.reason}" for notice in notices]


def silenced(harness: ManagerHarness, *matchers: str, seconds: float = 600, **more: bool) -> Silence:
    """Silence some alerts from now on."""
    silence, step = harness.manager.silence(
        parse_all(matchers),
        who="ada",
        why="known",
        ends=harness.wall + round(seconds * SECOND),
        now=harness.now,
        wall_ns=harness.wall,
        **more,
    )
    harness.keep(step)
    assert step.silences == (silence,)
    return silence


def acknowledge(harness: ManagerHarness, key: str, until: int | None = None) -> IncidentChanges:
    """Acknowledge an incident."""
    incident, step = harness.manager.acknowledge(
        key, who="ada", why="on it", until=until, now=harness.now, wall_ns=harness.wall
    )
    assert incident.acknowledged is not None
    assert step.incidents == (incident,)
    harness.keep(step)
    return step
