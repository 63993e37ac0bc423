"""Spans of time, bands and lists as people read them. Every time to a trip is an estimate, and says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from power.wiring import POLES, Floats

ESTIMATE = "an estimate; a breaker may trip earlier or later"
NO_RATING = "not known: the breaker's own rating is not configured"


def span(seconds: float) -> str:
    """Return a span of time: `22 s`, `5 min 10 s`, `33 min`, `3 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def band(trips: Floats) -> str:
    """Return when a breaker of known rating trips, of (earliest, nominal, latest) seconds: never a
    single number."""
    earliest, nominal, latest = (float(seconds) for seconds in trips)
    if np.isnan(earliest):
        return "not known, as its load is not"
    if np.isinf(earliest):
        return "it does not trip at this load"
    if earliest == 0:
        end = "perhaps never" if np.isinf(latest) else f"within {span(latest)}"
        usual = "" if np.isinf(nominal) else f", typically after {span(nominal)}"
        return f"at any moment{usual}, {end}; {ESTIMATE}"
    if np.isinf(nominal):
        return f"after {span(earliest)} at the earliest, more likely never; {ESTIMATE}"
    if np.isinf(latest):
        return f"after {span(earliest)} at the earliest, typically after {span(nominal)}, perhaps never; {ESTIMATE}"
    return f"between {span(earliest)} and {span(latest)}, typically after {span(nominal)}; {ESTIMATE}"  # fmt: skip


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return names with commas between; of many the first, and how many more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def per_pole(amps: Floats, poles: Sequence[int]) -> str:
    """Return `L1 47.2 A, L2 47.1 A`."""
    return ", ".join(
        f"{POLES[p]} {amps[p]:.1f} A" if not np.isnan(amps[p]) else f"{POLES[p]} not known"
        for p in poles
    )
