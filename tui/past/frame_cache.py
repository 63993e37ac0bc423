"""Cache of frames of the past: compressed, one per slot of time, bounded by bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from api.columns import ColumnRows, Gaps, PackedFrame, PackedFramesReply
from tui.state.gpus import GpuRows, Gpus, unpacked
from tui.state.readings import WALL

MOST_BYTES = 6 * 1024 * 1024
HEARD = "node_gpus_answering"
"""A metric that every node reports in every frame."""
_SILENT = {"stale", "not_read"}


@dataclass(frozen=True, slots=True)
class CachedFrame:
    """The readings of one instant, compressed."""

    at: int
    gpus: Gpus
    """Identity of the rows, without readings."""
    names: tuple[str, ...]
    columns: bytes
    gaps: Gaps
    nodes: Mapping[str, float | None]
    """Nodes that reported, with their wall power if they measure it."""

    def readings(self) -> Gpus:
        """Return all GPUs with their readings."""
        rows = unpack_table(self.columns, len(self.names))
        columns = dict(zip(self.names, rows, strict=True))
        return replace(self.gpus, columns=columns, gaps=self.gaps)


class FrameCache:
    """Frames by slot: the number of the step that each begins."""

    def __init__(self) -> None:
        self.step = 0
        """ns between two slots."""
        self._frames: dict[int, CachedFrame] = {}
        self._bytes = 0

    def set_step(self, step: int) -> None:
        """Set the distance of frames; another one clears the cache."""
        if step != self.step:
            self.step, self._frames, self._bytes = step, {}, 0

    def slot(self, at: int) -> int:
        """Return the slot of an instant."""
        return at // max(1, self.step)

    def __contains__(self, slot: object) -> bool:
        """Return whether a slot is cached."""
        return slot in self._frames

    def find(self, at: int) -> CachedFrame | None:
        """Return the frame of the slot of an instant."""
        return self._frames.get(self.slot(at))

    def holds(self, frames: int) -> bool:
        """Return whether there is room for so many frames, by the size of those in the cache."""
        return not self._frames or frames * self._bytes <= MOST_BYTES * len(self._frames)

    def add(self, frames: list[CachedFrame], shown: int) -> None:
        """Add frames; those farthest from the shown instant are dropped first."""
        for frame in frames:
            slot = self.slot(frame.at)
            self._drop(slot)
            self._frames[slot] = frame
            self._bytes += len(frame.columns)
        here = self.slot(shown)
        while self._bytes > MOST_BYTES and len(self._frames) > 1:
            self._drop(max(self._frames, key=lambda slot: abs(slot - here)))

    def _drop(self, slot: int) -> None:
        old = self._frames.pop(slot, None)
        self._bytes -= 0 if old is None else len(old.columns)


def frames_of(gpus: PackedFramesReply, nodes: PackedFramesReply, newest: Gpus) -> list[CachedFrame]:
    """Make frames of two answers. `newest`: rows of today, kept where they are the same. Raises
    `ValueError`. May run in a thread."""
    who = _identity(gpus.rows, newest)
    heard = {frame.at: _nodes_heard(nodes.rows, frame) for frame in nodes.frames}
    return [_frame(frame, who, heard.get(frame.at, {})) for frame in gpus.frames]


def _identity(rows: ColumnRows, newest: Gpus) -> Gpus:
    who = GpuRows.of(rows)
    if who.uuid == newest.who.uuid and who.present == newest.who.present:
        return replace(newest, columns={}, gaps={})
    return Gpus(-2 - zlib.crc32("\n".join(who.uuid).encode()), who)


def _frame(frame: PackedFrame, who: Gpus, nodes: Mapping[str, float | None]) -> CachedFrame:
    names = tuple(frame.columns)
    columns = [unpacked(frame.columns[name], len(who)) for name in names]
    table = np.stack(columns) if columns else np.empty((0, len(who)))
    return CachedFrame(frame.at, who, names, pack_table(table), frame.gaps, nodes)


def _nodes_heard(rows: ColumnRows, frame: PackedFrame) -> dict[str, float | None]:
    watts = unpacked(frame.columns[WALL], len(rows.node))
    reported = unpacked(frame.columns[HEARD], len(rows.node))
    reasons = frame.gaps.get(HEARD, {})
    found: dict[str, float | None] = {}
    for row, node in enumerate(rows.node):
        gap = reasons.get(str(row), reasons.get("*", "")) if np.isnan(reported[row]) else ""
        if gap not in _SILENT:
            found[node] = None if np.isnan(watts[row]) else float(watts[row])
    return found


# -- Packed tables -------------------------------------------------------------------------------
# A reading jitters in its last bits, and noise does not compress. Twelve bits less leave three and a
# half digits; laid byte by byte, signs and exponents of a column are alike: a third of the bytes.

DROPPED = 12
"""Bits of a float32's 23 after the point: 1 in 4096 is left."""
_NAN = np.uint32(0x7FC00000)


def pack_table(table: npt.NDArray[np.float64]) -> bytes:
    """Compress a table of numbers; a gap stays a gap."""
    bits = table.astype("<f4").view("<u4")
    kept = (bits + np.uint32(1 << (DROPPED - 1))) & np.uint32(0xFFFFFFFF << DROPPED & 0xFFFFFFFF)
    kept[np.isnan(table)] = _NAN
    planes = kept.astype("<u4").view(np.uint8).reshape(-1, 4).T
    return zlib.compress(planes.tobytes(), 1)


def unpack_table(packed: bytes, rows: int) -> npt.NDArray[np.float64]:
    """Return a compressed table of so many rows."""
    planes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(4, -1)
    values = np.ascontiguousarray(planes.T).view("<f4").astype(np.float64)
    return values.reshape(rows, -1) if rows else np.empty((0, 0))
