"""Bit error rates of a link before correction, and the level at which a link is not to be trusted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.gap import NOT_READ, NOT_SUPPORTED

LEAST_SECONDS = 5.0
"""Shortest time over which a rate is computed."""
LIMITS = ((100.0, 1e-5), (50.0, 1e-7))
"""Gb/s of a lane, and the rate of raw errors that NVIDIA's table calls an error: NDR over optics (copper 1e-6), and
HDR of the 7 nm generation. For EDR it has none that counts corrected bits: there is mostly no correction."""
_TOLERANCE = 1.15
"""Lanes run up to 6 % above their name."""


@dataclass(slots=True)
class _Before:
    bits: float
    at: float
    rate: float


class BitErrors:
    """Rates of corrected bits by port."""

    def __init__(self) -> None:
        self._before: dict[str, _Before] = {}

    def rate(self, port: str, bits: float, speed: float, now: float) -> float:
        """Return the share of the bits of a link that were corrected since the reading before, or a gap. `bits`:
        corrected bits; `speed`: bytes a second of the link."""
        if bits != bits or speed != speed or speed <= 0:  # noqa: PLR0124 - NaN
            self._before.pop(port, None)
            return bits if bits != bits else NOT_READ  # noqa: PLR0124
        before = self._before.get(port)
        if before is not None and now - before.at < LEAST_SECONDS:
            return before.rate
        rate = NOT_READ
        if before is not None and bits >= before.bits:
            rate = (bits - before.bits) / (8 * speed * (now - before.at))
        self._before[port] = _Before(bits, now, rate)
        return rate


def limit(speed: float, lanes: float) -> float:
    """Return the rate that is an error for a link of so many bytes a second over so many lanes."""
    if not speed > 0 or not lanes > 0:
        return NOT_SUPPORTED
    gigabits = speed * 8e-9 / lanes
    return next((rate for lane, rate in LIMITS if lane / _TOLERANCE <= gigabits <= lane * _TOLERANCE), NOT_SUPPORTED)
