"""The last hour of the whole cluster in memory, so that no page asks the store for it: a sample every ten seconds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from aiohttp import web

from aggregator.http.summary import Summarizer
from aggregator.view import AggregatorView
from telemetry.text import duration

SECONDS = 10.0
SPAN = 3600.0
"""Seconds that are kept."""
LEAST_SPAN = 120.0
"""Seconds below which a line would be a dot."""
_WIDTH, _HEIGHT = 100.0, 30.0


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster at one instant; None is not known."""

    at: float
    """Seconds of the monotonic clock."""
    wall_watts: float | None = None
    gpu_watts: float | None = None
    use: float | None = None
    """Mean utilisation of the GPUs, 0 to 1."""
    nearest: float | None = None
    """Highest share of a breaker's rating that any circuit carries."""


Field = Callable[[ClusterSample], float | None]
"""Function that returns one figure of a sample."""


class RecentCluster:
    """Samples of the last hour, oldest first."""

    def __init__(self, view: AggregatorView, summarizer: Summarizer) -> None:
        self._view = view
        self._summarizer = summarizer
        self.samples: deque[ClusterSample] = deque(maxlen=int(SPAN / SECONDS) + 1)

    async def run(self) -> None:
        """Take samples until it is cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(SECONDS)

    def sample(self) -> None:
        """Take a sample of now."""
        now, electrical = self._view.now(), self._view.electrical
        summary = self._summarizer.summary(self._view.fleet, now)
        highest = np.nan
        if electrical.latest is not None:
            # As the headline has it: a single instant hides a load that comes and goes.
            sustained, now_ratio = (electrical.latest.circuit.column(f"circuit_{name}_ratio") for name in ("sustained", "load"))  # fmt: skip
            loads = np.where(sustained > 0, sustained, now_ratio)
            highest = float(np.fmax.reduce(loads, initial=np.nan))
        self.samples.append(
            ClusterSample(
                now, electrical.wall_sum(self._view.fleet, now).watts, summary.gpu_power_watts, summary.utilization_mean_ratio,
                None if np.isnan(highest) else highest,
            )
        )  # fmt: skip

    def change(self, field: Field) -> tuple[float, float] | None:
        """Return by how much a figure has changed, and in how many seconds, from the oldest sample that knows it;
        None where there is no other, or the newest does not know it."""
        known = [(one.at, value) for one in self.samples if (value := field(one)) is not None]
        if len(known) < 2 or field(self.samples[-1]) is None:
            return None
        (first, before), (last, value) = known[0], known[-1]
        return value - before, last - first

    def spark(self, field: Field) -> str:
        """Return a figure over the last hour as a small line."""
        return spark(self.samples, field)


RECENT = web.AppKey("recent_cluster", RecentCluster)


def spark(samples: Iterable[ClusterSample], field: Field) -> str:
    """Return a figure over the last hour as a small line; "" with less than two samples, or of too short a time. It stops where the figure
    is not known or no sample was taken."""
    points = [(one.at, field(one)) for one in samples]
    known = [value for _, value in points if value is not None]
    if len(known) < 2 or points[-1][0] - points[0][0] < LEAST_SPAN:
        return ""
    low, high = min(0.0, *known), max(known)
    end = points[-1][0]
    way, before = "", None
    for at, value in points:
        if value is None:
            before = None
            continue
        x = _WIDTH * (1 - (end - at) / SPAN)
        y = _HEIGHT * (1 - (value - low) / (high - low or 1.0))
        joined = before is not None and at - before < 2.5 * SECONDS
        way += f"{'L' if joined else 'M'}{x:.1f} {y:.1f}"
        before = at
    words = f"the last {duration(end - points[0][0])}"
    return f'<svg class="spark" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none" role="img" aria-label="{words}"><path d="{way}"/></svg>'
