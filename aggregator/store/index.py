"""The index over the manifest: the files that hold one device's readings of a span of time.

A fleet of 100,000 GPUs leaves some hundred files an hour; a query about one GPU must not test each
file of a year. Periods are found by their span of time, slices by their range of devices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np

from aggregator.store.manifest import RAW, SealedFile

SECOND = 1_000_000_000


class Slices:
    """The files of one kind, block and period, which divide its devices among them."""

    def __init__(self, files: Iterable[SealedFile]) -> None:
        self.files = sorted(files, key=lambda file: file.low_device)
        self._low = [file.low_device for file in self.files]
        self._reach: list[str] = []
        """The highest device of each file and all before it: a period that was sealed twice has
        slices that overlap."""
        for file in self.files:
            before = self._reach[-1] if self._reach else ""
            self._reach.append(max(before, file.high_device))

    def of(self, device: str) -> list[SealedFile]:
        """Return the files that may hold a device."""
        found = []
        at = bisect_right(self._low, device) - 1
        while at >= 0 and self._reach[at] >= device:
            if self.files[at].high_device >= device:
                found.append(self.files[at])
            at -= 1
        return found


class _Block:
    """The files of one block."""

    def __init__(self, files: Iterable[SealedFile]) -> None:
        periods: dict[int, dict[int, list[SealedFile]]] = {}
        for file in files:
            periods.setdefault(file.period, {}).setdefault(file.step, []).append(file)
        self._periods = [{step: Slices(found) for step, found in steps.items()} for steps in periods.values()]
        every = [[file for found in steps.values() for file in found] for steps in periods.values()]
        self._first = np.array([min(file.first_ts for file in each) for each in every], np.int64)
        self._last = np.array([max(map(_ends, each)) for each in every], np.int64)
        self.widest = max((step for steps in periods.values() for step in steps), default=0)

    def periods(self, start: int, end: int) -> list[dict[int, Slices]]:
        """Return the slices by step of all periods that may hold readings of a span of time."""
        among = np.flatnonzero((self._first < end) & (self._last > start))
        return [self._periods[at] for at in among.tolist()]


class Index:
    """The sealed files of a store."""

    def __init__(self, files: Iterable[SealedFile]) -> None:
        self.files = list(files)
        blocks: dict[str, list[SealedFile]] = {}
        for file in self.files:
            blocks.setdefault(file.block, []).append(file)
        self._blocks = {name: _Block(found) for name, found in blocks.items()}
        self.raw_bytes = sum(file.bytes for file in self.files if file.kind == RAW)
        self.rollup_bytes = sum(file.bytes for file in self.files) - self.raw_bytes

    def spanning(self, block: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the files to read for all devices, as `find`. A bucket that ended before the span still
        counts for as long as it was: until the next one ends."""
        among = self._blocks.get(block)
        widest = 0 if among is None else among.widest * SECOND
        return [
            file
            for file in self._among(block, start - widest, end, step, lambda slices: slices.files)
            if _ends(file) + file.step * SECOND > start
        ]

    def find(self, block: str, device: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the files to read for buckets of `step` seconds; times in ns since 1970.

        Each period is read from one kind of file only, or its readings would count twice.
        """
        return self._among(block, start, end, step, lambda slices: slices.of(device))

    def _among(
        self, block: str, start: int, end: int, step: float, of: Callable[[Slices], list[SealedFile]]
    ) -> list[SealedFile]:
        among = self._blocks.get(block)
        if among is None:
            return []
        found: list[SealedFile] = []
        for slices in among.periods(start, end):
            kinds = {kind: files for kind, each in slices.items() if (files := of(each))}
            if kinds:
                found += kinds[choose(kinds, step)]
        return [file for file in found if file.first_ts < end and _ends(file) > start]


def choose(steps: Iterable[int], step: float) -> int:
    """Return the best of the steps that a period has; 0 represents the readings."""
    there = set(steps)
    fitting = [each for each in there if 0 < each <= step and step % each == 0]
    return max(fitting) if fitting else min(there)


def _ends(file: SealedFile) -> int:
    """Return when the last bucket or reading of a file is over, ns since 1970."""
    return file.last_ts + max(1, file.step) * SECOND
