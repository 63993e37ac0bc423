"""How slow the machine is on which the gate runs. Its patience follows from that, and what runs at the same time."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

FAST_SECONDS = 0.13
"""Of the work below where the gate takes half an hour, with all processors at it; reckoned from a machine on which tests
that compute took 2.05 times as long as there."""
ROUNDS = 5
SLOW = 1.5
"""From here on fewer tests run at the same time: parts that talk to each other would wait for a processor longer than
their own timeouts, which no patience of a test stretches."""


def slowness() -> float:
    """Return how many times as long as there Python takes for the same here; 1 where it takes no longer."""
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count) as pool:
        spent = [*pool.map(_work, range(ROUNDS * count))]
    return max(1.0, round(statistics.median(spent) / FAST_SECONDS, 1))


def workers(slow: float) -> int:
    """Return how many processes run tests. Most tests wait for more than half of their time for servers and for the
    clock of other processes: with two for each processor, a quarter of both was idle on a fast machine."""
    return (3 if slow >= SLOW else 5) * (os.cpu_count() or 1) // 2


def _work(_: int) -> float:
    began = time.perf_counter()
    texts: dict[int, str] = {}
    for number in range(1_000_000):
        texts[number % 5003] = str(number)
    return time.perf_counter() - began
