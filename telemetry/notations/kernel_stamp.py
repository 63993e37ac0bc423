"""The time at the head of a kernel log line, in every form that tools print it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

_KMSG = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;]{0,200};")
_SINCE_BOOT = re.compile(r"\[\s*(\d{1,12})\.(\d{1,9})\]")
_CTIME = re.compile(r"\[(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) +(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})\]")
_OWN_LOG = re.compile(r"\[([A-Z][a-z]{2}) +(\d{1,2}) (\d{4}) (\d{2}):(\d{2}):(\d{2})\]")
"""`[Feb 23 2025 16:24:18]`, as Fabric Manager and IMEX write in their own logs: the node's local time."""
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?(Z|[+-]\d{2}:?\d{2})?")
SYSLOG = re.compile(
    r"(?:^|(?<=[\s>]))([^\W\d_]{3,5}|\d{1,2}月)\.? +(\d{1,2}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?=\s)"
)
"""`Feb 23 16:24:18`, as syslog and the journal write it in the language of the node."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LANGUAGES = (
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "jan feb mär apr mai jun jul aug sep okt nov dez",
    "janv févr mars avril mai juin juil août sept oct nov déc",
    "ene feb mar abr may jun jul ago sep oct nov dic",
    "gen feb mar apr mag giu lug ago set ott nov dic",
    "jan fev mar abr mai jun jul ago set out nov dez",
    "jan feb mrt apr mei jun jul aug sep okt nov dec",
    "sty lut mar kwi maj cze lip sie wrz paź lis gru",
    "янв фев мар апр мая июн июл авг сен окт ноя дек",
    " ".join(f"{number}月" for number in range(1, 13)),
)
_MONTHS = {word: number for names in _LANGUAGES for number, word in enumerate(names.split(), 1)}
"""Journals are written in the language of the node; a short name of a month means the same in all of them."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time at which a line was written, as far as the line has it."""

    since_boot: float | None = None
    """Seconds."""
    wall: datetime | None = None
    """The node's local time, without a zone, where the line has no zone."""

    @property
    def unix_ns(self) -> int | None:
        """ns since 1970; None where the line has no date or no zone."""
        if self.wall is None or self.wall.tzinfo is None:
            return None
        return (self.wall - _EPOCH) // timedelta(microseconds=1) * 1000


def parse_stamp(line: str, year: int | None = None) -> Stamp:
    """Return the time of a line; `year` completes syslog's `Feb 23 16:24:18`, which has none."""
    head = line[:200]
    if (match := _KMSG.match(head)) is not None:
        return Stamp(since_boot=int(match[3]) / 1e6)
    end = next((at for at in (head.find("NVRM:"), head.find("nvidia-nvswitch")) if at >= 0), 200)
    head = head[:end]
    boot = _SINCE_BOOT.search(head)
    return Stamp(since_boot=None if boot is None else float(f"{boot[1]}.{boot[2]}"), wall=_wall(head, year))


def _wall(head: str, year: int | None) -> datetime | None:
    if (match := _ISO.search(head)) is not None:
        numbers = [int(part) for part in match.groups()[:6]]
        fraction = int((match[7] or "0").ljust(6, "0")[:6])
        return _datetime(*numbers, fraction, zone=match[8])
    if (match := _CTIME.search(head)) is not None:
        month, *rest = match.groups()
        day, hour, minute, second, named = (int(part) for part in rest)
        return _datetime(named, _MONTHS.get(month.lower(), 0), day, hour, minute, second)
    if (match := _OWN_LOG.search(head)) is not None:
        month, *rest = match.groups()
        day, named, hour, minute, second = (int(part) for part in rest)
        return _datetime(named, _MONTHS.get(month.lower(), 0), day, hour, minute, second)
    if year is not None and (match := SYSLOG.search(head)) is not None:
        fraction = int((match[6] or "0").ljust(6, "0"))
        day, hour, minute, second = (int(part) for part in match.groups()[1:5])
        return _datetime(year, _MONTHS.get(match[1].lower(), 0), day, hour, minute, second, fraction)
    return None


def _datetime(*numbers: int, zone: str | None = None) -> datetime | None:
    try:
        return datetime(*numbers, tzinfo=_zone(zone))  # type: ignore[arg-type,misc] # six or seven
    except ValueError:
        return None  # 30 February


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
