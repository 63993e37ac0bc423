"""Folders and archives (tar, zip) of saved logs, of one or several nodes; bounded."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from telemetry.errors import SourceError
from telemetry.files.expansion import CHUNK, MAX_RATIO, MAX_SIZE, Expansion

MAX_FILES = 10_000
"""Files of a folder or an archive that are read."""

TAR_MARK = 257
"""Offset of `ustar` in a tar archive."""
_ZIP = b"PK\x03\x04"

_TOOLS = re.compile(
    r"(?:nvidia[-_.]?bug[-_.]?report|nvidia[-_.]?smi|fabric[-_.]?manager|dmesg|journal(?:ctl)?|kern(?:el)?|"
    r"syslog|messages|dcgmi?|diag|health|nvlink|topo|smi|report|log|txt|xml|json|csv|out|gz|bz2|xz|old)s?",
    re.IGNORECASE,
)
_PLAIN = frozenset({"", "log", "logs", "var", "tmp", "home", "root", "data", "files", "nodes", "hosts"})


def node_of_name(name: str) -> str | None:
    """Return the node that the path of a file in a folder or an archive names: its folder, or what is
    left of its name without the words of tools; None where nothing is."""
    path = PurePosixPath(name)
    for folder in reversed(path.parts[:-1]):
        if (
            folder.lower() not in _PLAIN
            and re.fullmatch(r"[\w][\w.-]{0,120}", folder)
            and _TOOLS.sub("", folder).strip("-_.0123456789")
        ):
            return folder
    rest = re.sub(r"[-_.]{2,}", "-", _TOOLS.sub("", path.name)).strip("-_.")
    return rest if re.fullmatch(r"[A-Za-z][\w.-]{0,120}", rest) else None


def files_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files below a folder in the order of their names, each with its path in the folder.

    Raises `SourceError` beyond `MAX_FILES`, when those before were yielded. Links are not followed.
    """
    count = 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        count += 1
        if count > MAX_FILES:
            raise SourceError(f"{folder}: more than {MAX_FILES:,} files; the first were read. Name a smaller folder")
        yield path, path.relative_to(folder).as_posix()


def is_tar(start: bytes) -> bool:
    """Return whether the first bytes of a file are those of a tar archive."""
    return start[TAR_MARK : TAR_MARK + 5] == b"ustar"


def is_zip(start: bytes) -> bool:
    """Return whether the first bytes of a file are those of a zip archive."""
    return start.startswith(_ZIP)


class Chunks(io.RawIOBase):
    """A file to read from parts that come one after another."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        self._parts = parts
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stub has a wider type
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._left = memoryview(part)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def read_tar(parts: Iterator[bytes], where: str, read: Callable[[BinaryIO, str], None]) -> None:
    """Call `read` with each file of a tar archive and its name. Raises `SourceError` for one that is
    damaged or cut off, when the files before were read."""
    count = 0
    stream = io.BufferedReader(Chunks(parts), 1024 * 1024)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                count += 1
                if count > MAX_FILES:
                    raise SourceError(f"{where}: more than {MAX_FILES:,} files; the first were read")
                file = archive.extractfile(member)
                if file is not None:
                    read(file, member.name)  # type: ignore[arg-type]  # has what is used of BinaryIO
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise SourceError(f"{where}: damaged or cut off tar archive: {error}. {count} files were read") from error


def read_zip(stream: BinaryIO, where: str, max_size: int | None, read: Callable[[BinaryIO, str], None]) -> None:
    """Call `read` with each file of a zip archive and its name. Raises `SourceError` for a damaged
    one, `LimitError` beyond `max_size` or the default limits of `telemetry.files.expansion`."""
    expansion = Expansion(where, max_size or MAX_SIZE, None if max_size else MAX_RATIO)
    try:
        with zipfile.ZipFile(stream) as archive:
            for number, member in enumerate(archive.infolist()):
                if number >= MAX_FILES:
                    raise SourceError(f"{where}: more than {MAX_FILES:,} files; the first were read")
                if member.is_dir():
                    continue
                expansion.read(member.compress_size)
                with archive.open(member) as file:
                    chunks = Chunks(_counted(file, expansion))
                    read(io.BufferedReader(chunks, 1024 * 1024), member.filename)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise SourceError(f"{where}: damaged or locked zip archive: {error}") from error


def _counted(file: object, expansion: Expansion) -> Iterator[bytes]:
    while part := file.read(CHUNK):  # type: ignore[attr-defined]  # zipfile's file is no BinaryIO
        expansion.add(len(part))
        yield part
