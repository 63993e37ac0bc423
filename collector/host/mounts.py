"""Network file systems of this machine: which do not answer, and which should be there and are not.

A file system whose server is gone holds whoever touches it, for ever and beyond SIGKILL. So none is touched
here: the mounts are read from the kernel's list, and each is tried by a child of its own, `stat -f`. A child
that does not come back is killed and left alone; while it stays, its mount has no other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from collector.host.open_file import OpenFile, read_small
from collector.source import DeviceEvent
from telemetry.devices import WELL

log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two tries of a mount."""
DEADLINE = 10.0
"""Seconds within which a server answers; a slow one takes one or two."""
LEAVING = 0.5
"""Seconds for killed children to end, at the end of the collector."""
MOST = 64
"""Mounts that are tried; an automounter can make hundreds."""
PROBE = ("stat", "-f", "-c", "%a")
"""The child's command, before the path. Its answer comes from the server for all of `TYPES`."""
TYPES = frozenset({
    "nfs", "nfs4", "lustre", "beegfs", "ceph", "wekafs", "gpfs", "glusterfs", "cifs", "smb3", "9p", "virtiofs",
    "fuse.glusterfs", "fuse.juicefs", "fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs", "fuse.mount-s3",
    "fuse.gcsfuse", "fuse.blobfuse2", "fuse.hdfs", "fuse.dfs",
})  # fmt: skip
"""Types whose files are on another machine."""
_MISSING = "is not mounted"
_ESCAPE = re.compile(r"\\([0-7]{3})")
_GONE = {
    "Stale file handle": "is stale",
    "Transport endpoint is not connected": "is not connected",
    "Input/output error": "fails",
    "Host is down": "is down",
    "No route to host": "has no route to its server",
    "Connection timed out": "does not answer",
    "Cannot send after transport endpoint shutdown": "was evicted by its server",
}
"""Words of the child about a mount that is of no use, and those for people. Any other fault, as one of
permission, is an answer."""


class Mount(NamedTuple):
    """A mount of the kernel's list, or of /etc/fstab."""

    path: str
    type: str
    server: str
    """Source of the mount: `filer:/scratch`."""

    @property
    def host(self) -> str:
        """File server of the mount, without the export: `filer`, `10.0.0.1@o2ib`; the whole source where it names none."""
        found = re.match(r"//([^/]+)/|(\[[^]]+\]|[^/:]+):", self.server)
        return self.server if found is None else found[1] or found[2]

    def __str__(self) -> str:
        return f"{self.path} ({self.type} of {self.server})"


@dataclass(slots=True)
class _Try:
    child: subprocess.Popen[str]
    since: float


class Counts(NamedTuple):
    """Network file systems of the machine."""

    mounts: int
    failing: int | None
    """Mounts that do not answer, are stale, or were cut off; None while none of them is known to fail and
    one has had no time to answer yet."""
    missing: int
    """Mounts of /etc/fstab that are not there."""


class Mounts:
    """Watcher of the network file systems. `counts` is called at each slow tick, and never waits."""

    def __init__(
        self,
        root: Path = Path("/"),
        command: tuple[str, ...] = PROBE,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`root` is where proc and etc are; a mount is tried at its own path."""
        self._root = root
        self._command = command
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._tries: dict[Mount, _Try] = {}
        self._tried: dict[Mount, float] = {}
        self._killed: list[subprocess.Popen[str]] = []
        """Children that nobody waits for any more; the kernel ends them when their mount lets go."""
        self._known: set[Mount] = set()
        """Mounts that have answered or failed."""
        self._problems: dict[Mount, str] = {}
        """The mounts that fail or are missing, and how."""
        self._events: list[DeviceEvent] = []
        self._is_full = False
        self._list = OpenFile(root / "proc/self/mountinfo")
        self._listed = b""
        self._mounts: dict[str, Mount] = {}
        self._table = b""
        """Content of /etc/fstab."""
        self._expected: list[Mount] = []
        """Network mounts of it that are made at boot."""

    def counts(self) -> Counts:
        """Return the newest counts, and begin the tries that are due. Raises `OSError` where the kernel's
        list can't be read, and where no child can be started."""
        mounts = self._mounted()
        watched = [mount for mount in mounts.values() if mount.type in TYPES]
        if len(watched) > MOST and not self._is_full:
            self._is_full = True
            log.warning("%d network mounts: %d of them are watched", len(watched), MOST)
        watched = watched[:MOST]
        for mount in [each for each in self._tried if each not in watched]:
            del self._tried[mount]
            self._known.discard(mount)
            if mount in self._tries:
                self._leave(mount)
        self._killed = [child for child in self._killed if child.poll() is None]
        now = self._monotonic()
        for mount in watched:
            self._look(mount, now)
        self._look_at_table()
        missing = [mount for mount in self._expected if mount.path not in mounts]
        for mount, problem in list(self._problems.items()):
            if mount not in (missing if problem == _MISSING else watched):
                self._change(mount, "")
        for mount in missing:
            self._change(mount, _MISSING)
        failing = len(self._problems) - len(missing)
        return Counts(len(watched), None if self.pending and not failing else failing, len(missing))

    @property
    def pending(self) -> bool:
        """Whether a mount has neither answered nor failed since it is there."""
        return not self._known.issuperset(self._tries)

    def drain_events(self) -> list[DeviceEvent]:
        """Return an event for each mount that began to fail or ended to, since the last call."""
        found, self._events = self._events, []
        return found

    def close(self) -> None:
        """Kill the children; do not wait for one that hangs."""
        self._list.close()
        for mount in list(self._tries):
            self._leave(mount)
        for child in self._killed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=LEAVING / len(self._killed))

    def _mounted(self) -> dict[str, Mount]:
        """Return what is mounted; the list is parsed where it has changed."""
        found = self._list.read()
        if found != self._listed:
            self._mounts = mounted(os.fsdecode(found))
            self._listed = found
        return self._mounts

    def _look(self, mount: Mount, now: float) -> None:
        """Take the answer of a mount's child, or begin a new try when it is due."""
        current = self._tries.get(mount)
        if current is not None:
            if current.child.poll() is None:
                if now - current.since >= DEADLINE:
                    current.child.kill()
                    self._known.add(mount)
                    self._change(mount, "does not answer")
                return
            complaint = current.child.stderr.read() if current.child.stderr else ""
            self._leave(mount)
            if current.child.returncode >= 0:  # one that we killed has not answered
                self._known.add(mount)
                words = (text for word, text in _GONE.items() if word in complaint)
                self._change(mount, next(words, ""))
        if mount not in self._tried or now - self._tried[mount] >= PERIOD:
            self._tried[mount] = now
            child = subprocess.Popen(
                [*self._command, mount.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "LC_ALL": "C"},
            )
            self._tries[mount] = _Try(child, now)

    def _leave(self, mount: Mount) -> None:
        """Forget a mount's child; one that hangs is killed, and ends when the kernel lets it."""
        child = self._tries.pop(mount).child
        if child.stderr is not None:
            child.stderr.close()
        if child.poll() is None:
            child.kill()
            self._killed.append(child)

    def _change(self, mount: Mount, problem: str) -> None:
        """Note how a mount is now, "" for well; tell of a change."""
        if self._problems.get(mount, "") == problem:
            return
        before = self._problems.pop(mount, "")
        if problem:
            self._problems[mount] = problem
        kind = "missing" if (problem or before) == _MISSING else "failing"
        message = f"{mount} {problem or 'is well again'}"
        log.warning("%s", message)
        self._events.append(
            DeviceEvent(
                "mount",
                self._wall_ns(),
                message=message,
                data={
                    "what": mount.path,
                    "state": problem or WELL,
                    "metric": "node_network_mounts_" + kind,
                    "unit": str(mount),
                    "server": mount.host,
                },
            )
        )

    def _look_at_table(self) -> None:
        """Read /etc/fstab, and parse it where it has changed."""
        try:
            found = read_small(f"{self._root}/etc/fstab")
        except OSError:
            found = b""
        if found != self._table:
            self._table, self._expected = found, fstab(os.fsdecode(found))


def mounted(text: str) -> dict[str, Mount]:
    """Read /proc/self/mountinfo: what is mounted at each path; of several at one path the last covers the
    others. Raises `ValueError` for text that the kernel does not write."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        if not separator:
            raise ValueError(f"no mount: {line!r}")
        path = _plain(before.split(" ")[4])
        kind, server = after.split(" ")[:2]
        found.pop(path, None)
        found[path] = Mount(path, kind, _plain(server))
    return found


def fstab(text: str) -> list[Mount]:
    """Read /etc/fstab: the network file systems that are mounted at boot, those of an automounter left out."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4 or words[0].startswith("#") or words[2] not in TYPES:
            continue
        options = set(words[3].split(","))
        if not options & {"noauto", "x-systemd.automount"}:
            path = _plain(words[1])
            found.append(Mount(path.rstrip("/") or "/", words[2], _plain(words[0])))
    return found


def _plain(word: str) -> str:
    """Return a word of the kernel's list with its escapes (\\040 is a blank) undone."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), word)
