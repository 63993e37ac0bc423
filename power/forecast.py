"""Forecasts: a robust trend of a load, and when it meets a limit. An estimate.

A trend foresees slow growth only. For jumps, such as the start of a job, see the power commitment.
"""

from __future__ import annotations

import numpy as np

from power.wiring import Floats

WINDOW_SECONDS = 120.0
_MINIMUM_SECONDS, _MINIMUM_POINTS, _SIGMAS = 60.0, 10, 2.0
AHEAD_SECONDS = 600.0
"""Horizon of a forecast."""
_STEP = 0.25
"""Part of a rise between two neighbouring points from which it is a step, not a trend."""
_NOISE = 1e-6
"""Smallest change within the window, as part of the level, that is no rounding error."""


def trends(at: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return level and slope per second of many curves; shape (times,), (times, curves) in.

    NaN with too few points, a slope within two sigma of its noise, or a step.
    """
    count = values.shape[1]
    nothing: Floats = np.full(count, np.nan)
    if not len(at):
        return nothing, nothing
    recent = at >= at[-1] - WINDOW_SECONDS
    at, values = at[recent], values[recent]
    if len(at) < _MINIMUM_POINTS or at[-1] - at[0] < _MINIMUM_SECONDS:
        return nothing, nothing
    first, second = np.triu_indices(len(at), 1)
    pairs = (values[second] - values[first]) / (at[second] - at[first])[:, None]
    slope = np.median(pairs, axis=0)
    aside = values - slope * (at - at[-1])[:, None]
    level = np.median(aside, axis=0)
    scatter = 1.4826 * np.median(np.abs(aside - level), axis=0)  # sigma, deaf to single outliers
    error = scatter / np.sqrt(np.square(at - at.mean()).sum())
    span = at[-1] - at[0]
    with np.errstate(invalid="ignore"):
        clear = (np.abs(slope) > _SIGMAS * error) & (np.abs(slope) * span > _NOISE * np.abs(level))
        jump = np.abs(np.diff(values, axis=0)).max(axis=0)
        clear &= jump < _STEP * np.abs(slope) * span
    return np.where(clear, level, np.nan), np.where(clear, slope, np.nan)


def seconds_until(level: Floats, slope: Floats, limit: Floats) -> Floats:
    """Return seconds until each trend meets its limit; inf when it does not within 10 min, when there is
    no trend, or when the limit is already exceeded."""
    with np.errstate(invalid="ignore", divide="ignore"):
        seconds = (limit - level) / slope
        ahead = (slope > 0) & (seconds > 0) & (seconds <= AHEAD_SECONDS)
    return np.where(ahead, seconds, np.inf)
