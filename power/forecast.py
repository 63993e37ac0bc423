"""Where a load is going: a robust trend, and when it meets a limit. An estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WINDOW_SECONDS = 120.0
_MINIMUM_SECONDS, _MINIMUM_POINTS, _SIGMAS = 60.0, 10, 2.0
AHEAD_SECONDS = 600.0
"""A trend says nothing about what lies further ahead."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through recent readings."""

    level: float
    """Value at the newest reading."""
    per_second: float

    def seconds_to(self, limit: float) -> float | None:
        """Return seconds until `limit`; None when it is not met within 10 min."""
        if self.level >= limit:
            return 0.0
        if self.per_second <= 0:
            return None
        seconds = (limit - self.level) / self.per_second
        return seconds if seconds <= AHEAD_SECONDS else None


def trend(seconds: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Return the Theil-Sen line of the last 2 min; None when there is too little, or no clear slope."""
    at, value = np.asarray(seconds, dtype=float), np.asarray(values, dtype=float)
    if len(at) == 0:
        return None
    recent = at >= at[-1] - WINDOW_SECONDS
    at, value = at[recent], value[recent]
    if len(at) < _MINIMUM_POINTS or at[-1] - at[0] < _MINIMUM_SECONDS:
        return None
    first, second = np.triu_indices(len(at), 1)
    slope = float(np.median((value[second] - value[first]) / (at[second] - at[first])))
    level = float(np.median(value - slope * (at - at[-1])))
    residual = value - (level + slope * (at - at[-1]))
    scatter = 1.4826 * float(np.median(np.abs(residual)))  # sigma, deaf to single outliers
    error = scatter / float(np.sqrt(np.square(at - at.mean()).sum()))
    return Trend(level, slope) if abs(slope) > _SIGMAS * error and slope != 0 else None
