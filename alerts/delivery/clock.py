"""The clock of what is sent: deliveries carry wall times, and a wall clock may step."""

from __future__ import annotations

import asyncio
import contextlib
import time


class DeliveryClock:
    """Three readings of one time. Tests run it faster than life."""

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
        """Wait for an event, for so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # `wait_for` can lose a cancellation on 3.11
                await event.wait()

    def now(self) -> int:
        """Return the time by which something is due: never goes back, so that a step of the wall
        clock holds no page up."""
        self._latest = max(self._latest, self.wall(), self._steady())
        return self._latest

    def age(self, since: int) -> float:
        """Return seconds since a wall time, by the wall clock or by the steady one, whichever is
        less: no step makes a page too old to be sent."""
        return (min(self.wall(), self._steady()) - since) / 1e9

    def _steady(self) -> int:
        return self._began_wall + round((self.monotonic() - self._began) * 1e9)
