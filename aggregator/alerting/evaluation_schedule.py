"""When rules are evaluated: soon after new readings, at once after an event, within a CPU budget.

The cost of a run is measured and paid off at `share` seconds a second. A cheap run follows every flush
of the fleet; at 100,000 GPUs there is one a second. One run is always reserved for an event. Pure: the
loop brings the time.
"""

from __future__ import annotations

import math


class EvaluationSchedule:
    """CPU budget of the rules."""

    def __init__(self, longest: float, share: float = 0.1) -> None:
        """`longest`: seconds after which it is due whatever it costs. `share`: of one core."""
        self._longest = longest
        self._share = share
        self._began = -math.inf
        self._paid_at = -math.inf
        self._cost = 0.0
        """CPU seconds of a run: the mean of the last few."""
        self._credit = 0.0
        """Seconds of CPU that may be spent."""

    def wait(self, now: float, *, fresh: bool, urgent: bool) -> float:
        """Return for how many seconds the next run can wait; 0 when it is due. `now`: monotonic
        seconds.

        `fresh`: there are new readings. `urgent`: there was an event.
        """
        latest = self._began + self._longest - now
        if not (fresh or urgent) or latest <= 0:
            return max(0.0, latest)
        needed = self._cost if urgent else 2 * self._cost
        return max(0.0, min(latest, (needed - self._credit_at(now)) / self._share))

    def ran(self, began: float, ended: float, cost: float) -> None:
        """Count a run from `began` to `ended`, monotonic seconds, that took `cost` of CPU."""
        self._credit = max(self._credit_at(ended) - cost, -cost)
        self._paid_at, self._began = ended, began
        self._cost = cost if self._cost == 0 else 0.75 * self._cost + 0.25 * cost

    def _credit_at(self, now: float) -> float:
        if math.isinf(self._paid_at):
            return math.inf
        most = 3 * self._cost
        return min(most, self._credit + self._share * (now - self._paid_at))
