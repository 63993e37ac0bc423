"""Rate of a counter, for GPUs that don't give the rate itself."""

from __future__ import annotations

from telemetry.gap import GAP, Gap

SHORTEST = 0.1
"""Seconds between two readings of a counter below which their difference says little: drivers renew counters as seldom."""
_NOT_READ = GAP[Gap.NOT_READ]


class Growth:
    """Newest reading of a counter, when it was taken, and the rate until then."""

    __slots__ = ("_at", "_number", "_rate")

    def __init__(self) -> None:
        self._number: float | None = None
        self._at = 0.0
        self._rate = _NOT_READ

    def read(self, number: float, at: float) -> float:
        """Return the growth a second since the reading before; a gap for the first one, and after a fall, which is a reset.

        `at`: when the counter was read, in seconds on a monotonic clock. Where readings in between have failed, the time
        is that since the last that has not. A tick that reads twice has the rate of its first reading.
        """
        before, since = self._number, at - self._at
        if before is not None and since < SHORTEST and number >= before:
            return self._rate
        self._number, self._at = number, at
        known = before is not None and since > 0 and number >= before
        self._rate = (number - before) / since if known and before is not None else _NOT_READ
        return self._rate
