"""Field values: many numbers of one GPU in one call, and how to read their tagged union."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_int
from functools import partial

from collector.nvml.binding import Handle, array_of, function


class FieldBatch:
    """Field values of one GPU, read in one call into an array that is made once."""

    _ENTRY = struct.Struct("=24xIIQ")  # after id, scope, timestamp, latency: type, code, value

    def __init__(self, handle: Handle, fields: list[tuple[int, int]]) -> None:
        self._array = array_of("c_nvmlFieldValue_t", len(fields))
        for entry, (number, scope) in zip(self._array, fields, strict=True):
            entry.fieldId, entry.scopeId = number, scope
        self._bytes = memoryview(self._array).cast("B")
        self.ask: Callable[[], int] = partial(
            function("nvmlDeviceGetFieldValues"), handle, c_int(len(fields)), byref(self._array)
        )
        """Call the driver; the code is that of the whole batch."""
        self._kinds: tuple[int, ...] = ()
        self._codes = (0,) * len(fields)
        self._whole = struct.Struct("")

    def steady(self) -> tuple[float, ...] | None:
        """Return all numbers at once, where every entry succeeded and is of the type that it had
        when they were learned; None where somebody must look at each (`values`)."""
        if not self._kinds:
            return None
        found = self._whole.unpack(self._bytes)
        if found[0::3] != self._kinds or found[1::3] != self._codes:
            self._kinds = ()
            return None
        return found[2::3]

    def learn(self) -> None:
        """Remember the types of an answer in which all succeeded."""
        kinds = tuple(kind for kind, _, _ in self.values())
        if all(kind in _FORMATS for kind in kinds):
            self._kinds = kinds
            self._whole = struct.Struct("=" + "".join(f"24xII{_FORMATS[kind]}" for kind in kinds))

    def values(self) -> Iterator[tuple[int, int, int]]:
        """Yield type, code and 64 raw bits of each entry."""
        return self._ENTRY.iter_unpack(self._bytes)


_FORMATS = {0: "d", 1: "I4x", 2: "Q", 3: "Q", 4: "q", 5: "i4x", 6: "H6x"}
"""By type: how its number stands in the eight bytes."""


def decode(kind: int, raw: int) -> float | None:
    """Return the number in the raw bits of a field; None when it says "not available".

    The driver fills only as many bytes as the type has: the rest is rubbish.
    """
    match kind:
        case 1:  # unsigned int
            raw &= 0xFFFF_FFFF
            return None if raw == 0xFFFF_FFFF else raw
        case 2 | 3:  # unsigned long, unsigned long long
            return None if raw == 0xFFFF_FFFF_FFFF_FFFF else raw
        case 0:  # double
            number: float = struct.unpack("=d", raw.to_bytes(8, sys.byteorder))[0]
            return number
        case 4:  # signed long long
            return raw - (1 << 64) if raw >> 63 else raw
        case 5:  # signed int
            raw &= 0xFFFF_FFFF
            return raw - (1 << 32) if raw >> 31 else raw
        case 6:  # unsigned short
            return raw & 0xFFFF
        case _:
            return None
