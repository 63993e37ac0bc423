"""Files of requests that wait: numbered segments of records, each with its length and checksum."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from telemetry.files.record_log import Damage, RecordFormat

log = logging.getLogger(__name__)

RECORDS = RecordFormat(
    struct.Struct("<4x32sIqq4x4x4x"),  # marker, policy, points, first, last, length, checksum, 0
    length_at=56,
    checksum_at=60,
    covered_from=60,
    damage=Damage.REPORT,
    marker=b"KWS1",
)


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """A request that waits."""

    policy: str
    """The retention policy that it is for (`names.policies`)."""
    points: int
    first: int
    """ms since 1970 of the oldest point."""
    last: int
    body: bytes = field(repr=False)
    """Lines, gzipped."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Points that were dropped together."""

    reason: str
    points: int
    first: int
    last: int


@dataclass(slots=True)
class SpooledRequest:
    """The place of a record in its file, with what must be known of it without reading it."""

    offset: int
    size: int
    points: int
    first: int
    last: int
    retained: bool
    """Whether it is to outlive the readings around it."""


@dataclass(slots=True)
class SpoolSegment:
    """A file of records."""

    number: int
    path: Path
    entries: list[SpooledRequest] = field(default_factory=list)
    delivered: int = 0
    """Records from its head that are delivered."""
    size: int = 0

    def left(self) -> list[SpooledRequest]:
        return self.entries[self.delivered :]


def pack(record: SpoolRecord) -> bytes:
    """Return the bytes of a request."""
    return RECORDS.pack(record.body, record.policy.encode(), record.points, record.first, record.last)


def read(file: BinaryIO, start: int) -> SpoolRecord | None:
    """Return the request that starts there; None when it is damaged."""
    found = RECORDS.read(file, start)
    if found is None or not found.intact:
        return None
    policy, points, first, last = found.fields
    return SpoolRecord(_name(policy), points, first, last, found.payload)


def scan(number: int, path: Path, retained: Collection[str]) -> tuple[SpoolSegment, list[Loss]]:
    """Return the records of a segment, and the losses by damage on the disk.

    A torn record at the end is cut off: its frames do not count as stored, and are requested again.
    """
    segment, losses = SpoolSegment(number, path), []
    with path.open("rb") as file:
        for found in RECORDS.records(file):
            policy, points, first, last = found.fields
            size = found.stop - found.start
            if found.intact:
                keep = _name(policy) in retained
                segment.entries.append(SpooledRequest(found.start, size, points, first, last, keep))
            else:
                log.error("%s: %d points at byte %d are damaged", path, points, found.start)
                losses.append(Loss("spool_damaged", points, first, last))
            segment.size = found.stop
    whole = path.stat().st_size
    if segment.size < whole:
        log.warning("%s: cut at byte %d of %d", path, segment.size, whole)
        os.truncate(path, segment.size)
    return segment, losses


def _name(policy: bytes) -> str:
    return policy.rstrip(b"\0").decode(errors="replace")
