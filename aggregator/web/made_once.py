"""Answers that several viewers ask for at about the same time, made once for all of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class MadeOnce(Generic[Made]):
    """Answers by key, each kept for some seconds and no longer than there is room; a fault is not kept."""

    def __init__(self, seconds: float, most: int) -> None:
        self.seconds = seconds
        self.most = most
        self._made: dict[Hashable, tuple[float, asyncio.Future[Made]]] = {}
        """When each was begun, the oldest first."""

    async def read(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Made]], *, anew: bool = False) -> Made:
        """Return what was made under a key lately, or make it; `anew`: make it in any case. Raises what `make` raises."""
        now = asyncio.get_running_loop().time()
        at, made = self._made.get(key, (-math.inf, None))
        failed = made is not None and made.done() and (made.cancelled() or made.exception())
        if made is None or anew or failed or now - at > self.seconds:
            made = asyncio.ensure_future(make())
            self._made.pop(key, None)
            self._made[key] = (now, made)
            self._drop(now)
        return await asyncio.shield(made)

    def _drop(self, now: float) -> None:
        for key, (at, _) in list(self._made.items()):
            if len(self._made) <= self.most and now - at <= self.seconds:
                return
            del self._made[key]
