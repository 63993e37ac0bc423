"""A source that is ticked by hand, with all that it says kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

from collector.nvml.gpm import SHORTEST
from collector.nvml.source import NvmlSource
from collector.probed.source import ProbedSource
from collector.source import DeviceEvent, Rows
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA
from tests.fake_amd import FakeAmd
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import FACTOR

BOTH = frozenset(Lane)
FAST = frozenset({Lane.FAST})
PATIENCE = 60.0
"""Seconds: more than any machine needs; no test waits for it."""
DEADLINE = 10.0
"""Seconds for a tick: a busy machine must not look like a hung driver."""


class Ticks:
    """Ticks a source against a fake driver until something is so."""

    def __init__(self, fake: FakeDriver | FakeAmd, source: ProbedSource | None = None) -> None:
        self.fake = fake
        self.source: ProbedSource = source or NvmlSource(
            environment=fake.environment, open_wait=20.0, retry=(0.05, 0.2), scout=(0.05, 0.2)
        )
        self.events: list[DeviceEvent] = []
        self.rows: Rows = {}

    async def __aenter__(self) -> Ticks:
        await self.source.open()
        self.hear()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.source.close()

    async def tick(self, lanes: frozenset[Lane] = BOTH, deadline: float = DEADLINE) -> Rows:
        """Take one tick."""
        self.rows = await self.source.read(lanes, 0, time.time_ns(), deadline)
        self.hear()
        return self.rows

    async def until(self, so: Callable[[], bool], lanes: frozenset[Lane] = BOTH, apart: float = 0.02) -> None:
        """Tick, so many seconds apart, until it is so."""
        end = time.monotonic() + PATIENCE * FACTOR
        await self.tick(lanes)
        while not so():
            assert time.monotonic() < end, f"never: {self.state} {self.events}"
            await asyncio.sleep(apart)
            await self.tick(lanes)

    async def sampled(self) -> None:
        """Tick twice, each time after as long as two samples of GPM must be apart: all that it gives is read then."""
        for _ in range(2):
            await asyncio.sleep(1.1 * SHORTEST)
            await self.tick()

    def hear(self) -> None:
        """Take in what happened."""
        self.events += self.source.drain_events()

    def of(self, kind: str) -> list[DeviceEvent]:
        """Return the events of a kind."""
        return [event for event in self.events if event.kind == kind]

    def value(self, metric: str, gpu: int = 0) -> float:
        """A reading of the newest tick."""
        for block in (GPU_FAST, GPU_SLOW):
            names = SCHEMA.blocks[block].names
            if metric in names:
                return self.rows[block][gpu][names.index(metric)]
        raise KeyError(metric)

    def gap(self, metric: str, gpu: int = 0) -> Gap | None:
        """Why a reading of the newest tick is absent."""
        return reason_of(self.value(metric, gpu))

    def gaps(self, gpu: int, block: int = GPU_FAST) -> set[Gap | None]:
        """Return the gaps of a GPU's row."""
        return {reason_of(value) for value in self.rows[block][gpu]}

    @property
    def state(self) -> str:
        """The driver's state."""
        return self.source.inventory.driver_state
