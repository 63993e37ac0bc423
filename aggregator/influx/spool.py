"""The spool: requests on disk that wait for the server, in order, bounded, with exact losses.

Numbered segment files of records; a record is a request, ready to be sent. One thread appends, another
sends from the head. A record is on disk when `append` returns; its delivery is noted without waiting
for the disk, since a request sent twice changes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from aggregator.folder import kinds
from aggregator.influx.segments import Loss, SpooledRequest, SpoolRecord, SpoolSegment, pack, read, scan
from telemetry.errors import StoreError
from telemetry.files.record_log import RecordFile

log = logging.getLogger(__name__)

MIB = 1024 * 1024
LARGEST_SEGMENT = 16 * MIB


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """The place of a record."""

    segment: int
    number: int


class Spool:
    """Requests in a folder. Every method may be called from any thread."""

    def __init__(self, folder: Path, most: int, retained: Collection[str] = ()) -> None:
        """Read the folder. `most`: bytes; `retained`: policies whose requests are small, few and not to
        be dropped with the readings around them. Raises `StoreError`."""
        self._folder = folder
        self._retained = retained
        self._most = most
        self._longest = max(64 * 1024, min(LARGEST_SEGMENT, most // 8))
        self._lock = threading.Lock()
        self._segments: deque[SpoolSegment] = deque()
        self._file: RecordFile | None = None
        self._next = 0
        """Number of the next segment."""
        self._busy: SpoolPosition | None = None
        """The record that is being sent now: its segment is not dropped meanwhile."""
        self._losses: list[Loss] = []
        self.points = 0
        self.bytes = 0
        try:
            self._open()
        except OSError as error:
            raise self._error(error) from error

    # -- In --------------------------------------------------------------------------------------

    def append(self, records: list[SpoolRecord]) -> None:
        """Add requests; they are on disk when this returns. Raises `StoreError`, then none is."""
        if not records:
            return
        with self._lock:
            try:
                self._write(records)
                self._bound()
            except OSError as error:
                raise self._error(error) from error

    def _write(self, records: list[SpoolRecord]) -> None:
        segment = self._current()
        assert self._file is not None  # noqa: S101 - `_current` has opened it
        offset = segment.size
        entries = []
        parts = []
        for record in records:
            packed = pack(record)
            retained = record.policy in self._retained
            entries.append(SpooledRequest(offset, len(packed), record.points, record.first, record.last, retained))
            offset += len(packed)
            parts.append(packed)
        self._file.append(b"".join(parts))
        segment.entries += entries
        segment.size = offset
        self.bytes += sum(entry.size for entry in entries)
        self.points += sum(entry.points for entry in entries)

    def _current(self) -> SpoolSegment:
        last = self._segments[-1] if self._segments else None
        if last is None or last.size >= self._longest or self._file is None or not self._file.open:
            self._close_file()
            number = last.number + 1 if last else self._next
            self._next = number + 1
            last = SpoolSegment(number, self._folder / f"{number:012d}.spool")
            self._file = RecordFile(last.path, sync=True)
            self._segments.append(last)
        return last

    def _bound(self) -> None:
        while self.bytes > self._most and len(self._segments) > 1:
            victim = next(
                (each for each in list(self._segments)[:-1] if self._busy is None or each.number != self._busy.segment),
                None,
            )
            if victim is None:
                return
            self._drop(victim, "spool_full")

    def _drop(self, segment: SpoolSegment, reason: str) -> None:
        """Drop a segment; its retained records are appended again, unless they are most of it."""
        kept = [
            number for number, entry in enumerate(segment.entries) if entry.retained and number >= segment.delivered
        ]
        if 2 * sum(segment.entries[number].size for number in kept) > segment.size:
            kept = []
        readable = [(number, self._read(segment, number)) for number in kept]
        kept = [number for number, record in readable if record is not None]
        left = [
            entry for number, entry in enumerate(segment.entries) if number >= segment.delivered and number not in kept
        ]
        self._write([each for _, each in readable if each is not None])
        points = sum(entry.points for entry in left)
        if points:
            self._losses.append(Loss(reason, points, min(e.first for e in left), max(e.last for e in left)))
        self._remove(segment)

    def _remove(self, segment: SpoolSegment) -> None:
        left = segment.left()
        self.points -= sum(entry.points for entry in left)
        self.bytes -= segment.size
        if self._segments and segment is self._segments[-1]:
            self._close_file()
        self._segments.remove(segment)
        segment.path.unlink(missing_ok=True)

    # -- Out -------------------------------------------------------------------------------------

    def head(self, skip: int = 0) -> tuple[SpoolPosition, SpoolRecord] | None:
        """Return the oldest request that is not delivered, or the one `skip` behind it; call `free`
        when it is no longer being sent. Raises `StoreError` while the disk can't be read; damaged
        records are counted as lost, and skipped."""
        with self._lock:
            for segment in list(self._segments):
                while segment.delivered + skip < len(segment.entries):
                    number = segment.delivered + skip
                    record = self._read(segment, number)
                    if record is not None:
                        self._busy = SpoolPosition(segment.number, number)
                        return self._busy, record
                    self._drop_damaged(segment, number)
                skip -= len(segment.left())
            return None

    def _read(self, segment: SpoolSegment, number: int) -> SpoolRecord | None:
        """Return a record; None when its file is gone or damaged."""
        entry = segment.entries[number]
        try:
            with segment.path.open("rb") as file:
                return read(file, entry.offset)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{segment.path}: can't be read: {error}") from error

    def _drop_damaged(self, segment: SpoolSegment, number: int) -> None:
        entry = segment.entries.pop(number)
        self.points -= entry.points
        self._losses.append(Loss("spool_damaged", entry.points, entry.first, entry.last))
        log.error("%s: %d points at byte %d are damaged", segment.path, entry.points, entry.offset)
        if segment is self._segments[-1] and not segment.path.exists():
            self._close_file()  # no longer into a removed file

    def free(self) -> None:
        """Note that no request is being sent."""
        with self._lock:
            self._busy = None

    def settle(self, place: SpoolPosition) -> bool:
        """Note that a request is done; False when it was dropped, and counted as such, meanwhile."""
        with self._lock:
            self._busy = None
            segment = next((each for each in self._segments if each.number == place.segment), None)
            if segment is None or segment.delivered != place.number:
                return False
            self.points -= segment.entries[place.number].points
            segment.delivered += 1
            while self._segments and not self._segments[0].left():
                if len(self._segments) == 1 and self._segments[0].size < self._longest:
                    break  # it is being written to
                self._remove(self._segments[0])
            self._save_position()
            return True

    def age(self, oldest: int) -> None:
        """Drop points older than the server's retention; `oldest` in ms since 1970."""
        with self._lock:
            for segment in list(self._segments)[:-1]:
                busy = self._busy is not None and segment.number == self._busy.segment
                if not busy and all(entry.last < oldest for entry in segment.entries):
                    self._drop(segment, "spool_old")

    def drain_losses(self) -> list[Loss]:
        """Return the losses since the last call."""
        with self._lock:
            found, self._losses = self._losses, []
            return found

    def oldest(self) -> int | None:
        """Return when the oldest waiting point was sampled, ms since 1970.

        Read without the lock, which is held while the disk writes: a scrape must not wait for it,
        and may be a moment late.
        """
        waiting = (entry.first for segment in list(self._segments) for entry in segment.left()[:1])
        return next(waiting, None)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._close_file()

    # -- Inside ----------------------------------------------------------------------------------

    def _open(self) -> None:
        kinds.make_folder(self._folder)
        numbers = sorted(int(path.stem) for path in self._folder.glob("*.spool") if path.stem.isdigit())
        at, delivered = self._load_position()
        gone = at + 1 if delivered and at not in numbers else at  # its number is not given twice
        self._next = max([gone, *(number + 1 for number in numbers)])
        for number in numbers:
            path = self._folder / f"{number:012d}.spool"
            if number < at:
                path.unlink(missing_ok=True)
                continue
            try:
                segment, damaged = scan(number, path, self._retained)
            except OSError as error:
                if kinds.set_aside(path, error) is None:
                    raise
                continue
            self._losses += damaged
            segment.delivered = min(delivered, len(segment.entries)) if number == at else 0
            self._segments.append(segment)
            self.bytes += segment.size
            self.points += sum(entry.points for entry in segment.left())
        while self._segments and not self._segments[0].left():
            self._remove(self._segments[0])

    def _load_position(self) -> tuple[int, int]:
        # Without it all is sent again, which changes nothing.
        return kinds.read(self._folder / "taken", _position) or (0, 0)

    def _save_position(self) -> None:
        head = self._segments[0] if self._segments else None
        text = f"{head.number} {head.delivered}\n" if head else f"{self._next} 0\n"
        new = self._folder / "taken.new"
        try:
            new.write_text(text)
            new.replace(self._folder / "taken")
        except OSError as error:
            log.debug("%s: %s", new, error)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _error(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self._folder}: the spool can't be written: {error.strerror}. Free disk space, or "
            "lower store.influxdb.spool_bytes; writing resumes by itself."
        )


def _position(raw: bytes) -> tuple[int, int]:
    segment, delivered = map(int, raw.split())
    if segment < 0 or delivered < 0:
        raise ValueError("a number is negative")
    return segment, delivered
