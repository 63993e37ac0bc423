"""The timeline of an incident: acknowledgements, notifications and deliveries, and its end. Pure."""

from __future__ import annotations

from urllib.parse import quote

from api.alerts import TimelineReply
from present.alert.timeline import timeline_entries
from present.units import number
from telemetry.text import time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.flow import wrapped
from tui.kit.text import clean
from tui.kit.theme import Line


def path_of(key: str) -> str:
    """Return the path of an incident's timeline."""
    return f"api/v1/incidents/{quote(key, safe='')}/timeline"


def timeline_request(key: str) -> DocumentRequest:
    """Return the request for the timeline."""
    return DocumentRequest(path_of(key), TimelineReply, 3.0)


def timeline_lines(timeline: TimelineReply, at: int, width: int, *, utc: bool, most: int = 12) -> list[Line]:
    """Draw the events up to `at`, newest last; of many, the first and the newest."""
    entries = [one for one in timeline_entries(timeline) if one[0] <= at]
    if len(entries) > most:
        hidden = len(entries) - most + 1
        entries = [entries[0], (0, f"… {number(hidden)} more"), *entries[-(most - 2) :]]
    lines: list[Line] = [[("what happened", "head")]]
    for when, words in entries:
        clock = f"  {time_of_day(when, utc=utc)} " if when else "  "
        for n, line in enumerate(wrapped(clean(words), max(20, width - len(clock)))):
            lines.append([(clock if n == 0 else " " * len(clock), "dim"), (line, "")])
    return lines
