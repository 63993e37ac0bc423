"""Parameters of a query and bodies of requests; times and durations as people write them.

A time: `2026-08-01T10:00:00Z` (RFC 3339), `1785578400` (seconds since 1970), `-90m` (before now) or
`now`. A duration: `10s`, `1h30m`, `2d`, `0.5` (seconds).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from aggregator.http.auth import RULE
from aggregator.http.config import CONFIG
from aggregator.http.errors import RequestError, bad, unknown
from aggregator.http.operation import Parameter
from telemetry.text import LONGEST, parse_duration
from telemetry.text.decoders import of_json
from telemetry.text.settings import fault_of

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
T = TypeVar("T")
LATEST = 4_102_444_800.0
"""2100: a number beyond is milliseconds or nanoseconds by mistake."""

WHEN = "RFC 3339, seconds since 1970, '-1h' or 'now'."
"""How a time is written, for the description of a parameter."""
FROM = Parameter("from", f"Start of the time, inclusive. {WHEN}", "-1h")
TO = Parameter("to", f"End of the time, exclusive. {WHEN}", "now")
AT = Parameter("at", f"A past time, answered from the store. {WHEN}", "-10m")
NODE = Parameter("node", "Name of a node.", "n1", required=True, place="path")
OF_NODE = Parameter("node", "Only those of this node.", "n1")
BODY_FAULTS = (408, 413, 415)
"""Statuses that `read_body` raises, beside the 400 of any operation."""


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
        raise bad(where, f"{text!r} is not a time", "Write 2026-08-01T10:00:00Z, seconds since 1970, -1h or now.")
    return int(parsed.timestamp()) * 10**9 + parsed.microsecond * 1000


def between(first: str | None, last: str | None, now: int, default: str) -> tuple[int, int]:
    """Return `from` and `to` in ns; `default` is the `from` of a query that names none."""
    start = moment("from", first or default, now)
    end = moment("to", last or "now", now)
    if start > now and last is None:
        raise bad("from", f"{first} is in the future", "Leave it out for the usual span.")
    if end <= start:
        raise bad("from", "it is not before 'to'", "Swap them, or leave out 'to' for now.")
    return start, end


def whole_number(asked: Mapping[str, str], name: str, usual: int, most: int) -> int:
    """Return a whole number from 1 on. Raises a 400."""
    text = asked.get(name, str(usual))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise bad(name, f"{text!r} is not a number from 1 to {most}", f"Leave it out for {usual}.")
    return int(text)


def query(request: web.Request, *known: str) -> dict[str, str]:
    """Return the query's parameters. Raises a 400 for one that is not known, or given twice."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known:
            raise unknown(f"query {name}", name, known, status=400)
        if name in found:
            raise bad(name, "it is given twice", "Join values with commas where many are possible.")
        found[name] = value
    return {name: value for name, value in found.items() if value}


def one_of(asked: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """Return a parameter, the first of `words` if it is absent. Raises a 400 for another word."""
    word = asked.get(name, words[0])
    if word not in words:
        raise unknown(name, word, words, status=400, few=len(words))
    return word


def past_moment(asked: Mapping[str, str], name: str, now: int) -> int:
    """Return a time in ns that is over. Raises a 400."""
    at = moment(name, asked[name], now)
    if at > now:
        raise bad(name, f"{asked[name]} is in the future", "Leave it out for now.")
    return at


async def read_body(request: web.Request, kind: type[T]) -> T:
    """Return the body. Raises 408, 413, 415, or a 400 that names the field."""
    if request.content_type != "application/json":
        raise RequestError(
            415,
            hdrs.CONTENT_TYPE,
            f"{request.content_type} is not accepted",
            "Send JSON, with 'Content-Type: application/json'.",
        )
    raw = await _read(request, request[RULE].most_bytes)
    try:
        return of_json(kind).decode(raw or b"{}")
    except msgspec.ValidationError as error:
        fault = fault_of(error, kind)
        raise bad(f"body.{fault.place}".rstrip("."), fault.problem, fault.hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad("body", f"it is not JSON: {error}", 'Send an object, as {"why": "..."}.') from error


async def _read(request: web.Request, most: int) -> bytes:
    """Return the bytes of a body. Raises 408, 413, or a 400 for one that breaks off."""
    parts: list[bytes] = []
    size, seconds = 0, request.app[CONFIG].body_seconds
    try:
        async with asyncio.timeout(seconds):
            while size <= most and not request.content.at_eof():
                parts.append(await request.content.read(most + 1 - size))
                size += len(parts[-1])
    except TimeoutError as error:
        raise RequestError(
            408, "body", f"it did not come within {seconds:g} s", "Send it at once.", {hdrs.CONNECTION: "close"}
        ) from error
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
        raise bad("body", f"it is broken: {error}", "Send it whole.") from error
    if size > most:
        raise RequestError(413, "body", f"it is longer than {most} bytes", "Send less.")
    return b"".join(parts)
