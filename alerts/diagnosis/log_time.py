"""Times of log lines, comparable and readable."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from telemetry.notations.kernel_stamp import SYSLOG, parse_stamp

_BOOT = re.compile(r"(?:\[|<\d{1,3}>\[)\s*(\d{1,12}\.\d{1,9})\]")
_ISO_UTC = re.compile(r"(?:[^\d\[]{0,20})(\d{4}-\d{2}-\d{2})T(\d{2}):(\d{2}):(\d{2}[.,]\d{1,6})(Z|[+-]\d{2}:?\d{2})\s")
_DELTA = re.compile(r" *< *[\d.]{1,20}>\]")
"""`[Fri Oct 14 14:56:49 2022 <    0.000012>]`: `dmesg -d` adds the time since the line before."""
_LEAP_YEAR = 2024
"""Completes the stamps of syslog, which name no year; 29 February must be one of its days."""
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for stamps that name no zone
_LEAP_BEGIN = datetime(_LEAP_YEAR, 1, 1)  # noqa: DTZ001

LINES_TOGETHER = 200
"""Without a time, lines of one file at most this far apart count as written together."""


class Clock(StrEnum):
    """Clock of a log's times, by what its stamps name."""

    UTC = "utc"
    """Date and zone: seconds since 1970."""
    LOCAL = "local"
    """Date without a zone: seconds since 1970 on the node's own clock."""
    YEARLESS = "yearless"
    """Neither year nor zone: seconds since the year began on the node's own clock."""
    BOOT = "boot"
    """Seconds since the node booted."""
    NONE = ""
    """No times: lines are known by their order only."""


class FindingTime(msgspec.Struct, frozen=True, kw_only=True):
    """A moment as far as a file tells it. Moments of different clocks can't be compared."""

    text: str
    """The moment as the file has it."""
    clock: Clock
    seconds: float
    """Since the clock's begin: 1970, the year, or the boot of the node."""
    boot: int = 0
    """How often the node had booted before in the file; for a clock of `boot`."""
    file: str = ""

    @property
    def axis(self) -> tuple[object, ...]:
        """The axis of time on which it lies: two moments of one axis have an order."""
        return (self.clock, self.file, self.boot) if self.clock is Clock.BOOT else (self.clock,)


class LogTime(NamedTuple):
    """A moment on the time axis of one log."""

    file: int
    order: int
    """Number of the line among the relevant lines of all files."""
    axis: Clock
    """Clocks can't be compared."""
    boot: int
    """How often the time since boot fell back in this file: after a reboot it begins again."""
    seconds: float
    text: str | None
    """The time as text."""

    def before(self, other: LogTime) -> float | None:
        """Return the seconds from this moment to `other`; None when they can't be compared."""
        if self.axis != other.axis or self.boot != other.boot:
            return None
        if self.axis in {Clock.NONE, Clock.BOOT}:
            if self.file != other.file:
                return None
            if self.axis is Clock.NONE:
                far = other.order - self.order
                return 0.0 if abs(far) <= LINES_TOGETHER else None
        return other.seconds - self.seconds

    def in_file(self, file: str) -> FindingTime | None:
        """Return the moment as findings have it; None where the line has no time."""
        if self.text is None:
            return None
        return FindingTime(text=self.text, clock=self.axis, seconds=self.seconds, boot=self.boot, file=file)


@lru_cache(maxsize=1024)
def _midnight(day: str, zone: str) -> float | None:
    """Return when a day began, in seconds since 1970; a log has few days and fewer zones."""
    wall = parse_stamp(f"{day}T00:00:00{zone} ").wall
    return None if wall is None else wall.timestamp()


@lru_cache(maxsize=4096)
def _read(head: str) -> tuple[Clock, float, str | None]:
    """Return axis, seconds and text of the head of a line."""
    quick = _BOOT.match(head)
    if quick is not None:
        return Clock.BOOT, float(quick[1]), f"{quick[1]} s after boot"
    iso = _ISO_UTC.match(head)
    if iso is not None and (midnight := _midnight(iso[1], iso[5])) is not None:
        seconds = int(iso[2]) * 3600 + int(iso[3]) * 60 + float(iso[4].replace(",", "."))
        return (Clock.UTC, midnight + seconds, f"{iso[1]}T{iso[2]}:{iso[3]}:{iso[4].replace(',', '.')}{iso[5]}")
    plain = _DELTA.sub("]", head, count=1)
    stamp = parse_stamp(plain)
    if stamp.wall is not None:
        text = stamp.wall.isoformat()
        if stamp.wall.tzinfo is not None:
            return Clock.UTC, stamp.wall.astimezone(UTC).timestamp(), text
        return Clock.LOCAL, (stamp.wall - _LOCAL_EPOCH).total_seconds(), text
    wall = parse_stamp(plain, _LEAP_YEAR).wall
    if wall is not None and (named := SYSLOG.search(plain)) is not None:
        return Clock.YEARLESS, (wall - _LEAP_BEGIN).total_seconds(), named[0]
    if stamp.since_boot is not None:
        return Clock.BOOT, stamp.since_boot, f"{stamp.since_boot:.6f} s after boot"
    return Clock.NONE, 0.0, None


def time_of_document(text: str | None, file: str) -> FindingTime | None:
    """Return the moment that a document or a row names (`Sun Feb 23 16:24:18 2025` or
    `2025/02/23 16:24:18.123`); None where it names none."""
    words = (text or "").strip()[:100]
    clock, seconds, _ = _read(f"[{words}] ")
    if clock is Clock.NONE:
        clock, seconds, _ = _read(f"{words.replace('/', '-')} ")
    if clock in {Clock.NONE, Clock.BOOT}:
        return None
    return FindingTime(text=words, clock=clock, seconds=seconds, file=file)


class LogClock:
    """Reader of the times of the lines of one log after another; it detects reboots."""

    def __init__(self) -> None:
        self._order = 0
        self._file = 0
        self._boot = 0
        self._last = 0.0
        self._before: tuple[Clock, float, str | None] = (Clock.NONE, 0.0, None)

    def next_file(self) -> None:
        """Begin another log."""
        self._file += 1
        self._boot, self._last = 0, 0.0
        self._before = (Clock.NONE, 0.0, None)

    def read(self, head: str) -> LogTime:
        """Return the moment of a line whose beginning, up to its message, is `head`."""
        self._order += 1
        if head and head.isspace():  # the further lines of a message are indented, with no stamp
            axis, seconds, text = self._before
        else:
            axis, seconds, text = self._before = _read(head)
        if axis is Clock.BOOT:
            if seconds < self._last - 60:  # lines are not in strict order, but never a minute off
                self._boot += 1
            self._last = seconds
        return LogTime(self._file, self._order, axis, self._boot if axis is Clock.BOOT else 0, seconds, text)
