"""A saved log of nvidia-smi as a source: a node at one instant, or at several in turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from collector.smi.document import Document
from collector.smi.failure import Failure
from collector.smi.file import load
from collector.smi.inventory import inventory_of
from collector.smi.readings import rows_of
from collector.source import DeviceEvent, Rows
from telemetry.metric import Lane
from telemetry.wire.inventory import Inventory


class SmiFileSource:
    """Source of a saved file: one log is one tick.

    A file with several logs (`nvidia-smi -q -l`, a capture at idle and under load) is played in
    order; the last one stays. A failure that nvidia-smi printed (no driver, a version mismatch) is
    the driver's state, as it was when the file was saved.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.inventory = Inventory(node="", source=f"nvidia-smi:{self.path.name}")
        self.documents: list[Document] = []
        self._turn = 0

    async def open(self) -> None:
        """Read the file. Raises `SourceError` when there is no log in it."""
        found = await asyncio.to_thread(load, self.path)
        self._turn = 0
        if isinstance(found, Failure):
            self.inventory = Inventory(
                node="", source=self.inventory.source, driver_state=found.state, driver_message=found.message
            )
            self.documents = [Document()]
            return
        self.documents = found
        self.inventory = inventory_of(found[0], self.inventory.source)

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the rows of the next log, of the last one once all were read."""
        del tick, now_ns, deadline  # the log is from another time and is here already
        if not self.documents:
            return {}
        document = self.documents[min(self._turn, len(self.documents) - 1)]
        if 0 < self._turn < len(self.documents):
            inventory = inventory_of(document, self.inventory.source)
            if inventory != self.inventory:
                self.inventory = inventory
        self._turn += 1
        return rows_of(document, lanes)

    def drain_events(self) -> list[DeviceEvent]:
        """Return none: a log describes a state without events."""
        return []

    async def release(self) -> None:
        """Do nothing: there is no driver."""

    async def resume(self) -> None:
        """Do nothing: there is no driver."""

    async def close(self) -> None:
        """Drop the logs."""
        self.documents = []
