"""File of the ring: a header, then records that are only ever appended.

Each record starts with a marker and carries its length, its number and a checksum, so that a torn
tail is found and cut off, and one damaged record loses only itself: the reader searches for the next
marker whose checksum holds.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from telemetry.files.record_log import Damage, RecordFormat
from telemetry.wire.frame import MAX_FRAME_BYTES
from telemetry.wire.intervals import IntervalSet

_MAGIC = b"kwring1\n"
_HEADER = struct.Struct("<8sQQI")  # magic, ordinal, session, crc32 of what is before it
HEADER_BYTES = _HEADER.size
RECORDS = RecordFormat(
    struct.Struct("<4x4xQ4x"),  # marker, length, seq, checksum of all between and the payload
    length_at=4,
    checksum_at=16,
    damage=Damage.SEARCH,
    marker=b"\xc1\xf5KW",  # 0xc1 is the one byte that MessagePack never uses
    covered_from=4,
    most_payload=2 * MAX_FRAME_BYTES,  # a block of a recording may be a little larger than a frame
)
RECORD_BYTES = RECORDS.head.size
"""Bytes of a record beside its payload."""
MARK_EVERY = 64
"""Records per offset in the index: 8 bytes of memory for each 300 KB of disk."""


def header(ordinal: int, session: int) -> bytes:
    """Return the first bytes of a file."""
    head = _HEADER.pack(_MAGIC, ordinal, session, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


@dataclass(slots=True)
class RingSegment:
    """Index of one file of the ring."""

    path: Path
    ordinal: int
    """Number over all sessions, in the order in which files were begun."""
    session: int
    size: int = HEADER_BYTES
    seqs: IntervalSet = field(default_factory=IntervalSet)
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Number and offset of every 64th record."""
    records: int = 0

    def note(self, seq: int, start: int, stop: int) -> None:
        """Add a written record to the index."""
        if self.records % MARK_EVERY == 0:
            self.marks.append((seq, start))
        self.records += 1
        self.seqs.add(seq)
        self.size = stop

    def offset(self, first: int) -> int:
        """Return the offset at which to begin reading records from `first` on."""
        place = bisect_right(self.marks, (first, 1 << 62)) - 1
        return self.marks[place][1] if place >= 0 else HEADER_BYTES


class SegmentScan(NamedTuple):
    """Result of a scan of a file."""

    segment: RingSegment
    torn: int
    """Bytes after the last whole record: an interrupted write."""
    damaged: int
    """Damaged places between whole records."""


def scan(path: Path) -> SegmentScan | None:
    """Return the index of a whole file; None when it is no file of the ring. Raises `OSError`."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None
        magic, ordinal, session, crc = _HEADER.unpack(head)
        if magic != _MAGIC or zlib.crc32(head[:-4]) != crc:
            return None
        segment = RingSegment(path, ordinal, session)
        damaged = 0
        for found in RECORDS.records(file, HEADER_BYTES):
            (seq,) = found.fields
            if found.start != segment.size:
                damaged += 1
            if seq > segment.seqs.end:
                segment.note(seq, found.start, found.stop)
        return SegmentScan(segment, path.stat().st_size - segment.size, damaged)
