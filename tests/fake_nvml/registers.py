"""Energy counters of a scripted driver that grow as those of GPUs do, and what they grew by between two times."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pynvml

from tests.fake_nvml import FakeDriver

PEAK = 3
"""Power of a GPU in each second second, in parts of that in the others: no sum of samples is right."""


class Registers:
    """Energy counters of the GPUs of a driver. Each draws 100 W times its number and one more, and three times that in each
    second second, from when the block begins until it ends or `stop`; before and after they stand still."""

    def __init__(self, driver: FakeDriver, gpus: int) -> None:
        """Start with all registers at 0, where they stay until the block begins."""
        self._driver, self._gpus = driver, gpus
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._grow)
        self.begin = self.end = float("inf")
        self.late = 0.0
        """Most seconds for which a register stood still."""
        self._show(time.time())

    def watts(self, gpu: int) -> float:
        """Return the least that a GPU draws; it draws `PEAK` times that at most."""
        return 100.0 * (gpu + 1)

    def joules(self, gpu: int, at: float) -> float:
        """Return what a GPU has drawn by a time, seconds since 1970."""
        passed = max(0.0, min(at, self.end) - self.begin)
        return self.watts(gpu) * (passed + (PEAK - 1) * (passed // 2 + max(0.0, passed % 2 - 1)))

    def grown(self, gpu: int, begin: float, end: float) -> float:
        """Return what a GPU drew between two times, seconds since 1970."""
        return self.joules(gpu, end) - self.joules(gpu, begin)

    def of(self, allocations: Iterable[Mapping[str, Any]], numbers: Mapping[str, int]) -> tuple[float, float]:
        """Return what GPUs drew in allocations that have ended and do not overlap, and by how much that may be off where
        registers stood still around an edge. `numbers`: of the GPUs by UUID."""
        truth = slack = 0.0
        for each in allocations:
            gpu = numbers[each["gpu"]]
            truth += self.grown(gpu, each["begin"] / 1e9, each["end"] / 1e9)
            slack += 2 * PEAK * self.watts(gpu) * self.late
        return truth, slack

    def total(self) -> float:
        """Return what all GPUs have drawn by now."""
        return sum(self.joules(gpu, time.time()) for gpu in range(self._gpus))

    def __enter__(self) -> Registers:
        self.begin = time.time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Have them stand still, at what they have drawn by now."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self.end = time.time()
            self._show(self.end)

    def _grow(self) -> None:
        before = time.time()
        while not self._ended.wait(0.1):
            now = time.time()
            self.late, before = max(self.late, now - before), now
            self._show(now)

    def _show(self, now: float) -> None:
        self._driver.fields(
            pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
            {gpu: int(1000 * self.joules(gpu, now)) for gpu in range(self._gpus)},
        )
