"""The choice of the time that charts show, and the link that keeps it when a page is sent to somebody."""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.http.parameters import between
from aggregator.web.markup import path
from telemetry.text import rfc3339

SPANS = {"-15m": "15 min", "-1h": "1 h", "-6h": "6 h", "-1d": "1 day", "-7d": "7 days"}
USUAL_SPAN = "-1h"
STEP_NS = 10 * 1_000_000_000


def chart_span(asked: Mapping[str, str], now: int) -> tuple[int, int]:
    """Return the time that charts show, ns since 1970, as `from` and `to` of the page say. Raises a 400."""
    return between(asked.get("from"), asked.get("to"), chart_now(now), USUAL_SPAN)


def chart_now(now: int, after: int = 0) -> int:
    """Return where charts end now: they have a new point each ten seconds, and are the same until then, however often
    their page is made. `after`: ns by which this one is later than others."""
    return now - (now - after) % STEP_NS


def time_tabs(page: tuple[str, str], anchor: str, asked: Mapping[str, str], start: int, end: int) -> str:
    """Return the menu of spans before now, and a link to exactly `start` to `end` (ns since 1970).

    `page`: the parts of its path. `asked`: the parameters `from` and `to` of the page.
    """
    chosen = None if "to" in asked else asked.get("from", USUAL_SPAN)
    spans = "".join(
        f'<li><a href="{path(*page, **{"from": span})}#{anchor}"'
        f"{' aria-current=page' if chosen == span else ''}>{words}</a></li>"
        for span, words in SPANS.items()
    )
    kept = path(*page, **{"from": rfc3339(start), "to": rfc3339(end)})
    mark = " aria-current=page" if "to" in asked else ""
    return (
        f'<nav aria-label="Time of the charts"><ul class="tabs">{spans}'
        f'<li><a href="{kept}#{anchor}"{mark}>link to this time</a></li></ul></nav>'
    )
