"""Replies of the server, and the verdict on a write: decided here, carried out by `sender`. Pure.

The releases word the same problems differently; each row of the tests is a reply of one of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from telemetry.runtime.http_outcome import HttpOutcome, outcome_of, retry_after

CONFIG_WAIT = 30.0
"""Seconds between two tries while the settings, here or there, must be changed first."""
LONGEST_PAUSE = 600.0
"""Seconds: the longest wait that a server may request."""
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
    """The next step of the sender."""

    ON = "on"
    """The server has it, or refuses some lines for good: send the next."""
    SPLIT = "split"
    """Send it in two halves."""
    WAIT = "wait"
    """Retry later."""
    FIX = "fix"
    """Report what must be changed, and retry now and then."""


@dataclass(frozen=True, slots=True)
class ServerReply:
    """An HTTP response of the server."""

    status: int
    text: str = ""
    retry_after: str = ""

    def json(self) -> dict[str, Any]:
        """Return the JSON object; empty when there is none."""
        try:
            found = msgspec.json.decode(self.text)
        except msgspec.DecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    def problem(self) -> str:
        """Return the error in words: `error` (1.x, 3.x), `message` (2.x), or that of a statement."""
        found = self.json()
        statements = (each["error"] for each in found.get("results") or () if "error" in each)
        return str(found.get("error") or found.get("message") or next(statements, ""))


@dataclass(frozen=True, slots=True)
class WriteVerdict:
    """The meaning of a reply."""

    action: WriteAction
    refused: Counter[str] = field(default_factory=Counter)
    """Lines that the server refused for good, by reason."""
    wait: float | None = None
    """Seconds, where the server names a time."""
    problem: str = ""
    """In words."""
    missing: bool = False
    """Whether the database or its retention policy does not exist."""


def evaluate(reply: ServerReply, points: int, now: float) -> WriteVerdict:
    """Return the verdict on a write of so many lines; `now` in seconds since 1970."""
    status, text = reply.status, " ".join((reply.problem() or reply.text).split())
    outcome = outcome_of(status)
    if outcome is HttpOutcome.DELIVERED:
        return WriteVerdict(WriteAction.ON)
    if status in {400, 422}:
        return _refused(reply, text, points)
    if status == 413:
        if points > 1:
            return WriteVerdict(WriteAction.SPLIT, problem="a request was too large for the server")
        return WriteVerdict(WriteAction.ON, Counter(too_large=1), problem=text)
    if status in {401, 403}:
        return WriteVerdict(WriteAction.FIX, problem=f"the server denies access ({status}): {text}")
    if status == 404:
        return WriteVerdict(
            WriteAction.FIX,
            problem=text or "the server has no such address (404)",
            missing="database not found" in text or "bucket" in text,
        )
    if status in {429, 503}:
        return WriteVerdict(
            WriteAction.WAIT,
            wait=retry_after(reply.retry_after, now, LONGEST_PAUSE),
            problem=f"the server requests a pause ({status})",
        )
    if status >= 500 and "retention policy not found" in text:
        return WriteVerdict(WriteAction.FIX, problem=text, missing=True)  # InfluxDB 1.x calls that its own error
    if outcome is HttpOutcome.RETRY:
        return WriteVerdict(WriteAction.WAIT, problem=f"the server fails ({status}): {text}")
    return WriteVerdict(WriteAction.FIX, problem=f"an answer that no InfluxDB gives ({status}): {text[:200]}")


def _refused(reply: ServerReply, text: str, points: int) -> WriteVerdict:
    """Return the verdict on a 400: the good lines are stored if the server reports so; else halves find the
    bad one."""
    reason = next((name for name, words in _REASONS if words in text.lower()), "other")
    data = reply.json().get("data")  # the lines that 3.x names
    lines = len(data) if isinstance(data, list) else 0
    if "partial write" in text.lower() or lines:
        dropped = _DROPPED.search(text)
        many = int(dropped[1]) if dropped else 0
        many = max(many, lines, text.count("unable to parse"))
        if many or dropped:
            return WriteVerdict(WriteAction.ON, Counter({reason: min(points, max(1, many))}), problem=text)
    if points > 1:
        return WriteVerdict(WriteAction.SPLIT, problem=text)
    return WriteVerdict(WriteAction.ON, Counter({reason: 1}), problem=text)
