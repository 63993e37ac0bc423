"""The sealed files that can be read, and those that another program removed or damaged.

The index is replaced as a whole, so that a query in another thread has a consistent one. The store
takes a file out of the index before it removes it; hence a file of the index that is not on disk, has
another size or another checksum was removed or damaged by another program. A query verifies the files
that it reads, within a budget of bytes; `check_next` verifies one after the other, so that damage
is found that no query meets. A lost file is logged once, its window is reported as incomplete, and
queries are answered from the files that are left.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from aggregator.store.checksum import FileState, verify
from aggregator.store.duck import quoted
from aggregator.store.index import Index
from aggregator.store.manifest import RAW, SealedFile
from telemetry.text import rfc3339

log = logging.getLogger(__name__)

NAMED = 5
"""Lost files that are named in the log one by one, of those that are found together."""
SECOND = 1_000_000_000
QUERY_BYTES = 256 * 1024 * 1024
"""Bytes that one query verifies at most before it reads: a quarter of a second."""

TimeWindow = tuple[int, int]
"""Begin and end, ns since 1970."""


class FileChoice:
    """The files that one query reads, and the windows in which it lacks some."""

    def __init__(self, sealed: SealedFiles) -> None:
        self._sealed = sealed
        self._budget = QUERY_BYTES
        self._incomplete: list[TimeWindow] = []

    @property
    def files(self) -> list[SealedFile]:
        """The files that can be read."""
        return self._sealed.index.files

    def find(self, block: str, device: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the files of a device (`Index.find`)."""
        return self._choose(lambda index: index.find(block, device, start, end, step), start, end)

    def spanning(self, block: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the files of all devices (`Index.spanning`)."""
        return self._choose(lambda index: index.spanning(block, start, end, step), start, end)

    def _choose(self, find: Callable[[Index], list[SealedFile]], start: int, end: int) -> list[SealedFile]:
        sealed = self._sealed
        while True:
            found = find(sealed.index)
            unproven = sealed.unproven(found, self._budget)
            self._budget -= sum(file.bytes for file in unproven)
            if sealed.verify(unproven):
                break
        for file in () if sealed.complete is None else find(sealed.complete):
            if file.lost and not any(_replaces(other, file) for other in found):
                last = file.last_ts + 1 + file.step * SECOND
                self._incomplete.append((max(start, file.first_ts), min(end, last)))
        return found

    def source(self, files: Sequence[SealedFile]) -> str:
        """Return the SQL of the rows of files of one block and step."""
        paths = ", ".join(quoted(str(self._sealed.root / file.path)) for file in files)
        return f"read_parquet([{paths}], union_by_name = true)"

    def incomplete(self) -> list[TimeWindow]:
        """Return the windows whose files are lost, joined and in order."""
        return joined(self._incomplete)


def joined(windows: Iterable[TimeWindow]) -> list[TimeWindow]:
    """Return windows in order, those that meet as one, without those that are empty."""
    found: list[TimeWindow] = []
    for start, end in sorted(one for one in windows if one[0] < one[1]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _replaces(file: SealedFile, lost: SealedFile) -> bool:
    """Return whether a file has all that a lost one had: the readings that it was made of."""
    return (
        (file.period, file.block) == (lost.period, lost.block)
        and file.step <= lost.step
        and file.low_device <= lost.low_device
        and file.high_device >= lost.high_device
    )


class SealedFiles:
    """The sealed files of a store; any thread may read and report."""

    def __init__(self, root: Path) -> None:
        self.index = Index([])
        self.root = root
        self._lock = threading.Lock()
        self._lost: dict[str, SealedFile] = {}
        """Lost files by path, until their age."""
        self._unrecorded: list[SealedFile] = []
        """Lost files whose state the manifest does not have yet."""
        self.complete: Index | None = None
        """The index with the lost files in it; None while there are none."""
        self._verified: set[str] = set()
        """Paths of files that were as they were written when they were verified last."""
        self._looked_for: set[str] = set()
        """Paths of lost files whose frames were looked for."""
        self._unchecked: list[SealedFile] = []
        """The rest of the present pass of `check_next`."""

    def reset(self, files: Iterable[SealedFile]) -> None:
        """Replace all files."""
        found = list(files)
        with self._lock:
            self._lost = {file.path: file for file in found if file.lost}
            self._unrecorded, self._unchecked = [], []
            self._verified.clear()
            self._looked_for.clear()
            self._replace(file for file in found if not file.lost)

    def add(self, files: Iterable[SealedFile]) -> None:
        """Add files that were sealed."""
        with self._lock:
            self._replace([*self.index.files, *files])

    def remove(self, files: Iterable[SealedFile]) -> None:
        """Remove files from the index, before they are removed from the disk."""
        gone = {file.path for file in files}
        with self._lock:
            for path in gone & self._lost.keys():
                del self._lost[path]
            self._replace(file for file in self.index.files if file.path not in gone)

    def _replace(self, files: Iterable[SealedFile]) -> None:
        self.index = Index(files)
        self.complete = Index([*self.index.files, *self._lost.values()]) if self._lost else None

    # -- Queries ---------------------------------------------------------------------------------

    def unproven(self, files: Iterable[SealedFile], budget: int) -> list[SealedFile]:
        """Return the newest of the files that nothing has verified yet, up to `budget` bytes."""
        found = []
        for file in sorted(files, key=lambda file: -file.last_ts):
            if file.path not in self._verified and file.bytes <= budget:
                budget -= file.bytes
                found.append(file)
        return found

    def verify(self, files: Iterable[SealedFile]) -> bool:
        """Verify files; return whether none of them was lost. Where one was, all are looked for."""
        lost = {
            file.path: replace(file, lost=state.value) for file in files if (state := self._state(file)) is not None
        }
        if not lost:
            return True
        for file in self.index.files:
            if file.path not in lost and (state := self._absent(file)) is not None:
                lost[file.path] = replace(file, lost=state.value)
        return not self._lose(list(lost.values()))

    # -- Damage ----------------------------------------------------------------------------------

    @property
    def lost(self) -> list[SealedFile]:
        """The lost files."""
        with self._lock:
            return list(self._lost.values())

    def find_lost(self) -> bool:
        """Remove files that are not there or have another size from the index; return whether there
        were any."""
        return self._lose(
            [replace(file, lost=state.value) for file in self.index.files if (state := self._absent(file)) is not None]
        )

    def check_next(self) -> bool:
        """Verify one file, the next of an endless pass over all; in any thread. Return whether it is
        as it was written."""
        if not self._unchecked:
            self._unchecked = sorted(self.index.files, key=lambda file: file.last_ts)
            self.find_lost()
        if not self._unchecked:
            return True
        file = self._unchecked.pop()  # the newest first
        if file not in self.index.files:
            return True
        return self.verify([file])

    def unfilled(self) -> list[SealedFile]:
        """Return the lost files of readings whose frames were not looked for since the opening."""
        return [file for file in self.lost if file.kind == RAW and file.path not in self._looked_for]

    def note_looked_for(self, path: str) -> None:
        """Note that it is known which frames of a lost file are to be requested again."""
        self._looked_for.add(path)

    def drain_lost(self) -> list[SealedFile]:
        """Return the lost files whose state the manifest does not have yet."""
        with self._lock:
            lost, self._unrecorded = self._unrecorded, []
        return lost

    def _state(self, file: SealedFile) -> FileState | None:
        """Return why a file can't be read; None if it can, or a disk does not answer now."""
        absent = self._absent(file)
        if absent is not None:
            return absent
        try:
            state = verify(self.root / file.path, file.sha256)
        except OSError:
            return None
        if state in {FileState.GOOD, FileState.UNPROVEN}:
            self._verified.add(file.path)
            return None
        return state

    def _absent(self, file: SealedFile) -> FileState | None:
        path = self.root / file.path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return FileState.GONE
        except OSError:
            return None  # a disk that does not answer now may do so again
        if size != file.bytes or not os.access(path, os.R_OK, effective_ids=True):
            return FileState.DAMAGED
        return None

    def _lose(self, lost: list[SealedFile]) -> bool:
        """Take files out of the index; return whether any was in it."""
        with self._lock:
            there = {file.path for file in self.index.files}
            lost = [file for file in lost if file.path in there]
            if not lost:
                return False
            self._lost.update({file.path: file for file in lost})
            self._unrecorded += lost
            self._replace(file for file in self.index.files if file.path not in self._lost)
        self._log(lost)
        return True

    def _log(self, lost: list[SealedFile]) -> None:
        for file in lost[:NAMED]:
            path = self.root / file.path
            what = "it is not there any more" if file.lost == FileState.GONE else "its bytes have changed"
            log.error(
                "%s: %s, and it was not the store that did it: %d rows of %s from %s to %s can't be "
                "read. What is left is shown, and what the nodes' rings still have is requested again. "
                "Put the file back, if you have a copy, and restart the aggregator.",
                path,
                what,
                file.rows,
                file.block,
                rfc3339(file.first_ts),
                rfc3339(file.last_ts),
            )
        if len(lost) > NAMED:
            log.error("%s: %d more sealed files are not there any more, or damaged", self.root, len(lost) - NAMED)
