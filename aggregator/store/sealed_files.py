"""The shelf: which sealed files there are to read, and which of them somebody took away.

The index is swapped whole, so that a question in another thread has one that belongs together. The
store takes a file off the shelf before it removes it; hence what stands there and is not on disk, or
has another size, was removed or damaged by somebody else. That is noticed by the first question that
meets it, said once, and answered from what is left.
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
"""Lost files that are named in the log one by one, of those that are noticed together."""


class SealedFiles:
    """The sealed files of a store; `index` may be read by any thread."""

    def __init__(self, root: Path) -> None:
        self.index = Index([])
        self.lost = 0
        """Files that were lost since the start."""
        self._root = root
        self._lock = threading.Lock()
        self._lost: list[str] = []
        """Those that the manifest still has."""

    def put(self, files: Iterable[SealedFile]) -> None:
        """Begin with these."""
        with self._lock:
            self.index, self._lost = Index(files), []

    def add(self, files: Iterable[SealedFile]) -> None:
        """Add what was sealed."""
        with self._lock:
            self.index = Index([*self.index.files, *files])

    def take(self, files: Iterable[SealedFile]) -> None:
        """Take off what is about to be removed."""
        gone = {file.path for file in files}
        with self._lock:
            self.index = Index(file for file in self.index.files if file.path not in gone)

    def look(self) -> bool:
        """Whether files were lost since the last look; they are off the shelf then."""
        with self._lock:
            lost = [file for file in self.index.files if not self._there(file)]
            if not lost:
                return False
            gone = {file.path for file in lost}
            self.index = Index(file for file in self.index.files if file.path not in gone)
            self._lost += gone
            self.lost += len(lost)
        self._say(lost)
        return True

    def forgotten(self) -> list[str]:
        """Return the paths of lost files that the manifest is to forget, once."""
        with self._lock:
            lost, self._lost = self._lost, []
        return lost

    def _there(self, file: SealedFile) -> bool:
        try:
            return (self._root / file.path).stat().st_size == file.bytes
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a disk that does not answer now may do so again

    def _say(self, lost: list[SealedFile]) -> None:
        for file in lost[:NAMED]:
            path = self._root / file.path
            what = "its size has changed" if path.exists() else "it is not there any more"
            log.error("%s: %s, and it was not the store that did it: %d rows of %s from %s to %s can't be "
                      "read. What is left is shown. Put the file back and restart the aggregator.",
                      path, what, file.rows, file.block, rfc3339(file.first_ts), rfc3339(file.last_ts))  # fmt: skip
        if len(lost) > NAMED:
            log.error("%s: %d more sealed files are not there any more, or damaged",
                      self._root, len(lost) - NAMED)  # fmt: skip
