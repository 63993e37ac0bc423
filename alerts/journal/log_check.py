"""Whether SQLite has read all of a journal's write-ahead log.

SQLite takes what is behind the first frame whose checksum does not hold for the torn end of a write, and goes on
silently: one byte that flips costs all later commits, acknowledgements and silences among them. They are still there:
a frame of this log (by its two salts) that ends a commit, behind the last one that SQLite has read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct(">8I")
"""Magic number, version, bytes of a page, number of the checkpoint, two salts, two checksums."""
_FRAME = struct.Struct(">6I")
"""Number of the page, pages of the file after a commit or 0, two salts, two checksums."""
_MAGIC = 0x377F0682
"""Its last bit: whether checksums are of big-endian words."""


def lost_commits(log: Path, read: int) -> bool:
    """Return whether a log has commits behind the first `read` frames, or a header that does not hold. Raises
    `OSError`."""
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return False
        magic, _, page, _, *salts, _, _ = _HEADER.unpack(head)
        if magic & ~1 != _MAGIC or _checksum(head[:24], big=bool(magic & 1)) != _HEADER.unpack(head)[6:]:
            return bool(file.read(_FRAME.size))
        return any(
            number >= read and pages and found == salts for number, (pages, found) in enumerate(_frames(file, page))
        )


def _frames(file: BinaryIO, page: int) -> list[tuple[int, list[int]]]:
    """Return the pages after a commit, or 0, and the salts of each frame."""
    found, at = [], _HEADER.size
    while file.seek(at) == at and len(head := file.read(_FRAME.size)) == _FRAME.size:
        _, pages, *salts, _, _ = _FRAME.unpack(head)
        found.append((pages, salts))
        at += _FRAME.size + page
    return found


def _checksum(data: bytes, *, big: bool) -> tuple[int, int]:
    first = second = 0
    for one, two in struct.iter_unpack(">2I" if big else "<2I", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
