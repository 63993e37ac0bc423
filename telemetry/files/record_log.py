"""Append-only files of records, each with its length and a checksum.

The ring, recordings, the spool of a store and the log of power snapshots are such files. What a
crash leaves half written at the end is the torn tail: no record, and cut off before the next append.
Python alone, for the collector has no NumPy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_WORD = struct.Struct("<I")
_BLOCK = 64 * 1024
_MOST_PAYLOAD_BYTES = 256 * 1024 * 1024


class Damage(Enum):
    """How reading continues behind a record that is not intact."""

    SEARCH = "search"
    """At the next marker: one damaged record loses only itself, even if its length is damaged."""
    REPORT = "report"
    """Behind it, if its length can be believed: the record is returned, and not intact."""
    STOP = "stop"
    """The file ends there."""


class Record(NamedTuple):
    """A record of a file."""

    fields: tuple[Any, ...]
    """Values of the head beside the payload."""
    payload: bytes
    start: int
    stop: int
    """Where it begins and ends in the file."""
    intact: bool
    """Whether its checksum holds."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How a record is laid out: a head of fixed size, then the payload."""

    head: struct.Struct
    """The fields; pad bytes represent the marker, the length and the checksum."""
    length_at: int
    """Offset of the payload's length, 32 bits."""
    checksum_at: int
    """Offset of the CRC-32 of the covered part of the head and of the payload."""
    covered_from: int
    """The part of the head from here up to the checksum is covered by it."""
    damage: Damage
    marker: bytes = b""
    """First bytes of each record."""
    most_payload: int = _MOST_PAYLOAD_BYTES
    """A larger length is damage."""

    def pack(self, payload: bytes, *fields: Any) -> bytes:
        """Return the bytes of one record."""
        head = bytearray(self.head.pack(*fields))
        head[: len(self.marker)] = self.marker
        _WORD.pack_into(head, self.length_at, len(payload))
        checksum = zlib.crc32(payload, zlib.crc32(head[self.covered_from : self.checksum_at]))
        _WORD.pack_into(head, self.checksum_at, checksum)
        return bytes(head) + payload

    def read(self, file: BinaryIO, start: int) -> Record | None:
        """Return the record that starts there; None where none does, or where its end is missing."""
        file.seek(start)
        head = file.read(self.head.size)
        if len(head) < self.head.size or not head.startswith(self.marker):
            return None
        (size,) = _WORD.unpack_from(head, self.length_at)
        if size > self.most_payload:
            return None
        payload = file.read(size)
        if len(payload) < size:
            return None
        checksum = zlib.crc32(payload, zlib.crc32(head[self.covered_from : self.checksum_at]))
        intact = _WORD.unpack_from(head, self.checksum_at) == (checksum,)
        return Record(self.head.unpack(head), payload, start, start + len(head) + size, intact)

    def records(self, file: BinaryIO, start: int = 0) -> Iterator[Record]:
        """Iterate over the records from an offset on, past damage as `damage` defines. The torn
        tail is behind the `stop` of the last one."""
        at: int | None = start
        while at is not None:
            found = self.read(file, at)
            if found is not None and (found.intact or self.damage is Damage.REPORT):
                yield found
                at = found.stop
            elif self.damage is Damage.SEARCH:
                at = self._next_marker(file, at + 1)
            else:
                return

    def _next_marker(self, file: BinaryIO, start: int) -> int | None:
        """Return where the next marker at or after `start` begins, or None."""
        while True:
            file.seek(start)
            block = file.read(_BLOCK)
            found = block.find(self.marker)
            if found >= 0:
                return start + found
            if len(block) < _BLOCK:
                return None
            start += _BLOCK - len(self.marker) + 1


class RecordFile:
    """A new file that one thread appends to. Methods raise `OSError` as the disk does."""

    def __init__(self, path: Path, header: bytes = b"", *, sync: bool = False) -> None:
        """Create the file. `sync`: an append returns when its bytes are on disk, not in the page
        cache, which survives the death of the process but no power cut."""
        self.path = path
        self.size = 0
        """Bytes of header and whole records."""
        self.open = True
        """Whether it can still be appended to."""
        self._sync = False
        flags = os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        try:
            self.append(header)
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._sync = sync

    def append(self, data: bytes) -> None:
        """Add records. When this raises, none of them is in the file; if they could not be cut off
        again, the file is closed."""
        if not self.open:
            raise OSError(errno.EBADF, "the file is closed", str(self.path))
        left, offset = data, self.size
        try:
            while left:  # after a partial write the next try raises the error
                written = os.pwrite(self._descriptor, left, offset)
                left, offset = left[written:], offset + written
        except OSError:
            try:
                os.ftruncate(self._descriptor, self.size)
            except OSError:
                self.close()
            raise
        if self._sync:
            self.sync()
        self.size = offset

    def sync(self) -> None:
        """Wait until all that was appended is on disk. After a failure the file is closed: how much of
        it is there is then unknown."""
        if not self.open:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            self.close()
            raise

    def close(self) -> None:
        """Close the file, without a sync."""
        if self.open:
            self.open = False
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
