"""The last hour of a figure of the cluster as a small line."""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.http.recent import LEAST_SPAN, SECONDS, SPAN, ClusterSample, Field
from telemetry.text import duration

_WIDTH, _HEIGHT = 100.0, 30.0


def spark(samples: Iterable[ClusterSample], field: Field) -> str:
    """Return a figure over the last hour as a small line; "" with less than two samples, or of too short a time. It stops where the figure
    is not known or no sample was taken."""
    points = [(one.at, field(one)) for one in samples]
    points = [one for one in points if points[-1][0] - one[0] <= SPAN]
    known = [value for _, value in points if value is not None]
    if len(known) < 2 or points[-1][0] - points[0][0] < LEAST_SPAN:
        return ""
    low, high = min(0.0, *known), max(known)
    end = points[-1][0]
    way, before = "", None
    for at, value in points:
        if value is None:
            before = None
            continue
        x = _WIDTH * (1 - (end - at) / SPAN)
        y = _HEIGHT * (1 - (value - low) / (high - low or 1.0))
        joined = before is not None and at - before < 2.5 * SECONDS
        way += f"{'L' if joined else 'M'}{x:.1f} {y:.1f}"
        before = at
    words = f"the last {duration(end - points[0][0])}"
    return f'<svg class="spark" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none" role="img" aria-label="{words}"><path d="{way}"/></svg>'
