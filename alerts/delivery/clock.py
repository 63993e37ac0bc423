"""The clock of deliveries, which have wall times while a wall clock may be stepped."""

from __future__ import annotations

import asyncio
import contextlib
import time


class DeliveryClock:
    """Wall time, monotonic time, and a wall time that never goes back. Tests run it faster."""

    def __init__(self) -> None:
        self._began_wall = self.wall()
        self._began = self.monotonic()
        self._latest = self._began_wall

    def wall(self) -> int:
        """Return the wall clock as it is, ns since 1970."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, at most for some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def now(self) -> int:
        """Return ns since 1970 for comparison with due times. Never goes back, so that a step of the
        wall clock delays no page."""
        self._latest = max(self._latest, self.wall(), self._steady())
        return self._latest

    def age(self, since: int) -> float:
        """Return seconds since a wall time, by the wall clock or by the steady one, whichever is
        less, so that no step makes a page too old to be sent."""
        return (min(self.wall(), self._steady()) - since) / 1e9

    def _steady(self) -> int:
        return self._began_wall + round((self.monotonic() - self._began) * 1e9)
