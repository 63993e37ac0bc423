"""Readings as they are kept for the time bar: to three and a half digits, a third of the bytes.

A reading jitters in its last bits, and noise can't be packed. What is left lies byte by byte: signs
and exponents of a column are alike, and pack to nothing.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

DROPPED = 12
"""Bits of a float32's 23 after the point: 1 in 4096 is left."""
_NAN = np.uint32(0x7FC00000)


def pack(table: npt.NDArray[np.float64]) -> bytes:
    """Make a table of numbers small; a gap stays a gap."""
    bits = table.astype("<f4").view("<u4")
    kept = (bits + np.uint32(1 << (DROPPED - 1))) & np.uint32(0xFFFFFFFF << DROPPED & 0xFFFFFFFF)
    kept[np.isnan(table)] = _NAN
    planes = kept.astype("<u4").view(np.uint8).reshape(-1, 4).T
    return zlib.compress(planes.tobytes(), 1)


def unpack(packed: bytes, rows: int) -> npt.NDArray[np.float64]:
    """Make a table of it again, of so many rows."""
    planes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(4, -1)
    values = np.ascontiguousarray(planes.T).view("<f4").astype(np.float64)
    return values.reshape(rows, -1) if rows else np.empty((0, 0))
