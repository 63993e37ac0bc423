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

import numpy as np

from telemetry.fleet import Fleet, Node

LOW_WATER = 64 * 1024
"""Bytes in a socket's buffer that are no backlog."""
HIGH_WATER = 2 * 1024 * 1024
"""... and that fill it: the kernel holds about 6 MB."""
LONGEST_BACKLOG = 3600.0
"""Seconds that are reported at most."""
LOOK_SECONDS = 2.0
"""Seconds between two looks at the newest frames."""
FEWEST_NODES = 50
"""Nodes that must have sent one: fewer overload nothing, and few clocks that are set would count."""
KEPT_SECONDS = 10.0
"""How long the last value holds while too few frames come."""
REMEMBERED_SECONDS = 600.0
"""Seconds for which the least lag of a node counts as usual."""
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


def memory_limit(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
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
        self._began = math.inf
        """When it was looked at first: what waits unread can't have waited before."""
        self._free_at = -math.inf
        """When the socket's buffer was last not full."""
        self._at = -math.inf
        self._received = 0
        self._none_at = -math.inf
        """When the bytes that wait last were few."""
        self._rate = 0.0
        """Bytes a second that were read: a mean of the last second or so."""

    def update(self, now: float, unread: int, received: int) -> float:
        """Return the time that the bytes which wait (`unread`) take at the present rate; while the
        buffer is full the sender waits too, so then it is at least the time since it became so.
        `received`: bytes that were read since the start."""
        passed = now - self._at
        self._began = min(self._began, now)
        if 0 < passed < math.inf:
            share = min(1.0, passed)
            self._rate += share * ((received - self._received) / passed - self._rate)
        self._at, self._received = now, received
        if unread <= HIGH_WATER or math.isinf(self._free_at):
            self._free_at = now
        if unread <= LOW_WATER or math.isinf(self._none_at):
            self._none_at = now
        if unread <= LOW_WATER:
            return 0.0
        waits = unread / self._rate if self._rate else now - self._none_at
        return min(LONGEST_BACKLOG, now - self._began, max(waits, now - self._free_at))


class ArrivalClock:
    """By how many seconds the frames of the fleet come later than they did lately: what waits for us in
    a broker or a network, where no socket of ours shows it. `now` is monotonic seconds.

    Each node is compared with itself, so that its clock may be wrong, and counts once. A node whose time
    goes back has set its clock: a queue never does that.
    """

    def __init__(self) -> None:
        self._version = -1
        self._nodes: list[Node] = []
        self._sampled = np.zeros(0)
        self._least = np.zeros((2, 0))
        """Least lag of each node, seconds by an unknown zero: in the last half of what is remembered, and
        in this one."""
        self._half_began = -math.inf
        self._looked_at = -math.inf
        self._known_at = -math.inf
        self._late: float | None = None

    def update(self, now: float, fleet: Fleet) -> float | None:
        """Look at the newest frames every `LOOK_SECONDS`; return the median over the nodes that sent one,
        None while too few do."""
        if now - self._looked_at < LOOK_SECONDS:
            return self._late
        self._looked_at = now
        if fleet.version != self._version:
            self._place(fleet)
        if now - self._half_began >= REMEMBERED_SECONDS / 2:
            self._half_began = now
            self._least = np.stack((self._least[1], np.full(len(self._nodes), np.inf)))
        rows = fleet.node_rows()
        seen, sampled = fleet.columns.seen[rows], fleet.columns.sampled_at[rows] / 1e9
        new = (sampled != self._sampled) & (sampled > 0)
        lag = seen - sampled
        self._least[:, new & (sampled < self._sampled)] = np.inf
        self._least[1, new] = np.minimum(self._least[1], lag)[new]
        self._sampled = sampled
        if np.count_nonzero(new) >= FEWEST_NODES:
            self._late = float(np.median((lag - self._least.min(axis=0))[new]))
            self._known_at = now
        elif now - self._known_at > KEPT_SECONDS:
            self._late = None
        return self._late

    def _place(self, fleet: Fleet) -> None:
        """Take over what is known of the nodes that stay."""
        before = {node.inventory.node: place for place, node in enumerate(self._nodes)}
        self._version, self._nodes = fleet.version, list(fleet.nodes.values())
        places = np.array([before.get(name, len(before)) for name in fleet.nodes], np.intp)
        self._sampled = np.append(self._sampled, 0.0)[places]
        unknown = np.full((2, 1), np.inf)
        self._least = np.concatenate((self._least, unknown), axis=1)[:, places]
