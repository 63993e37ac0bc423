"""Alarms: rules, desk and people's doings together; what the rest of the aggregator sees of alerts.

Reads no clock and waits for nothing: the loop brings `now` (monotonic seconds) and `wall` (ns since
1970), steps go to `save`. One loop owns it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from aggregator.alerting.self_alerts import MonitorPart, aggregator_part, monitor_snapshot
from alerts.config import AlertsConfig
from alerts.engine.engine import RuleEngine
from alerts.engine.restore import AlertRecord
from alerts.incidents.manager import AlertStanding, IncidentManager
from alerts.incidents.policy import NotificationTimings, policies_of
from alerts.incidents.state import IncidentMemory, StateChanges
from alerts.rules.rule import Rule, monitor_rules
from api.alerts import Alert, AlertState, Incident, Matcher, NotificationState, Severity, Silence
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet

log = logging.getLogger(__name__)
_PATIENCE = NotificationTimings()
_NONE: Mapping[str, str] = {}
_NO_FLEET = Fleet()

Save = Callable[[StateChanges, Sequence[AlertRecord] | None], None]
"""Takes what must be written down: a step, and the engine's lives where they have changed."""


def patience_of(config: AlertsConfig) -> NotificationTimings:
    """Return how patient the settings want the desk to be."""
    return NotificationTimings(
        page_wait=config.group_wait_seconds,
        more_every=config.group_interval_seconds,
        repeat_page=config.repeat_hours.page * 3600,
        repeat_ticket=config.repeat_hours.ticket * 3600,
    )


class AlertPipeline:
    """All alerts and incidents of an aggregator."""

    def __init__(
        self,
        rules: Sequence[Rule],
        save: Save,
        *,
        cluster: str = "default",
        patience: NotificationTimings = _PATIENCE,
        memory: IncidentMemory | None = None,
        records: Iterable[AlertRecord] = (),
        now: float,
        wall: int,
    ) -> None:
        """Go on where `memory` and `records` end, as the journal has them."""
        self.engine = RuleEngine(rules)
        self.desk = IncidentManager(
            policies_of(rules), memory, patience=patience, now=now, wall_ns=wall
        )
        self.fired = 0
        """Alerts that began to fire since the start."""
        self.changed: list[Incident] = []
        """Incidents that have changed and that nobody has taken from here yet."""
        self.monitor = RuleEngine(monitor_rules())
        """The same for rules about kilowatch itself: they go on when another rule fails."""
        self._cluster = cluster
        self._save = save
        self._turns = -1
        self._recovering: frozenset[str] = frozenset()
        self._listed: list[Alert] | None = None
        self.failed = ""
        """Why the last tick was not judged; "" when it was."""
        self._restore(memory, records, now, wall)

    def _restore(
        self, memory: IncidentMemory | None, records: Iterable[AlertRecord], now: float, wall: int
    ) -> None:
        own = {rule.name for rule in self.monitor.rules}
        found = {record.alert.key: record for record in records}
        for case in () if memory is None else memory.cases:
            alert = case.alert
            if case.firing and alert.rule in own and alert.key not in found:  # of an older journal
                found[alert.key] = AlertRecord(alert=alert, device=alert.key.split("/", 2)[2])
        for engine, its in ((self.engine, False), (self.monitor, True)):
            engine.restore(
                [one for one in found.values() if (one.alert.rule in own) is its], now, wall
            )
        firing = [alert for alert in self.alerts() if alert.state is AlertState.FIRING]
        self._keep(self.desk.reconcile(firing, now, wall), None)
        self.changed = [*self.desk.incidents(), *self.desk.recent()]

    # -- Every tick ------------------------------------------------------------------------------

    def judge(
        self,
        fleet: Fleet,
        now: float,
        wall: int,
        events: Sequence[Event],
        *,
        listening: bool,
        snapshots: Sequence[PowerSnapshot],
        troubles: Mapping[str, str] = _NONE,
        parts: Sequence[MonitorPart] = (),
    ) -> list[Alert]:
        """Judge everything, and return what began to fire or resolved.

        `troubles`: what is wrong with the aggregator itself, by the name of its rule in
        `monitor.toml`, with the reason. `parts`: other parts of the monitor that can fail.
        """
        try:
            changes = self.engine.evaluate(
                fleet, now, wall, events, listening=listening, snapshots=snapshots
            )
            self.failed = ""
        except Exception as error:  # a rule that fails must not end what collects the data
            log.exception("rules: this tick was not judged")
            changes, self.failed = [], repr(error)
        if self.failed:
            troubles = {**troubles, "rules_failing": self.failed}
        snapshot = monitor_snapshot([aggregator_part(self._cluster, troubles), *parts])
        changes += self.monitor.evaluate(_NO_FLEET, now, wall, snapshots=[snapshot])
        self._listed = None
        for alert in changes:
            self.fired += alert.state is AlertState.FIRING
            log.info("alert %s %s: %s", alert.key, alert.state, alert.summary)
        records = self._records(wall)
        self._keep(self.desk.take(changes, now, wall, self._recovering), records)
        return changes

    def turn(self, now: float, wall: int) -> None:
        """Do what the desk has to do at this time, without judging anew."""
        self._keep(self.desk.take((), now, wall, self._recovering), None)

    def next_due(self) -> float | None:
        """When `turn` must be called at the latest, monotonic seconds; None is whenever."""
        return self.desk.next_due()

    def recall(self, fleet: Fleet, events: Iterable[Event], now: float, wall: int) -> None:
        """Take in the events of the last day, oldest first, that were judged before a restart."""
        self.engine.recall(fleet, events, now, wall)

    def take_changed(self) -> list[Incident]:
        """Return the incidents that have changed since the last call."""
        changed, self.changed = self.changed, []
        return changed

    def _records(self, wall: int) -> list[AlertRecord] | None:
        """Return the engine's lives where they have changed since the last call."""
        turns = self.engine.turns + self.monitor.turns
        if turns == self._turns:
            return None
        self._turns = turns
        records = [*self.engine.snapshot(wall), *self.monitor.snapshot(wall)]
        self._recovering = frozenset(
            record.alert.key for record in records if record.good_since is not None
        )
        return records

    def _keep(self, step: StateChanges, records: Sequence[AlertRecord] | None) -> None:
        self.changed += step.incidents
        self._save(step, records)

    # -- What people do (raises `DeskError`) -----------------------------------------------------

    def acknowledge(
        self, key: str, *, who: str, why: str, until: int | None, now: float, wall: int
    ) -> Incident:
        """Somebody takes care of an incident."""
        incident, step = self.desk.acknowledge(
            key, who=who, why=why, until=until, now=now, wall_ns=wall
        )
        self._keep(step, None)
        return incident

    def unacknowledge(self, key: str, *, who: str, why: str, now: float, wall: int) -> Incident:
        """Nobody does any more."""
        incident, step = self.desk.unacknowledge(key, who=who, why=why, now=now, wall_ns=wall)
        self._keep(step, None)
        return incident

    def silence(
        self,
        matchers: Sequence[Matcher],
        *,
        who: str,
        why: str,
        starts: int | None,
        ends: int,
        maintenance: bool,
        now: float,
        wall: int,
    ) -> Silence:
        """Tell nobody of some alerts for a while."""
        silence, step = self.desk.silence(
            matchers, who=who, why=why, starts=starts, ends=ends, maintenance=maintenance,
            now=now, wall_ns=wall,
        )  # fmt: skip
        self._keep(step, None)
        return silence

    def unsilence(self, key: str, *, who: str, why: str, now: float, wall: int) -> Silence:
        """End a silence now."""
        silence, step = self.desk.unsilence(key, who=who, why=why, now=now, wall_ns=wall)
        self._keep(step, None)
        return silence

    # -- What there is to see --------------------------------------------------------------------

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return self.engine.rules

    def alerts(self) -> list[Alert]:
        """Return alerts that are pending, firing or just resolved, worst first."""
        if self._listed is None:
            own = self.monitor.alerts()
            firing = [alert for alert in own if alert.state is AlertState.FIRING]
            rest = [alert for alert in own if alert.state is not AlertState.FIRING]
            self._listed = [*firing, *self.engine.alerts(), *rest]
        return self._listed

    def told(self) -> list[Alert]:
        """Return alerts that fire and that people are told of, and those that have just resolved:
        what an Alertmanager is told."""
        found = []
        for alert in self.alerts():
            if alert.severity is Severity.INFO or alert.state is AlertState.PENDING:
                continue
            held = self.desk.held(alert.key) if alert.state is AlertState.FIRING else None
            if held is None or held.standing is NotificationState.NOTIFIED:
                found.append(alert)
        return found

    def held(self, key: str) -> AlertStanding | None:
        """Return the standing of an alert that fires; None where the desk has nothing to do."""
        return self.desk.held(key)

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many alerts of each rule are in each state."""
        return Counter((alert.rule, alert.state.value) for alert in self.alerts())
