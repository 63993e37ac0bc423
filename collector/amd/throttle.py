"""Time for which the firmware held a GPU's clocks back, from its accumulated cycles. Pure.

The firmware counts its control cycles, and the cycles in which each throttler was active, in 32 bits that wrap.
How long a cycle lasts is not published: the share of cycles times the time between two readings is.
"""

from __future__ import annotations

from collections.abc import Mapping

WRAP = 1 << 32


class ThrottleTimes:
    """Seconds of each throttler since the first reading."""

    def __init__(self) -> None:
        self._before: tuple[float, int, dict[str, int]] | None = None
        self.shares: dict[str, float] = {}
        """Share of the time since the reading before, by throttler; empty before the second reading."""
        self._seconds: dict[frozenset[str], float] = {}

    def update(self, cycles: int | None, active: Mapping[str, int], now: float) -> None:
        """Take a reading: all cycles, and those of each throttler; `now` in seconds on a monotonic clock."""
        before, self.shares = self._before, {}
        if cycles is None:
            self._before = None
            return
        self._before = now, cycles, dict(active)
        if before is None:
            return
        at, cycles_before, active_before = before
        passed = (cycles - cycles_before) % WRAP
        if passed == 0 or passed > WRAP // 2:  # no cycle since, or the counters began again
            return
        for name, count in active.items():
            rise = (count - active_before.get(name, count)) % WRAP
            self.shares[name] = rise / passed if rise <= passed else 0.0
        for names in self._seconds:
            self._seconds[names] += self.share(names) * (now - at)

    def share(self, names: frozenset[str]) -> float:
        """Return the share of the throttler that was active longest."""
        return max((self.shares.get(name, 0.0) for name in names), default=0.0)

    def seconds(self, names: frozenset[str]) -> float:
        """Return the seconds in which any of these throttlers was active, counted from the first call on."""
        return self._seconds.setdefault(names, 0.0)

    @property
    def known(self) -> bool:
        """Whether the firmware counts cycles."""
        return self._before is not None
