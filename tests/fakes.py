"""Fakes that behave: a source whose every fault can be scripted, and a die without chance."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from collector.sampling.rows import blocks
from collector.source import DeviceEvent, Rows
from telemetry.devices import Gpu, Link
from telemetry.gap import DEVICE_LOST
from telemetry.metric import Lane, Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA


class FakeSource:
    """A node of a few GPUs that answers at once: each reading is tick + row + column / 1000.

    It can be late (`delay`, seconds), hang (`hung`), fail (`fails`, whatever its contract says),
    lose GPUs (`lose`), add events (`add_event`), and hang when it is opened or closed.
    """

    def __init__(self, gpus: int = 2, links: int = 0) -> None:
        self.inventory = Inventory(
            node="",
            source="fake",
            driver_state="up",
            driver_version="555.55",
            gpus=tuple(
                Gpu(uuid=f"GPU-{number:04d}", index=number, name="Fake H100", pci=f"0000:{number:02x}:00.0")
                for number in range(gpus)
            ),
            links=tuple(Link(gpu=f"GPU-{0:04d}", number=number) for number in range(links)),
        )
        self.delay = 0.0
        self.hung = False
        self.hangs_on_open = False
        self.hangs_on_close = False
        self.fails: Exception | None = None
        self.lost: set[int] = set()
        self.abandoned = 0
        self.calls: list[tuple[int, frozenset[Lane], float]] = []
        """Tick, lanes and deadline of each reading."""
        self.released = 0
        self.resumed = 0
        self.closed = False
        self._reading = False
        self._events: deque[DeviceEvent] = deque()

    def lose(self, number: int, at: int = 0) -> None:
        """Have a GPU fall off the bus."""
        self.lost.add(number)
        gpus = list(self.inventory.gpus)
        gone = gpus[number]
        gpus[number] = Gpu(uuid=gone.uuid, index=gone.index, name=gone.name, present=False)
        self.inventory = Inventory(
            node="", source="fake", driver_state="up", gpus=tuple(gpus), links=self.inventory.links
        )
        self.add_event("gpu_lost", at, gpu=gone.uuid)

    def add_event(self, kind: str, at: int = 0, gpu: str | None = None, **data: object) -> None:
        """Add an event that the next `drain_events` returns."""
        self._events.append(DeviceEvent(kind, at, gpu=gpu, message=f"{kind} happened", data=data))

    def values(self, block: int, tick: int) -> list[list[float]]:
        """What the rows of a block are at a tick."""
        rows = len(self.inventory.links if block not in {GPU_FAST, GPU_SLOW} else self.inventory.gpus)
        width = len(SCHEMA.blocks[block].names)
        return [
            [DEVICE_LOST] * width
            if row in self.lost
            else [tick % 1000 + row + column / 1000 for column in range(width)]
            for row in range(rows)
        ]

    async def open(self) -> None:
        if self.hangs_on_open:
            await asyncio.Event().wait()

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        assert not self._reading, "two ticks at once"
        self._reading = True
        try:
            self.calls.append((tick, lanes, deadline))
            if self.hung:
                await asyncio.Event().wait()
            await asyncio.sleep(self.delay)
            if self.fails is not None:
                raise self.fails
            numbers = blocks(lanes, Table.GPU, Table.LINK)
            return {number: self.values(number, tick) for number in numbers}
        finally:
            self._reading = False

    def drain_events(self) -> list[DeviceEvent]:
        events = list(self._events)
        self._events.clear()
        return events

    async def release(self) -> None:
        self.released += 1

    async def resume(self) -> None:
        self.resumed += 1

    async def close(self) -> None:
        if self.hangs_on_close:
            await asyncio.Event().wait()
        self.closed = True


class Middling(random.Random):
    """A die whose every uniform number is the middle of its range."""

    def uniform(self, a: float, b: float) -> float:
        """Return the mean of the two."""
        return (a + b) / 2
