"""The last 30 days on the first page: bars that tell what was wrong, and what nobody watched."""

from __future__ import annotations

import re
from datetime import date

import msgspec
import pytest

from aggregator.web.days_strip import days_of, days_strip
from api.alerts import Severity
from api.fitness import FitnessReply, FitnessSample, FleetFitness
from present.fleet.past_days import PastDay
from telemetry.errors import StoreError
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door, small_cluster
from tests.alerts.notices import incident

DAY = 86_400 * 10**9


def test_each_day_has_the_bar_of_its_worst_and_hides_nothing() -> None:
    drawn = days_strip([
        PastDay(date(2026, 11, 1), 0, 0, 0.0), PastDay(date(2026, 11, 2), 0, 0, 0.5),
        PastDay(date(2026, 11, 3), 0, 0, 1.0), PastDay(date(2026, 11, 4), 0, 2, 1.0),
        PastDay(date(2026, 11, 5), 1, 3, 0.5),
    ])  # fmt: skip
    bars = re.findall(r'<rect class="(\w+)"[^>]* height="([^"]+)"', drawn)
    assert bars == [
        ("unknown", "100.0%"), ("part", "30.0%"), ("well", "30.0%"), ("ticket", "65.0%"), ("page", "100.0%"),
        ("unknown", "0.0%"),
    ]  # fmt: skip
    assert "<title>4 Nov: 2 tickets</title>" in drawn
    assert "5 days: 1 with a page, 1 with a ticket, 2 watched in part, 1 not watched" in drawn


async def view_of(days: int) -> FakeView:
    """A cluster that was watched for some days."""
    view = await small_cluster()
    now = view.wall()
    samples = [FitnessSample(at, 100, 2, 0, 0, 0) for at in range(now - days * DAY, now, 300 * 10**9)]
    view.fitness.newest = FitnessReply(at=now, fleet=FleetFitness(), history=samples)
    return view


async def test_the_first_page_tells_what_was_wrong_and_for_how_long_nobody_watched() -> None:
    view = await view_of(10)
    now = view.wall()
    view.delivery.ever.append(
        msgspec.structs.replace(incident(), severity=Severity.PAGE, began=now - 3 * DAY, ended=now - 3 * DAY + 10**9)
    )
    async with door(view) as client:
        status, body, _ = await client.text("/")
    assert status == 200
    assert "30 days: 1 with a page, 1 watched in part, 19 not watched" in body


async def test_what_is_open_is_on_today_before_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await view_of(1)
    one = msgspec.structs.replace(incident(), severity=Severity.PAGE, began=view.wall() - 10**9)
    monkeypatch.setattr(view.pipeline.manager, "incidents", lambda: [one])
    days = await days_of(view)
    assert [day.pages for day in days[-2:]] == [0, 1]


async def test_a_journal_that_can_not_be_read_costs_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await view_of(1)

    async def broken(*_: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(view.delivery, "history", broken)
    async with door(view) as client:
        status, body, _ = await client.text("/")
    assert status == 200
    assert "The incidents of the last 30 days can't be read." in body
