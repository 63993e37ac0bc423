"""Times of log lines, comparable and readable."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from telemetry.kernel_stamp import SYSLOG, parse_stamp

_BOOT = re.compile(r"(?:\[|<\d{1,3}>\[)\s*(\d{1,12}\.\d{1,9})\]")
_ISO_UTC = re.compile(
    r"(?:[^\d\[]{0,20})(\d{4}-\d{2}-\d{2})T(\d{2}):(\d{2}):(\d{2}[.,]\d{1,6})(Z|[+-]\d{2}:?\d{2})\s"
)
_DELTA = re.compile(r" *< *[\d.]{1,20}>\]")
"""`[Fri Oct 14 14:56:49 2022 <    0.000012>]`: `dmesg -d` adds the time since the line before."""
_LEAP_YEAR = 2024
"""Completes the stamps of syslog, which name no year; 29 February must be one of its days."""
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for stamps that name no zone

LINES_TOGETHER = 200
"""Without a time, lines of one file at most this far apart count as written together."""


class LogTime(NamedTuple):
    """A moment on the time axis of one log."""

    file: int
    order: int
    """Number of the line among the relevant lines of all files."""
    axis: str
    """`utc`, `local` or `boot`; "" when the line has no time. Axes can't be compared."""
    boot: int
    """How often the time since boot fell back in this file: after a reboot it begins again."""
    seconds: float
    text: str | None
    """The time as text."""

    def before(self, other: LogTime) -> float | None:
        """Return the seconds from this moment to `other`; None when they can't be compared."""
        if self.axis != other.axis or self.boot != other.boot:
            return None
        if self.axis in {"", "boot"}:
            if self.file != other.file:
                return None
            if self.axis == "":
                far = other.order - self.order
                return 0.0 if abs(far) <= LINES_TOGETHER else None
        return other.seconds - self.seconds


@lru_cache(maxsize=1024)
def _midnight(day: str, zone: str) -> float | None:
    """Return when a day began, in seconds since 1970; a log has few days and fewer zones."""
    wall = parse_stamp(f"{day}T00:00:00{zone} ").wall
    return None if wall is None else wall.timestamp()


@lru_cache(maxsize=4096)
def _read(head: str) -> tuple[str, float, str | None]:
    """Return axis, seconds and text of the head of a line."""
    quick = _BOOT.match(head)
    if quick is not None:
        return "boot", float(quick[1]), f"{quick[1]} s after boot"
    iso = _ISO_UTC.match(head)
    if iso is not None and (midnight := _midnight(iso[1], iso[5])) is not None:
        seconds = int(iso[2]) * 3600 + int(iso[3]) * 60 + float(iso[4].replace(",", "."))
        return (
            "utc",
            midnight + seconds,
            f"{iso[1]}T{iso[2]}:{iso[3]}:{iso[4].replace(',', '.')}{iso[5]}",
        )
    stamp = parse_stamp(_DELTA.sub("]", head, count=1), _LEAP_YEAR)
    if stamp.wall is not None:
        named = SYSLOG.search(head) if stamp.wall.year == _LEAP_YEAR else None
        text = named[0] if named is not None and "[" not in head[: named.start()] else None
        text = stamp.wall.isoformat() if text is None or str(_LEAP_YEAR) in head else text
        if stamp.wall.tzinfo is None:
            return "local", (stamp.wall - _LOCAL_EPOCH).total_seconds(), text
        return "utc", stamp.wall.astimezone(UTC).timestamp(), text
    if stamp.since_boot is not None:
        return "boot", stamp.since_boot, f"{stamp.since_boot:.6f} s after boot"
    return "", 0.0, None


class LogClock:
    """Reader of the times of the lines of one log after another; it detects reboots."""

    def __init__(self) -> None:
        self._order = 0
        self._file = 0
        self._boot = 0
        self._last = 0.0
        self._before: tuple[str, float, str | None] = ("", 0.0, None)

    def next_file(self) -> None:
        """Begin another log."""
        self._file += 1
        self._boot, self._last = 0, 0.0
        self._before = ("", 0.0, None)

    def read(self, head: str) -> LogTime:
        """Return the moment of a line whose beginning, up to its message, is `head`."""
        self._order += 1
        if head and head.isspace():  # the further lines of a message are indented, with no stamp
            axis, seconds, text = self._before
        else:
            axis, seconds, text = self._before = _read(head)
        if axis == "boot":
            if seconds < self._last - 60:  # lines are not in strict order, but never a minute off
                self._boot += 1
            self._last = seconds
        return LogTime(
            self._file, self._order, axis, self._boot if axis == "boot" else 0, seconds, text
        )
