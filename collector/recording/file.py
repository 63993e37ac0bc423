"""A recording: messages of the bus, or of one source, in one compressed file.

    magic, JSON header, block, block, ...

A block is a record as in the ring (marker, length, checksum) around zlib around MessagePack: a list
of (when, kind, node, payload). So a file that was cut off, or is damaged somewhere, still reads but
for that place. The payloads are the bytes of the bus, unchanged: `telemetry.frame` and
`telemetry.inventory` decode them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from collector.ring.segment import RECORDS
from telemetry.errors import SourceError
from telemetry.topics import Topic

MAGIC = b"kwrec\r\n\x1a"  # as PNG does: a transfer in text mode breaks it visibly
VERSION = 1
_HEAD = struct.Struct("<8sI")
BLOCK_BYTES = 256 * 1024
"""Payload bytes after which a block is written."""
BLOCK_SECONDS = 2.0
"""Recorded time after which a block is written: what a crash can cost."""
_MOST_HEADER_BYTES = 1024 * 1024
_MOST_BLOCK_BYTES = 64 * 1024 * 1024
"""A block that unpacks to more was not written by kilowatch."""


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """JSON header of a recording."""

    version: int = VERSION
    kilowatch: str = ""
    made_at: int = 0
    """ns since 1970."""
    source: str = ""
    """The recorded source, or broker and cluster."""


class RecordedMessage(NamedTuple):
    """Message of a recording."""

    at: int
    """When it was received or sampled, ns since 1970."""
    kind: Topic
    node: str
    payload: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[int, str, str, bytes]])


class RecordingWriter:
    """Writes a recording. Raises `OSError` as the disk does."""

    def __init__(self, path: Path, header: RecordingHeader) -> None:
        """Begin a new file. Raises `FileExistsError`."""
        self._file: BinaryIO = path.open("xb")
        text = msgspec.json.encode(header)
        self._file.write(_HEAD.pack(MAGIC, len(text)) + text)
        self._entries: list[tuple[int, str, str, bytes]] = []
        self._bytes = 0
        self._blocks = 0
        self.written = 0
        """Messages written so far."""

    def write(self, at: int, kind: Topic, node: str, payload: bytes) -> None:
        """Add a message."""
        self._entries.append((at, kind.value, node, payload))
        self._bytes += len(payload)
        self.written += 1
        if self._bytes >= BLOCK_BYTES or at - self._entries[0][0] >= BLOCK_SECONDS * 1e9:
            self.flush()

    def flush(self) -> None:
        """Write the buffered messages."""
        if self._entries:
            block = zlib.compress(_encoder.encode(self._entries), 6)
            self._file.write(RECORDS.pack(block, self._blocks))
            self._blocks += 1
            self._entries, self._bytes = [], 0
        self._file.flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()


def read_header(path: Path) -> RecordingHeader:
    """Return a recording's header. Raises `SourceError` for another file."""
    with _opened(path) as file:
        return _header(path, file)


def read(path: Path) -> Iterator[RecordedMessage]:
    """Iterate over the messages of a recording, in the order in which they were written.

    Raises `SourceError` for another file; damaged blocks are skipped.
    """
    with _opened(path) as file:
        _header(path, file)
        for found in RECORDS.records(file, file.tell()):
            yield from _entries(found.payload)


def no_message(path: Path) -> SourceError:
    """Return the error of a recording without a message."""
    return SourceError(f"{path} holds no message. Record with `kilowatch record {path}`.")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror}.") from error


def _header(path: Path, file: BinaryIO) -> RecordingHeader:
    head = file.read(_HEAD.size)
    magic, size = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
    if magic != MAGIC or size > _MOST_HEADER_BYTES:
        raise SourceError(
            f"{path} is no recording. Make one under another name: `kilowatch record FILE`."
        )
    try:
        header = msgspec.json.decode(file.read(size), type=RecordingHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: the header of the recording is damaged: {error}.") from error
    if header.version > VERSION:
        raise SourceError(
            f"{path} was recorded by kilowatch {header.kilowatch or 'of a later release'}, in form"
            f" {header.version}; this release reads up to {VERSION}. Update kilowatch."
        )
    return header


def _entries(block: bytes) -> Iterator[RecordedMessage]:
    unpacker = zlib.decompressobj()
    try:
        entries = _decoder.decode(unpacker.decompress(block, _MOST_BLOCK_BYTES))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        return  # its checksum is right: another program wrote it
    for at, kind, node, payload in entries:
        if kind in Topic._value2member_map_:  # a later release may know more kinds
            yield RecordedMessage(at, Topic(kind), node, payload)
