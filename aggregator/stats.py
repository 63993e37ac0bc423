"""Counting of lags; the counters and timings themselves are `api.stats.Stats`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from api.stats import LAG_BOUNDS, LagHistogram


def add_lags(histogram: LagHistogram, lags: npt.NDArray[np.float64]) -> None:
    """Count lags in seconds; a source's clock that is ahead makes them negative."""
    if lags.size:
        found = np.searchsorted(LAG_BOUNDS, lags)
        new = np.bincount(found, minlength=len(histogram.counts)).tolist()
        histogram.counts = [old + more for old, more in zip(histogram.counts, new, strict=True)]
        histogram.total += float(lags.sum())
        histogram.highest = max(histogram.highest, float(lags.max()))
