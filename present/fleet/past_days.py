"""The last 30 days, each by the worst that was wrong on it, and by how long kilowatch watched. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from itertools import pairwise

from api.alerts import Incident, Severity
from api.fitness import FitnessSample
from present.row import Tone
from present.units import percent
from telemetry.text import counted

DAYS = 30
SECONDS = 10**9
_MISSED_NS = 660 * SECONDS
"""Pause between two samples of the fleet beyond which nobody watched: they are 5 min apart, and a restart may cost one."""
_WELL_WATCHED = 0.98
"""Part of a day from which on it counts as watched."""


@dataclass(frozen=True, slots=True)
class PastDay:
    """A day, and what was wrong on it."""

    day: date
    pages: int
    """Incidents that paged and were open on it."""
    tickets: int
    watched: float
    """Part of it for which the fleet was watched, 0 to 1; of today, of the time so far."""

    @property
    def tone(self) -> Tone:
        """The worst of the day: what was seen counts, however short the watch."""
        if self.pages:
            return Tone.CRIT
        if self.tickets:
            return Tone.WARN
        return Tone.PLAIN if self.watched >= _WELL_WATCHED else Tone.STALE

    @property
    def hides(self) -> bool:
        """Whether something was wrong, and worse may have been while nobody watched."""
        return bool(self.pages or self.tickets) and self.watched < _WELL_WATCHED

    @property
    def words(self) -> str:
        """The day in words: `28 Nov: 1 page, 3 tickets`."""
        kinds = ((self.pages, "page"), (self.tickets, "ticket"))
        seen = ", ".join(counted(number, word) for number, word in kinds if number)
        if not self.watched:
            text = f"{seen}, not watched otherwise" if seen else "not watched"
        elif self.watched < _WELL_WATCHED:
            text = f"{seen or 'nothing wrong'} in the {percent(self.watched)} of it that was watched"
        else:
            text = seen or "nothing wrong"
        return f"{self.day.day} {self.day:%b}: {text}"


def past_days(
    incidents: Sequence[Incident], samples: Sequence[FitnessSample], now: int, zone: tzinfo, *, known_from: int = 0
) -> list[PastDay]:
    """Return the days up to today, oldest first. `samples`: of the fleet, in order of time; `now`: ns since 1970;
    `zone`: in which a day begins at midnight; `known_from`: ns since 1970, before which incidents were not asked for."""
    today = datetime.fromtimestamp(now / SECONDS, zone).date()
    at = [one.at for one in samples if one.fit + one.degraded + one.out]
    found = []
    for back in range(DAYS - 1, -1, -1):
        day = today - timedelta(days=back)
        begin, end = (_midnight(each, zone) for each in (day, day + timedelta(days=1)))
        end = min(end, now)
        there = [one.severity for one in incidents if one.began < end and (one.ended is None or one.ended >= begin)]
        watched = _watched(at, begin, end) if begin >= known_from else 0.0
        found.append(PastDay(day, there.count(Severity.PAGE), there.count(Severity.TICKET), watched))
    return found


def _midnight(day: date, zone: tzinfo) -> int:
    return round(datetime.combine(day, time(), zone).timestamp()) * SECONDS


def _watched(at: Sequence[int], begin: int, end: int) -> float:
    """Return the part of a span of which samples tell: the pause after each counts, up to that of an absence."""
    if end <= begin:
        return 0.0
    inside = at[max(0, bisect_left(at, begin) - 1) : bisect_left(at, end)]
    total = 0
    for one, after in pairwise([*inside, end]):
        if after - one <= _MISSED_NS:
            total += max(0, min(after, end) - max(one, begin))
    return total / (end - begin)


def past_days_words(days: Sequence[PastDay]) -> str:
    """Return the days in a sentence: `30 days: 2 with a page, 5 with a ticket, 1 not watched whole`."""
    counts = [
        (sum(1 for day in days if day.pages), "with a page"),
        (sum(1 for day in days if day.tickets and not day.pages), "with a ticket"),
        (sum(1 for day in days if 0 < day.watched < _WELL_WATCHED), "watched in part"),
        (sum(1 for day in days if not day.watched), "not watched"),
    ]
    parts = [f"{count} {words}" for count, words in counts if count]
    return f"{counted(len(days), 'day')}: {', '.join(parts) or 'nothing was wrong'}"
