"""Counters and timings that the aggregator exports about itself; it counts in these very objects."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Timing(msgspec.Struct):
    """Durations of a repeated task: enough for a Prometheus summary without quantiles."""

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

    def add_all(self, seconds: Sequence[float]) -> None:
        """Count several runs, at least one."""
        self.count += len(seconds)
        self.total += sum(seconds)
        self.last = seconds[-1]
        self.highest = max(self.highest, *seconds)


LAG_BOUNDS = tuple(0.001 * 1.5**step for step in range(29))
"""Upper bounds of the buckets of a `LagHistogram`, seconds: 1 ms to 85 s, each half as much again."""


def _no_lags() -> list[int]:
    return [0] * (len(LAG_BOUNDS) + 1)


class LagHistogram(msgspec.Struct):
    """The distribution of a lag: enough for a Prometheus histogram, and so for p50 and p99."""

    counts: list[int] = msgspec.field(default_factory=_no_lags)
    """By bucket of 1 ms, 1.5 ms, 2.25 ms and so on to 85 s; the last one is for all that is longer."""
    total: float = 0.0
    highest: float = 0.0


class Stats(msgspec.Struct):
    """The aggregator's counters and timings. Counters only grow."""

    messages: dict[str, int] = {}
    """Received, by topic kind."""
    bytes_received: int = 0
    frames_received: int = 0
    frames_stored: int = 0
    frames_backfilled: int = 0
    """Of those stored, the ones that came on request."""
    frames_duplicate: int = 0
    """Received again, and not stored again."""
    frames_lost: int = 0
    """Recorded as holes: neither the aggregator nor the node's ring has them."""
    frames_lost_claimed: int = 0
    """Recorded as holes too, of nodes of which none came, or fewer than were lost and than an hour has: by their word alone."""
    holes_open: int = 0
    """Frames missing now and requested (gauge)."""
    nodes_expired: int = 0
    """Nodes removed because they were offline and silent for too long."""
    nodes_forgotten: int = 0
    """Nodes removed by an operator."""
    sessions_expired: int = 0
    """Sessions removed from memory: complete, superseded, and no longer in the node's ring."""
    newcomers_expired: int = 0
    """Names that were dropped because no inventory or no frame followed."""
    budget_used: dict[str, int] = {}
    """How much of each budget of the cluster is used (gauge)."""
    budget_limit: dict[str, int] = {}
    """How much of each may be used."""
    resend_requests: int = 0
    dropped: dict[str, int] = {}
    """Messages thrown away, by reason: `malformed`, `oversize`, `foreign`, `schema`, ..."""
    refused: dict[str, dict[str, int]] = {}
    """Messages refused at the border, by node and reason; names that are no nodes of this cluster are
    one entry, `(unknown)`."""
    events_stored: int = 0
    events_duplicate: int = 0
    bus_connects: int = 0
    bus_connected: bool = False
    store_errors: int = 0
    remote_samples: int = 0
    """Samples that a receiver of remote write has accepted."""
    remote_errors: int = 0
    """Requests to it that failed, and are repeated."""
    remote_dropped: int = 0
    """Samples that no receiver will get: refused, or too many waited."""
    otlp_sent: int = 0
    """Points and log records that a receiver of OTLP has accepted."""
    otlp_errors: int = 0
    """Requests to it that failed, and are repeated."""
    otlp_dropped: int = 0
    """Points and log records that it will not get: refused, or too many waited."""
    store_ok: bool = True
    flush: Timing = msgspec.field(default_factory=Timing)
    """Batch to fleet matrix."""
    store: Timing = msgspec.field(default_factory=Timing)
    """Batch to committed."""
    rules: Timing = msgspec.field(default_factory=Timing)
    rule_period: Timing = msgspec.field(default_factory=Timing)
    """From the end of one evaluation of the rules to the end of the next."""
    lag: Timing = msgspec.field(default_factory=Timing)
    """Sampled at the node to present in the fleet, seconds; assumes synchronised clocks."""
    shown: LagHistogram = msgspec.field(default_factory=LagHistogram)
    """The same, distributed, live frames only."""
    evaluated: LagHistogram = msgspec.field(name="judged", default_factory=LagHistogram)
    """Sampled at the node to evaluated by the rules."""
    committed: LagHistogram = msgspec.field(default_factory=LagHistogram)
    """Sampled at the node to committed by the store; live frames only."""

    def drop(self, reason: str) -> None:
        """Count a message that is thrown away."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
