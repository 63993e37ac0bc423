"""Measurements of the load that no other part makes: memory, and what waits in a socket."""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import gc
import math
import os
import termios
from pathlib import Path

LOW_WATER = 64 * 1024
"""Bytes in a socket's buffer that are no backlog."""
HIGH_WATER = 2 * 1024 * 1024
"""... and that fill it: the kernel holds about 6 MB."""
LONGEST_BACKLOG = 3600.0
"""Seconds that are reported at most."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED = 1 << 60
"""cgroup v1 has a number near 2^63 for no limit."""


def resident_bytes() -> int:
    """Return the memory that this process has resident."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def release_memory() -> None:
    """Return memory that is free to the system, as far as the C library can (glibc)."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def memory_limit(
    proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the bytes that the cgroup of this process may use (`MemoryMax=` of its unit, or that of
    a slice or container around it); 0 without a limit."""
    try:
        lines = proc.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, file = root, "memory.max"
            if (root / "unified").is_dir():
                top = root / "unified"
        elif "memory" in controllers.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = top / path.lstrip("/")
        for each in (folder, *folder.parents):
            limits.append(_number(each / file))
            if each == top:
                break
    return min((limit for limit in limits if 0 < limit < _UNLIMITED), default=0)


def _number(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or the word `max`
        return 0


def unread_bytes(descriptor: int) -> int:
    """Return the bytes that the kernel has received on a socket and nobody has read. Raises
    `OSError`."""
    found = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, found)
    return found[0]


class BacklogClock:
    """By how many seconds a connection is behind. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._free_at = -math.inf
        """When the socket's buffer was last not full."""
        self._at = -math.inf
        self._received = 0
        self._rate = 0.0
        """Bytes a second that were read: a mean of the last second or so."""

    def update(self, now: float, unread: int, received: int) -> float:
        """Return the time that the bytes which wait (`unread`) take at the present rate; while the
        buffer is full the sender waits too, so then it is at least the time since it became so.
        `received`: bytes that were read since the start."""
        passed = now - self._at
        if 0 < passed < math.inf:
            share = min(1.0, passed)
            self._rate += share * ((received - self._received) / passed - self._rate)
        self._at, self._received = now, received
        if unread <= HIGH_WATER or math.isinf(self._free_at):
            self._free_at = now
        if unread <= LOW_WATER:
            return 0.0
        waits = unread / self._rate if self._rate else LONGEST_BACKLOG
        return min(LONGEST_BACKLOG, max(waits, now - self._free_at))
