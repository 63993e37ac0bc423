"""Requests that wait for one receiver, and whether it accepts them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Request = TypeVar("Request")


class Recipient(Generic[Request]):
    """A bounded queue, the oldest first, and a line in the log whenever the receiver accepts or refuses anew."""

    def __init__(self, log: logging.Logger, what: str, most: int, weight: Callable[[Request], int]) -> None:
        """`what`: the receiver and what it gets, for the log; `most`: the sum of weights that may wait."""
        self._log, self._what, self._most, self._weight = log, what, most, weight
        self._waiting: deque[Request] = deque()
        self._size = 0
        self._accepted = True

    def add(self, request: Request) -> list[Request]:
        """Add a request; return those that had to go for it, perhaps itself."""
        self._waiting.append(request)
        self._size += self._weight(request)
        gone = []
        while self._size > self._most:
            gone.append(self.pop())
        return gone

    @property
    def first(self) -> Request | None:
        """The request that has waited longest."""
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Request:
        """Remove the request that has waited longest."""
        request = self._waiting.popleft()
        self._size -= self._weight(request)
        return request

    def accepts(self) -> None:
        """Note that a request was accepted."""
        if not self._accepted:
            self._accepted = True
            self._log.info("%s accepts data again", self._what)

    def refuses(self, why: str) -> None:
        """Note that one was not."""
        if self._accepted:
            self._accepted = False
            self._log.warning("%s does not accept data: %s", self._what, why)
