"""Files in which a process keeps what its next start goes on with: read, replaced, validated and set aside in one way.

A file that can't be used costs what it holds and nothing else, least of all the start. Whatever lies in its place is
renamed, never deleted: to `NAME.damaged-1`, or to `NAME.newer-1` where a newer release wrote it. The names alone say
what was set aside, also after a restart, until a person has looked and removed it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from telemetry.runtime.isolation import reason_of
from telemetry.text.decoders import of_json

log = logging.getLogger(__name__)

Content = TypeVar("Content")
_ASIDE = re.compile(r"(.+)\.(damaged|newer)-\d+")


class NewerVersionError(Exception):
    """A file was written by a newer release: it is whole, and this one can't read it."""


class FileAside(NamedTuple):
    """A file or folder that was set aside."""

    path: Path
    """Place where it lies now."""
    name: str
    """The name that it had."""
    newer: bool
    """Whether it is whole, and of a newer release."""


def read(path: Path, decode: Callable[[bytes], Content], cost: str) -> Content | None:
    """Return what a file holds; None where there is none, or none that can be used, which is then set aside.
    `cost`: what is lost with it, a sentence for the log.

    Whatever `decode` raises is damage: which exceptions a decoder has for bytes that nobody wrote can't be listed.
    """
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - set aside, and reported by its name
        set_aside(path, error, cost)
        return None


def json_of(
    kind: type[Content], dec_hook: Callable[[type, object], object] | None = None
) -> Callable[[bytes], Content]:
    """Return a decoder of JSON, which raises `NewerVersionError` for a version above the one that `kind` has by default.
    `dec_hook`: of types that msgspec does not know."""
    ours = _default_version(kind)

    def decode(raw: bytes) -> Content:
        if ours and (its := _version(raw)) > ours:
            raise NewerVersionError(f"of version {its}, and ours is {ours}")
        return of_json(kind, dec_hook).decode(raw)

    return decode


def _default_version(kind: object) -> int:
    """Return the version that a type of ours writes; 0 for one without."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return 0
    return next((int(one.default) for one in msgspec.structs.fields(kind) if one.name == "version"), 0)


class _Versioned(msgspec.Struct):
    version: int = 0


def _version(raw: bytes) -> int:
    """Return the version of a file, whatever else is in it; 0 where there is none."""
    try:
        return of_json(_Versioned).decode(raw).version
    except msgspec.ValidationError:
        return 0


def set_aside(path: Path, why: BaseException | str, cost: str, *, name: str = "", ending: str = "") -> Path | None:
    """Rename what lies at a path, and log it. Return the new path; None where it can't be renamed, which is logged too.

    `name`: its own name, where the path is that of a copy; `ending`: of the new name, instead of `damaged` or `newer`.
    """
    ending = ending or ("newer" if isinstance(why, NewerVersionError) else "damaged")
    number = 1
    while os.path.lexists(kept := path.with_name(f"{name or path.name}.{ending}-{number}")):
        number += 1
    reason = reason_of(why)
    try:
        path.rename(kept)
    except OSError as error:
        log.error("%s can't be used (%s), nor renamed: %s. %s", path, reason, error.strerror, cost)  # noqa: TRY400
        return None
    log.error("%s can't be used (%s), and was renamed to %s. %s", path, reason, kept.name, cost)
    return kept


def make_folder(path: Path, cost: str) -> None:
    """Make a folder, in place of anything else that has its name, which is set aside. Raises `OSError`."""
    if path.is_dir():
        return
    if os.path.lexists(path):
        set_aside(path, "it is no folder", cost)
    path.mkdir(parents=True, exist_ok=True)


def find_aside(folders: Iterable[Path]) -> list[FileAside]:
    """Return what was set aside in some folders and is still there, by name; folders that can't be read have none."""
    found = []
    for folder in folders:
        try:
            paths = sorted(folder.iterdir())
        except OSError:
            continue
        for path in paths:
            match = _ASIDE.fullmatch(path.name)
            if match is not None:
                found.append(FileAside(path, match[1], match[2] == "newer"))
    return found


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, whole or not at all. Raises `OSError`."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
