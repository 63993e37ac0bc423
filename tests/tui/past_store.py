"""Ten minutes of a small cluster in a real store behind the real HTTP API: what a dashboard that is
started only now can scrub through. Every reading names its second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from aggregator.electrical.service import ElectricalService
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import FleetPast
from api.alerts import Alert, AlertState, Incident, Severity
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire import frame as frames
from telemetry.wire.schema import SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.fake_view import FakePost
from tests.aggregator.feed import Feed
from tests.aggregator.node import sampled_at
from tests.aggregator.test_http_past import Fed
from tests.tui.cluster import served, until
from tui.app import Top

SECOND = 10**9
LAST = 600
"""The second that it is now."""
LATE = 400
"""The second in which node late joins."""
SILENT = range(200, 230)
"""Seconds of which nothing of node early was stored."""
SITE = {
    "region": "US",
    "circuits": {"wall": {"breaker": 20, "nodes": ["early"]}},
    "nodes": {"early": {"gpus": "2x RTX 5090"}},
}


def watts(second: int, gpu: int = 0) -> float:
    """What a GPU drew: another number every second."""
    return float(100 + second % 500 + gpu)


def payload(gpus: int, second: int, seq: int) -> bytes:
    """A frame of one second."""
    usual = {
        "gpu_power_limit_watts": 700.0, "gpu_temperature_celsius": 60.0,
        "gpu_utilization_ratio": 0.5, "gpu_memory_used_bytes": 2.0**34,
        "gpu_memory_total_bytes": 2.0**36, "gpu_sm_clock_hertz": 1.5e9,
        "node_gpus_answering": float(gpus), "node_wall_power_watts": 1000.0 + second,
    }  # fmt: skip
    blocks = {}
    for number, block in enumerate(SCHEMA.blocks):
        count = {Table.GPU: gpus, Table.NODE: 1, Table.LINK: 0, Table.PORT: 0, Table.INSTANCE: 0}[block.table]
        if count:
            blocks[number] = [
                [
                    watts(second, row) if name == "gpu_power_watts" else usual.get(name, NOT_SUPPORTED)
                    for name in block.names
                ]
                for row in range(count)
            ]
    return frames.encode(frames.build(1, seq, sampled_at(second), blocks))


class GatedStore(StoreExecutor):
    """Counts the questions about the past, and answers them when the gate is open."""

    def __init__(self, view: PastStore) -> None:
        super().__init__(view.feed.store, view.stats)
        self._view = view

    async def past(self, table: Table, *asked: Any) -> FleetPast:
        """Count, and wait for the gate."""
        self._view.asked.append(table.value)
        await self._view.gate.wait()
        return await super().past(table, *asked)


class PastStore(Fed):
    """What the aggregator has at second `LAST`."""

    def __init__(self, folder: Path) -> None:
        feed = Feed(folder)
        feed.wall = sampled_at(0)
        feed.hello("early")
        for seq in range(LAST):
            feed.wall = sampled_at(seq)
            if seq == LATE:
                feed.hello("late")
            if seq >= LATE:
                feed.publish("late", Topic.FRAME, payload(2, seq, seq - LATE))
            if seq not in SILENT:
                feed.publish("early", Topic.FRAME, payload(2, seq, seq))
            if seq % 50 == 49 or seq == LATE:
                feed.commit()
        feed.commit()
        feed.wall = sampled_at(LAST - 1)
        super().__init__(feed)
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        """Closed, the store answers no question about the past."""
        self.gate.set()
        self.electrical = ElectricalService(SITE, folder)

        self.store = GatedStore(self)

    def happened_at(self, second: int, until_: int | None, title: str) -> None:
        """Let an incident have been."""
        post = self.delivery
        assert isinstance(post, FakePost)
        began, ended = sampled_at(second), None if until_ is None else sampled_at(until_)
        alert = Alert(
            key=f"{title}/early",
            rule="hot",
            node="early",
            gpu="GPU-early-0",
            summary=title,
            state=AlertState.FIRING if ended is None else AlertState.RESOLVED,
            severity=Severity.PAGE,
            since=began,
            changed=began if ended is None else ended,
        )
        post.ever.append(
            Incident(
                key=title,
                group={"node": "early"},
                severity=Severity.PAGE,
                title=title,
                began=began,
                changed=began,
                ended=ended,
                alerts=(alert,),
                firing=int(ended is None),
                total=1,
            )
        )


@asynccontextmanager
async def dashboard(
    view: PastStore, size: tuple[int, int] = (100, 30), clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[Pilot[None], Top]]:
    """A dashboard that begins to look now. `clock`: monotonic seconds, by which it also plays."""
    async with served(view) as url:  # type: ignore[arg-type]  # a view as good as any
        app = Top(url, clock=clock, every=0.2)
        beating = asyncio.create_task(_beat(view))
        try:
            async with app.run_test(size=size) as pilot:
                await until(pilot, lambda text: "● LIVE default" in text and " 4/4 " in text)
                yield pilot, app
        finally:
            beating.cancel()


async def _beat(view: PastStore) -> None:
    """Send what there is, again and again: the line lives."""
    while True:
        await view.flush()
        await asyncio.sleep(0.5)
