"""The third column of a very wide terminal: what is wrong, and what happened lately. Pure."""

from __future__ import annotations

from api.pages import Event, Events
from telemetry.text import time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.text import clean, fit
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import alert_lines
from tui.theme import Line

EVENTS = "api/v1/events?from=-24h&limit=60"
VERY_WIDE = 200
"""Columns from which on there is a third one."""
EVENTS_ASK = DocumentRequest(EVENTS, Events, 5.0)


def beyond_lines(
    board: DashboardState,
    found: Events | None,
    why: str,
    width: int,
    height: int,
    *,
    utc: bool,
    alerts: bool,
) -> list[Line]:
    """Draw the column. `found`: events, or None, and `why` there are none; `alerts`: whether they
    stand above."""
    lines: list[Line] = []
    if alerts:
        most = max(1, min(len(board.incidents) or 1, height // 2 - 2))
        lines = [[("Alerts by cause", "head")], *alert_lines(board, width, most), []]
    lines.append([("Events", "head")])
    if found is None:
        return [*lines, [(why or "loading …", "dim")]]
    known = [each.event for each in found.events if each.event.at <= board.at]
    room = max(0, height - len(lines))
    if not known:
        return [*lines, [("none in the last day", "dim")]]
    return [*lines, *(event_line(board, event, width, utc=utc) for event in known[:room])]


def event_line(board: DashboardState, event: Event, width: int, *, utc: bool) -> Line:
    """When, where, what."""
    row = None if event.gpu is None else board.gpus.row_of.get(event.gpu)
    place = clean(event.node) + ("" if row is None else f"/gpu{board.gpus.who.gpu[row]}")
    when = f"{time_of_day(event.at, utc=utc)} "
    where = f"{fit(place, min(18, len(place)), tail=True)} "
    room = max(8, width - len(when) - len(where))
    words = clean(event.message) or clean(event.kind).replace("_", " ")
    return [(when, "dim"), (where, "strong"), (fit(words, room).rstrip(), "")]
