"""Files of requests that wait: numbered segments of records, each with its length and checksum."""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

_HEADER = struct.Struct("<4s32sIqqIII")
_MAGIC = b"KWS1"


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One request."""

    policy: str
    """Where it goes (`names.policies`)."""
    points: int
    first: int
    """ms since 1970 of the oldest point."""
    last: int
    body: bytes = field(repr=False)
    """Lines, gzipped."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What was dropped, together."""

    reason: str
    points: int
    first: int
    last: int


@dataclass(slots=True)
class SpooledRequest:
    """Where a record stands in its file, and what of it must be known without reading it."""

    offset: int
    size: int
    points: int
    first: int
    last: int
    lasting: bool
    """Whether it is to outlive the readings around it."""


@dataclass(slots=True)
class SpoolSegment:
    """One file."""

    number: int
    path: Path
    entries: list[SpooledRequest] = field(default_factory=list)
    taken: int = 0
    """Records from its head that are delivered."""
    size: int = 0

    def left(self) -> list[SpooledRequest]:
        return self.entries[self.taken :]


def pack(record: SpoolRecord) -> bytes:
    head = _HEADER.pack(
        _MAGIC, record.policy.encode(), record.points, record.first, record.last,
        len(record.body), zlib.crc32(record.body), 0,
    )  # fmt: skip
    return head + record.body


def unpack(packed: bytes) -> SpoolRecord:
    magic, policy, points, first, last, size, check, _ = _HEADER.unpack_from(packed)
    body = packed[_HEADER.size : _HEADER.size + size]
    if magic != _MAGIC or len(body) != size or zlib.crc32(body) != check:
        raise ValueError("a record is damaged")
    return SpoolRecord(policy.rstrip(b"\0").decode(), points, first, last, body)


def scan(number: int, path: Path, lasting: Collection[str]) -> tuple[SpoolSegment, list[Loss]]:
    """Read which records a segment has, and what of them the disk has spoilt.

    A torn one at the end is cut off: its frames do not count as stored, and are asked for again.
    """
    segment, losses = SpoolSegment(number, path), []
    whole = path.read_bytes()
    while segment.size < len(whole):
        part = memoryview(whole)[segment.size :]
        try:
            magic, policy, points, first, last, length, check, _ = _HEADER.unpack_from(part)
        except struct.error:
            magic, length = b"", 0
        size = _HEADER.size + length
        if magic != _MAGIC or size > len(part):
            log.warning("%s: cut at byte %d of %d", path, segment.size, len(whole))
            os.truncate(path, segment.size)
            break
        if zlib.crc32(part[_HEADER.size : size]) == check:
            keep = policy.rstrip(b"\0").decode(errors="replace") in lasting
            segment.entries.append(SpooledRequest(segment.size, size, points, first, last, keep))
        else:
            log.error("%s: %d points at byte %d are damaged", path, points, segment.size)
            losses.append(Loss("spool_damaged", points, first, last))
        segment.size += size
    return segment, losses
