"""The timeline of an incident in words: notifications with their reasons, what people did, and its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from api.alerts import DeliveryRow, IncidentEvent, TimelineReply

_EVENTS = {
    "acknowledged": "acknowledged by {who}",
    "taken_back": "acknowledgement withdrawn by {who}",
    "lapsed": "the acknowledgement expired",
    "marked_false": "marked as false by {who}",
    "mark_removed": "mark removed by {who}",
    "recovery": "recovery by {who}",
    "told": "notified",
    "ended": "over",
}
_REASONS = {
    "new": ("it is new", ""),
    "worse": ("it grew worse", ""),
    "more": ("there is more", ""),
    "fewer": ("there is less", ""),
    "cause": ("its cause was found", ""),
    "repeat": ("nobody has acknowledged it", ""),
    "escalated": ("nobody has acknowledged it in time", ", so that it goes to the next channel"),
    "new_channel": ("the channel is new", ", and it began before"),
    "flapping": ("it fires and resolves again and again", ""),
    "storm": ("too many incidents began at once", "; this one represents them"),
    "merged": ("it is part of another", ""),
    "forgotten": ("its node was removed", "; whether all is well is not known"),
    "resolved": ("", ""),
}
"""Reasons of notifications and of an end, each with what a page adds."""
_OF_OURSELVES = {"told", "ended"}
"""Events whose reason is one of ours; of others it is what a person wrote."""


def reason_words(reason: str, *, whole: bool = False) -> str:
    """Return why an incident was notified, or ended; `whole`: with what that means."""
    words, more = _REASONS.get(reason, (reason, ""))
    return words + more if whole else words


def delivery_words(one: DeliveryRow) -> str:
    """Return a delivery: `chat waiting after 3 tries: HTTP 500`."""
    tries = f" after {one.tries:,} tries" if one.tries > 1 else ""
    error = f": {one.error}" if one.error and one.outcome != "delivered" else ""
    return f"{one.channel} {one.outcome}{tries}{error}"


def event_words(event: IncidentEvent, sent: Sequence[DeliveryRow] = ()) -> str:
    """Return an event of an incident, with the deliveries that it made."""
    words = _EVENTS.get(event.what, event.what).format(who=event.who or "unknown")
    if event.what == "told" and not sent:
        words = "to be notified, but no route has a channel"
    if event.what == "ended" and event.why == "resolved":
        words = "resolved"
    ours = event.what in _OF_OURSELVES
    why = reason_words(event.why) if ours else event.why
    reason = (f" ({why})" if ours else f": {why}") if why else ""
    return f"{words}{reason}{f': {_channels(sent)}' if sent else ''}"


def timeline_entries(timeline: TimelineReply) -> Iterator[tuple[int, str]]:
    """Yield what happened, oldest first: ns since 1970, and words."""
    rest = list(timeline.deliveries)
    found = [(timeline.began, "began")]
    for event in timeline.events:
        its = [one for one in rest if one.created == event.at]
        rest = [one for one in rest if one.created != event.at]
        found.append((event.at, event_words(event, its)))
    for one in rest:  # a channel that is new, or an event that is not kept any more
        why = reason_words(one.reason)
        found.append((one.created, f"notified{f' ({why})' if why else ''}: {delivery_words(one)}"))
    yield from sorted(found)


def _channels(sent: Sequence[DeliveryRow]) -> str:
    return ", ".join(delivery_words(one) for one in sorted(sent, key=lambda one: one.channel))
