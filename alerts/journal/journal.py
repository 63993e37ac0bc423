"""The journal: a SQLite file that stores alerts, incidents and deliveries across crashes.

Changes are on disk before a notice of them is sent (WAL, synchronous FULL). Memory is updated first
and the file follows: when the disk is full or read-only, nothing is lost and nothing waits for it.
A failed write is retried with the next call; deliveries are sent meanwhile, for a page that comes
twice after a crash is better than none.

All methods may be called from any thread. Those that write return whether the changes are on disk,
and take milliseconds: call them off the event loop.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Protocol

import msgspec

from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentChanges, IncidentMemory
from alerts.journal.file import JournalFile
from alerts.journal.queue import DeliveryQueue
from alerts.journal.reader import JournalReader
from alerts.journal.schema import begin_anew, can_be_replaced, prepare
from alerts.notice import Delivery, Notice
from api.alerts import DeliveryOutcome, Incident
from telemetry.runtime.isolation import reason_of

log = logging.getLogger(__name__)
KEPT_NS = 30 * 86_400_000_000_000
KEPT_INCIDENTS = 20_000
KEPT_DELIVERIES = 100_000
KEPT_EVIDENCE = 2000
"""Incidents whose evidence is kept, the newest ones: about 10 KB each, 100 KB at most."""
_PRUNE_NS = 3_600_000_000_000


class Route(Protocol):
    """Finds the channels of a notice; implemented by `alerts.delivery.routing.Router.route`."""

    def __call__(self, notice: Notice, wall_ns: int, notified: Collection[str], /) -> Mapping[str, int]:
        """Return channels, each with the time at which the delivery is due. `notified`: those that
        have received its incident."""


@contextmanager
def _costing(faults: dict[str, str], part: str) -> Iterator[None]:
    """Go on after an exception that concerns one record, and note it."""
    try:
        yield
    except Exception as error:
        log.exception("the journal: %s", part)
        faults[part] = reason_of(error)


class Journal:
    """Alerts, incidents and deliveries, in memory and in the file."""

    memory: IncidentMemory
    """Records of the incident manager at opening. It owns them from then on."""
    alert_records: list[AlertRecord]
    """Records of the rule engine at opening."""

    def __init__(self, path: Path, connection: sqlite3.Connection, aside: str, wall_ns: int) -> None:
        """Use `open`."""
        self._file = JournalFile(path, connection)
        self._reader = reader = JournalReader(self._file)
        self._lock = Lock()
        """Held for an instant, while what is in memory changes."""
        self._unshown: list[int] = []
        """Deliveries that are being written, and not sent yet."""
        self.memory = reader.memory()
        records = reader.alert_records()
        self.alert_records = [record for _, record in records]
        self._alert_bodies = {record.alert.key: body for body, record in records}
        self._put_records: dict[str, AlertRecord] = {}
        """By key: the record of each alert that was put last; the same object is not encoded again."""
        self._channels = reader.channels()
        self._next = reader.next_delivery()
        self._queue = DeliveryQueue(reader.waiting(), reader.notified())
        lost = [aside] if aside else []
        if reader.left_out:
            lost.append(f"{reader.left_out} records of {path} could not be read and are left out")
        self.path = path
        self.lost = "; ".join(lost)
        """Which part of an earlier journal could not be read; "" when all could."""
        self.opened_at = wall_ns
        self.faults: dict[str, str] = {}
        """Parts of the last step that a fault of our own kept from being written, with the reasons."""
        self.prune(wall_ns)

    @classmethod
    def open(cls, path: Path, wall_ns: int) -> Journal:
        """Open or begin the file; one that can't be used is set aside; see `lost`. Raises
        `StoreError` where no file can be made, or where another process has it open."""
        connection, aside = prepare(path)
        try:
            return cls(path, connection, aside, wall_ns)
        except Exception as error:  # whatever damaged rows do to those who read them
            connection.close()
            cause = error.__cause__ or error
            if not can_be_replaced(cause):
                raise
            return cls(path, *begin_anew(path, cause), wall_ns)

    # -- Changes of the rules and the incident manager -------------------------------------------

    def commit(self, step: IncidentChanges, route: Route, records: Iterable[AlertRecord] | None = None) -> bool:
        """Write the changes of a step, and a delivery of each notice to each channel that `route`
        returns, in one transaction. `records`: `RuleEngine.snapshot`; None leaves the last one.

        Called with steps in the order in which the incident manager returned them. Never raises
        for the disk: a failed write is retried with the next call.
        """
        with self._lock:
            faults: dict[str, str] = {}
            with _costing(faults, "records of incidents"):
                for (kind, key), body in step.records.items():
                    if body is None:
                        self._file.drop("record", kind, key)
                    else:
                        self._file.put("record", kind, key, body)
            for incident in step.incidents:
                with _costing(faults, f"incident/{incident.key}"):
                    body = msgspec.json.encode(incident)
                    self._file.put("incident", incident.key, incident.began, incident.ended, body)
            for notice in step.notices:
                with _costing(faults, f"notice/{notice.incident.key}"):
                    self._enqueue(notice, route, faults)
            with _costing(faults, "records of alerts"):
                if records is not None:
                    self._put_alerts(records)
            if step or records is not None:
                self.faults = faults
        written = self._write()
        if step.wall_ns - self._pruned > _PRUNE_NS:
            self.prune(step.wall_ns)
        return written

    @property
    def trouble(self) -> str:
        """Why the file could not be written at the last try; "" when all is on disk."""
        return self._file.trouble

    def recent_fault(self) -> str:
        """Return why rows were dropped or wait since the last call, by a fault of our own; "" without
        any."""
        return self._file.recent_fault()

    def flush(self) -> bool:
        """Try again to write what is not on disk yet; return whether all is."""
        return self._write()

    def _write(self) -> bool:
        with self._lock:
            unshown, self._unshown = self._unshown, []
        try:
            return self._file.write()
        finally:
            with self._lock:  # on disk or not: a page that comes twice is better than none
                self._queue.show(unshown)

    def _enqueue(self, notice: Notice, route: Route, faults: dict[str, str]) -> None:
        key = notice.incident.key
        due = route(notice, notice.at, self._queue.notified(key))
        if due:
            self._file.put("notice", notice.id, notice.at, msgspec.json.encode(notice))
        for channel, at in due.items():
            with _costing(faults, f"notice/{key}/{channel}"):
                added = self._queue.add(notice, {channel: at}, self._next)
                self._next += len(added)
                self._unshown += (delivery.id for delivery in added)
                self._put(added)
        if due:
            self._file.put("counter", "delivery", self._next)

    def _put_alerts(self, records: Iterable[AlertRecord]) -> None:
        now, before = {}, self._put_records
        put = {}
        for record in records:
            key = record.alert.key
            put[key] = record
            same = before.get(key) is record and key in self._alert_bodies
            now[key] = self._alert_bodies[key] if same else msgspec.json.encode(record)
        for key in self._alert_bodies.keys() - now.keys():
            self._file.drop("life", key)
        for key, body in now.items():
            if self._alert_bodies.get(key) != body:
                self._file.put("life", key, body)
        self._alert_bodies, self._put_records = now, put

    # -- Deliveries ------------------------------------------------------------------------------

    def due(self, wall_ns: int, limit: int, channel: str) -> list[Delivery]:
        """Return one delivery of each incident of which any is due: pages first, then oldest."""
        with self._lock:
            return self._queue.due(wall_ns, limit, channel)

    def chain(self, channel: str, incident: str) -> list[Delivery]:
        """Return all deliveries of an incident that wait on a channel, in their order."""
        with self._lock:
            return self._queue.chain(channel, incident)

    def next_due(self, channel: str) -> int | None:
        """Return when the next is due on a channel, ns since 1970; None when none waits."""
        with self._lock:
            return self._queue.next_due(channel)

    def backlog(self) -> dict[str, tuple[int, int]]:
        """Return by channel how many wait, and when the oldest was made."""
        with self._lock:
            return self._queue.backlog()

    def waiting(self) -> list[Delivery]:
        """Return all deliveries that wait, oldest first."""
        with self._lock:
            return self._queue.waiting()

    def settle(
        self, numbers: Sequence[int], outcome: DeliveryOutcome, error: str = "", superseded: Sequence[int] = ()
    ) -> bool:
        """Store the outcome of deliveries that will not be sent again, and that `superseded` need
        not be sent either."""
        with self._lock:
            self._put(self._queue.ended(numbers, outcome, error))
            self._put(self._queue.ended(superseded, DeliveryOutcome.SUPERSEDED))
        return self._write()

    def retry(self, number: int, due: int, error: str, others: Sequence[int] = ()) -> bool:
        """Store that a try has failed, to be repeated at `due`; `others` are not sent before that."""
        with self._lock:
            self._put(self._queue.tried(number, due, error, others))
        return self._write()

    def channel_state(self, channel: str) -> bytes | None:
        """Return the stored state of a channel."""
        with self._lock:
            return self._channels.get(channel)

    def store_channel_state(self, channel: str, body: bytes | None) -> bool:
        """Store the state of a channel; None deletes it."""
        with self._lock:
            if body is None:
                self._channels.pop(channel, None)
            else:
                self._channels[channel] = body
        if body is None:
            self._file.drop("channel", channel)
        else:
            self._file.put("channel", channel, body)
        return self._write()

    def store_evidence(self, incident: str, body: bytes) -> bool:
        """Store the evidence of an incident, encoded, in place of an earlier one."""
        self._file.put("record", "evidence", incident, body)
        return self._write()

    def evidence(self, incident: str) -> bytes | None:
        """Return the evidence of an incident by its whole key, as it is on disk; None where there is
        none. Raises `StoreError`."""
        return self._reader.evidence(incident)

    def _put(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            self._file.put(
                "delivery",
                one.id,
                one.channel,
                one.notice.incident.key,
                one.notice.id,
                one.created,
                one.due,
                one.tries,
                one.outcome.value,
                one.error,
            )

    # -- Queries ---------------------------------------------------------------------------------

    def history(self, since: int = 0, limit: int = 100, incident: str | None = None) -> list[Delivery]:
        """Return deliveries made since a time (ns), newest first, with any outcome, as they are on
        disk; all, or those of one incident. Raises `StoreError`."""
        return self._reader.history(since, limit, incident)

    def incidents(self, since: int = 0, limit: int = 100) -> list[Incident]:
        """Return incidents that are open or ended since a time (ns), newest first: as they are on
        disk. Raises `StoreError`."""
        return self._reader.incidents(since, limit)

    def records(self, kind: str) -> dict[str, bytes]:
        """Return the records of a kind that other parts store with the incidents, as they are on disk. Raises
        `StoreError`."""
        return self._reader.raw(kind)

    def prune(self, wall_ns: int) -> None:
        """Delete what ended 30 days ago, and the oldest records beyond the limits."""
        self._pruned = wall_ns
        old = wall_ns - KEPT_NS
        self._file.run([
            ("delete from incident where ended < ?", (old,)),
            ("delete from incident where ended < (select ended from incident where ended "
             "is not null order by ended desc limit 1 offset ?)", (KEPT_INCIDENTS,)),
            ("delete from delivery where outcome != 'waiting' and created < ?", (old,)),
            ("delete from delivery where outcome != 'waiting' and key < (select key from delivery "
             "order by key desc limit 1 offset ?)", (KEPT_DELIVERIES,)),
            ("delete from notice where not exists (select 1 from delivery "
             "where delivery.notice = notice.key)", ()),
            ("delete from record where kind = 'evidence' and key not in "
             "(select key from incident order by began desc limit ?)", (KEPT_EVIDENCE,)),
        ])  # fmt: skip

    def close(self) -> None:
        """Write the rest, and close the file."""
        self._file.close()
