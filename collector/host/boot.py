"""How this machine came to its present boot: whether the one before ended in order, and what a panic left."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

RECENT = 86400.0
"""Seconds for which what a panic left counts: systemd keeps it for ever."""
_PSTORE = ("var/lib/systemd/pstore", "sys/fs/pstore")
_WTMP = "var/log/wtmp"
_RECORD = struct.Struct("=h2xi32s4s32s256s")
"""Beginning of `struct utmp`, 384 bytes: type, process, line, id, user, host."""
_SIZE = 384
_BOOT, _LEVEL = 2, 1
_MOST = 1 << 20
"""Bytes of the end of the log that are read: 2,700 records."""


def ended_in_order(log: bytes) -> bool:
    """Return whether a shutdown stands between the last two boots of /var/log/wtmp. Raises `FileNotFoundError` where
    it holds no two of them."""
    whole = len(log) // _SIZE * _SIZE
    log = log[len(log) - whole :]
    shutdown = False
    boots = 0
    for at in range(whole - _SIZE, -1, -_SIZE):
        kind, _, _, _, user, _ = _RECORD.unpack_from(log, at)
        name = user.partition(b"\0")[0]
        if kind == _BOOT:
            boots += 1
            if boots == 2:
                return shutdown
        elif kind == _LEVEL and boots == 1 and name == b"shutdown":
            shutdown = True
    raise FileNotFoundError("no two boots are on record")


class Boot:
    """Reader of these facts."""

    def __init__(self, root: Path, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._root = root
        self._wall_ns = wall_ns
        self._unclean: float | None = None

    def unclean(self) -> tuple[float]:
        """Return 1 where the boot before this one ended without a shutdown. Raises `FileNotFoundError` where
        nobody keeps a record, and `OSError`."""
        if self._unclean is None:
            with (self._root / _WTMP).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _MOST // _SIZE * _SIZE))
                self._unclean = float(not ended_in_order(file.read()))
        return (self._unclean,)

    def crash_records(self) -> tuple[float]:
        """Return how many files a panic of the last day has left. Raises `FileNotFoundError` where the firmware
        keeps none, `PermissionError` where this process may not see them."""
        since = self._wall_ns() / 1e9 - RECENT
        count = 0
        seen = False
        forbidden: PermissionError | None = None
        for name in _PSTORE:
            try:
                for path in (self._root / name).iterdir():
                    inside = [path] if not path.is_dir() else list(path.iterdir())
                    count += sum(each.stat().st_mtime >= since for each in inside)
                seen = True
            except PermissionError as error:
                forbidden = error
            except FileNotFoundError:
                continue
        if not seen:
            raise forbidden or FileNotFoundError("no pstore")
        return (float(count),)
