"""Hours of the week in which people are notified: `mon-fri 08:00-18:00`, in a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from telemetry.errors import ConfigError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FORM = re.compile(
    r"\s*(?:([a-z]{3}(?:-[a-z]{3})?(?:,[a-z]{3}(?:-[a-z]{3})?)*)\s*)?"
    r"(?:(\d\d):(\d\d)-(\d\d):(\d\d))?\s*"
)
_DAY = 24 * 60
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Hours:
    """Times of the week; none at all means always."""

    spans: tuple[tuple[frozenset[int], int, int], ...]
    """Days (0 is Monday), first minute of the day, first minute after; may pass midnight, and then
    belongs to the day on which it begins."""
    zone: tzinfo

    def open_at(self, now: int) -> bool:
        """Return whether a wall time (ns since 1970) is within them."""
        if not self.spans:
            return True
        local = datetime.fromtimestamp(now // _SECOND, self.zone)
        minute = local.hour * 60 + local.minute
        day = local.weekday()
        return any(
            (day in days and first <= minute < end) or ((day - 1) % 7 in days and minute < end - _DAY)
            for days, first, end in self.spans
        )

    def next_open(self, now: int) -> int:
        """Return `now` if it is within them, else when they next begin, ns since 1970."""
        if self.open_at(now):
            return now
        local = datetime.fromtimestamp(now // _SECOND, self.zone)
        starts = []
        for days, first, _ in self.spans:
            for ahead in range(9):
                day = local.date() + timedelta(days=ahead)
                if day.weekday() not in days:
                    continue
                # Built from the wall clock of that day, so that a change to summer time moves it.
                start = datetime(day.year, day.month, day.day, first // 60, first % 60, tzinfo=self.zone)
                moment = int(start.timestamp()) * _SECOND
                if moment > now:
                    starts.append(moment)
                    break
        return min(starts)


def zone_of(name: str, where: str) -> tzinfo:
    """Return a time zone by its IANA name. Raises `ConfigError`."""
    if name == "UTC":  # known even where no table of zones is installed
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(where, f"{name!r} is no time zone here", "Write an IANA name, as Europe/Berlin.") from error


def parse_hours(texts: tuple[str, ...], zone: tzinfo, where: str) -> Hours:
    """Return the hours of some texts. Raises `ConfigError`."""
    return Hours(tuple(_span(text, where) for text in texts), zone)


def _span(text: str, where: str) -> tuple[frozenset[int], int, int]:
    form = _FORM.fullmatch(text.lower())
    if form is None or not text.strip():
        raise _wrong(text, where)
    days = _days(form[1], text, where) if form[1] else frozenset(range(7))
    if form[2] is None:
        return days, 0, _DAY
    first = int(form[2]) * 60 + int(form[3])
    end = int(form[4]) * 60 + int(form[5])
    if first >= _DAY or end > _DAY or int(form[3]) > 59 or int(form[5]) > 59 or first == end:
        raise _wrong(text, where)
    return days, first, end if end > first else end + _DAY


def _days(text: str, whole: str, where: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last and last not in DAYS):
            raise _wrong(whole, where)
        start, end = DAYS.index(first), DAYS.index(last or first)
        days.update(number % 7 for number in range(start, end + 1 if end >= start else end + 8))
    return frozenset(days)


def _wrong(text: str, where: str) -> ConfigError:
    return ConfigError(
        where, f"{text!r} are no hours", "Write days and hours, as 'mon-fri 08:00-18:00', 'sat,sun' or '22:00-06:00'."
    )
