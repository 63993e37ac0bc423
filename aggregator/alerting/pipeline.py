"""The alert pipeline: the rules and the incident manager, one tick after the other.

Reads no clock and waits for nothing: the loop brings `now` (monotonic seconds) and `wall` (ns since
1970), changes go to `store`. One loop owns it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from aggregator.alerting.self_alerts import (
    MonitorPart,
    aggregator_key,
    impairment_parts,
    monitor_snapshot,
)
from aggregator.impairments import Impairments
from alerts.config import AlertsConfig
from alerts.engine.engine import RuleEngine
from alerts.engine.restore import AlertRecord
from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import DEFAULT_TIMINGS, NotificationTimings, policies_of
from alerts.incidents.state import IncidentChanges, IncidentMemory
from alerts.rules.rule import Rule, monitor_rules
from api.alerts import Alert, AlertState, Incident, NotificationState, Severity
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet

log = logging.getLogger(__name__)
_NO_FLEET = Fleet()
_T = TypeVar("_T")

StoreChanges = Callable[[IncidentChanges, Sequence[AlertRecord] | None], None]
"""Stores the changes of a step, and the engine's records where they have changed."""


def timings_of(config: AlertsConfig) -> NotificationTimings:
    """Return the timings of notifications of the settings."""
    return NotificationTimings(
        page_wait=config.group_wait_seconds,
        more_every=config.group_interval_seconds,
        repeat_page=config.repeat_hours.page * 3600,
        repeat_ticket=config.repeat_hours.ticket * 3600,
    )


class AlertPipeline:
    """Rules, alerts, incidents and silences of an aggregator."""

    def __init__(
        self,
        rules: Sequence[Rule],
        store: StoreChanges,
        *,
        cluster: str = "default",
        timings: NotificationTimings = DEFAULT_TIMINGS,
        memory: IncidentMemory | None = None,
        records: Iterable[AlertRecord] = (),
        impairments: Impairments | None = None,
        now: float,
        wall: int,
    ) -> None:
        """Continue from `memory` and `records`, as the journal returns them."""
        self.impairments = impairments or Impairments()
        """Problems of the aggregator itself."""
        self.engine = RuleEngine(rules)
        self.manager = IncidentManager(
            policies_of(rules), memory, timings=timings, now=now, wall_ns=wall
        )
        """For its queries; the result of an action goes through `commit`."""
        self.fired = 0
        """Alerts that began to fire since the start."""
        self._changed: list[Incident] = []
        self.monitor = RuleEngine(monitor_rules())
        """Evaluates the rules about kilowatch itself, even when one of the other rules fails."""
        self._cluster = cluster
        self._store = store
        self._turns = -1
        self._recovering: frozenset[str] = frozenset()
        self._listed: list[Alert] | None = None
        self.failed = ""
        """Why the last tick was not evaluated; "" when it was."""
        self._restore(memory, records, now, wall)

    def _restore(
        self, memory: IncidentMemory | None, records: Iterable[AlertRecord], now: float, wall: int
    ) -> None:
        own = {rule.name for rule in self.monitor.rules}
        found = {record.alert.key: record for record in records}
        for tracked in () if memory is None else memory.alerts:
            alert = tracked.alert
            if tracked.firing and alert.rule in own and alert.key not in found:  # an older journal
                found[alert.key] = AlertRecord(alert=alert, device=alert.key.split("/", 2)[2])
        for engine, its in ((self.engine, False), (self.monitor, True)):
            engine.restore(
                [one for one in found.values() if (one.alert.rule in own) is its], now, wall
            )
        firing = [alert for alert in self.alerts() if alert.state is AlertState.FIRING]
        self._keep(self.manager.reconcile(firing, now, wall), None)
        self._changed = [*self.manager.incidents(), *self.manager.recent()]

    # -- Every tick ------------------------------------------------------------------------------

    def evaluate(
        self,
        fleet: Fleet,
        now: float,
        wall: int,
        events: Sequence[Event],
        *,
        listening: bool,
        snapshots: Sequence[PowerSnapshot],
        parts: Sequence[MonitorPart] = (),
    ) -> list[Alert]:
        """Evaluate all rules, and return the alerts that began to fire, changed or resolved.

        `parts`: parts of the monitor that can fail, beside those of `impairments`.
        """
        try:
            changes = self.engine.evaluate(
                fleet, now, wall, events, listening=listening, snapshots=snapshots
            )
            self.failed = ""
        except Exception as error:  # a rule that fails must not end what collects the data
            log.exception("rules: this tick was not evaluated")
            changes, self.failed = [], repr(error)
        own = aggregator_key(self._cluster)
        if self.failed:
            self.impairments.report("rules_failing", own, self.failed, whole=True)
        else:
            self.impairments.clear("rules_failing", own)
        snapshot = monitor_snapshot([*impairment_parts(self._cluster, self.impairments), *parts])
        changes += self.monitor.evaluate(_NO_FLEET, now, wall, snapshots=[snapshot])
        self._listed = None
        for alert in changes:
            self.fired += alert.state is AlertState.FIRING
            log.info("alert %s %s: %s", alert.key, alert.state, alert.summary)
        records = self._records(wall)
        self._keep(self.manager.receive(changes, now, wall, self._recovering), records)
        return changes

    def advance(self, now: float, wall: int) -> None:
        """Do what the incident manager has to do at this time, without evaluating the rules."""
        self._keep(self.manager.receive((), now, wall, self._recovering), None)

    def commit(self, result: tuple[_T, IncidentChanges]) -> _T:
        """Store the changes of an action on `manager`, and return the record that it returned."""
        record, changes = result
        self._keep(changes, None)
        return record

    def drain_changed(self) -> list[Incident]:
        """Return the incidents that have changed since the last call."""
        changed, self._changed = self._changed, []
        return changed

    def _records(self, wall: int) -> list[AlertRecord] | None:
        """Return the engines' records where they have changed since the last call."""
        turns = self.engine.turns + self.monitor.turns
        if turns == self._turns:
            return None
        self._turns = turns
        records = [*self.engine.snapshot(wall), *self.monitor.snapshot(wall)]
        self._recovering = frozenset(
            record.alert.key for record in records if record.good_since is not None
        )
        return records

    def _keep(self, changes: IncidentChanges, records: Sequence[AlertRecord] | None) -> None:
        self._changed += changes.incidents
        self._store(changes, records)

    # -- Queries ---------------------------------------------------------------------------------

    def alerts(self) -> list[Alert]:
        """Return alerts that are pending, firing or just resolved, worst first."""
        if self._listed is None:
            own = self.monitor.alerts()
            firing = [alert for alert in own if alert.state is AlertState.FIRING]
            rest = [alert for alert in own if alert.state is not AlertState.FIRING]
            self._listed = [*firing, *self.engine.alerts(), *rest]
        return self._listed

    def notified(self) -> list[Alert]:
        """Return the firing alerts that are notified and those that have just resolved, as an
        Alertmanager receives them."""
        found = []
        for alert in self.alerts():
            if alert.severity is Severity.INFO or alert.state is AlertState.PENDING:
                continue
            firing = alert.state is AlertState.FIRING
            status = self.manager.status(alert.key) if firing else None
            if status is None or status.state is NotificationState.NOTIFIED:
                found.append(alert)
        return found

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many alerts of each rule are in each state."""
        return Counter((alert.rule, alert.state.value) for alert in self.alerts())
