"""Turns of long work on the event loop: one piece in each iteration. A request then waits for the piece of
one task, not for those of all."""

from __future__ import annotations

import asyncio
from collections import deque


class RoundRobin:
    """Gives its callers one turn after the other, each in an iteration of the event loop of its own."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def turn(self) -> None:
        """Wait for the caller's turn, which lasts until it waits for anything."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled
                turn.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._next)
