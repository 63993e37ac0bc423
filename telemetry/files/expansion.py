"""Bounded expansion of compressed files: gzip, bzip2 and xz, read as a stream.

A file that a person was sent may expand without end. `Expansion` counts what has come out of it, and
`expanded` never has more than a chunk in memory; what was read before a limit was met stays usable.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from telemetry.errors import SourceError

CHUNK = 8 * 1024 * 1024
"""Bytes that are expanded at a time, at most."""
MAX_SIZE = 1024**3
"""Default of `--max-size`: bug reports of eight GPUs expand to some tens of MiB."""
MAX_RATIO = 200
"""Bytes from one byte of a file, where no `--max-size` is given: logs come to 60, zeros to 7,000."""
FREE_BYTES = 64 * 1024 * 1024
"""Bytes that may be expanded before the ratio counts."""
MAX_MEMBERS = 65_536
"""Concatenated members of a file: `cat` of a year's logs has a few hundred."""
_XZ_MEMORY = 256 * 1024 * 1024
"""Bytes that xz may allocate: a file names its own dictionary's size, 64 MiB at `xz -9`."""
_READ = 64 * 1024
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = b"PK\x03\x04"


class LimitError(SourceError):
    """A file expands to more than is allowed; what was read until then was read."""


class Expansion:
    """Count of what one file has expanded to; raises `LimitError` beyond its limits."""

    def __init__(self, where: str, max_size: int, max_ratio: int | None = None) -> None:
        """`max_ratio`: bytes from one byte of the file, once `FREE_BYTES` have come out."""
        self._where = where
        self._max_size = max_size
        self._max_ratio = max_ratio
        self._read = self._expanded = self._members = 0

    @property
    def room(self) -> int:
        """Bytes that may still come out before a limit is met."""
        room = self._max_size - self._expanded
        if self._max_ratio is not None:
            allowed = max(FREE_BYTES, self._max_ratio * self._read)
            room = min(room, allowed - self._expanded)
        return max(0, room)

    def read(self, count: int) -> None:
        """Count bytes that were read from the file."""
        self._read += count

    def add(self, count: int) -> None:
        """Count bytes that came out. Raises `LimitError`."""
        over = count > self.room
        self._expanded += count
        if not over:
            return
        before = f"the first {_size(self._expanded - count)} were read"
        larger = _size(4 * max(self._max_size, self._expanded), exact=True)
        if self._expanded > self._max_size:
            problem = f"it holds more than {_size(self._max_size)}"
        else:
            problem = f"{_size(self._read)} of it expand to more than {self._max_ratio} times as much, as no log does"
        raise LimitError(
            f"{self._where}: {problem}; {before}, the rest was not. If it is what it should be: --max-size {larger}"
        )

    def next_member(self) -> None:
        """Count a member of the file. Raises `LimitError`."""
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise LimitError(
                f"{self._where}: it consists of more than {MAX_MEMBERS:,} compressed files; the first"
                f" {_size(self._expanded)} were read. Expand it yourself, and name the result"
            )


def _size(count: int, *, exact: bool = False) -> str:
    """Return a size as `--max-size` takes it: `64 MiB`, exact without the blank and `iB`."""
    for unit in ("GiB", "MiB", "KiB"):
        step = 1024 ** {"KiB": 1, "MiB": 2, "GiB": 3}[unit]
        if count >= step:
            whole = -(-count // step) if exact else round(count / step, 1)
            return f"{whole:g}{unit[0] if exact else f' {unit}'}"
    return f"{count}" if exact else f"{count} bytes"


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """Adapter of zlib's object to the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _xz() -> _Unpacker:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)


_KINDS: tuple[tuple[bytes, str, Callable[[], _Unpacker]], ...] = (
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", _xz),
)
"""Compressions by the first bytes of a file."""


def expanded(stream: BinaryIO, where: str, notes: list[str], max_size: int | None = None) -> Iterator[bytes]:
    """Yield the content of a stream, expanded where it is compressed, also in several members.

    A truncated file adds a note. Raises `SourceError` for a damaged one, `LimitError` beyond
    `max_size`, or without one beyond `MAX_SIZE` and `MAX_RATIO`; what was yielded before that is right.
    What is not compressed has no limit but a `max_size` that is given.
    """
    count = Expansion(where, max_size or MAX_SIZE, None if max_size else MAX_RATIO)
    part = stream.read(_READ)
    for mark, tool in ((_ZSTD, "zstd -dc"), (_ZIP, "unzip -p")):
        if part.startswith(mark):
            raise SourceError(
                f"{where}: it is packed with {tool.split()[0].removeprefix('un')}. Write: {tool} FILE"
                " | kilowatch diagnose -"
            )
    found = next((kind for kind in _KINDS if part.startswith(kind[0])), None)
    if found is None:
        while part:
            if max_size is not None:  # what is not compressed is as long as it looks
                count.read(len(part))
                count.add(len(part))
            yield part
            part = stream.read(CHUNK)
        return
    mark, name, make = found
    count.next_member()
    unpacker = make()
    count.read(len(part))
    first = True
    while part or not unpacker.needs_input:
        try:
            text = unpacker.decompress(part, min(CHUNK, count.room + 1))
        except (zlib.error, OSError, lzma.LZMAError, EOFError) as error:
            raise SourceError(f"{where}: damaged {name} file: {error}") from error
        if text:
            if first and any(text.startswith(kind[0]) for kind in _KINDS):
                raise SourceError(f"{where}: it is compressed twice. Write: {name} -dc FILE | kilowatch diagnose -")
            first = False
            count.add(len(text))
            yield text
        if unpacker.eof:
            part = unpacker.unused_data
            if not part:
                part = stream.read(_READ)
                count.read(len(part))
            if not part.startswith(mark):
                return  # padding behind the last member
            count.next_member()
            unpacker = make()
        else:
            part = stream.read(_READ) if unpacker.needs_input else b""
            count.read(len(part))
    notes.append(f"{where}: the {name} file is cut off; the rest is not evaluated")
