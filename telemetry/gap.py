"""Typed absence: a NaN that carries its reason in its payload.

A reading is a float. An absent one is a NaN whose payload is the reason, so that absence is never a
number and needs no second array. The reason sits in the bits of a float64 that survive the
cast to float32 (bits 29 and up), so one Python float serves both widths on the wire.
No NumPy here, since the collector has none. The vectorised form is in `telemetry.fleet`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

_SHIFT = 29  # float64 keeps 29 mantissa bits more than float32
_QUIET64 = 0x7FF8_0000_0000_0000
_QUIET32 = 0x7FC0_0000
REASON_MASK = 0xFF


class Gap(IntEnum):
    """Why a reading is absent. The numbers are on the wire: only add, never renumber."""

    UNKNOWN = 0
    """A NaN that came without a reason."""
    NOT_SUPPORTED = 1
    """The device, the driver or the source does not have this metric."""
    NO_PERMISSION = 2
    """The metric exists, but this process may not read it."""
    TIMED_OUT = 3
    """The driver did not answer before the tick's deadline."""
    DEVICE_LOST = 4
    """The device has left the bus, or waits for a reset."""
    ERROR = 5
    """The driver answered with any other error."""
    STALE = 6
    """The last value is too old to be shown as current."""
    NOT_READ = 7
    """The metric was not read yet: the slow lane before its first turn."""
    PAUSED = 8
    """The collector does not ask: the GPU's firmware has stopped, and each call would wait for it."""
    SATURATED = 9
    """The counter stands at its maximum, and counts no more until somebody resets it."""
    LATE = 10
    """The collector did not get to it before the tick's deadline, for want of a processor or because other devices
    took long; of this device that says nothing."""

    @property
    def word(self) -> str:
        """The reason as JSON has it: `not_supported`."""
        return self.name.lower()


def gap(reason: Gap) -> float:
    """Return the NaN that carries `reason`."""
    return float(struct.unpack("<d", struct.pack("<Q", _QUIET64 | (int(reason) << _SHIFT)))[0])


GAP: dict[Gap, float] = {reason: gap(reason) for reason in Gap}
"""The NaN of each reason, made once."""

NOT_SUPPORTED = GAP[Gap.NOT_SUPPORTED]
NO_PERMISSION = GAP[Gap.NO_PERMISSION]
TIMED_OUT = GAP[Gap.TIMED_OUT]
DEVICE_LOST = GAP[Gap.DEVICE_LOST]
ERROR = GAP[Gap.ERROR]
STALE = GAP[Gap.STALE]
NOT_READ = GAP[Gap.NOT_READ]
PAUSED = GAP[Gap.PAUSED]
SATURATED = GAP[Gap.SATURATED]
LATE = GAP[Gap.LATE]


def reason_of(value: float) -> Gap | None:
    """Return why `value` is absent, or None when it is a number."""
    if value == value:  # noqa: PLR0124 - the only test of NaN that calls nothing
        return None
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    number = (bits >> _SHIFT) & REASON_MASK
    return Gap(number) if number in Gap._value2member_map_ else Gap.UNKNOWN


def bits32(reason: Gap) -> int:
    """Return the float32 bit pattern of a gap, as on the wire."""
    return _QUIET32 | int(reason)
