"""Requests of a view, turned into requests about a past time: paths with an instant. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tui.feed.wants import DocumentRequest
from tui.state.documents import BUDGETS, CIRCUITS, SILENCES

SECOND = 1_000_000_000
_SPAN = re.compile(r"([?&])from=-(\d+)s(?=&|$)")
_FIXED = re.compile(r"[?&](?:at|to)=")
"""Matches a path that names a time already."""
_TIMELESS = SILENCES
"""Documents whose rows have times: the screen leaves out later ones."""
_OF_ONE = ("api/v1/gpus/", "api/v1/nodes/", f"{CIRCUITS}/")
"""Pages that the API has for a past time."""
_OF_ALL = (CIRCUITS, BUDGETS)
CIRCUITS_EVERY = 10 * SECOND
"""The aggregator stores circuits about as often."""
EVENTS_EVERY = 60 * SECOND
"""ns for which the same events serve: the screen leaves out later ones."""
_PARTS = 4
"""Parts of a chart: it moves by one of them."""


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A request about a past time."""

    path: str
    """Path with an instant."""
    kind: type[msgspec.Struct]
    stands_for: str
    """The path of the original request, under which a view finds the answer."""
    whole: Callable[[Any], msgspec.Struct] | None = None
    """Makes the whole document of the short one."""


def then(ask: DocumentRequest, at: int, newest: int) -> PastRequest | None:
    """Return the request about a past time that represents a request of now; None where the API has
    none. `newest`: now, by the aggregator's clock."""
    if _FIXED.search(ask.path) or ask.path.startswith(_TIMELESS) or ask.path.endswith("/timeline"):
        return PastRequest(ask.path, ask.kind, ask.path)
    if ask.path.startswith("api/v1/events?from=-24h"):
        end = (at // EVENTS_EVERY + 1) * EVENTS_EVERY
        times = f"from={seconds(end - 86_400 * SECOND)}&to={seconds(end)}"
        return PastRequest(ask.path.replace("from=-24h", times), ask.kind, ask.path)
    if ask.path.startswith("api/v1/history?"):
        return _of_span(ask, at, newest)
    if ask.path in _OF_ALL:
        return _at(ask, at - at % CIRCUITS_EVERY)
    if ask.path.startswith(f"{CIRCUITS}/"):
        return None if "/history" in ask.path else _at(ask, at - at % CIRCUITS_EVERY)
    return _at(ask, at) if ask.path.startswith(_OF_ONE) else None


def _of_span(ask: DocumentRequest, at: int, newest: int) -> PastRequest | None:
    """Return a request for the same length of time, around the instant or up to now."""
    found = _SPAN.search(ask.path)
    if found is None:
        return None
    start, end = window(int(found[2]), at, newest)
    times = f"{found[1]}from={seconds(start)}&to={seconds(end)}"
    path = ask.path[: found.start()] + times + ask.path[found.end() :]
    return PastRequest(path, ask.kind, ask.path)


def window(span: int, at: int, newest: int) -> tuple[int, int]:
    """Return the span of `span` seconds that holds an instant: it moves by parts of itself, so that
    a chart is not fetched again at every step."""
    part = span * SECOND // _PARTS
    end = min((at // part + 2) * part, newest)
    return end - span * SECOND, end


def _at(ask: DocumentRequest, at: int) -> PastRequest:
    query, kind, whole = "", ask.kind, None
    if ask.short is not None:
        query, kind, whole = f"{ask.short.query}&", ask.short.kind, ask.short.whole
    sign = "&" if "?" in ask.path else "?"
    return PastRequest(f"{ask.path}{sign}{query}at={seconds(at)}", kind, ask.path, whole)


def seconds(at: int) -> str:
    """Return an instant as seconds, as a query has them."""
    whole, part = divmod(at, SECOND)
    return f"{whole}.{part:09d}".rstrip("0").rstrip(".") if part else str(whole)
