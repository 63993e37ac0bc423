"""Messages that wait while the rules are evaluated: in slices, and on a fleet that must not change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aggregator.load.round_robin import RoundRobin

AT_ONCE = 500
"""Messages that are processed before others on the loop have their turn: about 10 ms."""

Receive = Callable[[str, bytes, float, int], None]
"""Processes a message: topic, payload, monotonic seconds and ns since 1970 of its arrival."""
Hold = Callable[[str, bytes, float, int], bool]
"""The same of messages that change nothing of the fleet; returns False for any other."""


async def when_idle(idle: asyncio.Event) -> None:
    """Wait until an event is set, and still is: the next evaluation may have begun since it was."""
    while not idle.is_set():
        await idle.wait()


class HeldMessages:
    """Passes messages on in their order: at once, or when the fleet may change again."""

    def __init__(
        self,
        receive: Receive,
        idle: asyncio.Event,
        round_robin: RoundRobin | None = None,
        hold: Hold = lambda *_: False,
    ) -> None:
        """`idle`: set while the fleet may change. `round_robin`: the turns of long work. `hold`: is called first, unless
        others wait."""
        self._round_robin = round_robin or RoundRobin()
        self._receive = receive
        self._idle = idle
        self._hold = hold
        self._waiting: deque[tuple[str, bytes, float, int]] = deque()
        self._some = asyncio.Event()

    def add(self, topic: str, payload: bytes, now: float, wall: int) -> None:
        """Process a message, or hold it."""
        if not self._waiting:
            if self._hold(topic, payload, now, wall):
                return
            if self._idle.is_set():
                self._receive(topic, payload, now, wall)
                return
        self._waiting.append((topic, payload, now, wall))
        self._some.set()

    def release(self, most: int | None = None) -> None:
        """Process the messages that are held, `most` at most."""
        for _ in range(len(self._waiting) if most is None else min(most, len(self._waiting))):
            self._receive(*self._waiting.popleft())
        if not self._waiting:
            self._some.clear()

    async def run(self) -> None:
        """Process held messages as soon as they may be, until cancelled."""
        while True:
            await self._some.wait()
            await when_idle(self._idle)
            self.release(AT_ONCE)
            await self._round_robin.turn()
