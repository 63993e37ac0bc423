"""A reading of a source, guarded against sources that break their contract."""

from __future__ import annotations

import asyncio

from collector.sampling import rows as readings
from collector.source import Rows, Source
from telemetry.gap import ERROR, TIMED_OUT
from telemetry.metric import Lane


async def read(
    source: Source, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float, grace: float
) -> tuple[Rows, str]:
    """Return the rows of a tick and the problem, "" without one; always within `deadline` plus
    `grace` seconds. When a source raises, overruns or returns misshapen rows, all are gaps."""
    numbers = readings.blocks(lanes, *readings.OF_SOURCES)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            # Half of the grace counts from when this loop runs again: a source must not be cancelled with its
            # answer at hand because this process had no processor.
            timer = loop.call_later(deadline + grace / 2, lambda: limit.reschedule(loop.time() + grace / 2))
            try:
                rows = await source.read(lanes, tick, now_ns, deadline)
            finally:
                timer.cancel()
    except TimeoutError:
        gaps = readings.filled(source.inventory, numbers, TIMED_OUT)
        return gaps, "the source did not return in time"
    except Exception as error:  # noqa: BLE001 - a source at fault must not silence its node
        gaps = readings.filled(source.inventory, numbers, ERROR)
        return gaps, f"the source raised {type(error).__name__}: {error}"
    return readings.checked(source.inventory, rows, lanes)
