"""Services of this machine that jobs depend on: which of the enabled ones do not run.

Read from the control groups that systemd makes for each unit, without systemd itself: it may be what hangs. A unit
counts where it is enabled. Fabric Manager and IMEX have rows of their own: where there is no NVSwitch, and where the
domain is one node, they end at once, and nothing is wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from collector.host.open_file import read_small
from collector.source import DeviceEvent
from telemetry.devices import WELL
from telemetry.gap import NOT_SUPPORTED

log = logging.getLogger(__name__)

FIND_SECONDS = 300.0
"""Seconds between two searches for units that are enabled."""
FABRIC_MANAGER, IMEX = "nvidia-fabricmanager", "nvidia-imex"
_GROUPS = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice", "sys/fs/cgroup/unified/system.slice")
_UNITS = "etc/systemd/system"
_PEERS = "etc/nvidia-imex/nodes_config.cfg"


class ServiceCounts(NamedTuple):
    """Services of the machine."""

    watched: float
    down: float
    restarts: float
    """Since the collector started."""
    fabric_manager: float
    """1 while it runs, or a gap where it is not enabled."""
    imex: float
    """The same, where its domain has several nodes."""


class Services:
    """Reader of their states."""

    def __init__(
        self,
        root: Path,
        units: Sequence[str],
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        self._units = tuple(units)
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._found_at: float | None = None
        self._enabled: tuple[str, ...] = ()
        self._groups: Path | None = None
        self._inodes: dict[str, int] = {}
        """Control group of each unit when it last ran: a restart makes another."""
        self._down: set[str] = set()
        self._restarts = 0
        self._events: list[DeviceEvent] = []

    def counts(self, has_switches: bool) -> ServiceCounts:
        """Return the newest counts. Raises `FileNotFoundError` where there is no systemd, or where a container
        does not see its units."""
        now = self._monotonic()
        if self._found_at is None or now - self._found_at >= FIND_SECONDS:
            self._found_at = now
            self._find()
        if self._groups is None:
            raise FileNotFoundError("no control groups of units")
        running = {unit: self._runs(unit, self._groups) for unit in self._enabled}
        own = {IMEX} if has_switches else {IMEX, FABRIC_MANAGER}
        watched = [unit for unit in self._enabled if unit not in own]
        imex = NOT_SUPPORTED
        if IMEX in running and self._has_peers():
            imex = float(running[IMEX])
            watched.append(IMEX)
        for unit in watched:
            self._note(unit, running[unit])
        self._down &= set(watched)
        return ServiceCounts(
            float(len(watched)),
            float(len(self._down)),
            float(self._restarts),
            float(running[FABRIC_MANAGER]) if FABRIC_MANAGER in running else NOT_SUPPORTED,
            imex,
        )

    def drain_events(self) -> list[DeviceEvent]:
        """Return an event for each service that ended or came back, since the last call."""
        found, self._events = self._events, []
        return found

    def _find(self) -> None:
        folders = [self._root / path for path in _GROUPS]
        self._groups = next((folder for folder in folders if folder.is_dir()), None)
        wants = sorted((self._root / _UNITS).glob("*.wants"))
        wants += sorted((self._root / _UNITS).glob("*.requires"))
        self._enabled = tuple(
            unit for unit in self._units if any((each / f"{unit}.service").is_symlink() for each in wants)
        )

    def _runs(self, unit: str, groups: Path) -> bool:
        """Return whether a unit has a process, and count its restart."""
        folder = groups / f"{unit}.service"
        try:
            inode = folder.stat().st_ino
            try:
                runs = b"populated 1" in read_small(f"{folder}/cgroup.events")
            except FileNotFoundError:  # the first version of control groups
                runs = bool(read_small(f"{folder}/cgroup.procs").strip())
        except OSError:
            return False
        if runs:
            before = self._inodes.get(unit)
            self._restarts += before is not None and before != inode
            self._inodes[unit] = inode
        return runs

    def _has_peers(self) -> bool:
        try:
            lines = (self._root / _PEERS).read_text(errors="replace").splitlines()
        except OSError:
            return False
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines) > 1

    def _note(self, unit: str, runs: bool) -> None:
        if runs == (unit not in self._down):
            return
        if runs:
            self._down.discard(unit)
        else:
            self._down.add(unit)
        message = f"{unit} {'runs again' if runs else 'does not run'}"
        log.warning("%s", message)
        data: dict[str, object] = {
            "what": unit,
            "state": WELL if runs else "down",
            "metric": "node_services_down",
            "unit": unit,
        }
        self._events.append(DeviceEvent("service", self._wall_ns(), message=message, data=data))
