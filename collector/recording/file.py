"""A recording: messages of the bus, or of one source, in one compressed file.

    magic, JSON header, block, block, ...

A block is a record as in the ring (marker, length, checksum) around zlib around MessagePack: a list
of (when, kind, node, payload). So a file that was cut off, or is damaged somewhere, still reads but
for that place. The payloads are the bytes of the bus, unchanged: `telemetry.wire.frame` and
`telemetry.wire.inventory` decode them.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec

from collector.ring.segment import RECORDS
from telemetry.errors import SourceError
from telemetry.files.expansion import Expansion
from telemetry.text import counted
from telemetry.text.decoders import of_json, of_msgpack
from telemetry.wire.topics import Topic, is_name

MAGIC = b"kwrec\r\n\x1a"  # as PNG does: a transfer in text mode breaks it visibly
VERSION = 1
_HEAD = struct.Struct("<8sI")
BLOCK_BYTES = 256 * 1024
"""Payload bytes after which a block is written."""
BLOCK_SECONDS = 2.0
"""Recorded time after which a block is written: what a crash can cost."""
_MOST_HEADER_BYTES = 1024 * 1024
LONGEST_MESSAGE = 6 * 1024 * 1024
"""Bytes of a message that is recorded: collectors send at most a quarter of it."""
_MOST_BLOCK_BYTES = 8 * 1024 * 1024
"""A block that expands to more was not written by kilowatch: it ends with the message that fills it."""
_MOST_IN_BLOCK = 65_536
"""Messages of a block: of two seconds, or of 256 KiB."""
MAX_RECORDING = 64 * 1024**3
"""Default of `--max-size`: a recording is read as a stream, an hour of 1,000 GPUs has 10 GiB."""
LATEST = 4_102_444_800 * 10**9
"""ns since 1970 of the year 2100: a message after it has no time to be played at."""


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
_decoder = of_msgpack(Annotated[list[tuple[int, str, str, bytes]], msgspec.Meta(max_length=_MOST_IN_BLOCK)])


class RecordingWriter:
    """Writes a recording. Raises `OSError` as the disk does."""

    def __init__(self, path: Path, header: RecordingHeader, max_size: int | None = None) -> None:
        """Begin a new file, which is full at `max_size` bytes. Raises `FileExistsError`."""
        self._max_size = max_size
        self.full = asyncio.Event()
        """Set when the file has reached its size; what comes then is not written."""
        self._file: BinaryIO = path.open("xb")
        text = msgspec.json.encode(header)
        self._file.write(_HEAD.pack(MAGIC, len(text)) + text)
        self._entries: list[tuple[int, str, str, bytes]] = []
        self._bytes = 0
        self._blocks = 0
        self.written = 0
        """Messages written so far."""
        self.left_out = 0
        """Messages that no collector sends: too long, or of a node with an impossible name."""
        self.size = 0
        """Bytes written so far."""

    def write(self, at: int, kind: Topic, node: str, payload: bytes) -> None:
        """Add a message; one that no collector sends is counted and left out."""
        if self.full.is_set():
            return
        if len(payload) > LONGEST_MESSAGE or not is_name(node):
            self.left_out += 1
            return
        self._entries.append((at, kind.value, node, payload))
        self._bytes += len(payload)
        self.written += 1
        if self._bytes >= BLOCK_BYTES or at - self._entries[0][0] >= BLOCK_SECONDS * 1e9:
            self.flush()

    def flush(self) -> None:
        """Write the buffered messages."""
        if self._entries:
            block = zlib.compress(_encoder.encode(self._entries), 6)
            self.size += self._file.write(RECORDS.pack(block, self._blocks))
            self._blocks += 1
            self._entries, self._bytes = [], 0
            if self._max_size is not None and self.size >= self._max_size:
                self.full.set()
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


class Skipped:
    """Counts of what a reader of a recording leaves out."""

    def __init__(self) -> None:
        self.blocks = 0
        """Blocks that are damaged, or of another program."""
        self.messages = 0
        """Messages with a time, a node or a kind that none can have."""

    def __str__(self) -> str:
        """Return it in words, "" when nothing was left out."""
        counts = ((self.blocks, "damaged block"), (self.messages, "impossible message"))
        return " and ".join(counted(count, word) for count, word in counts if count)


def read(path: Path, max_size: int | None = None, skipped: Skipped | None = None) -> Iterator[RecordedMessage]:
    """Iterate over the messages of a recording, in the order in which they were written.

    Damaged blocks and impossible messages are skipped, and counted in `skipped`. Raises `SourceError`
    for another file, `LimitError` where it expands to more than `max_size` (`telemetry.files.expansion`).
    """
    skipped = Skipped() if skipped is None else skipped
    expansion = Expansion(str(path), max_size or MAX_RECORDING)
    with _opened(path) as file:
        _header(path, file)
        end = file.tell()
        for found in RECORDS.records(file, end):
            skipped.blocks += found.start > end
            end = found.stop
            expansion.read(len(found.payload))
            yield from _entries(found.payload, expansion, skipped)


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
        raise SourceError(f"{path} is no recording. Make one under another name: `kilowatch record FILE`.")
    try:
        header = of_json(RecordingHeader).decode(file.read(size))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: the header of the recording is damaged: {error}.") from error
    if header.version > VERSION:
        raise SourceError(
            f"{path} was recorded by kilowatch {header.kilowatch or 'of a later release'}, in form"
            f" {header.version}; this release reads up to {VERSION}. Update kilowatch."
        )
    return header


def _entries(block: bytes, expansion: Expansion, skipped: Skipped) -> Iterator[RecordedMessage]:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(block, _MOST_BLOCK_BYTES)
        expansion.add(len(text))
        entries = _decoder.decode(text)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        skipped.blocks += 1  # its checksum is right: another program wrote it
        return
    for at, kind, node, payload in entries:
        if kind not in Topic._value2member_map_:  # a later release may know more kinds
            continue
        if 0 <= at < LATEST and is_name(node):
            yield RecordedMessage(at, Topic(kind), node, payload)
        else:
            skipped.messages += 1
