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
    at = _digits_at(path)
    if at is None:
        raise ValueError(f"{path}: no placeholder for a checksum in its footer")
    before = _hashed(path, 0, at)
    blank = before.copy()
    blank.update(PLACEHOLDER.encode())
    blank.update(_bytes_from(path, at + 64))
    digest = blank.hexdigest()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(digest.encode())
    before.update(digest.encode())
    before.update(_bytes_from(path, at + 64))
    sidecar_of(path).write_text(f"{before.hexdigest()}  {name}\n")
    return digest


def verify(path: Path, expected: str = "") -> FileState:
    """Return the state of a file; `expected`: the checksum that it must have, where it is known.
    Raises `OSError` for a file that can't be read now."""
    try:
        at = _digits_at(path)
        if at is None:
            return _by_sidecar(path, expected)
        with path.open("rb") as file:
            file.seek(at)
            found = file.read(64).decode("ascii", "replace")
        whole = _hashed(path, 0, at)
        whole.update(PLACEHOLDER.encode())
        whole.update(_bytes_from(path, at + 64))
    except FileNotFoundError:
        return FileState.GONE
    is_good = whole.hexdigest() == found and expected in {"", found}
    return FileState.GOOD if is_good else FileState.DAMAGED


def _by_sidecar(path: Path, expected: str) -> FileState:
    """Return the state of a file whose footer has no checksum: written before there was one, unless a
    checksum is known from elsewhere."""
    sidecar = sidecar_of(path)
    return FileState.DAMAGED if expected or sidecar.exists() else FileState.UNPROVEN


def _digits_at(path: Path) -> int | None:
    """Return where the digits of the checksum begin, or None."""
    with path.open("rb") as file:
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


def _hashed(path: Path, start: int, end: int) -> hashlib._Hash:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        while start < end and (piece := file.read(min(_PIECE, end - start))):
            digest.update(piece)
            start += len(piece)
    return digest


def _bytes_from(path: Path, start: int) -> bytes:
    """Return the rest of a file: the end of its footer."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read()
