"""What stands in the journal's file, as things again. What says nothing any more is left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from alerts.engine.restore import AlertRecord
from alerts.incidents.state import (
    IncidentMemory,
    IncidentRecord,
    ManagerClock,
    SilenceWindow,
    TrackedAlert,
)
from alerts.journal.file import JournalFile
from alerts.notice import Delivery, Notice
from api.alerts import Incident

log = logging.getLogger(__name__)

_DELIVERIES = (
    "select delivery.key, channel, created, due, tries, outcome, error, body "
    "from delivery join notice on notice.key = delivery.notice where "
)
_Thing = TypeVar("_Thing")


class JournalReader:
    """Reads the file. Every method raises `StoreError` where that fails."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self.left_out = 0
        """Records that could not be read."""

    def memory(self) -> IncidentMemory:
        """Return what the desk remembers."""
        return IncidentMemory(
            cases=list(self._records("case", TrackedAlert)),
            dossiers=list(self._records("dossier", IncidentRecord)),
            windows=list(self._records("window", SilenceWindow)),
            pulse=next(self._records("pulse", ManagerClock), None),
        )

    def lives(self) -> list[tuple[bytes, AlertRecord]]:
        """Return what the engine remembers, as it stands in the file and as it is."""
        rows = self._file.rows("select key, body from life order by key")
        return [
            (body, record)
            for key, body in rows
            if (record := self._read(body, AlertRecord, "life", key)) is not None
        ]

    def channels(self) -> dict[str, bytes]:
        """Return what channels keep for themselves."""
        return dict(self._file.rows("select key, body from channel"))

    def next_delivery(self) -> int:
        """Return the number of the next delivery."""
        [(highest,)] = self._file.rows("select coalesce(max(key), 0) from delivery")
        counters = dict(self._file.rows("select key, value from counter"))
        return max(int(highest) + 1, int(counters.get("delivery", 1)))

    def told(self) -> dict[str, list[str]]:
        """Return by open incident the channels that were told of it."""
        found: dict[str, list[str]] = {}
        for incident, channel in self._file.rows(
            "select delivery.incident, channel from delivery join incident "
            "on incident.key = delivery.incident where ended is null "
            "group by delivery.incident, channel order by min(delivery.key)"
        ):
            found.setdefault(incident, []).append(channel)
        return found

    def waiting(self) -> list[Delivery]:
        """Return the deliveries that are not there yet, oldest first."""
        return self._deliveries("outcome = 'waiting' order by delivery.key")

    def history(self, since: int, limit: int, incident: str | None = None) -> list[Delivery]:
        """Return deliveries made since a time, newest first: all, or those of one incident."""
        its, values = ("", ()) if incident is None else ("delivery.incident = ? and ", (incident,))
        which = f"{its}created >= ? order by delivery.key desc limit ?"
        return self._deliveries(which, *values, since, limit)

    def incidents(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that are open or ended since a time, newest first."""
        rows = self._file.rows(
            "select key, body from incident where ended is null or ended >= ? "
            "order by began desc, key limit ?",
            since,
            limit,
        )
        found = (self._read(body, Incident, "incident", key) for key, body in rows)
        return [incident for incident in found if incident is not None]

    def _records(self, kind: str, form: type[_Thing]) -> Iterator[_Thing]:
        rows = self._file.rows("select key, body from record where kind = ? order by key", kind)
        for key, body in rows:
            thing = self._read(body, form, "record", kind, key)
            if thing is not None:
                yield thing

    def _deliveries(self, which: str, *values: Any) -> list[Delivery]:
        found = []
        notices: dict[bytes, Notice | None] = {}
        for number, channel, created, due, tries, outcome, error, body in self._file.rows(
            _DELIVERIES + which, *values
        ):
            if body not in notices:
                notices[body] = self._read(body, Notice, "delivery", number)
            if notices[body] is None:
                continue
            row = {
                "id": number,
                "channel": channel,
                "notice": notices[body],
                "created": created,
                "due": due,
                "tries": tries,
                "outcome": outcome,
                "error": error,
            }
            try:
                found.append(msgspec.convert(row, Delivery))
            except msgspec.ValidationError as reason:
                self._leave_out(reason, "delivery", number)
        return found

    def _read(self, body: bytes, form: type[_Thing], table: str, *key: Any) -> _Thing | None:
        """Return what a body says."""
        try:
            return msgspec.json.decode(body, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as reason:
            self._leave_out(reason, table, *key)
            return None

    def _leave_out(self, reason: Exception, table: str, *key: Any) -> None:
        """Forget what can't be read; people hear of it."""
        log.warning("journal: %s %s can't be read and is left out: %s", table, key, reason)
        self._file.drop(table, *key)
        self.left_out += 1
