"""Unpacks what a log was packed with, as it is read: gzip, bzip2, xz."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from telemetry.errors import SourceError

CHUNK = 8 * 1024 * 1024
"""Most bytes that are read, or come of it, at a time."""
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's object, with the manners of the others."""

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


_KINDS: tuple[tuple[bytes, str, Callable[[], _Unpacker]], ...] = (
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMADecompressor),
)
"""By the first bytes of a file."""


def unpacked(stream: BinaryIO, where: str, notes: list[str]) -> Iterator[bytes]:
    """Return what a stream holds in parts; also of several members one behind another, and of a
    file that is cut off, which `notes` tells. Raises `SourceError` for one that is damaged."""
    part = stream.read(CHUNK)
    if part.startswith(_ZSTD):
        raise SourceError(
            f"{where}: it is packed with zstd. Write: zstd -dc FILE | kilowatch diagnose -"
        )
    found = next((kind for kind in _KINDS if part.startswith(kind[0])), None)
    if found is None:
        while part:
            yield part
            part = stream.read(CHUNK)
        return
    mark, name, make = found
    unpacker = make()
    while part or not unpacker.needs_input:
        try:
            text = unpacker.decompress(part, CHUNK)
        except (zlib.error, OSError, lzma.LZMAError) as error:
            raise SourceError(f"{where}: damaged {name} file: {error}") from error
        if text:
            yield text
        if unpacker.eof:
            part = unpacker.unused_data or stream.read(CHUNK)
            unpacker = make()
            if not part.startswith(mark):
                return  # padding behind the last member
        else:
            part = stream.read(CHUNK) if unpacker.needs_input else b""
    notes.append(f"{where}: the {name} file is cut off; what came behind is not judged")
