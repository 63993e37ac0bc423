"""Counts, durations and times as people read and write them. Pure.

Every duration and every time of day that kilowatch shows is worded here, so that the terminal, the
pages and the dashboard agree: 4,000 s are `67 min`, and `67 m` in a narrow column.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

ABSENT = "—"
"""Text in place of a missing value."""
SECONDS_IN = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds of each unit in which a duration may be written."""
LONGEST = 1e12
"""Seconds: a longer duration is cut to it, and stays a number."""
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LEADING_UNITS = (("d", "h", 3600), ("h", "min", 60), ("min", "s", 1))
"""Unit, the unit that follows it, and the seconds of the latter."""
_BILLION = 1_000_000_000


def counted(count: int, word: str) -> str:
    """Return how many of a thing there are: `1 page`, `1,250 pages`, `2 processes`."""
    plural = f"{word}es" if word.endswith("s") else f"{word}s"
    return f"{count:,} {word if count == 1 else plural}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `420 ms`, `4.5 s`, `90 s`, `5 min 10 s`,
    `67 min`, `2 h 5 min`, `4 d 3 h`; `never` for an infinite one, `unknown` for a NaN.

    A unit leads from two of it on; seconds are dropped from ten minutes on.
    """
    if math.isnan(seconds):
        return "unknown"
    if math.isinf(seconds):
        return "never"
    size = abs(seconds)
    if 0 < size < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if size < 9.95:
        return f"{round(seconds, 1):g} s"
    sign, whole = "-" if seconds < 0 else "", round(size)
    if whole >= 600:
        whole = 60 * round(size / 60)
    for unit, smaller, part in _LEADING_UNITS:
        length = round(SECONDS_IN[unit])
        if whole >= 2 * length:
            many, rest = divmod(whole, length)
            rest //= part
            return f"{sign}{many} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{sign}{whole} s"


def estimated_duration(seconds: float) -> str:
    """Return a duration that is an estimate: as `duration`, but in whole seconds, at least one."""
    return duration(max(1.0, round(seconds)) if math.isfinite(seconds) else seconds)


def short_duration(seconds: float | None) -> str:
    """Return a duration of at most four characters and a blank, for a column of a table: `0.4 s`,
    `34 s`, `67 m`, `5 h`, `3 d`; a dash for None."""
    if seconds is None:
        return ABSENT
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, unit in ((99.5, "s"), (5970, "m"), (172_800, "h")):
        if seconds < limit:
            return f"{seconds / SECONDS_IN[unit]:.0f} {unit}"
    return f"{seconds / SECONDS_IN['d']:.0f} d"


def exact_duration(seconds: float) -> str:
    """Return a duration as PromQL, InfluxQL and our own settings write it, in the largest unit that
    divides it: `7d`, `36h`, `90s`, `500ms`."""
    for unit in ("d", "h", "m"):
        if seconds >= SECONDS_IN[unit] and seconds % SECONDS_IN[unit] == 0:
            return f"{seconds / SECONDS_IN[unit]:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:g}ms"


def parse_duration(text: str) -> float | None:
    """Return the seconds of `10s`, `5 min`, `1h30m`, `2d` or a plain number; None for other text."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return min(float(text), LONGEST)
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return None
    total = math.fsum(min(float(part[1]), LONGEST) * SECONDS_IN[part[2]] for part in parts)
    return min(total, LONGEST)


def timer(seconds: float) -> str:
    """Return a running duration as a clock: `00:41`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def timestamp(wall_ns: int) -> str:
    """Return a time for people: `2026-11-21 12:00:05 UTC`."""
    return f"{_moment(wall_ns):%Y-%m-%d %H:%M:%S} UTC"


def moment(wall_ns: int, now_ns: int) -> str:
    """Return a time to the minute, with its day where that is another than now: `12:00 UTC`, `2026-11-20 23:58 UTC`."""
    its, now = _moment(wall_ns), _moment(now_ns)
    return f"{its:%H:%M} UTC" if its.date() == now.date() else f"{its:%Y-%m-%d %H:%M} UTC"


def rfc3339(wall_ns: int) -> str:
    """Return a time for programs: `2026-11-21T12:00:05.123Z`."""
    moment = _moment(wall_ns)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def time_of_day(wall_ns: int, *, utc: bool = True) -> str:
    """Return a time of day: `12:04:01Z`, or local without the letter; a dash for no time."""
    if wall_ns <= 0:
        return ABSENT
    moment = _moment(wall_ns)
    return f"{moment:%H:%M:%S}Z" if utc else f"{moment.astimezone():%H:%M:%S}"


def day_of_month(wall_ns: int, *, utc: bool = True) -> str:
    """Return a day: `11-21`."""
    moment = _moment(wall_ns)
    return f"{moment if utc else moment.astimezone():%m-%d}"


def _moment(wall_ns: int) -> datetime:
    seconds, rest = divmod(wall_ns, _BILLION)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
