"""Counters and timings that the aggregator exports about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Timing:
    """How long something took: enough for a Prometheus summary without quantiles."""

    count: int = 0
    total: float = 0.0
    last: float = 0.0
    highest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one run."""
        self.count += 1
        self.total += seconds
        self.last = seconds
        self.highest = max(self.highest, seconds)


LAG_BOUNDS = tuple(0.001 * 1.5**step for step in range(29))
"""Upper bounds of the buckets of a `Spread`, seconds: 1 ms to 85 s, each half as much again."""


@dataclass(slots=True)
class Spread:
    """How a lag is distributed: enough for a Prometheus histogram, and so for p50 and p99."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_BOUNDS) + 1))
    """By bucket of `LAG_BOUNDS`; the last one is for all that is longer."""
    total: float = 0.0
    highest: float = 0.0

    def add(self, lags: npt.NDArray[np.float64]) -> None:
        """Count lags in seconds; a source's clock that is ahead makes them negative."""
        if lags.size:
            found = np.searchsorted(LAG_BOUNDS, lags)
            new = np.bincount(found, minlength=len(self.counts)).tolist()
            self.counts = [old + more for old, more in zip(self.counts, new, strict=True)]
            self.total += float(lags.sum())
            self.highest = max(self.highest, float(lags.max()))


@dataclass(slots=True)
class Stats:
    """What the aggregator says of itself. Counters only grow."""

    messages: dict[str, int] = field(default_factory=dict)
    """Received, by topic kind."""
    bytes_received: int = 0
    frames_received: int = 0
    frames_stored: int = 0
    frames_backfilled: int = 0
    """Of those stored, the ones that came on request."""
    frames_duplicate: int = 0
    """Came again, and were not stored again."""
    frames_lost: int = 0
    """Recorded as holes: nobody has them any more."""
    holes_open: int = 0
    """Frames missing now and asked for (gauge)."""
    resend_requests: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Messages thrown away, by reason: `malformed`, `oversize`, `foreign`, `schema`, ..."""
    events_stored: int = 0
    events_duplicate: int = 0
    bus_connects: int = 0
    bus_connected: bool = False
    store_errors: int = 0
    remote_samples: int = 0
    """Samples that a receiver of remote write has taken."""
    remote_errors: int = 0
    """Its requests that were not taken, and are made again."""
    remote_dropped: int = 0
    """Samples that nobody will get: refused, or too many waited."""
    store_ok: bool = True
    flush: Timing = field(default_factory=Timing)
    """Batch to fleet matrix."""
    store: Timing = field(default_factory=Timing)
    """Batch to committed."""
    rules: Timing = field(default_factory=Timing)
    lag: Timing = field(default_factory=Timing)
    """Sampled at the node to present in the fleet, seconds; assumes synchronised clocks."""
    shown: Spread = field(default_factory=Spread)
    """The same, distributed, live frames only."""
    judged: Spread = field(default_factory=Spread)
    """Sampled at the node to judged by the rules."""
    committed: Spread = field(default_factory=Spread)
    """Sampled at the node to committed by the store; live frames only."""

    def drop(self, reason: str) -> None:
        """Count a message that is thrown away."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
