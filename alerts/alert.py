"""An alert: a verdict with a life."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What a rule says of one device now. Not knowing is an answer of its own."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
