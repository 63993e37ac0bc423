"""The last hour of the whole cluster in memory, so that no page asks the store for it: a sample every ten seconds, and how
each figure has changed since."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from aiohttp import web

from aggregator.http.summary import Summarizer
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView
from api.fleet import ClusterTrends, NodeStatus, Trend, TrendGap
from power.snapshot.snapshot import PowerSnapshot

SECONDS = 10.0
SPAN = 3600.0
"""Seconds over which a figure is compared and drawn."""
WINDOW = 300.0
"""Seconds of a mean at either end of that: jobs move the power of a second by a third."""
LEAST_SPAN = 120.0
"""Seconds below which a line would be a dot, and a change one of a moment."""


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
    wall_of: Hashable = None
    """Identity of the nodes in the sum: only sums of the same are compared. None for one that is known in part."""
    gpus_of: Hashable = None
    circuits_of: Hashable = None
    """Identity of the circuits whose load is known; None where a part of the highest is assumed."""


Field = Callable[[ClusterSample], float | None]
"""Function that returns one figure of a sample."""
Identity = Callable[[ClusterSample], Hashable]
"""Function that returns what a figure is of."""


class RecentCluster:
    """Samples of the last hour, and of `WINDOW` before it, oldest first."""

    def __init__(self, view: AggregatorView, summarizer: Summarizer) -> None:
        self._view = view
        self._summarizer = summarizer
        self.samples: deque[ClusterSample] = deque(maxlen=int((SPAN + WINDOW) / SECONDS) + 1)
        self._trends: tuple[ClusterSample, ClusterTrends] | None = None

    async def run(self) -> None:
        """Take samples until it is cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(SECONDS)

    def sample(self) -> None:
        """Take a sample of now."""
        now, electrical = self._view.now(), self._view.electrical
        fleet = self._view.fleet
        summary = self._summarizer.summary(fleet, now)
        wall = electrical.wall_sum(fleet, now)
        heard = hash(frozenset(name for name, node in fleet.nodes.items() if status_of(node, now) is NodeStatus.ONLINE))
        read = sum(model.power_known for model in summary.models)
        nearest, circuits_of = None, None
        if electrical.latest is not None:
            nearest, circuits_of = _nearest(electrical.latest.circuit)
        self.samples.append(
            ClusterSample(
                now,
                wall.watts,
                summary.gpu_power_watts,
                summary.utilization_mean_ratio,
                nearest,
                None if wall.partial or wall.age > SECONDS else (heard, wall.nodes),
                (heard, read),
                circuits_of,
            )
        )

    def trends(self) -> ClusterTrends:
        """Return how power and the fullest circuit have changed; made once for each sample."""
        if not self.samples:
            return ClusterTrends()
        newest = self.samples[-1]
        if self._trends is None or self._trends[0] is not newest:
            found = ClusterTrends(
                wall_watts=self.trend(lambda one: one.wall_watts, lambda one: one.wall_of),
                gpu_power_watts=self.trend(lambda one: one.gpu_watts, lambda one: one.gpus_of),
                nearest_ratio=self.trend(lambda one: one.nearest, lambda one: one.circuits_of),
            )
            self._trends = newest, found
        return self._trends[1]

    def trend(self, field: Field, identity: Identity) -> Trend:
        """Return how a figure has changed since the oldest sample that is of the same, as means of up to `WINDOW` at both
        ends."""
        if not self.samples or field(self.samples[-1]) is None:
            return Trend(gap=TrendGap.UNKNOWN)
        its = identity(self.samples[-1])
        if its is None:
            return Trend(gap=TrendGap.PARTIAL)
        same = [(one.at, value) for one in self.samples if identity(one) == its and (value := field(one)) is not None]
        (first, _), (last, _) = same[0], same[-1]
        span = last - first
        if span < LEAST_SPAN:
            others = last - self.samples[0].at >= LEAST_SPAN
            return Trend(gap=TrendGap.OTHERS if others else TrendGap.SHORT)
        window = min(WINDOW, span / 4)
        return Trend(
            now=fmean(value for at, value in same if at >= last - window),
            before=fmean(value for at, value in same if at <= first + window),
            seconds=span - window,
        )


def _nearest(circuits: PowerSnapshot) -> tuple[float | None, Hashable]:
    """Return the highest share of a rating, and of which circuits it is; of none where a part of its load is assumed."""
    # As the headline has it: a single instant hides a load that comes and goes.
    sustained, now = (circuits.column(f"circuit_{name}_ratio") for name in ("sustained", "load"))
    loads = np.where(sustained > 0, sustained, now)
    known = np.isfinite(loads)
    if not known.any():
        return None, None
    highest = int(np.nanargmax(loads))
    if circuits.column("circuit_assumed_watts")[highest] > 0:
        return float(loads[highest]), None
    return float(loads[highest]), (circuits.version, known.tobytes())


RECENT = web.AppKey("recent_cluster", RecentCluster)
