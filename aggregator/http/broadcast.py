"""Wakes viewers when the fleet has new readings; a slow viewer misses ticks and delays no other."""

from __future__ import annotations

import asyncio


class FlushBroadcast:
    """The number of the last flush, and the viewers that wait for the next."""

    def __init__(self) -> None:
        self.number = 0
        self._next: asyncio.Future[None] | None = None

    def tick(self) -> None:
        """Wake everyone who waits."""
        self.number += 1
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def after(self, number: int) -> int:
        """Wait until there was a later flush than `number`; return the number of the last."""
        while self.number <= number:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next)
        return self.number


class Subscription:
    """A viewer's place in the flushes (`aggregator.view.TickQueue`)."""

    def __init__(self, ticks: FlushBroadcast) -> None:
        self._ticks = ticks
        self._seen = ticks.number

    async def wait(self) -> int:
        """Wait for the next flush after the last one seen; returns its number."""
        self._seen = await self._ticks.after(self._seen)
        return self._seen

    def close(self) -> None:
        """Do nothing: a viewer that does not wait costs nothing."""
