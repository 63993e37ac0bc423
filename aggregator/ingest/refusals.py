"""Messages that are refused: counted by node and reason, and reported while they go on.

A peer may invent names without end. Only nodes of ours are counted by name, and so many at most; all
others are one entry.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from aggregator.impairments import Impairments
from api.stats import Stats

OTHERS = "(unknown)"
"""Entry of all names that are no nodes of ours. No node can have this name."""
MOST_NODES = 1000
"""Nodes that are counted by name."""
OFTEN, WITHIN = 3, 60.0
"""Refusals of one node, and seconds: as many within that time are reported."""
QUIET = 120.0
"""Seconds without a refusal after which a report ends."""
FAULT = "error"
"""Reason of a message on which kilowatch itself raised."""
NODE_RULE, OTHERS_RULE = "messages_refused", "strangers_refused"


@dataclass(slots=True)
class _Series:
    """The refusals of one node."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=OFTEN))
    """Of the last ones, monotonic seconds."""
    details: dict[str, str] = field(default_factory=dict)
    """The first detail of each reason."""
    reported: bool = False

    @property
    def often(self) -> bool:
        return len(self.times) == OFTEN and self.times[-1] - self.times[0] <= WITHIN


class Refusals:
    """Refused messages by node."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._series: dict[str, _Series] = {}

    def add(self, node: str | None, reason: str, detail: str, now: float) -> None:
        """Count a message of a node, None for a name that is no node of ours; `now`: monotonic seconds."""
        counts = self._stats.refused
        name = OTHERS if node is None or (node not in counts and len(counts) >= MOST_NODES) else node
        by_reason = counts.setdefault(name, {})
        by_reason[reason] = by_reason.get(reason, 0) + 1
        series = self._series.setdefault(name, _Series())
        series.times.append(now)
        series.reported |= reason == FAULT  # of our own: one is enough
        series.details.setdefault(reason, detail)

    def report(self, impairments: Impairments, now: float) -> None:
        """Report the nodes whose messages are refused again and again, until none is any more."""
        for name, series in list(self._series.items()):
            rule, part = OTHERS_RULE if name == OTHERS else NODE_RULE, f"bus/{name}"
            if now - series.times[-1] > QUIET:
                del self._series[name]
                impairments.clear(rule, part)
            elif series.reported or series.often:
                series.reported = True
                facts = {} if name == OTHERS else {"node": name}
                reason = "; ".join(series.details.values())
                impairments.report(rule, part, reason, whole=False, **facts)
