"""Clients of parallel file systems, by what they say in /proc and debugfs of their servers: Lustre, BeeGFS, Ceph.

A file can wait for a lock of its client, so a thread reads them, and no tick waits for it. Whether a mount answers is
another matter, of `collector.host.mounts`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from telemetry.gap import NO_PERMISSION, NOT_READ, NOT_SUPPORTED, TIMED_OUT

PERIOD = 30.0
"""Seconds between two rounds."""
STALE = 3.0
"""Age in periods at which an answer is too old."""
DEBUG = "sys/kernel/debug"
_PLACES = ("proc/fs/lustre", f"{DEBUG}/lustre", "sys/module/lustre", "proc/fs/beegfs", f"{DEBUG}/ceph", "sys/module/ceph")  # fmt: skip
"""Signs of a client; a node without any needs no thread."""
_IMPORT = re.compile(r"^\s*state:\s*(\w+)", re.MULTILINE)
_IMPORT_WELL = frozenset({"FULL", "IDLE", "NEW"})
_TARGET = re.compile(r"^\[Target ID: \d+\].*: (\S+) / ", re.MULTILINE)
_SESSION = re.compile(r"^mds\.\d+ (\S+)", re.MULTILINE)
_SESSION_WELL = frozenset({"open", "new", "opening", "closing", "closed"})
"""States of a session that is used, begins, or is not wanted any more."""
_HOMELESS = re.compile(r"^REQUESTS \d+ homeless (\d+)", re.MULTILINE)
_BLOCKED = re.compile(r"^bloc?klisted: true", re.MULTILINE)


class ClientStates(NamedTuple):
    """Servers of one client, or their gaps."""

    all: float
    failing: float


class StorageClients:
    """Reader of the clients, in a thread that no tick waits for."""

    def __init__(self, root: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._monotonic = monotonic
        self._thread: threading.Thread | None = None
        self._answer = dict.fromkeys(NAMES, NOT_READ)
        self._at: float | None = None

    def readings(self) -> dict[str, float]:
        """Return the newest answers by metric, and begin a round when it is due. Never waits."""
        now = self._monotonic()
        waits = self._thread is not None and self._thread.is_alive()
        if not waits and (self._at is None or now - self._at >= PERIOD):
            if not any(os.access(self._root / place, os.F_OK) for place in _PLACES):
                self._at, self._answer = now, dict.fromkeys(NAMES, NOT_SUPPORTED)
                return self._answer
            self._thread = threading.Thread(target=self._round, name="storage-clients", daemon=True)
            self._thread.start()
        if self._at is not None and now - self._at > STALE * PERIOD:
            return dict.fromkeys(NAMES, TIMED_OUT)
        return self._answer

    def _round(self) -> None:
        found: dict[str, float] = {}
        for names, read in READERS.items():
            found |= dict(zip(names, read(self._root), strict=True))
        self._answer, self._at = found, self._monotonic()


class _Files:
    """The files of a client, and whether one may not be read."""

    def __init__(self, root: Path, module: str, *patterns: str) -> None:
        """`module` of the kernel is the client: where it is not loaded, nothing is hidden from us."""
        self._root = root
        self._patterns = patterns
        self._loaded = (root / "sys/module" / module).is_dir()
        self.gap = NOT_SUPPORTED

    def texts(self) -> Iterator[str]:
        """Yield what each file holds."""
        for pattern in self._patterns:
            folder, _, rest = pattern.partition("/*")
            try:
                # a glob takes a folder that may not be entered for an empty one
                next((self._root / folder).iterdir(), None)
                files = sorted((self._root / folder).glob(f"*{rest}"))
            except PermissionError:  # debugfs is root's, whatever is in it
                self.gap = NO_PERMISSION if self._loaded else NOT_SUPPORTED
                continue
            except OSError:
                continue
            for file in files:
                try:
                    yield file.read_text(errors="replace")
                except PermissionError:
                    self.gap = NO_PERMISSION
                except OSError:
                    continue  # it was unmounted, or its target was removed


def _lustre(root: Path) -> ClientStates:
    places = (f"{folder}/{kind}" for folder in ("proc/fs/lustre", f"{DEBUG}/lustre") for kind in ("mdc", "osc"))
    files = _Files(root, "lustre", *(f"{place}/*/import" for place in places))
    states = [match[1].upper() if (match := _IMPORT.search(text)) else "" for text in files.texts()]
    if not states:
        return ClientStates(files.gap, files.gap)
    return ClientStates(float(len(states)), float(sum(each not in _IMPORT_WELL for each in states)))


def _beegfs(root: Path) -> ClientStates:
    """Return the targets of the metadata and of the files: a client knows each as online, probably offline or
    offline; one without mirror is lost to it then."""
    files = _Files(root, "beegfs", "proc/fs/beegfs/*/meta_target_state", "proc/fs/beegfs/*/storage_target_state")
    texts = list(files.texts())
    if not texts:
        return ClientStates(files.gap, files.gap)
    states = [state for text in texts for state in _TARGET.findall(text)]
    return ClientStates(float(len(states)), float(sum(state != "Online" for state in states)))


def _ceph(root: Path) -> ClientStates:
    """Return the sessions of the kernel's client with its metadata servers; all fail while the cluster has it on
    its block list."""
    files = _Files(root, "ceph", f"{DEBUG}/ceph/*/mds_sessions")
    texts = list(files.texts())
    if not texts:
        return ClientStates(files.gap, files.gap)
    states = [state for text in texts for state in _SESSION.findall(text)]
    blocked = any(_BLOCKED.search(text) for text in _Files(root, "ceph", f"{DEBUG}/ceph/*/status").texts())
    failing = len(states) if blocked else sum(state not in _SESSION_WELL for state in states)
    return ClientStates(float(len(states)), float(failing))


def _ceph_requests(root: Path) -> tuple[float]:
    """Return the requests for which no storage server is up."""
    files = _Files(root, "ceph", f"{DEBUG}/ceph/*/osdc")
    found = [int(count) for text in files.texts() for count in _HOMELESS.findall(text)]
    return (float(sum(found)) if found else files.gap,)


READERS: dict[tuple[str, ...], Callable[[Path], tuple[float, ...]]] = {
    ("node_lustre_imports", "node_lustre_imports_failing"): _lustre,
    ("node_beegfs_targets", "node_beegfs_targets_failing"): _beegfs,
    ("node_ceph_sessions", "node_ceph_sessions_failing"): _ceph,
    ("node_ceph_requests_homeless",): _ceph_requests,
}
"""Readers of clients, by the metrics that they have."""
NAMES = tuple(name for names in READERS for name in names)
