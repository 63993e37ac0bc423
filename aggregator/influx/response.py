"""What an answer to a write means, and what to do: decided here, done in `sender`. Pure.

The servers say much the same in different words; each row of the tests is what one of them said.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from telemetry.http_outcome import HttpOutcome, outcome_of, retry_after

CONFIG_WAIT = 30.0
"""Seconds between two tries while the settings, here or there, must be changed first."""
LONGEST_PAUSE = 600.0
"""Most of what a server may ask us to wait."""
_DROPPED = re.compile(r"dropped=(\d+)")
_REASONS = (
    ("beyond_retention", "beyond retention"),
    ("field_type", "field type conflict"),
    ("field_type", "invalid column type"),
    ("too_many_series", "max-series-per-database"),
    ("too_many_series", "max-values-per-tag"),
    ("unparsable", "unable to parse"),
    ("unparsable", "invalid number"),
    ("unparsable", "partial write of line protocol"),
    ("unparsable", "parsing failed"),
)


class WriteAction(StrEnum):
    """What to do next."""

    ON = "on"
    """The server has it, or refuses some lines for good: go on with the next."""
    SPLIT = "split"
    """Send it in two halves."""
    WAIT = "wait"
    """Keep it, and try again later."""
    FIX = "fix"
    """Keep it, say what must be changed, try again now and then."""


@dataclass(frozen=True, slots=True)
class WriteReply:
    """What a server answered."""

    status: int
    text: str = ""
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class WriteVerdict:
    """What an answer means."""

    move: WriteAction
    refused: Counter[str] = field(default_factory=Counter)
    """Lines that the server refused for good, by reason."""
    wait: float | None = None
    """Seconds, where the server says how long."""
    problem: str = ""
    """In words, for people."""
    missing: bool = False
    """Whether the database or its retention policy is not there."""


def judge(answer: WriteReply, points: int, now: float) -> WriteVerdict:
    """Return what an answer to so many lines means; `now` in seconds since 1970."""
    status, text = answer.status, _message(answer.text)
    outcome = outcome_of(status)
    if outcome is HttpOutcome.DELIVERED:
        return WriteVerdict(WriteAction.ON)
    if status in {400, 422}:
        return _refused(answer.text, text, points)
    if status == 413:
        if points > 1:
            return WriteVerdict(WriteAction.SPLIT, problem="a request was too large for the server")
        return WriteVerdict(WriteAction.ON, Counter(too_large=1), problem=text)
    if status in {401, 403}:
        return WriteVerdict(
            WriteAction.FIX, problem=f"the server lets us not in ({status}): {text}"
        )
    if status == 404:
        return WriteVerdict(WriteAction.FIX, problem=text or "the server knows no such address (404)",
                       missing="database not found" in text or "bucket" in text)  # fmt: skip
    if status in {429, 503}:
        return WriteVerdict(WriteAction.WAIT, wait=retry_after(answer.retry_after, now, LONGEST_PAUSE),
                       problem=f"the server asks us to wait ({status})")  # fmt: skip
    if status >= 500 and "retention policy not found" in text:
        return WriteVerdict(
            WriteAction.FIX, problem=text, missing=True
        )  # InfluxDB 1.x calls that its own error
    if outcome is HttpOutcome.RETRY:
        return WriteVerdict(WriteAction.WAIT, problem=f"the server fails ({status}): {text}")
    return WriteVerdict(
        WriteAction.FIX, problem=f"an answer that no InfluxDB gives ({status}): {text[:200]}"
    )


def _refused(body: str, text: str, points: int) -> WriteVerdict:
    """A 400: the good lines are stored if the server says so; else halves find the bad one."""
    reason = next((name for name, words in _REASONS if words in text.lower()), "other")
    lines = _bad_lines(body)
    if "partial write" in text.lower() or lines:
        dropped = _DROPPED.search(text)
        many = int(dropped[1]) if dropped else 0
        many = max(many, lines, text.count("unable to parse"))
        if many or dropped:
            return WriteVerdict(
                WriteAction.ON, Counter({reason: min(points, max(1, many))}), problem=text
            )
    if points > 1:
        return WriteVerdict(WriteAction.SPLIT, problem=text)
    return WriteVerdict(WriteAction.ON, Counter({reason: 1}), problem=text)


def _decoded(body: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(body: str) -> str:
    """Return the text of an answer: `error` (1.x, 3.x) or `message` (2.x)."""
    found = _decoded(body)
    text = found.get("error") or found.get("message")
    return " ".join(str(text or body).split())


def _bad_lines(body: str) -> int:
    """Return how many lines an answer of 3.x names."""
    data = _decoded(body).get("data")
    return len(data) if isinstance(data, list) else 0
