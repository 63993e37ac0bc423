"""Provisional means: what is stored of frames that are shed, until the nodes' rings send them again.

One row a device and ten seconds: for a gauge the mean of the readings that were decoded, for a counter
the last one. A row names the frames that it is made of, so that the store can replace it by them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aggregator.store.protocol import SPAN_SECONDS, BlockRows, Frames, MeanRows
from telemetry.wire.schema import SCHEMA, Block

IDLE_NS = SPAN_SECONDS * 10**9
"""ns without a shed frame after which a mean is ready."""
_SECOND = 1_000_000_000


class ProvisionalMeans:
    """Means of all blocks that are not ready yet."""

    def __init__(self) -> None:
        self._blocks = [_BlockMeans(number, block) for number, block in enumerate(SCHEMA.blocks)]

    def add(self, frames: Frames, rows: BlockRows) -> None:
        """Add the rows of shed frames; the frames of a device come in order."""
        self._blocks[rows.block].add(frames, rows)

    def drain(self, wall: int) -> list[MeanRows]:
        """Return the means that are ready at `wall`, ns since 1970 of our clock."""
        return [rows for block in self._blocks for rows in block.drain(wall)]

    def __bool__(self) -> bool:
        """Return whether there is anything that is not drained yet."""
        return any(block.used for block in self._blocks)


class _BlockMeans:
    """Open means of one block, a row a device, in the order in which devices were first shed."""

    def __init__(self, number: int, block: Block) -> None:
        self._number = number
        self._width = len(block.gauges), len(block.counters)
        self._slots = np.full(0, -1, np.int32)
        """By number of the device, its row here; -1 for none."""
        self._ready: list[MeanRows] = []
        self._allocate(0)

    @property
    def used(self) -> bool:
        """Whether any mean is open or not drained."""
        return bool(self._ready) or bool((self._frames > 0).any())

    def _allocate(self, count: int) -> None:
        gauges, counters = self._width
        self._device = np.full(count, -1, np.int32)
        self._run = np.full(count, -1, np.int32)
        self._span = np.zeros(count, np.int64)
        self._first = np.zeros(count, np.int64)
        self._last = np.zeros(count, np.int64)
        self._at = np.zeros(count, np.int64)
        self._received = np.zeros(count, np.int64)
        self._frames = np.zeros(count, np.int32)
        self._sums = np.zeros((count, gauges), np.float32)
        self._counts = np.zeros((count, gauges), np.uint16)
        self._counters = np.zeros((count, counters), np.float64)

    def add(self, frames: Frames, rows: BlockRows) -> None:
        position = rows.frame
        runs, sampled = frames.run[position], frames.sampled_at[position]
        slots = self._slots_of(rows.device)
        if len(np.unique(slots)) < len(slots):  # two frames of a node at once: one after the other
            for one in np.unique(position):
                among = position == one
                part = BlockRows(
                    rows.block, position[among], rows.device[among], rows.gauges[among], rows.counters[among]
                )
                self._add(frames, part, runs[among], sampled[among], slots[among])
            return
        self._add(frames, rows, runs, sampled, slots)

    def _add(
        self,
        frames: Frames,
        rows: BlockRows,
        runs: npt.NDArray[np.int32],
        sampled: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int32],
    ) -> None:
        # Nodes begin at ten different seconds, so that not all means are ready at once.
        spans = (sampled // _SECOND + runs % SPAN_SECONDS) // SPAN_SECONDS
        over = (self._frames[slots] > 0) & ((self._span[slots] != spans) | (self._run[slots] != runs))
        self._close(slots[over])
        new = slots[self._frames[slots] == 0]
        numbers = frames.seq[rows.frame]
        self._first[slots] = np.where(self._frames[slots] == 0, numbers, self._first[slots])
        self._sums[new], self._counts[new] = 0, 0
        self._counters[new] = np.nan
        self._run[slots], self._span[slots] = runs, spans
        self._last[slots], self._at[slots] = numbers, sampled
        self._received[slots] = frames.received_at[rows.frame]
        self._frames[slots] += 1
        there = np.isfinite(rows.gauges)
        self._sums[slots] += np.where(there, rows.gauges, np.float32(0))
        self._counts[slots] += there
        old = self._counters[slots]
        self._counters[slots] = np.where(np.isnan(rows.counters), old, rows.counters)

    def drain(self, wall: int) -> list[MeanRows]:
        self._close(np.flatnonzero((self._frames > 0) & (wall - self._received > IDLE_NS)))
        ready, self._ready = self._ready, []
        # As one: the store's statement for each part costs more than its rows.
        return [MeanRows.join(ready)] if ready else []

    def _close(self, slots: npt.NDArray[np.integer]) -> None:
        """Make the open means of these rows ready."""
        if not len(slots):
            return
        counts = self._counts[slots]
        with np.errstate(invalid="ignore"):  # no reading in it: a gap
            gauges = self._sums[slots] / counts.astype(np.float32)
        self._ready.append(
            MeanRows(
                self._number,
                self._device[slots],
                self._run[slots],
                self._first[slots],
                self._last[slots],
                self._at[slots],
                self._received[slots],
                self._frames[slots],
                gauges,
                self._counters[slots],
            )
        )
        self._frames[slots] = 0

    def _slots_of(self, devices: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        highest = int(devices.max(initial=-1))
        if highest >= len(self._slots):
            more = np.full(max(64, 2 * (highest + 1) - len(self._slots)), -1, np.int32)
            self._slots = np.concatenate([self._slots, more])
        slots = self._slots[devices]
        unknown = np.unique(devices[slots < 0])
        if len(unknown):
            begin = int((self._device >= 0).sum())
            self._grow(begin + len(unknown))
            numbers = np.arange(begin, begin + len(unknown), dtype=np.int32)
            self._slots[unknown] = numbers
            self._device[numbers] = unknown
            slots = self._slots[devices]
        return slots

    def _grow(self, count: int) -> None:
        if count <= len(self._device):
            return
        names = [name for name in vars(self) if isinstance(getattr(self, name), np.ndarray)]
        kept = {name: getattr(self, name) for name in names if name != "_slots"}
        used = len(self._device)
        self._allocate(max(64, count, 2 * used))
        for name, values in kept.items():
            getattr(self, name)[:used] = values
