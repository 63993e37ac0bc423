"""Parameters of a query: numbers, and times and durations as people write them.

A time: `2026-08-01T10:00:00Z` (RFC 3339), `1785578400` (seconds since 1970), `-90m` (before now) or
`now`. A duration: `10s`, `1h30m`, `2d`, `0.5` (seconds).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from aggregator.http.errors import bad
from telemetry.text import LONGEST, parse_duration

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
LATEST = 4_102_444_800.0
"""2100: a number beyond is milliseconds or nanoseconds by mistake."""


def duration(where: str, text: str) -> float:
    """Return seconds. Raises a 400 that names `where`."""
    seconds = _seconds(where, text)
    if seconds > LATEST:
        raise bad(where, f"{text[:64]!r} is more than a century", "Write seconds, or 10s, 5m, 2d.")
    return seconds


def _seconds(where: str, text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None:
        raise bad(where, f"{text!r} is not a duration", "Write seconds, or 10s, 5m, 1h30m, 2d.")
    return seconds


def moment(where: str, text: str, now: int) -> int:
    """Return ns since 1970; `now` likewise. Raises a 400 that names `where`.

    What lies before 1970 is 1970: nothing is stored there.
    """
    at = max(0, _moment(where, text, now))
    if at > LATEST * 1e9:
        raise bad(where, f"{text[:64]} is beyond the year 2100", "Write seconds since 1970.")
    return at


def _moment(where: str, text: str, now: int) -> int:
    if text == "now":
        return now
    if text.startswith("-"):
        return now - round(_seconds(where, text[1:]) * 1e9)
    if _NUMBER.fullmatch(text):
        return round(min(float(text), LONGEST) * 1e9)
    try:
        # A '+' in a query that was not escaped arrives as a blank.
        parsed = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise bad(
            where,
            f"{text!r} is not a time",
            "Write 2026-08-01T10:00:00Z, seconds since 1970, -1h or now.",
        )
    return int(parsed.timestamp()) * 10**9 + parsed.microsecond * 1000


def between(first: str | None, last: str | None, now: int, default: str) -> tuple[int, int]:
    """Return `from` and `to` in ns; `default` is the `from` of a query that names none."""
    start = moment("from", first or default, now)
    end = moment("to", last or "now", now)
    if end <= start:
        raise bad("from", "it is not before 'to'", "Swap them, or leave out 'to' for now.")
    return start, end


def whole_number(asked: Mapping[str, str], name: str, usual: int, most: int) -> int:
    """Return a whole number from 1 on. Raises a 400."""
    text = asked.get(name, str(usual))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise bad(name, f"{text!r} is not a number from 1 to {most}", f"Leave it out for {usual}.")
    return int(text)
