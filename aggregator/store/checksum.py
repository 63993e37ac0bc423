"""The checksum that a sealed file carries: in its own footer, and in a sidecar beside it.

The footer's key `kilowatch_sha256` has the SHA-256 of all bytes of the file with the 64 digits of that
value itself as zeros, so that one file alone can be verified wherever it was copied to. The sidecar
`<file>.sha256` is what `sha256sum --check` reads. A flipped bit in a file without either is a wrong
number, not an error: most columns of measured noise don't compress, and no page has a checksum.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

KEY = "kilowatch_sha256"
PLACEHOLDER = "0" * 64
"""The value while the file is being written."""
SIDECAR = ".sha256"
_FIELD = KEY.encode() + b"\x18\x40"
"""The key as in a Parquet footer, with the header of a string field of 64 bytes after it (Thrift's
compact protocol)."""
_TAIL = 8
"""Bytes of the footer's length and the magic word at the end of a Parquet file."""
_PIECE = 1 << 20


class FileState(StrEnum):
    """Whether a sealed file is as it was written."""

    GOOD = "good"
    DAMAGED = "damaged"
    GONE = "gone"
    UNPROVEN = "unproven"
    """Written by a release before checksums: nothing can be said."""


def sidecar_of(path: Path) -> Path:
    """Return the path of a file's sidecar."""
    return path.with_name(path.name + SIDECAR)


def stamp(path: Path, name: str) -> str:
    """Write the checksum into a new file that has the placeholder, and the sidecar for a file that
    will be called `name`; return the checksum. Raises `OSError`, `ValueError` without placeholder."""
    with path.open("r+b") as file:
        at = _digits_at(file)
        if at is None:
            raise ValueError(f"{path}: no placeholder for a checksum in its footer")
        before = _hashed(file, at)
        blank = before.copy()
        blank.update(PLACEHOLDER.encode())
        file.seek(at + 64)
        end = file.read()
        blank.update(end)
        digest = blank.hexdigest()
        file.seek(at)
        file.write(digest.encode())
    before.update(digest.encode())
    before.update(end)
    sidecar_of(path).write_text(f"{before.hexdigest()}  {name}\n")
    return digest


def verify(path: Path, expected: str = "") -> FileState:
    """Return the state of a file; `expected`: the checksum that it must have, where it is known.
    Raises `OSError` for a file that can't be read now."""
    try:
        with path.open("rb") as file:
            state = verify_stream(file, expected)
    except FileNotFoundError:
        return FileState.GONE
    # Without a checksum in its footer it was written before there was one, unless a checksum is
    # known from elsewhere.
    if state is FileState.UNPROVEN and sidecar_of(path).exists():
        return FileState.DAMAGED
    return state


def verify_stream(file: BinaryIO, expected: str = "") -> FileState:
    """Return the state of an open file, wherever it lies; as `verify`, without a sidecar."""
    at = _digits_at(file)
    if at is None:
        return FileState.DAMAGED if expected else FileState.UNPROVEN
    file.seek(at)
    found = file.read(64).decode("ascii", "replace")
    whole = _hashed(file, at)
    whole.update(PLACEHOLDER.encode())
    file.seek(at + 64)
    whole.update(file.read())
    is_good = whole.hexdigest() == found and expected in {"", found}
    return FileState.GOOD if is_good else FileState.DAMAGED


def is_whole(file: BinaryIO) -> bool:
    """Return whether an open file ends as one of ours does; reads its footer alone."""
    return _digits_at(file) is not None


def _digits_at(file: BinaryIO) -> int | None:
    """Return where the digits of the checksum begin, or None."""
    size = file.seek(0, 2)
    if size < _TAIL:
        return None
    file.seek(size - _TAIL)
    tail = file.read(_TAIL)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size - _TAIL:
        return None
    begin = size - _TAIL - length
    file.seek(begin)
    found = file.read(length).rfind(_FIELD)
    at = begin + found + len(_FIELD)
    return None if found < 0 or at + 64 > size - _TAIL else at


def _hashed(file: BinaryIO, end: int) -> hashlib._Hash:
    """Return the hash of the bytes before `end`."""
    digest = hashlib.sha256()
    file.seek(0)
    left = end
    while left > 0 and (piece := file.read(min(_PIECE, left))):
        digest.update(piece)
        left -= len(piece)
    return digest
