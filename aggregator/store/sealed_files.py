"""The sealed files that can be read, and those that another program removed or damaged.

The index is replaced as a whole, so that a query in another thread has a consistent one. The store
takes a file out of the index before it removes it; hence a file of the index that is not on disk, or
has another size, was removed or damaged by another program. The first query that fails on it finds
that, logs it once, and is answered from the files that are left.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from aggregator.store.index import Index
from aggregator.store.manifest import SealedFile
from telemetry.text import rfc3339

log = logging.getLogger(__name__)

NAMED = 5
"""Lost files that are named in the log one by one, of those that are found together."""


class SealedFiles:
    """The sealed files of a store; `index` may be read by any thread."""

    def __init__(self, root: Path) -> None:
        self.index = Index([])
        self.lost = 0
        """Files that were lost since the start."""
        self._root = root
        self._lock = threading.Lock()
        self._lost: list[str] = []
        """Lost files that the manifest still has."""

    def reset(self, files: Iterable[SealedFile]) -> None:
        """Replace all files."""
        with self._lock:
            self.index, self._lost = Index(files), []

    def add(self, files: Iterable[SealedFile]) -> None:
        """Add files that were sealed."""
        with self._lock:
            self.index = Index([*self.index.files, *files])

    def remove(self, files: Iterable[SealedFile]) -> None:
        """Remove files from the index, before they are removed from the disk."""
        gone = {file.path for file in files}
        with self._lock:
            self.index = Index(file for file in self.index.files if file.path not in gone)

    def find_lost(self) -> bool:
        """Remove lost files from the index; return whether there were any."""
        with self._lock:
            lost = [file for file in self.index.files if not self._exists(file)]
            if not lost:
                return False
            gone = {file.path for file in lost}
            self.index = Index(file for file in self.index.files if file.path not in gone)
            self._lost += gone
            self.lost += len(lost)
        self._log(lost)
        return True

    def drain_lost(self) -> list[str]:
        """Return the paths of lost files that the manifest still has."""
        with self._lock:
            lost, self._lost = self._lost, []
        return lost

    def _exists(self, file: SealedFile) -> bool:
        try:
            return (self._root / file.path).stat().st_size == file.bytes
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a disk that does not answer now may do so again

    def _log(self, lost: list[SealedFile]) -> None:
        for file in lost[:NAMED]:
            path = self._root / file.path
            what = "its size has changed" if path.exists() else "it is not there any more"
            log.error("%s: %s, and it was not the store that did it: %d rows of %s from %s to %s can't be "
                      "read. What is left is shown. Put the file back and restart the aggregator.",
                      path, what, file.rows, file.block, rfc3339(file.first_ts), rfc3339(file.last_ts))  # fmt: skip
        if len(lost) > NAMED:
            log.error("%s: %d more sealed files are not there any more, or damaged",
                      self._root, len(lost) - NAMED)  # fmt: skip
