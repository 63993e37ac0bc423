"""The last 30 days as bars: height and colour by the worst of each, hatched where nobody watched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from aggregator.http.alerts import MOST
from aggregator.http.reply import STORE_SECONDS
from aggregator.view import AggregatorView
from aggregator.web.markup import text
from present.fleet.past_days import DAYS, PastDay, past_days, past_days_words
from present.row import Tone
from present.units import percent

_HEIGHTS = {Tone.CRIT: 1.0, Tone.WARN: 0.65, Tone.PLAIN: 0.3, Tone.STALE: 0.3}
_CLASSES = {Tone.CRIT: "page", Tone.WARN: "ticket", Tone.PLAIN: "well", Tone.STALE: "part"}
_WIDE = 0.72
"""Part of a day's width that its bar takes."""


def days_strip(days: Sequence[PastDay]) -> str:
    """Return the bars: each says its day on hover, and a sentence all of them, to a screen reader too."""
    bars = "".join("".join(_bar(place, day, len(days))) for place, day in enumerate(days))
    words = text(past_days_words(days))
    return (
        f'<figure class="past-days"><a href="alerts?view=past"><svg role="img" aria-label="{words}">{bars}</svg></a>'
        f"<figcaption>{words}</figcaption></figure>"
    )


def _bar(place: int, day: PastDay, count: int) -> Iterator[str]:
    x, width = percent((place + (1 - _WIDE) / 2) / count, 2), percent(_WIDE / count, 2)
    tone = day.tone
    kind, height = _CLASSES[tone], _HEIGHTS[tone]
    if tone is Tone.STALE and not day.watched:
        kind, height = "unknown", 1.0
    yield f'<g><title>{text(day.words)}</title><rect class="{kind}" x="{x}" width="{width}" '
    yield f'y="{percent(1 - height, 1)}" height="{percent(height, 1)}"/>'
    if day.hides:
        yield f'<rect class="unknown" x="{x}" width="{width}" y="0" height="{percent(1 - height, 1)}"/>'
    yield "</g>"


async def days_of(view: AggregatorView) -> list[PastDay]:
    """Return the days up to today. Raises `StoreError`, or `TimeoutError` where the journal does not answer."""
    now = view.wall()
    async with asyncio.timeout(STORE_SECONDS):
        found = await view.delivery.history(now - DAYS * 86_400 * 10**9, MOST)
    # What is open now is on today's bar before it is on disk, and however many came since it began.
    every = {one.key: one for one in (*found, *view.pipeline.manager.incidents())}
    newest = view.fitness.newest
    samples = newest.history if newest else []
    return past_days(
        list(every.values()),
        samples,
        now,
        view.electrical.site.zone,
        known_from=min(one.began for one in found) if len(found) >= MOST else 0,
    )
