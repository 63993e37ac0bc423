"""Decodes the rows of the journal's file; records that cannot be decoded are left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from alerts.engine.restore import AlertRecord
from alerts.incidents.quality_record import QualityMemory, QualityRecord, QualityStart, SilencedCount
from alerts.incidents.state import IncidentMemory, IncidentRecord, ManagerClock, SilenceWindow, TrackedAlert
from alerts.journal.file import JournalFile
from alerts.notice import ChannelMemory, Delivery, KnownChannels, Notice, SentBefore
from api.alerts import Incident
from telemetry.text.decoders import converted, of_json

log = logging.getLogger(__name__)

_DELIVERIES = (
    "select delivery.key, channel, created, due, tries, outcome, error, body "
    "from delivery join notice on notice.key = delivery.notice where "
)
_Record = TypeVar("_Record")


class JournalReader:
    """Reads the file. Every method raises `StoreError` when that fails."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self.left_out = 0
        """Number of records that could not be decoded."""

    def memory(self) -> IncidentMemory:
        """Return the records of the incident manager."""
        return IncidentMemory(
            alerts=list(self._records("case", TrackedAlert)),
            incidents=list(self._records("dossier", IncidentRecord)),
            windows=list(self._records("window", SilenceWindow)),
            clock=next(self._records("pulse", ManagerClock), None),
            quality=QualityMemory(
                start=next(self._records("quality_start", QualityStart), None),
                sent=list(self._records("quality", QualityRecord)),
                silenced=list(self._records("quality_silenced", SilencedCount)),
            ),
            channels=ChannelMemory(known=next(self._records("channels", KnownChannels), None), sent=self._sent()),
        )

    def raw(self, kind: str) -> dict[str, bytes]:
        """Return the records of a kind as they are stored, by key."""
        rows = self._file.rows("select key, body from record where kind = ? order by key", kind)
        return {key: bytes(body) for key, body in rows}

    def alert_records(self) -> list[tuple[bytes, AlertRecord]]:
        """Return the records of the rule engine, encoded and decoded."""
        rows = self._file.rows("select key, body from life order by key")
        return [
            (body, record) for key, body in rows if (record := self._read(body, AlertRecord, "life", key)) is not None
        ]

    def channels(self) -> dict[str, bytes]:
        """Return the stored state of channels."""
        return dict(self._file.rows("select key, body from channel"))

    def next_delivery(self) -> int:
        """Return the number of the next delivery."""
        [(highest,)] = self._file.rows("select coalesce(max(key), 0) from delivery")
        counters = dict(self._file.rows("select key, value from counter"))
        return max(int(highest) + 1, int(counters.get("delivery", 1)))

    def notified(self) -> dict[str, list[str]]:
        """Return by open incident the channels that have received a notice of it."""
        found: dict[str, list[str]] = {}
        for incident, channel in self._file.rows(
            "select delivery.incident, channel from delivery join incident "
            "on incident.key = delivery.incident where ended is null "
            "group by delivery.incident, channel order by min(delivery.key)"
        ):
            found.setdefault(incident, []).append(channel)
        return found

    def _sent(self) -> dict[tuple[str, str], SentBefore]:
        """Return by open incident and channel what became of its notices."""
        return {
            (incident, channel): SentBefore(arrived, bool(waits))
            for incident, channel, arrived, waits in self._file.rows(
                "select delivery.incident, channel, "
                "max(case when outcome = 'delivered' then created end), max(outcome = 'waiting') "
                "from delivery join incident on incident.key = delivery.incident "
                "where ended is null group by delivery.incident, channel"
            )
        }

    def waiting(self) -> list[Delivery]:
        """Return the deliveries that wait, oldest first."""
        return self._deliveries("outcome = 'waiting' order by delivery.key")

    def history(self, since: int, limit: int, incident: str | None = None) -> list[Delivery]:
        """Return deliveries made since a time, newest first: all, or those of one incident."""
        its, values = ("", ()) if incident is None else ("delivery.incident = ? and ", (incident,))
        which = f"{its}created >= ? order by delivery.key desc limit ?"
        return self._deliveries(which, *values, since, limit)

    def incidents(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that are open or ended since a time, newest first."""
        rows = self._file.rows(
            "select key, body from incident where ended is null or ended >= ? order by began desc, key limit ?",
            since,
            limit,
        )
        found = (self._read(body, Incident, "incident", key) for key, body in rows)
        return [incident for incident in found if incident is not None]

    def evidence(self, incident: str) -> bytes | None:
        """Return the evidence of an incident, encoded; None where there is none."""
        rows = self._file.rows("select body from record where kind = 'evidence' and key = ?", incident)
        return bytes(rows[0][0]) if rows else None

    def _records(self, kind: str, form: type[_Record]) -> Iterator[_Record]:
        rows = self._file.rows("select key, body from record where kind = ? order by key", kind)
        for key, body in rows:
            record = self._read(body, form, "record", kind, key)
            if record is not None:
                yield record

    def _deliveries(self, which: str, *values: Any) -> list[Delivery]:
        found = []
        notices: dict[bytes, Notice | None] = {}
        for number, channel, created, due, tries, outcome, error, body in self._file.rows(_DELIVERIES + which, *values):
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
                found.append(converted(row, Delivery))
            except msgspec.ValidationError as reason:
                self._leave_out(reason, "delivery", number)
        return found

    def _read(self, body: bytes, form: type[_Record], table: str, *key: Any) -> _Record | None:
        try:
            return of_json(form).decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as reason:
            self._leave_out(reason, table, *key)
            return None

    def _leave_out(self, reason: Exception, table: str, *key: Any) -> None:
        """Delete a record that cannot be decoded, and count it."""
        log.warning("journal: %s %s can't be read and is left out: %s", table, key, reason)
        self._file.drop(table, *key)
        self.left_out += 1
