"""What happened to an incident, in the order in which it happened, in words."""

from __future__ import annotations

from rich.cells import cell_len

from api.alerts import DeliveryOutcome, DeliveryRow, IncidentEvent, TimelineReply
from present.alert.timeline import timeline_entries
from telemetry.text import time_of_day
from tests.tui.cluster import until
from tests.tui.test_app import press_until, staged
from tui.kit.text import clean
from tui.screens.incident_timeline import timeline_lines

MINUTE = 60 * 10**9
NOON = 1_790_000_000 * 10**9
STORY = TimelineReply(
    at=NOON + 60 * MINUTE, began=NOON,
    ended=NOON + 40 * MINUTE,
    events=[
        IncidentEvent(at=NOON + MINUTE, what="told", why="new"),
        IncidentEvent(at=NOON + 2 * MINUTE, what="acknowledged", who="ops", why="on it\x1b[2J"),
        IncidentEvent(at=NOON + 30 * MINUTE, what="lapsed"),
        IncidentEvent(at=NOON + 31 * MINUTE, what="told", why="repeat"),
        IncidentEvent(at=NOON + 32 * MINUTE, what="taken_back", who="mia", why="not mine"),
        IncidentEvent(at=NOON + 40 * MINUTE, what="ended", why="resolved"),
    ],
    deliveries=[
        DeliveryRow(channel="oncall", created=NOON + 40 * MINUTE, outcome=DeliveryOutcome.WAITING, reason="resolved"),
        DeliveryRow(channel="chat", created=NOON + MINUTE, outcome=DeliveryOutcome.REFUSED, reason="new", tries=3, error="HTTP 404"),
        DeliveryRow(channel="oncall", created=NOON + MINUTE, outcome=DeliveryOutcome.DELIVERED, reason="new", tries=1),
        DeliveryRow(channel="chat", created=NOON + 20 * MINUTE, outcome=DeliveryOutcome.SUPERSEDED, reason="more"),
    ],
)  # fmt: skip


def text(timeline: TimelineReply, at: int, **more: int) -> list[str]:
    """The lines without their tones."""
    drawn = timeline_lines(timeline, at, 100, utc=True, **more)
    return ["".join(piece for piece, _ in line) for line in drawn]


def test_events_are_listed_in_order_with_nothing_that_a_terminal_obeys() -> None:
    said = [f"  {time_of_day(at)} {clean(words)}" for at, words in timeline_entries(STORY)]
    assert text(STORY, NOON + 60 * MINUTE) == ["what happened", *said]
    assert "  14:15:20Z acknowledged by ops: on it?[2J" in said


def test_in_the_past_nothing_has_happened_that_came_later() -> None:
    assert text(STORY, NOON + 3 * MINUTE)[-1].endswith("acknowledged by ops: on it?[2J")


def test_of_many_events_the_first_and_the_newest_are_listed() -> None:
    lines = text(STORY, NOON + 60 * MINUTE, most=4)
    assert len(lines) == 5
    assert lines[1].endswith("began")
    assert lines[2] == "  … 5 more"
    assert lines[-1].endswith("resolved: oncall waiting")


def test_a_long_reason_is_broken_between_words() -> None:
    long = TimelineReply(
        at=NOON, began=NOON, events=[IncidentEvent(at=NOON, what="acknowledged", who="ops", why="word " * 60)]
    )
    drawn = timeline_lines(long, NOON, 60, utc=True)
    assert len(drawn) > 6
    assert all(sum(cell_len(piece) for piece, _ in line) <= 60 for line in drawn)


async def test_the_page_of_an_incident_tells_its_story() -> None:
    async with staged((120, 40), write=True, who="ops") as (pilot, _, _stage):
        await press_until(pilot, "5", "enter", holds=lambda text: "what happened" in text)
        await press_until(pilot, "a", holds=lambda text: "Acknowledge" in text)
        await press_until(pilot, *"on it", "enter", holds=lambda t: "acknowledged by ops: on it" in t)
        await press_until(pilot, "a", holds=lambda text: "acknowledgement withdrawn by ops" in text)
        await until(pilot, lambda text: "began" in text)
