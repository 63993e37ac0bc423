"""Bars of the energy of each day of a month: what was not read is hatched, a day of which nothing is known too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.web.markup import text
from present.fleet.bill_headline import DayEnergy, days_words
from present.units import kilowatt_hours, percent

_TOP, _BOTTOM = 0.09, 0.11
"""Parts of the height above and below the bars."""
_WIDE = 0.78
"""Part of a day's width that its bar takes."""


def day_bars(days: Sequence[DayEnergy | None], of_month: int) -> str:
    """Return the chart. `days`: those up to now, None where nothing is known; `of_month`: days of the month."""
    highest = max((one.kwh + one.filled for one in days if one is not None), default=0.0)
    if not highest:
        return ""
    bars = "".join("".join(_bar(place, one, highest, of_month)) for place, one in enumerate(days))
    words = "".join(
        f'<text x="{percent((day - 0.5) / of_month, 2)}" y="98%" text-anchor="middle">{day}</text>'
        for day in (1, *range(5, of_month + 1, 5))
    )
    top = percent(_TOP, 2)
    return (
        f'<figure class="chart"><svg class="days" role="img" aria-label="{text(days_words(days))}">'
        f'<line class="grid" x1="0" x2="100%" y1="{top}" y2="{top}"/>'
        f'<text class="tick" x="2" y="{top}" dy="-3">{text(kilowatt_hours(highest))}</text>{bars}{words}</svg>'
        f"<figcaption>{text(days_words(days))}; hatched: not read, at that day's mean</figcaption></figure>"
    )


def _bar(place: int, one: DayEnergy | None, highest: float, of_month: int) -> Iterator[str]:
    x, width = percent((place + (1 - _WIDE) / 2) / of_month, 2), percent(_WIDE / of_month, 2)
    room = 1.0 - _TOP - _BOTTOM
    if one is None:
        yield f'<rect class="qx" x="{x}" width="{width}" y="{percent(_TOP, 2)}" height="{percent(room, 2)}"/>'
        return
    base = 1.0 - _BOTTOM
    for kind, low, high in (("fill", 0.0, one.kwh), ("assumed", one.kwh, one.kwh + one.filled)):
        if high > low:
            y, height = base - room * high / highest, room * (high - low) / highest
            yield f'<rect class="{kind}" x="{x}" width="{width}" y="{percent(y, 2)}" height="{percent(height, 2)}"/>'
