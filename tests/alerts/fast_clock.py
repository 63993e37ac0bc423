"""A clock that runs faster than life, for the outbox."""

from __future__ import annotations

import asyncio
import time

from alerts.delivery.clock import DeliveryClock


class FastClock(DeliveryClock):
    """So many seconds pass in each; the wall clock can be set."""

    def __init__(self, speed: float = 1.0, begins: int | None = None) -> None:
        self.speed = speed
        self.step = 0
        """ns by which the wall clock was set."""
        self._zero = time.monotonic()
        self._wall_zero = time.time_ns() if begins is None else begins
        super().__init__()

    def monotonic(self) -> float:
        return 1000.0 + (time.monotonic() - self._zero) * self.speed

    def wall(self) -> int:
        return self._wall_zero + round((self.monotonic() - 1000.0) * 1e9) + self.step

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        await super().wait(event, seconds / self.speed)
