"""Ticks of the loops of an aggregator."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator


async def every(seconds: float, stop: asyncio.Event | None = None) -> AsyncIterator[float]:
    """Yield once per `seconds` on a fixed grid, until `stop`; ticks that were missed are not made up for."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    while stop is None or not stop.is_set():
        wait = max(0.0, due - loop.time())
        if stop is None:
            await asyncio.sleep(wait)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await stop.wait()
            if stop.is_set():
                return
        yield loop.time()
        due += seconds * max(1, math.ceil((loop.time() - due) / seconds))
