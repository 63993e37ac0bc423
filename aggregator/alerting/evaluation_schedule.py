"""When to judge: soon after news, at once after an event, and never for more than its share of a core.

The cost of a run is measured; what it took is paid off at `share` seconds a second. A run that cheap
follows every flush of the fleet, at 100,000 GPUs one a second is all there is. An event may use what
news may not: there is always one run kept for it. Pure: the loop brings the time.
"""

from __future__ import annotations

import math


class EvaluationSchedule:
    """The budget of one thing that is done again and again."""

    def __init__(self, longest: float, share: float = 0.1) -> None:
        """`longest`: seconds after which it is due whatever it costs. `share`: of one core."""
        self._longest = longest
        self._share = share
        self._began = -math.inf
        self._paid_at = -math.inf
        self._cost = 0.0
        """What a run takes, seconds of CPU: the mean of the last few."""
        self._credit = 0.0
        """Seconds of CPU that may be spent."""

    def wait(self, now: float, *, news: bool, urgent: bool) -> float:
        """Return for how many seconds it may wait; 0 when it is due. `now`: monotonic seconds.

        `news`: there is something new to look at. `urgent`: something happened.
        """
        latest = self._began + self._longest - now
        if not (news or urgent) or latest <= 0:
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
