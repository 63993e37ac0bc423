"""The timeline of an incident: acknowledgements, notifications and deliveries, and its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from api.alerts import DeliveryRow, IncidentEvent, TimelineReply
from present.units import number
from telemetry.text import time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.flow import wrapped
from tui.kit.text import clean
from tui.theme import Line

_WORDS = {"taken_back": "{who} withdrew the acknowledgement", "lapsed": "the acknowledgement expired",
          "acknowledged": "acknowledged by {who}", "recovery": "recovery by {who}", "told": "notified", "ended": "resolved"}  # fmt: skip
_REASONS = {"new": "it is new", "worse": "it grew worse", "more": "there is more", "fewer": "there is less",
            "cause": "its cause was found", "repeat": "not acknowledged", "escalated": "not acknowledged in time", "flapping": "it is flapping",
            "storm": "there are too many", "merged": "it is part of another", "forgotten": "its node was removed", "resolved": ""}  # fmt: skip


def path_of(key: str) -> str:
    """Return the path of an incident's timeline."""
    return f"api/v1/incidents/{quote(key, safe='')}/timeline"


def timeline_request(key: str) -> DocumentRequest:
    """Return the request for the timeline."""
    return DocumentRequest(path_of(key), TimelineReply, 3.0)


def timeline_lines(
    timeline: TimelineReply, at: int, width: int, *, utc: bool, most: int = 12
) -> list[Line]:
    """Draw the events up to `at`, newest last; of many, the first and the newest."""
    rest = list(timeline.deliveries)
    entries: list[tuple[int, str]] = [(timeline.began, "began")]
    for event in timeline.events:
        its = [one for one in rest if one.created == event.at]
        rest = [one for one in rest if one.created != event.at]
        entries.append((event.at, _described(event, its)))
    entries += [(one.created, f"notified: {_channels([one])}") for one in rest]
    entries = sorted(one for one in entries if one[0] <= at)
    if len(entries) > most:
        hidden = len(entries) - most + 1
        entries = [entries[0], (0, f"… {number(hidden)} more"), *entries[-(most - 2) :]]
    lines: list[Line] = [[("what happened", "head")]]
    for when, words in entries:
        clock = f"  {time_of_day(when, utc=utc)} " if when else "  "
        for n, line in enumerate(wrapped(clean(words), max(20, width - len(clock)))):
            lines.append([(clock if n == 0 else " " * len(clock), "dim"), (line, "")])
    return lines


def _described(event: IncidentEvent, sent: Sequence[DeliveryRow]) -> str:
    words = _WORDS.get(event.what, event.what).format(who=event.who or "unknown")
    why = event.why
    if event.what in {"told", "ended"}:
        why = _REASONS.get(why, why)
    if event.what == "told" and not sent:
        words = "to be notified, but no route has a channel"
    parts = [
        words
        + (f" ({why})" if event.what in {"told", "ended"} and why else f": {why}" if why else "")
    ]
    if sent:
        parts.append(_channels(sent))
    return "; ".join(parts)


def _channels(sent: Sequence[DeliveryRow]) -> str:
    """Return deliveries as text: `oncall delivered, chat waiting after 3 tries: 500`."""
    return ", ".join(
        f"{one.channel} {one.outcome}"
        + (f" after {one.tries} tries" if one.tries > 1 else "")
        + (f": {one.error}" if one.error and one.outcome != "delivered" else "")
        for one in sorted(sent, key=lambda one: one.channel)
    )
