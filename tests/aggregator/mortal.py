"""An aggregator in a process of its own, to be killed: it says how much it has stored."""

from __future__ import annotations

import asyncio
import json

from aggregator.config import AggregatorConfig
from aggregator.service import Aggregator


def live(config: AggregatorConfig) -> None:
    """Run for ever; a line with the number of stored frames whenever that changes."""
    asyncio.run(_live(Aggregator(config)))


async def _live(aggregator: Aggregator) -> None:
    task = asyncio.create_task(aggregator.run(asyncio.Event()))
    seen = -1
    while not task.done():
        if aggregator.stats.frames_stored != seen:
            seen = aggregator.stats.frames_stored
            print(json.dumps(seen), flush=True)
        await asyncio.sleep(0.005)
    task.result()
