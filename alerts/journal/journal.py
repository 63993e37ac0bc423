"""The journal: one SQLite file that remembers alerts, incidents and deliveries over any crash.

What is committed here is on disk before anybody is told of it (WAL, synchronous FULL). Memory goes
first and the file follows: when the disk is full or read-only, nothing is lost and nobody waits for
it. What could not be written is kept and tried again with the next call; deliveries go out
meanwhile, for a page that comes twice after a crash is better than none.

All methods may be called from any thread. Those that write return whether it is on disk, and take
milliseconds: keep them off the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

import msgspec

from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentMemory, StateChanges
from alerts.journal.file import JournalFile
from alerts.journal.queue import Queue
from alerts.journal.reader import JournalReader
from alerts.journal.schema import begin_anew, is_corrupt, prepare
from alerts.notice import Delivery, Notice
from api.alerts import DeliveryOutcome, Incident
from telemetry.errors import StoreError

KEPT_NS = 30 * 86_400_000_000_000
KEPT_INCIDENTS = 20_000
KEPT_DELIVERIES = 100_000
_PRUNE_NS = 3_600_000_000_000


class Route(Protocol):
    """Who is told of a notice; `alerts.delivery.routing.Router.route` is one."""

    def __call__(self, notice: Notice, wall_ns: int, told: Collection[str], /) -> Mapping[str, int]:
        """Return channels, each with the time at which the delivery is due. `told`: those that have
        heard of its incident."""


class Journal:
    """What must survive."""

    memory: IncidentMemory
    """The desk's, as it was at opening. It belongs to the desk from then on."""
    lives: list[AlertRecord]
    """The engine's, as they were at opening."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, aside: str, wall_ns: int
    ) -> None:
        """Use `open`."""
        self._file = JournalFile(path, connection)
        self._reader = reader = JournalReader(self._file)
        self._lock = Lock()
        """Held for an instant, while what is in memory changes."""
        self._unshown: list[int] = []
        """Deliveries that are being written."""
        self.memory = reader.memory()
        lives = reader.lives()
        self.lives = [record for _, record in lives]
        self._lives = {record.alert.key: body for body, record in lives}
        self._channels = reader.channels()
        self._next = reader.next_delivery()
        self._queue = Queue(reader.waiting(), reader.told())
        lost = [aside] if aside else []
        if reader.left_out:
            lost.append(f"{reader.left_out} records of {path} could not be read and are left out")
        self.path = path
        self.lost = "; ".join(lost)
        """What of an earlier journal could not be read; "" when all could."""
        self.opened_at = wall_ns
        self.prune(wall_ns)

    @classmethod
    def open(cls, path: Path, wall_ns: int) -> Journal:
        """Open or begin the file; one that is corrupt is set aside; see `lost`. Raises
        `StoreError` where no file can be made, or where another process has it open."""
        connection, aside = prepare(path, wall_ns)
        try:
            return cls(path, connection, aside, wall_ns)
        except StoreError as error:
            connection.close()
            if not is_corrupt(error.__cause__):
                raise
            return cls(path, *begin_anew(path, str(error.__cause__), wall_ns), wall_ns)

    # -- What the rules and the desk say ---------------------------------------------------------

    def commit(
        self, step: StateChanges, route: Route, lives: Iterable[AlertRecord] | None = None
    ) -> bool:
        """Write a step, and a delivery of each notice to each channel that `route` names, in one
        transaction. `lives`: `Engine.snapshot` as it is now; None leaves the last one.

        Call it with steps in the order in which the desk gave them. Never raises for the disk's
        sake: what could not be written is written with the next call.
        """
        with self._lock:
            for (kind, key), body in step.records.items():
                if body is None:
                    self._file.drop("record", kind, key)
                else:
                    self._file.put("record", kind, key, body)
            for incident in step.incidents:
                body = msgspec.json.encode(incident)
                self._file.put("incident", incident.key, incident.began, incident.ended, body)
            for notice in step.notices:
                self._enqueue(notice, route)
            if lives is not None:
                self._live(lives)
        written = self._write()
        if step.wall_ns - self._pruned > _PRUNE_NS:
            self.prune(step.wall_ns)
        return written

    @property
    def trouble(self) -> str:
        """Why the file could not be written at the last try; "" when all is on disk."""
        return self._file.trouble

    def flush(self) -> bool:
        """Try again to write what is not on disk yet; return whether all is."""
        return self._write()

    def _write(self) -> bool:
        with self._lock:
            unshown, self._unshown = self._unshown, []
        written = self._file.write()
        with self._lock:  # on disk or not: a page that comes twice is better than none
            self._queue.show(unshown)
        return written

    def _enqueue(self, notice: Notice, route: Route) -> None:
        due = route(notice, notice.at, self._queue.told(notice.incident.key))
        added = self._queue.add(notice, due, self._next)
        if added:
            self._next += len(added)
            self._unshown += (delivery.id for delivery in added)
            self._file.put("counter", "delivery", self._next)
            self._file.put("notice", notice.id, notice.at, msgspec.json.encode(notice))
            self._note(added)

    def _live(self, lives: Iterable[AlertRecord]) -> None:
        now = {record.alert.key: msgspec.json.encode(record) for record in lives}
        for key in self._lives.keys() - now.keys():
            self._file.drop("life", key)
        for key, body in now.items():
            if self._lives.get(key) != body:
                self._file.put("life", key, body)
        self._lives = now

    # -- What the outbox asks and says -----------------------------------------------------------

    def due(self, wall_ns: int, limit: int, channel: str) -> list[Delivery]:
        """Return one delivery of each incident of which any is due: pages first, then oldest."""
        with self._lock:
            return self._queue.due(wall_ns, limit, channel)

    def chain(self, channel: str, incident: str) -> list[Delivery]:
        """Return all that wait of one incident on a channel, in their order."""
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
        """Return all deliveries that are not there yet, oldest first."""
        with self._lock:
            return self._queue.waiting()

    def delivered(self, number: int, wall_ns: int, superseded: Sequence[int] = ()) -> bool:
        """It has arrived, and what `superseded` says with it."""
        with self._lock:
            self._note(self._queue.ended([number], DeliveryOutcome.DELIVERED))
            self._note(self._queue.ended(superseded, DeliveryOutcome.SUPERSEDED))
        return self._write()

    def retry(self, number: int, due: int, error: str, others: Sequence[int] = ()) -> bool:
        """It has not; try it again at `due`, and `others` not before."""
        with self._lock:
            self._note(self._queue.tried(number, due, error, others))
        return self._write()

    def refused(self, number: int, wall_ns: int, error: str) -> bool:
        """It never will: the receiver says so."""
        return self._end([number], DeliveryOutcome.REFUSED, error)

    def expired(self, number: int, wall_ns: int, error: str) -> bool:
        """It is too old to be of use."""
        return self._end([number], DeliveryOutcome.EXPIRED, error)

    def superseded(self, numbers: Sequence[int], wall_ns: int) -> bool:
        """They need not be said any more."""
        return self._end(numbers, DeliveryOutcome.SUPERSEDED, "")

    def channel_state(self, channel: str) -> bytes | None:
        """Return what a channel keeps for itself."""
        with self._lock:
            return self._channels.get(channel)

    def keep_channel_state(self, channel: str, body: bytes | None) -> bool:
        """Keep it; None forgets it."""
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

    def _end(self, numbers: Sequence[int], outcome: DeliveryOutcome, error: str) -> bool:
        with self._lock:
            self._note(self._queue.ended(numbers, outcome, error))
        return self._write()

    def _note(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            self._file.put(
                "delivery", one.id, one.channel, one.notice.incident.key, one.notice.id,
                one.created, one.due, one.tries, one.outcome.value, one.error,
            )  # fmt: skip

    # -- What there is to see --------------------------------------------------------------------

    def history(
        self, since: int = 0, limit: int = 100, incident: str | None = None
    ) -> list[Delivery]:
        """Return deliveries made since a time (ns), newest first, whatever became of them: as they
        are on disk; all, or those of one incident. Raises `StoreError`."""
        return self._reader.history(since, limit, incident)

    def incidents(self, since: int = 0, limit: int = 100) -> list[Incident]:
        """Return incidents that are open or ended since a time (ns), newest first: as they are on
        disk. Raises `StoreError`."""
        return self._reader.incidents(since, limit)

    def prune(self, wall_ns: int) -> None:
        """Forget what ended 30 days ago, and what is beyond the bounds."""
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
        ])  # fmt: skip

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._file.close()
