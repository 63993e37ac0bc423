"""Months of a site in its own time zone, cut into quarters of an hour.

The offset of every time zone in use is a multiple of 15 minutes, so the intervals are those of a utility's
meter: 2,976 in a month of 31 days, four fewer or more where the clocks are changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache

import numpy as np

from power.site.tariff import WEEK, TariffRate, price_at
from power.wiring import Floats
from telemetry.errors import ConfigError

STEP = 900
"""Seconds of an interval."""
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Month:
    """A calendar month of a site."""

    name: str
    """`2026-10`."""
    start: int
    """Seconds since 1970 of its first midnight."""
    end: int
    minute: Ints
    """Local minute of the week at which each interval begins; minute 0 is Monday 00:00."""
    zone: tzinfo

    @property
    def hours(self) -> float:
        """Return its length in hours: of a change of clocks one more or less than 24 a day."""
        return (self.end - self.start) / 3600

    def elapsed(self, now: float) -> Floats:
        """Return the seconds of each interval that have passed at `now`, seconds since 1970."""
        begins = self.start + STEP * np.arange(len(self.minute))
        passed: Floats = np.clip(now - begins, 0.0, STEP)
        return passed

    def when(self, interval: int) -> datetime:
        """Return the local time at which an interval begins."""
        return datetime.fromtimestamp(self.start + STEP * interval, self.zone)

    def prices(self, flat: float | None, rates: tuple[TariffRate, ...]) -> Floats:
        """Return the money per kWh of each interval; NaN where there is no price."""
        return _month_prices(self, flat, rates)


@lru_cache(maxsize=8)
def _month_prices(month: Month, flat: float | None, rates: tuple[TariffRate, ...]) -> Floats:
    week = _week_prices(flat, rates)
    mean: Floats = np.mean([week[(month.minute + late) % WEEK] for late in range(15)], axis=0)
    found: Floats = np.round(mean, 9)  # one price stays one
    found.setflags(write=False)  # asked for at each tick of the circuits
    return found


@lru_cache(maxsize=8)
def _week_prices(flat: float | None, rates: tuple[TariffRate, ...]) -> Floats:
    prices = [price_at(flat, rates, minute) for minute in range(WEEK)]
    return np.array([np.nan if price is None else price for price in prices])


def month_at(now: float, zone: tzinfo) -> Month:
    """Return the month in which an instant lies, seconds since 1970."""
    at = datetime.fromtimestamp(now, zone)
    return _month(at.year, at.month, zone)


def months_between(begin: int, end: int, zone: tzinfo) -> dict[str, int]:
    """Return the begins of the months from that of a time on which begin before another, by name; ns since 1970."""
    at = datetime.fromtimestamp(begin / 1e9, zone)
    year, month, start = at.year, at.month, begin
    found: dict[str, int] = {}
    while not found or start < end:
        start = int(datetime(year, month, 1, tzinfo=zone).timestamp()) * 10**9
        found[f"{year}-{month:02}"] = start
        year, month = year + month // 12, month % 12 + 1
    return {name: start for name, start in found.items() if start <= begin or start < end}


def month_named(name: str, zone: tzinfo) -> Month:
    """Return a month by its name. Raises `ConfigError`."""
    parts = re.fullmatch(r"(20\d\d)-(0[1-9]|1[0-2])", name)
    if parts is None:
        raise ConfigError("month", f"{name!r} is no month", "Write 2026-10.")
    return _month(int(parts[1]), int(parts[2]), zone)


@lru_cache(maxsize=32)
def _month(year: int, month: int, zone: tzinfo) -> Month:
    start = int(datetime(year, month, 1, tzinfo=zone).timestamp())
    end = int(datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone).timestamp())
    local = [datetime.fromtimestamp(at, zone) for at in range(start, end, STEP)]
    minute = [1440 * at.weekday() + 60 * at.hour + at.minute for at in local]
    return Month(f"{year}-{month:02}", start, end, np.array(minute, np.int64), zone)
