"""One file of the ring: a header, then records that are only ever appended.

Each record starts with a marker and carries its length, its number and a checksum, so that a torn
tail is seen and cut, and one damaged record loses only itself: the reader looks for the next marker
whose checksum holds.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from telemetry.frame import MAX_FRAME_BYTES
from telemetry.intervals import IntervalSet

_MAGIC = b"kwring1\n"
_HEADER = struct.Struct("<8sQQI")  # magic, ordinal, session, crc32 of what is before it
_RECORD = struct.Struct("<4sIQI")  # marker, bytes of payload, seq, crc32 of both and the payload
_NUMBERS = struct.Struct("<IQ")
_MARKER = b"\xc1\xf5KW"  # 0xc1 is the one byte that MessagePack never uses
_BLOCK = 64 * 1024
HEADER_BYTES = _HEADER.size
RECORD_BYTES = _RECORD.size
"""What a record takes beside its payload."""
MOST_PAYLOAD_BYTES = 2 * MAX_FRAME_BYTES
"""A larger length is damage. A block of a recording may be a little larger than a frame."""
MARK_EVERY = 64
"""One offset in the index for so many records: 8 bytes of memory for each 300 KB of disk."""


class RingRecord(NamedTuple):
    """One frame in a file."""

    seq: int
    payload: bytes
    start: int
    stop: int
    """Where it begins and ends in the file."""


def header(ordinal: int, session: int) -> bytes:
    """Return the first bytes of a file."""
    head = _HEADER.pack(_MAGIC, ordinal, session, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def record(seq: int, payload: bytes) -> bytes:
    """Return the bytes of one record."""
    crc = zlib.crc32(payload, zlib.crc32(_NUMBERS.pack(len(payload), seq)))
    return _RECORD.pack(_MARKER, len(payload), seq, crc) + payload


def _record_at(file: BinaryIO, start: int) -> RingRecord | None:
    """Return the record that starts there, or None when there is no whole one."""
    file.seek(start)
    head = file.read(RECORD_BYTES)
    if len(head) < RECORD_BYTES:
        return None
    marker, size, seq, crc = _RECORD.unpack(head)
    if marker != _MARKER or size > MOST_PAYLOAD_BYTES:
        return None
    payload = file.read(size)
    if len(payload) < size or zlib.crc32(payload, zlib.crc32(_NUMBERS.pack(size, seq))) != crc:
        return None
    return RingRecord(seq, payload, start, start + RECORD_BYTES + size)


def _next_marker(file: BinaryIO, start: int) -> int | None:
    """Return where the next marker at or after `start` begins, or None."""
    while True:
        file.seek(start)
        block = file.read(_BLOCK)
        found = block.find(_MARKER)
        if found >= 0:
            return start + found
        if len(block) < _BLOCK:
            return None
        start += _BLOCK - len(_MARKER) + 1


def records(file: BinaryIO, start: int = HEADER_BYTES) -> Iterator[RingRecord]:
    """Iterate over the whole records from an offset on, past whatever is damaged between them."""
    at: int | None = start
    while at is not None:
        found = _record_at(file, at)
        if found is None:
            at = _next_marker(file, at + 1)
        else:
            yield found
            at = found.stop


@dataclass(slots=True)
class RingSegment:
    """What the ring remembers of one file."""

    path: Path
    ordinal: int
    """Counts up over all sessions: the order in which files were begun."""
    session: int
    size: int = HEADER_BYTES
    seqs: IntervalSet = field(default_factory=IntervalSet)
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Number and offset of every 64th record."""
    records: int = 0

    def note(self, seq: int, start: int, stop: int) -> None:
        """Remember a record that has been written."""
        if self.records % MARK_EVERY == 0:
            self.marks.append((seq, start))
        self.records += 1
        self.seqs.add(seq)
        self.size = stop

    def offset(self, first: int) -> int:
        """Return where to begin reading to meet record `first` and all after it."""
        place = bisect_right(self.marks, (first, 1 << 62)) - 1
        return self.marks[place][1] if place >= 0 else HEADER_BYTES


class SegmentScan(NamedTuple):
    """What was found in a file."""

    segment: RingSegment
    torn: int
    """Bytes after the last whole record: a write that was cut off."""
    damaged: int
    """Places between whole records that hold none."""


def scan(path: Path) -> SegmentScan | None:
    """Read a whole file and check it; None when it is no file of the ring. Raises `OSError`."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None
        magic, ordinal, session, crc = _HEADER.unpack(head)
        if magic != _MAGIC or zlib.crc32(head[:-4]) != crc:
            return None
        segment = RingSegment(path, ordinal, session)
        damaged = 0
        for found in records(file):
            if found.start != segment.size:
                damaged += 1
            if found.seq > segment.seqs.end:
                segment.note(found.seq, found.start, found.stop)
        return SegmentScan(segment, path.stat().st_size - segment.size, damaged)
