"""GPUs and links that this node had, on disk: one that was lost before a start keeps its row.

Without the list, a GPU that is gone when the collector starts would cause no gap and no alert. A
GPU that is gone for good leaves the list in three ways:

- another GPU answers at its PCI address: it was replaced (`collector.probed.gpu_table`);
- it has been gone for `FORGOTTEN_AFTER` when the collector starts;
- `gpus.json` in the state folder is deleted while the collector does not run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

import msgspec

from collector.sampling.past_inventories import PastInventories
from telemetry.devices import Gpu, Link
from telemetry.files import state_file
from telemetry.files.state_file import json_of
from telemetry.wire.inventory import Inventory

log = logging.getLogger(__name__)

FILE = "gpus.json"
"""Name of the file in the state folder."""
FORGOTTEN_AFTER = 7 * 86400
"""Seconds after which a GPU that is gone is no longer expected."""
_SECOND = 1_000_000_000


class KnownGpus(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that a node has had."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    gone_since: dict[str, int] = {}
    """When a GPU that is gone was first missing, ns since 1970, by UUID."""
    inventories: tuple[Inventory, ...] = ()
    """As `PastInventories` keeps them."""


def recall(folder: Path, now_ns: int) -> KnownGpus:
    """Return the devices that the node had, without those that have been gone for too long; none
    where there is no file that can be used: the driver reports the present ones."""
    cost = "GPUs that were lost before this start are not reported."
    known = state_file.read(folder / FILE, json_of(KnownGpus), cost) or KnownGpus()
    old = {uuid for uuid, at in known.gone_since.items() if now_ns - at > FORGOTTEN_AFTER * _SECOND}
    for uuid in sorted(old):
        log.warning("gpu=%s has been gone for a week, and is no longer expected", uuid)
    return KnownGpus(
        gpus=tuple(gpu for gpu in known.gpus if gpu.uuid not in old),
        links=tuple(link for link in known.links if link.gpu not in old),
        gone_since={uuid: at for uuid, at in known.gone_since.items() if uuid not in old},
        inventories=known.inventories,
    )


class RememberedDevices:
    """Writes the list of devices when it changes; never waits for the disk."""

    def __init__(self, folder: Path, now_ns: int) -> None:
        self._path = folder / FILE
        self._known = recall(folder, now_ns)
        self.past = PastInventories(self._known.inventories)
        """Inventories that frames of earlier starts were made with."""
        self._due: KnownGpus | None = None
        self._lock = threading.Lock()
        self._writing = False
        self.written = 0
        """How often the file was replaced."""

    def inventory(self, inventory: Inventory, now_ns: int) -> None:
        """Compare an inventory with the list, and write the list if it changed."""
        before = self._known.gone_since
        known = KnownGpus(
            gpus=inventory.gpus,
            links=inventory.links,
            gone_since={gpu.uuid: before.get(gpu.uuid, now_ns) for gpu in inventory.gpus if not gpu.present},
            inventories=tuple(self.past.firsts),
        )
        if known == self._known:
            return
        self._known = known
        with self._lock:
            self._due = known
            if self._writing:
                return
            self._writing = True
        # A daemon: a disk that hangs must not keep the process.
        threading.Thread(target=self._write_all, name="known-gpus", daemon=True).start()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                known, self._due = self._due, None
                if known is None:
                    self._writing = False
                    return
            try:
                self._write(known)
            except OSError as error:
                log.warning("%s can't be written: %s", self._path, error.strerror or error)
            except Exception:  # the next change must be written all the same
                log.exception("%s can't be written", self._path)

    def _write(self, known: KnownGpus) -> None:
        """Replace the file atomically, so that a torn one is never read."""
        new = self._path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(msgspec.json.encode(known))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            self.written += 1
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
