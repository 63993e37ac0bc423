"""What is wrong with the monitor itself: alerts like any other, but of no rule over readings.

Each is a row: what, how long it must last, who hears of it, what they read. The loop says which of
them hold now; their lives are as those of rules. The channels' own alerts live here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from api.alerts import Alert, AlertState, Severity, Subject

KEEP = 180.0
"""Seconds for which it must be good again: longer than it takes to find out after a restart."""
RUNBOOK = "the-monitor-itself"


@dataclass(frozen=True, slots=True)
class SelfAlert:
    """One thing that can be wrong with the monitor."""

    name: str
    hold: float
    """Seconds."""
    severity: Severity
    summary: str
    """`{}` stands for what the part itself says."""
    description: str


OWN = (
    SelfAlert(
        "bus_lost", 60, Severity.PAGE,
        "kilowatch hears nothing: it has no connection to the broker",
        "No reading arrives, and so nothing that goes wrong is noticed. Look at the MQTT broker "
        "and the network between it and the aggregator; `kilowatch doctor` tries it.",
    ),
    SelfAlert(
        "rules_failing", 30, Severity.PAGE,
        "kilowatch can't judge its rules: {}",
        "Nothing that goes wrong is noticed now. The aggregator's log has the cause. A rule of "
        "your own may be it: start without the files in aggregator.rules.",
    ),
    SelfAlert(
        "circuits_failing", 30, Severity.PAGE,
        "kilowatch can't compute its circuits: {}",
        "No breaker, budget or UPS is watched now; rules on GPUs and nodes go on. The aggregator's "
        "log has the cause. Look at what changed last in the [power] section.",
    ),
    SelfAlert(
        "store_failing", 60, Severity.TICKET,
        "kilowatch can't write its store",
        "Live view, alerts and pages go on; frames are kept by the collectors and asked for again. "
        "The aggregator's log says why. Make room on the disk of aggregator.data_dir, or lower "
        "aggregator.store.max_bytes.",
    ),
    SelfAlert(
        "influxdb_failing", 300, Severity.TICKET,
        "InfluxDB takes nothing from kilowatch: {}",
        "Nothing is lost yet: readings wait on the aggregator's disk, up to "
        "aggregator.store.influxdb.spool_bytes, and are sent when it takes them again; alerts and "
        "pages go on. `kilowatch influx check` tries it.",
    ),
)  # fmt: skip


@dataclass(slots=True)
class _Life:
    alert: Alert
    since: float
    """Monotonic seconds."""
    hold: float
    good_since: float | None = None


class SelfAlerts:
    """The lives of these alerts, by key."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._lives: dict[str, _Life] = {}

    def restore(self, firing: Iterable[Alert], now: float) -> None:
        """Go on with those that fired before a restart; it takes a while to know them again."""
        names = {own.name for own in OWN}
        for alert in firing:
            if alert.rule in names or alert.rule == "delivery_failing":
                self._lives[alert.key] = _Life(alert, now, 0.0)

    def judge(
        self, troubles: Mapping[str, str], others: Sequence[Alert], now: float, wall: int
    ) -> list[Alert]:
        """Return what began to fire or resolved. `troubles`: what is wrong now, by name, in words.
        `others`: alerts of the channels that fail now."""
        holds = [
            (self._alert(own, troubles[own.name], wall), own.hold)
            for own in OWN
            if own.name in troubles
        ]
        changes = []
        for alert, hold in [*holds, *((other, 0.0) for other in others)]:
            life = self._lives.setdefault(alert.key, _Life(_pending(alert, wall), now, hold))
            life.good_since = None
            if life.alert.state is AlertState.PENDING and now - life.since >= life.hold:
                life.alert = replace(
                    alert, state=AlertState.FIRING, since=life.alert.since, changed=wall
                )
                changes.append(life.alert)
        bad = {alert.key for alert, _ in holds} | {other.key for other in others}
        for key in [key for key in self._lives if key not in bad]:
            changes += self._heal(key, now, wall)
        return changes

    def alerts(self) -> list[Alert]:
        """Return those that are pending or firing."""
        return [life.alert for life in self._lives.values()]

    def recovering(self) -> set[str]:
        """Return keys of those that fire though they are good again."""
        return {key for key, life in self._lives.items() if life.good_since is not None}

    def _heal(self, key: str, now: float, wall: int) -> list[Alert]:
        life = self._lives[key]
        if life.good_since is None:
            life.good_since = now
        pending = life.alert.state is AlertState.PENDING
        if not pending and now - life.good_since < KEEP:
            return []
        del self._lives[key]
        return [] if pending else [replace(life.alert, state=AlertState.RESOLVED, changed=wall)]

    def _alert(self, own: SelfAlert, trouble: str, wall: int) -> Alert:
        return Alert(
            key=f"{own.name}/aggregator/{self._cluster}",
            rule=own.name,
            state=AlertState.FIRING,
            severity=own.severity,
            node="",
            subject=Subject.NODE,
            name="kilowatch",
            labels={"cluster": self._cluster},
            since=wall,
            changed=wall,
            summary=own.summary.format(trouble),
            description=own.description,
            runbook=RUNBOOK,
        )


def _pending(alert: Alert, wall: int) -> Alert:
    return replace(alert, state=AlertState.PENDING, since=wall)
