"""An alert: a verdict with a life."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """What a rule says of one device now. Not knowing is an answer of its own."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class State(StrEnum):
    """Where an alert is in its life."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Severity(StrEnum):
    """Who hears of it."""

    PAGE = "page"
    """A person, now."""
    TICKET = "ticket"
    """A person, in working hours."""
    INFO = "info"
    """Nobody; it is stored and shown."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's verdict on one device, as it stands."""

    key: str
    """`<rule>/<node>/<device>`: one alert per key."""
    rule: str
    state: State
    severity: Severity
    node: str
    gpu: str | None = None
    """UUID, when the alert is about one GPU."""
    since: int = 0
    """When the condition was first seen bad, ns since 1970."""
    changed: int = 0
    """When `state` was reached."""
    value: float | None = None
    summary: str = ""
    """One line: what and where."""
    description: str = ""
    """What it means and what to do."""
    runbook: str = ""
