"""The alert pipeline: the rules and the incident manager, one tick after the other.

Reads no clock and waits for nothing: the loop brings `now` (monotonic seconds) and `wall` (ns since
1970), changes go to `store`. One loop owns it.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from aggregator.alerting.incident_actions import IncidentActions, LocalActions
from aggregator.alerting.self_alerts import aggregator_key, impairment_parts, monitor_snapshot
from aggregator.alerting.shared_incidents import SharedIncidents
from aggregator.impairments import SHOWN, Impairments, MonitorPart
from alerts.config import AlertsConfig
from alerts.engine.engine import RuleEngine, outcome
from alerts.engine.restore import AlertRecord
from alerts.incidents.actions import required
from alerts.incidents.manager import IncidentManager
from alerts.incidents.plain import plain_notice
from alerts.incidents.policy import DEFAULT_TIMINGS, NotificationTimings, policies_of
from alerts.incidents.quality_ledger import SILENT, QualityLedger
from alerts.incidents.state import IncidentChanges, IncidentMemory
from alerts.rules.rule import Rule, monitor_rules
from api.alerts import Alert, AlertState, Incident, IncidentNote, NotificationState, Severity, Subject
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.errors import IncidentError
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import PartFault, PartKind, reason_of

log = logging.getLogger(__name__)
_NO_FLEET = Fleet()
_PIECE = 50
"""Alerts that are logged, or given to the incident manager, between two yields."""
_T = TypeVar("_T")
PAGES_AFTER = 2.0
"""Seconds for which all steps must fail before that is notified without the rules."""

StoreChanges = Callable[[IncidentChanges, Sequence[AlertRecord] | None], None]
"""Stores the changes of a step, and the engine's records where they have changed."""


def timings_of(config: AlertsConfig) -> NotificationTimings:
    """Return the timings of notifications of the settings."""
    return NotificationTimings(
        page_wait=config.group_wait_seconds,
        more_every=config.group_interval_seconds,
        repeat_page=config.repeat_hours.page * 3600,
        repeat_ticket=config.repeat_hours.ticket * 3600,
        escalate=tuple(step.after_minutes * 60 for step in config.escalation),
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
        past: Iterable[Incident] = (),
        impairments: Impairments | None = None,
        shared: SharedIncidents | None = None,
        now: float,
        wall: int,
    ) -> None:
        """Continue from `memory` and `records`, as the journal returns them. `past`: the incidents of
        the last 30 days, oldest first. `shared`: the incidents of several aggregators, which come by
        `follow`."""
        self._shared = shared
        self.actions: IncidentActions = (
            LocalActions(lambda: self.manager, self.commit) if shared is None else shared.actions
        )
        """Actions of people on incidents."""
        self.impairments = impairments or Impairments()
        """Problems of the aggregator itself."""
        self.impairments.watch(self._faults)
        self.engine = RuleEngine(rules)
        self.engine.note_incidents(past)
        self.manager = IncidentManager(policies_of(rules), memory, timings=timings, now=now, wall_ns=wall)
        """For its queries; actions go through `actions`."""
        self.manager.traits = self.engine.traits
        self.fired = 0
        """Alerts that began to fire since the start."""
        self._changed: list[Incident] = []
        self.monitor = RuleEngine(monitor_rules())
        """Evaluates the rules about kilowatch itself, even when one of the other rules fails."""
        self._cluster = cluster
        self._store = store
        self._turns = -1
        self.recovering: frozenset[str] = frozenset()
        """Keys of alerts that fire only because their `keep` has not passed."""
        self._listed: list[Alert] | None = None
        self._listed_turns = -1, -1
        self._ranks = _ranks(rules)
        self._kept = 0
        """Steps of the incident manager in which anything changed."""
        self._ticking = False
        """Whether the rules are being evaluated; until then the alerts of the last tick are listed."""
        self._failing_since: float | None = None
        """Since when no step was whole."""
        self._failing_wall = 0
        """The same in ns since 1970."""
        self._unkept: list[tuple[IncidentChanges, Sequence[AlertRecord] | None]] = []
        """Changes that were not given to the journal, because of an exception."""
        self._alone: set[str] | None = None
        """Keys of the alerts notified by themselves since the incident manager failed as a whole; None once
        it has been given what it missed."""
        self._paged = ""
        """The last reason that was notified without the rules."""
        self.failed = ""
        """Why the last tick was not evaluated; "" when it was."""
        found = IncidentMemory() if memory is None else memory
        silenced = [one.alert.key for one in found.alerts if one.firing and one.state in SILENT]
        self.quality = QualityLedger(found.quality, silenced, wall)
        """Notifications sent of each rule, and what people made of them."""
        self._restore(memory, records, now, wall)

    def _restore(self, memory: IncidentMemory | None, records: Iterable[AlertRecord], now: float, wall: int) -> None:
        own = {rule.name for rule in self.monitor.rules}
        found = {record.alert.key: record for record in records}
        for tracked in () if memory is None else memory.alerts:
            alert = tracked.alert
            if tracked.firing and alert.rule in own and alert.key not in found:  # an older journal
                found[alert.key] = AlertRecord(alert=alert, device=alert.key.split("/", 2)[2])
        for engine, its in ((self.engine, False), (self.monitor, True)):
            engine.restore([one for one in found.values() if (one.alert.rule in own) is its], now, wall)
        if self._shared is not None:
            return
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
        behind: float = 0.0,
        snapshots: Sequence[PowerSnapshot],
        parts: Sequence[MonitorPart] = (),
    ) -> list[Alert]:
        """Evaluate all rules, and return the alerts that began to fire, changed or resolved. The
        arguments are those of `steps`."""
        return outcome(
            self.steps(fleet, now, wall, events, listening=listening, behind=behind, snapshots=snapshots, parts=parts)
        )

    def steps(
        self,
        fleet: Fleet,
        now: float,
        wall: int,
        events: Sequence[Event],
        *,
        listening: bool,
        behind: float = 0.0,
        snapshots: Sequence[PowerSnapshot],
        parts: Sequence[MonitorPart] = (),
    ) -> Generator[None, None, list[Alert]]:
        """Evaluate all rules, and yield after each, so that the caller may do other work; the fleet must
        not change meanwhile. Return the alerts that began to fire, changed or resolved.

        `parts`: parts of the monitor that can fail, beside those of `impairments`.
        """
        faults: list[Exception] = []
        self._ticking = True
        with self._step("rules: this tick was not evaluated", faults):
            changes = yield from self.engine.steps(
                fleet, now, wall, events, listening=listening, behind=behind, snapshots=snapshots
            )
        if faults:  # a rule that fails must not end what collects the data
            changes = []
        self.failed = reason_of(faults[0]) if faults else ""
        self.impairments.refresh()
        own: list[Alert] = []
        with self._step("rules: those about kilowatch itself were not evaluated", faults):
            found = [*impairment_parts(self._cluster, self.impairments), *parts]
            if self._shared is not None:
                found = [self._shared.own_part(part) for part in found]
            own = self.monitor.evaluate(_NO_FLEET, now, wall, snapshots=[monitor_snapshot(found)])
        with self._step("alerts: their texts were not made", faults):
            yield from self.engine.refresh()
            yield from self.monitor.refresh()
        self._ticking = False
        changes = [*changes, *own]
        with self._step("alerts: their records were not made", faults):
            missed = self._alone is not None
            if faults or missed or self.engine.unsettled or self.monitor.unsettled:
                changes += self._missed_changes(changes, whole=not faults)
            self.engine.settle()
            self.monitor.settle()
        for number, alert in enumerate(changes, 1):
            self.fired += alert.state is AlertState.FIRING
            log.info("alert %s %s: %s", alert.key, alert.state, alert.summary)
            if number % _PIECE == 0:
                yield
        records = None
        with self._step("alerts: their records were not made", faults):
            records = yield from self._records(wall)
        yield
        pieces, failures = [changes], len(faults)
        with self._step("alerts: the changes of this tick were not put in order", faults):
            pieces = self._pieces(changes)
        for piece in pieces:
            self._receive(piece, now, wall, records, faults)
            records = None  # with the first: what begins twice is notified once
            yield
        if len(faults) == failures:
            self._alone = None
        self._end(faults, now, wall)
        return changes

    def advance(self, now: float, wall: int) -> None:
        """Do what the incident manager has to do at this time, without evaluating the rules."""
        if self._shared is not None:
            return
        faults: list[Exception] = []
        self._receive((), now, wall, None, faults)
        if faults:
            self._end(faults, now, wall)

    def next_due(self) -> float | None:
        """Return when `advance` must be called at the latest, monotonic seconds; None: any time."""
        return None if self._shared is not None else self.manager.next_due()

    def follow(self, manager: IncidentManager, changes: IncidentChanges) -> None:
        """Show the incidents of several aggregators, and store what changed of them."""
        self.manager = manager
        self._keep(changes, None)

    # -- Faults of our own -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _step(self, what: str, faults: list[Exception]) -> Iterator[None]:
        """Go on after an exception, and add it to `faults`."""
        try:
            yield
        except Exception as error:
            if reason_of(error) != self.failed:
                log.exception(what)
            faults.append(error)

    def _pieces(self, changes: list[Alert]) -> list[list[Alert]]:
        """Return the changes in pieces that take the incident manager a few milliseconds each: causes
        before what may be their consequence."""
        if len(changes) <= _PIECE:
            return [changes]
        ordered = sorted(changes, key=lambda one: self._ranks.get(one.rule, 0))
        return [ordered[first : first + _PIECE] for first in range(0, len(ordered), _PIECE)]

    def _receive(
        self,
        changes: Sequence[Alert],
        now: float,
        wall: int,
        records: Sequence[AlertRecord] | None,
        faults: list[Exception],
    ) -> None:
        """Give changes to the incident manager. Where it fails as a whole, each alert that began is
        notified by itself."""
        if self._shared is not None:
            shared = self._shared
            with self._step("incidents: the alerts of this tick were not said to the others", faults):
                shared.relay(changes, self.alerts, self.recovering)
            if records is not None:
                self._keep(IncidentChanges(wall_ns=wall), records)
            return
        done = False
        with self._step("incidents: the alerts of this tick were not grouped", faults):
            step = self.manager.receive(changes, now, wall, self.recovering)
            done = True
            self._keep(step, records)
        if not done:
            alone = self._alone = set() if self._alone is None else self._alone
            fresh = [one for one in changes if one.state is AlertState.FIRING and one.key not in alone]
            alone.update(one.key for one in fresh)
            audible = [one for one in fresh if one.severity is not Severity.INFO]
            notices = tuple(plain_notice(alert, wall) for alert in audible)
            with self._step("incidents: the alerts of this tick were not notified", faults):
                self._keep(IncidentChanges(notices=notices, wall_ns=wall), records)

    def _missed_changes(self, changes: Sequence[Alert], *, whole: bool) -> list[Alert]:
        """Return the begins and ends of alerts that an exception may have lost: what differs between
        the alerts and what the incident manager knows. `whole`: all alerts are listed."""
        if self._shared is not None:  # what fires is said again all the time
            return []
        there = {alert.key for alert in changes}
        firing = {one.key: one for one in self.alerts() if one.state is AlertState.FIRING}
        missed = [
            alert
            for key, alert in firing.items()
            if key not in there
            and alert.severity is not Severity.INFO
            and any(self.manager.status(one.key) is None for one in self.manager.alerts_of(alert))
        ]
        if whole:
            missed += self.manager.over(firing.keys() | there)
        return missed

    def _faults(self) -> Iterator[PartFault]:
        """Yield what the engines and the incident manager have set aside."""
        yield from self.engine.part_faults()
        yield from self.monitor.part_faults()
        yield from self.manager.aside.faults()
        for rule, reason in self.quality.faults().items():
            yield PartKind.QUALITY.fault(rule, reason)

    def _end(self, faults: Sequence[Exception], now: float, wall: int) -> None:
        """Report why this step was not whole, and page for it where the monitor's rules can't."""
        own = aggregator_key(self._cluster)
        self.impairments.refresh()
        blind = self.monitor.rules_aside.reasons()
        if faults:
            self.failed = reason_of(faults[0])
            self.impairments.report("rules_failing", own, self.failed, whole=True)
        else:
            self.impairments.clear("rules_failing", own, after=SHOWN)
        if not faults and not blind:
            self._failing_since, self._paged = None, ""
            return
        self.page_without_rules(self.failed or next(iter(blind.values())), now, wall)

    def page_without_rules(self, reason: str, now: float, wall: int) -> None:
        """Page for a failure that lasts and that the monitor's rules do not show."""
        if self._failing_since is None:
            self._failing_since, self._failing_wall = now, wall
        elif now - self._failing_since >= PAGES_AFTER and self._paged != reason:
            self._paged = reason
            listed: list[Alert] = []
            try:
                listed = self.monitor.alerts()
            except Exception:
                log.exception("rules: the alerts can't be listed")
            own = [one for one in listed if one.rule == "rules_failing"]
            # One that has fired since an earlier failure says nothing of this one.
            if self._shared is not None:
                self._shared.relay([self._self_alert(reason, wall)], self.alerts, ())
            elif not any(one.changed >= self._failing_wall or reason in one.summary for one in own):
                notice = plain_notice(self._self_alert(reason, wall), wall)
                self._keep(IncidentChanges(notices=(notice,), wall_ns=wall), None)

    def _self_alert(self, reason: str, wall: int) -> Alert:
        """Return the alert that the rules fail, made without them."""
        rule = next(one for one in monitor_rules() if one.name == "rules_failing")
        return Alert(
            key=f"{rule.name}/{aggregator_key(self._cluster)}",
            rule=rule.name,
            state=AlertState.FIRING,
            severity=rule.severity,
            node="",
            subject=Subject.NODE,
            name="kilowatch",
            labels={"cluster": self._cluster},
            since=wall,
            changed=wall,
            summary=f"kilowatch can't evaluate its rules: {reason}",
            act=rule.act,
            description=rule.description,
            runbook=rule.runbook,
            remediation=rule.remediation,
        )

    def mark_false(self, key: str, *, who: str, why: str, until: int | None, now: float, wall: int) -> Incident:
        """Mark what was sent of an incident as false, and acknowledge it where it goes on. `key` as in
        `IncidentManager.acknowledge`, also of one that ended long ago. Raises `IncidentError`."""
        who, why = required("false: who", who), required("false: why", why)
        self._check_single()
        known = self._known(key)
        name = self.quality.find(key) if known is None else known.key
        self.quality.markable(name)
        if known is not None and known.ended is None and known.acknowledged is None:
            self.commit(self.manager.acknowledge(name, who=who, why=why, until=until, now=now, wall_ns=wall))
        note = IncidentNote(who=who, why=why, at=wall)
        return self._marked(known, name, note, "marked_false", who, why, now, wall)

    def unmark_false(self, key: str, *, who: str, why: str, now: float, wall: int) -> Incident:
        """Remove the mark that an incident was false. Raises `IncidentError`."""
        who, why = required("false: who", who), " ".join(why.split())[:500]
        self._check_single()
        known = self._known(key)
        name = self.quality.find(key) if known is None else known.key
        self.quality.markable(name, remove=True)
        return self._marked(known, name, None, "mark_removed", who, why, now, wall)

    def _check_single(self) -> None:
        if self._shared is not None:
            raise IncidentError(
                "several aggregators have no marks of false pages yet. Acknowledge it, with the reason."
            )

    def note_on(self, key: str, what: str, *, who: str, why: str, now: float, wall: int) -> None:
        """Add an event to an incident's timeline; of several aggregators' incidents there is none of the
        members' own. Raises `IncidentError`."""
        if self._shared is None:
            self.commit(self.manager.annotate(key, what, who=who, why=why, now=now, wall_ns=wall))

    def _known(self, key: str) -> Incident | None:
        """Return an incident that is open or ended within the hour; None for any other."""
        try:
            return self.manager.incident(key)
        except IncidentError:
            return None

    def _marked(
        self,
        known: Incident | None,
        name: str,
        note: IncidentNote | None,
        what: str,
        who: str,
        why: str,
        now: float,
        wall: int,
    ) -> Incident:
        """Mark an incident, or remove its mark, and store that with its event; return the incident. The mark
        comes last: what raises before leaves none in memory alone."""
        if known is None:
            marks = self.quality.mark(name, note)
            self._keep(IncidentChanges(records=marks, wall_ns=wall), None)
            return self.quality.past_incident(name)
        incident, step = self.manager.annotate(name, what, who=who, why=why, now=now, wall_ns=wall)
        marks = self.quality.mark(name, note)
        self._keep(replace(step, records={**step.records, **marks}), None)
        return self.quality.marked([incident])[0]

    def commit(self, result: tuple[_T, IncidentChanges]) -> _T:
        """Store the changes of an action on `manager`, and return the record that it returned."""
        record, changes = result
        self._keep(changes, None)
        return record

    def drain_changed(self) -> list[Incident]:
        """Return the incidents that have changed since the last call."""
        changed, self._changed = self._changed, []
        return changed

    def _records(self, wall: int) -> Generator[None, None, list[AlertRecord] | None]:
        """Return the engines' records where they have changed since the last call."""
        turns = self.engine.turns + self.monitor.turns
        if turns == self._turns:
            return None
        own = yield from self.monitor.records(wall)
        records = [*(yield from self.engine.records(wall)), *own]
        self._turns = turns
        self.recovering = frozenset(record.alert.key for record in records if record.good_since is not None)
        return records

    def _keep(self, changes: IncidentChanges, records: Sequence[AlertRecord] | None) -> None:
        self._kept += bool(changes)
        try:
            quality = self.quality.apply(changes, self._notification_state)
            changes = replace(changes, records={**changes.records, **quality})
        except Exception as error:  # noqa: BLE001 - reported, and no page waits for its count
            self.quality.fail("all rules", error)
        self._unkept.append((changes, records))
        while self._unkept:  # what could not be given away before comes first
            before, its_records = self._unkept[0]
            self._store(before, its_records)
            self._changed += before.incidents
            self.engine.note_incidents(before.incidents)
            del self._unkept[0]

    def _notification_state(self, key: str) -> NotificationState | None:
        status = self.manager.status(key)
        return None if status is None else status.state

    # -- Queries ---------------------------------------------------------------------------------

    def alerts(self) -> list[Alert]:
        """Return alerts that are pending, firing or just resolved, worst first."""
        turns = self.engine.text_turns, self.monitor.text_turns
        if self._listed is None or (turns != self._listed_turns and not self._ticking):
            own = self.monitor.alerts()
            firing = [alert for alert in own if alert.state is AlertState.FIRING]
            rest = [alert for alert in own if alert.state is not AlertState.FIRING]
            self._listed = [*firing, *self.engine.alerts(), *rest]
            # After what may raise, or the old list would be taken for it.
            self._listed_turns = turns
        return self._listed

    def notified(self) -> list[Alert]:
        """Return the firing alerts that are notified and those that have just resolved, as an
        Alertmanager receives them."""
        found = []
        listed = (one for alert in self.alerts() for one in self.manager.alerts_of(alert))
        for alert in listed:
            if alert.severity is Severity.INFO or alert.state is AlertState.PENDING:
                continue
            firing = alert.state is AlertState.FIRING
            status = self.manager.status(alert.key) if firing else None
            if status is None or status.state is NotificationState.NOTIFIED:
                found.append(alert)
        return found

    @property
    def notified_turn(self) -> tuple[int, int, int]:
        """Counters that change when an alert begins, ends, is notified or suppressed; not with a number in a
        text."""
        return self.engine.turns, self.monitor.turns, self._kept

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many alerts of each rule are in each state."""
        return Counter((alert.rule, alert.state.value) for alert in self.alerts())


def _ranks(rules: Sequence[Rule]) -> dict[str, int]:
    """Return a number for each rule that is higher than those of the rules that inhibit it."""
    ranks = {rule.name: 0 for rule in rules}
    for _ in rules:  # no longer chain is possible
        before = dict(ranks)
        for rule in rules:
            for name in (one.rule for one in rule.inhibits):
                ranks[name] = max(ranks.get(name, 0), ranks[rule.name] + 1)
        if ranks == before:
            break
    return ranks
