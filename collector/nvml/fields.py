"""Field values: many numbers of one GPU in one call, and how to read their tagged union."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from ctypes import byref, c_int

from collector.nvml.binding import Handle, array_of, function


class FieldBatch:
    """Field values of one GPU, read in one call into an array that is made once."""

    _ENTRY = struct.Struct("=24xIIQ")  # after id, scope, timestamp, latency: type, code, value

    def __init__(self, handle: Handle, fields: list[tuple[int, int]]) -> None:
        self._array = array_of("c_nvmlFieldValue_t", len(fields))
        for entry, (number, scope) in zip(self._array, fields, strict=True):
            entry.fieldId, entry.scopeId = number, scope
        self._function = function("nvmlDeviceGetFieldValues")
        self._arguments = (handle, c_int(len(fields)), byref(self._array))

    def ask(self) -> int:
        """Call the driver; the code is that of the whole batch."""
        return self._function(*self._arguments)

    def values(self) -> Iterator[tuple[int, int, int]]:
        """Yield type, code and 64 raw bits of each entry."""
        return self._ENTRY.iter_unpack(memoryview(self._array).cast("B"))


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
