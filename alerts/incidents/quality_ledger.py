"""The ledger of alert quality: what was sent of which rule, and what people made of it.

Follows the steps of the incident manager; each change is a record of the same transaction. Kept for 400
days and 20,000 notifications, while the incidents themselves are deleted after 30 days.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from alerts.incidents.quality_record import (
    MOST_ALERTS,
    QualityMemory,
    QualityRecord,
    QualityStart,
    SentAlert,
    SilencedCount,
)
from alerts.incidents.state import IncidentChanges, RecordKey
from alerts.notice import Notice
from api.alerts import Action, Alert, Incident, IncidentNote, NotificationState, Severity
from telemetry.errors import IncidentError
from telemetry.runtime.isolation import reason_of

log = logging.getLogger(__name__)
KEPT_DAYS = 400
KEPT_RECORDS = 20_000
STORM = "storm"
"""In place of a rule: the one notification of many incidents at once."""
DAY_NS = 86_400_000_000_000
OUTCOMES = ("acknowledged", "self_resolved", "silenced", "flapping", "marked_false")
"""Outcomes that are counted of a rule beside its pages and tickets."""
_AGAIN = frozenset({"repeat", "escalated", "new_channel"})
"""Reasons of a trigger that tells nothing new."""
SILENT = frozenset({NotificationState.SILENCED, NotificationState.MAINTENANCE})
"""States of an alert that a silence or maintenance window holds back."""

StatusReader = Callable[[str], NotificationState | None]
"""Returns the notification state of a firing alert by its key; None for any other."""


class QualityLedger:
    """Records of the notifications of each rule. Owned by the loop of the incident manager."""

    def __init__(self, memory: QualityMemory, silenced: Iterable[str], wall_ns: int) -> None:
        """Continue from `memory`; `silenced`: keys of the alerts that are silenced at the start."""
        self._sent = {one.id: one for one in sorted(memory.sent, key=lambda one: one.at)}
        self._silenced = {(one.rule, one.day): one for one in memory.silenced}
        self._held = set(silenced)
        self._open: dict[str, list[QualityRecord]] = {}
        for record in self._sent.values():
            if record.ended is None:
                self._open.setdefault(record.incident, []).append(record)
        self._marks = {one.incident: one.false for one in self._sent.values() if one.false is not None}
        self._unstored = memory.start is None
        self.began = wall_ns if memory.start is None else memory.start.at
        """Since when quality is recorded, ns since 1970."""
        self.totals: dict[str, Counter[str]] = {}
        """Counters by rule since the start of the process, for `/metrics`."""
        self._pruned = 0
        self._failed: dict[str, str] = {}

    # -- Steps of the incident manager -----------------------------------------------------------

    def apply(self, step: IncidentChanges, status: StatusReader) -> dict[RecordKey, bytes | None]:
        """Follow a step; return the records that it changed, for the journal."""
        changed: dict[RecordKey, bytes | None] = {}
        for notice in step.notices:
            with self._costing(_rule_of(notice.incident)):
                self._notice(notice, changed)
        for incident in step.incidents:
            with self._costing(_rule_of(incident)):
                self._incident(incident, changed)
        for key in step.alerts:
            with self._costing(key.partition("/")[0]):
                self._alert(key, status(key), step.wall_ns, changed)
        if changed and self._unstored:
            self._unstored = False
            changed[RecordKey("quality_start", "")] = msgspec.json.encode(QualityStart(at=self.began))
        if step.wall_ns // DAY_NS != self._pruned:
            self._pruned = step.wall_ns // DAY_NS
            with self._costing("old records"):
                self._prune(step.wall_ns, changed)
        return changed

    @contextmanager
    def _costing(self, rule: str) -> Iterator[None]:
        """Go on after an exception, which costs a count of this rule alone."""
        try:
            yield
        except Exception as error:
            self.fail(rule, error)

    def fail(self, part: str, error: Exception) -> None:
        """Note that something of a rule, or of the whole ledger, was not recorded."""
        log.error("the quality of %s was not recorded", part, exc_info=error)
        self._failed[part] = reason_of(error)

    def faults(self) -> dict[str, str]:
        """Return the rules of which something was not recorded since the last call, with the reasons."""
        failed, self._failed = self._failed, {}
        return failed

    def _notice(self, notice: Notice, changed: dict[RecordKey, bytes | None]) -> None:
        incident, reason = notice.incident, notice.reason
        mine = self._open.get(incident.key, [])
        if notice.action is Action.RESOLVE:
            for record in mine:
                record.end = reason
                _store(record, changed)
        if notice.action is not Action.TRIGGER or reason in _AGAIN or notice.id in self._sent:
            return
        named = {alert.key for record in mine for alert in record.alerts}
        fresh = [one for one in incident.alerts if one.key not in named] or list(incident.alerts)
        storm = reason == STORM or not fresh
        record = QualityRecord(
            id=notice.id,
            incident=incident.key,
            rule=STORM if storm else fresh[0].rule,
            severity=incident.severity,
            title=incident.title[:200],
            at=notice.at,
            alerts=tuple(map(_sent, fresh[:MOST_ALERTS])),
        )
        self._sent[record.id] = record
        self._open.setdefault(incident.key, []).append(record)
        self._count(record.rule, "pages" if record.severity is Severity.PAGE else "tickets")
        _store(record, changed)

    def _incident(self, incident: Incident, changed: dict[RecordKey, bytes | None]) -> None:
        note = incident.acknowledged
        for record in self._open.get(incident.key, []):
            if note is not None and record.acknowledged is None and note.at >= record.at:
                record.acknowledged = note.at
                self._count(record.rule, "acknowledged")
                _store(record, changed)
        if incident.ended is None:
            return
        for record in self._open.pop(incident.key, []):
            last = max((one.changed for one in incident.alerts), default=incident.ended)
            record.ended = max(record.at, min(last, incident.ended))
            record.end = record.end or "resolved"
            if self_resolved(record):
                self._count(record.rule, "self_resolved")
            _store(record, changed)

    def _alert(
        self, key: str, state: NotificationState | None, wall_ns: int, changed: dict[RecordKey, bytes | None]
    ) -> None:
        """Count an alert once while a silence holds it back, and note that it flaps."""
        if state is NotificationState.FLAPPING:
            self._flaps(key, changed)
        if state not in SILENT:
            self._held.discard(key)
            return
        if key in self._held:
            return
        self._held.add(key)
        rule, day = key.partition("/")[0], wall_ns // DAY_NS
        found = self._silenced.setdefault((rule, day), SilencedCount(rule=rule, day=day))
        found.count += 1
        self._count(rule, "silenced")
        changed[RecordKey("quality_silenced", f"{rule}/{day}")] = msgspec.json.encode(found)

    def _flaps(self, key: str, changed: dict[RecordKey, bytes | None]) -> None:
        for records in self._open.values():
            for record in records:
                if not record.flapping and any(alert.key == key for alert in record.alerts):
                    record.flapping = True
                    self._count(record.rule, "flapping")
                    _store(record, changed)

    def _count(self, rule: str, what: str) -> None:
        self.totals.setdefault(rule, Counter())[what] += 1

    def _prune(self, wall_ns: int, changed: dict[RecordKey, bytes | None]) -> None:
        oldest = wall_ns - KEPT_DAYS * DAY_NS
        over = len(self._sent) - KEPT_RECORDS
        for number, record in enumerate(list(self._sent.values())):
            if record.at >= oldest and number >= over:
                break
            del self._sent[record.id]
            changed[RecordKey("quality", record.id)] = None
        for (rule, day), _ in list(self._silenced.items()):
            if day * DAY_NS < oldest:
                del self._silenced[rule, day]
                changed[RecordKey("quality_silenced", f"{rule}/{day}")] = None

    # -- Marks of people -------------------------------------------------------------------------

    def find(self, key: str) -> str:
        """Return the key of an incident that was notified, by the key, the first characters of it (four
        or more) or the key of one of its alerts. Raises `IncidentError`."""
        incidents = {record.incident: None for record in reversed(self._sent.values())}
        if key in incidents:
            return key
        for record in reversed(self._sent.values()):
            if any(alert.key == key for alert in record.alerts):
                return record.incident
        found = [name for name in incidents if name.startswith(key)] if len(key) >= 4 else []
        if len(found) > 1:
            raise IncidentError(f"{key!r} may be {found[0]} or {found[1]}. Write more of it.")
        if not found:
            raise IncidentError(f"no incident {key!r} was notified. `kilowatch alerts --history 30d` lists them.")
        return found[0]

    def markable(self, incident: str, *, remove: bool = False) -> list[QualityRecord]:
        """Return the notifications of an incident that can be marked as false, or their mark removed.
        Raises `IncidentError` where there is nothing to mark, or no mark to remove."""
        mine = [one for one in self._sent.values() if one.incident == incident]
        if not mine:
            raise IncidentError(f"no page or ticket of {incident} was sent. There is nothing to mark as false.")
        if remove and all(one.false is None for one in mine):
            raise IncidentError(f"nobody has marked {incident} as false. There is no mark to remove.")
        return mine

    def mark(self, incident: str, note: IncidentNote | None) -> dict[RecordKey, bytes | None]:
        """Mark the notifications of an incident as false, or remove the mark; return the records that
        changed. Raises as `markable`."""
        changed: dict[RecordKey, bytes | None] = {}
        for record in self.markable(incident, remove=note is None):
            if note is not None and record.false is None:
                self._count(record.rule, "marked_false")
            record.false = note
            _store(record, changed)
        self._marks.pop(incident, None)
        if note is not None:
            self._marks[incident] = note
        return changed

    def mark_of(self, incident: str) -> IncidentNote | None:
        """Return who marked an incident as false, when and why; None where nobody did."""
        return self._marks.get(incident)

    def marked(self, incidents: Iterable[Incident]) -> list[Incident]:
        """Return incidents with their marks."""
        return [
            msgspec.structs.replace(one, false=self._marks[one.key]) if one.key in self._marks else one
            for one in incidents
        ]

    def past_incident(self, key: str) -> Incident:
        """Return what is known of an incident that was notified; the journal may no longer have it."""
        mine = [one for one in self._sent.values() if one.incident == key]
        first = mine[0]
        return Incident(
            key=key,
            severity=first.severity,
            title=first.title,
            began=first.at,
            ended=first.ended,
            false=self.mark_of(key),
        )

    # -- Queries ---------------------------------------------------------------------------------

    def sent(self, since: int) -> list[QualityRecord]:
        """Return the notifications since a time (ns since 1970), oldest first."""
        return [one for one in self._sent.values() if one.at >= since]

    def silenced(self, since: int) -> Counter[str]:
        """Return by rule how many alerts were silenced on the days since a time (ns since 1970)."""
        found: Counter[str] = Counter()
        for one in self._silenced.values():
            if one.day >= since // DAY_NS:
                found[one.rule] += one.count
        return found


SOON_NS = 300_000_000_000
"""Time within which an alert that resolves needed nobody."""


def self_resolved(record: QualityRecord) -> bool:
    """Return whether a notification was over within five minutes, before anybody acknowledged it."""
    ended = record.ended
    return (
        ended is not None
        and record.end == "resolved"
        and ended - record.at <= SOON_NS
        and (record.acknowledged is None or record.acknowledged >= ended)
    )


def _rule_of(incident: Incident) -> str:
    return incident.group.get("rule", incident.key)


def _sent(alert: Alert) -> SentAlert:
    return SentAlert(key=alert.key, rule=alert.rule, since=alert.since, fired=alert.changed)


def _store(record: QualityRecord, changed: dict[RecordKey, bytes | None]) -> None:
    changed[RecordKey("quality", record.id)] = msgspec.json.encode(record)
