"""The loop that measures the load, asks the controller and applies its step."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

from aggregator.impairments import Impairments
from aggregator.load.controller import PARTS, LoadController
from aggregator.load.meter import memory_limit, release_memory, resident_bytes
from aggregator.load.shedding import Shedding

log = logging.getLogger(__name__)

MEASURE_SECONDS = 0.1
DECIDE_EVERY = 5
"""Measurements between two decisions."""
WINDOW_SECONDS = 1.0
"""How long the worst delay of the event loop counts."""
RULE = "overloaded"

LoadReader = Callable[[float], Mapping[str, float]]
"""Returns readings of the load by the name of their signal, given monotonic seconds."""


class LoadShedder:
    """Measures, decides, and reports what is shed as impairments."""

    def __init__(self, shedding: Shedding, impairments: Impairments, memory_bytes: int = 0) -> None:
        """`memory_bytes`: most memory of the process; 0 for the limit of its cgroup, if any."""
        self._shedding = shedding
        self._impairments = impairments
        self._controller = LoadController()
        self._limit = memory_bytes or memory_limit()
        self._delays: deque[tuple[float, float]] = deque()
        """When the loop was held up lately, and for how long."""
        self._decided_at: float | None = None

    async def run(self, read: LoadReader) -> None:
        """Measure and apply until cancelled."""
        due = time.monotonic()
        count = 0
        while True:
            due = max(due + MEASURE_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            self.note_delay(now, now - due)
            readings = read(now)
            count += 1
            if count % DECIDE_EVERY == 0:
                self.decide(now, readings)

    def note_delay(self, now: float, delay: float) -> None:
        """Note that the event loop was held up for `delay` seconds until `now`."""
        self._delays.append((now, delay))
        while self._delays[0][0] < now - WINDOW_SECONDS:
            self._delays.popleft()

    def decide(self, now: float, readings: Mapping[str, float]) -> None:
        """Decide by the readings of other parts and our own, and apply it."""
        found = {**readings, "loop": max((delay for _, delay in self._delays), default=0.0)}
        if self._limit:
            found["memory"] = resident_bytes() / self._limit
        before = self._controller.step
        step = self._controller.update(now, found)
        shedding = self._shedding
        passed = 0.0 if self._decided_at is None else now - self._decided_at
        self._decided_at = now
        for part in PARTS:
            if shedding.sheds(part):
                shedding.seconds[part] += passed
        shedding.step, shedding.refill = step, self._controller.refill
        shedding.reason = self._controller.reason if step else ""
        shedding.readings = found
        if step > before and self._controller.cause == "memory":
            release_memory()
        if step is not before:
            self._report()

    def _report(self) -> None:
        shedding = self._shedding
        log.warning("load: %s%s", shedding.step.name.lower(), f": {shedding.reason}" if shedding.reason else "")
        for part in PARTS:
            if shedding.sheds(part):
                self._impairments.report(RULE, f"load/{part}", shedding.reason)
            else:
                self._impairments.clear(RULE, f"load/{part}")
