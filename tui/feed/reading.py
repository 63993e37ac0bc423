"""The documents that a screen shows: each looked at when it is due, none waiting for another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from tui.board import Board
from tui.feed.requests import Requests
from tui.feed.wants import ALWAYS, RARE, SELDOM, SHARE, Ask, Wants

AT_ONCE = 4
"""Documents that are asked for beside each other."""


class Reading(Requests):
    """Keeps the documents of a board up to date."""

    def __init__(
        self,
        url: str,
        token: str | None,
        changed: Callable[[], None],
        clock: Callable[[], float],
        every: float = 1.0,
    ) -> None:
        super().__init__(url, token)
        self.board = Board()
        self._changed, self._clock, self._every = changed, clock, every
        self._wants = Wants()
        self._data_came = float("-inf")
        self._news = asyncio.Event()
        """Something is wanted, or has come."""
        self._few = asyncio.Semaphore(AT_ONCE)
        self._due: dict[str, float] = {}
        self._asked: set[str] = set()
        """Documents that are on their way."""

    @property
    def wants(self) -> Wants:
        """What is asked for."""
        return self._wants

    def want(self, wants: Wants) -> None:
        """Ask for something else from now on."""
        for ask in wants.asks:
            if ask not in self._wants.asks:
                self._due.pop(ask.path, None)
        self._wants = wants
        self._news.set()

    def hurry(self, *paths: str) -> None:
        """Look at documents again at once: something was done to them."""
        for path in paths:
            self._due.pop(path, None)
        self._news.set()

    @property
    def _all(self) -> tuple[Ask, ...]:
        return (*self._wants.asks, *ALWAYS)

    async def _keep_reading(self) -> None:
        """Look at what is wanted whenever it is due. Returns only by an exception."""
        self._due.clear()
        self._asked.clear()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._news.clear()
                    for ask in self._all:
                        if self._when(ask) <= self._clock():
                            self._asked.add(ask.path)
                            group.create_task(self._read(ask), name=f"dashboard {ask.path}")
                    soon = min(map(self._when, self._all)) - self._clock()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(0.05, min(soon, SELDOM))):
                            await self._news.wait()
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None

    def _when(self, ask: Ask) -> float:
        """When a document is due; never while it is on its way."""
        return float("inf") if ask.path in self._asked else self._due.get(ask.path, 0.0)

    async def _read(self, ask: Ask) -> None:
        try:
            async with self._few:
                began = self._clock()
                value = await self.document(ask)
        finally:
            self._asked.discard(ask.path)
            self._news.set()
        now = self._clock()
        rest = min((now - began) / SHARE, RARE if ask.every >= RARE / 10 else SELDOM)
        self._due[ask.path] = now + max(ask.every, self._every, rest)
        self.board = self.board.with_doc(ask.path, value, now)
        wanted = {one.path for one in self._all}
        if len(self.board.docs) > len(wanted) + 16:
            kept = {path: doc for path, doc in self.board.docs.items() if path in wanted}
            self.board = replace(self.board, docs=kept)
        self._looked()
        if ask in self._wants.asks:  # what the screen is about: at once
            self._changed()

    def _looked(self) -> None:
        """Readings that flow show what else is new in passing: one repaint for each of them."""
        if self._clock() - self._data_came > 1.5 * self._every:
            self._changed()
