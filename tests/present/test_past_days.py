"""The last 30 days: what was wrong on each, and whether anybody watched."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from api.alerts import Incident, Severity
from api.fitness import FitnessSample
from present.fleet.past_days import DAYS, PastDay, past_days, past_days_words
from present.row import Tone

S, FIVE_MINUTES = 10**9, 300
ZONE = ZoneInfo("Europe/Berlin")
NOW = int(datetime(2026, 11, 28, 12, tzinfo=ZONE).timestamp())


def at(day: int, hour: float = 0.0) -> int:
    """A time of November, s since 1970."""
    return int(datetime(2026, 11, day, tzinfo=ZONE).timestamp() + 3600 * hour)


def watched(begin: int, end: int, *, fit: int = 2, unknown: int = 0) -> list[FitnessSample]:
    """Samples of a fleet that was watched."""
    return [FitnessSample(second * S, 100, fit, 0, 0, unknown) for second in range(begin, end, FIVE_MINUTES)]


def incident(severity: Severity, begin: int, end: int | None) -> Incident:
    """An incident of some hours."""
    return Incident(
        key=f"{begin}", severity=severity, title="t", began=begin * S, ended=None if end is None else end * S
    )


def by_day(days: list[PastDay]) -> dict[int, PastDay]:
    """The days of November by number."""
    return {one.day.day: one for one in days if one.day.month == 11}


def test_each_day_has_the_worst_that_was_open_on_it() -> None:
    found = past_days(
        [
            incident(Severity.PAGE, at(26, 23), at(27, 1)),
            incident(Severity.TICKET, at(20, 3), at(20, 4)),
            incident(Severity.INFO, at(21), at(21, 1)),
        ],
        watched(at(1), NOW),
        NOW * S,
        ZONE,
    )
    days = by_day(found)
    assert len(found) == DAYS
    assert [day for day, one in days.items() if one.pages] == [26, 27]
    assert [day for day, one in days.items() if one.tickets] == [20]
    assert (days[26].tone, days[20].tone, days[21].tone) == (Tone.CRIT, Tone.WARN, Tone.PLAIN)
    assert days[26].words == "26 Nov: 1 page"
    assert days[21].words == "21 Nov: nothing wrong"
    assert days[28].watched == pytest.approx(1.0), "of today the time so far"
    assert past_days_words(found) == "30 days: 2 with a page, 1 with a ticket, 2 not watched"


def test_an_incident_that_is_open_is_on_today_and_not_on_tomorrow() -> None:
    days = by_day(past_days([incident(Severity.PAGE, at(25, 9), None)], [], NOW * S, ZONE))
    assert [day for day, one in days.items() if one.pages] == [25, 26, 27, 28]


def test_a_day_that_nobody_watched_is_not_well() -> None:
    days = by_day(past_days([], watched(at(27), at(27, 6)), NOW * S, ZONE))
    assert days[27].watched == pytest.approx(0.25, abs=0.01)
    assert days[27].tone is Tone.STALE
    assert days[27].words == "27 Nov: nothing wrong in the 25% of it that was watched"
    assert days[26].words == "26 Nov: not watched"


def test_what_was_wrong_counts_however_short_the_watch_and_says_what_it_hides() -> None:
    seen = PastDay(date(2026, 11, 3), 1, 2, 0.5)
    assert seen.hides
    assert seen.tone is Tone.CRIT
    assert seen.words == "3 Nov: 1 page, 2 tickets in the 50% of it that was watched"
    assert PastDay(date(2026, 11, 3), 0, 1, 0.0).words == "3 Nov: 1 ticket, not watched otherwise"


def test_a_fleet_of_which_nothing_was_known_was_not_watched() -> None:
    samples = watched(at(27), at(28), fit=0, unknown=2)
    assert by_day(past_days([], samples, NOW * S, ZONE))[27].watched == 0.0


def test_days_before_the_oldest_incident_of_a_cut_list_are_not_known() -> None:
    one = incident(Severity.TICKET, at(20, 3), at(20, 4))
    days = by_day(past_days([one], watched(at(1), NOW), NOW * S, ZONE, known_from=one.began))
    assert days[19].watched == days[20].watched == 0.0
    assert days[20].tickets == 1
    assert days[21].watched == pytest.approx(1.0)


def test_a_day_is_that_of_the_place() -> None:
    """An hour before midnight in Berlin is another day than in UTC's noon-to-noon; a day of 25 hours is one too."""
    late = int(datetime(2026, 10, 25, 23, 30, tzinfo=ZONE).timestamp())
    now = int(datetime(2026, 10, 26, 12, tzinfo=ZONE).timestamp())
    begin = int(datetime(2026, 10, 25, tzinfo=ZONE).timestamp())
    found = past_days([incident(Severity.PAGE, late, late + 60)], watched(begin, now), now * S, ZONE)
    assert [one.day for one in found if one.pages] == [date(2026, 10, 25)]
    assert [round(one.watched, 3) for one in found[-2:]] == [1.0, 1.0]
