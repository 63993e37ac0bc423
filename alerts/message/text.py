"""Text that can do no harm, wherever it came from, and times as people on call read them.

Names come from the bus, that is from every machine of a fleet: what is not printable must not reach
a pager, a terminal or a chat.
"""

from __future__ import annotations

from datetime import UTC, datetime

ELLIPSIS = "…"
_SECOND = 1_000_000_000


def clean(text: str, limit: int | None = None) -> str:
    """Return one line of printable characters: blanks for line breaks and tabs, `?` for control
    and direction characters."""
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(one if one.isprintable() else "?" for one in line)
    return line if limit is None else cut(line, limit)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters, with an ellipsis where something is missing."""
    if len(text) <= limit:
        return text
    return text[: max(0, limit - 1)].rstrip() + ELLIPSIS if limit > 0 else ""


def cut_bytes(text: str, limit: int) -> str:
    """Return at most `limit` bytes of UTF-8, no character in halves."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    kept = raw[: max(0, limit - len(ELLIPSIS.encode()))].decode("utf-8", "ignore").rstrip()
    return kept + ELLIPSIS


def stamp(wall_ns: int) -> str:
    """Return a time as `2026-11-21 12:00:05 UTC`."""
    return f"{_moment(wall_ns):%Y-%m-%d %H:%M:%S} UTC"


def rfc3339(wall_ns: int) -> str:
    """Return a time as `2026-11-21T12:00:05.123Z`."""
    moment = _moment(wall_ns)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def lasting(seconds: float) -> str:
    """Return a duration in its two largest units: `45 s`, `3 min`, `2 h 5 min`, `4 d 2 h`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{whole} s"


def _moment(wall_ns: int) -> datetime:
    seconds, rest = divmod(wall_ns, _SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
