"""What is wrong, by cause, and what nobody is to be told of: `/api/v1/alerts`, `/incidents`, `/silences`."""

from __future__ import annotations

import re

import msgspec


class Alert(msgspec.Struct, frozen=True):
    """One alert."""

    key: str
    rule: str
    state: str
    severity: str
    node: str
    gpu: str | None = None
    subject: str = "gpu"
    name: str = ""
    """Of a circuit, budget or UPS."""
    id: str = ""
    """The number of its rule, where that has one."""
    since: int = 0
    changed: int = 0
    summary: str = ""
    description: str = ""
    runbook: str = ""
    value_text: str = ""
    limit_text: str = ""
    labels: dict[str, str] = {}


class Alerts(msgspec.Struct, frozen=True):
    """`/api/v1/alerts`."""

    at: int
    alerts: list[Alert]


class Note(msgspec.Struct, frozen=True):
    """Who has taken care of an incident."""

    who: str
    why: str = ""
    at: int = 0
    until: int | None = None


class Incident(msgspec.Struct, frozen=True):
    """All alerts of one cause."""

    key: str
    severity: str
    title: str
    began: int
    changed: int = 0
    ended: int | None = None
    group: dict[str, str] = {}
    alerts: list[Alert] = []
    firing: int = 0
    total: int = 0
    acknowledged: Note | None = None
    hidden: int = 0
    """Consequences of it, told to nobody."""


class Incidents(msgspec.Struct, frozen=True):
    """`/api/v1/incidents`."""

    at: int
    incidents: list[Incident]


class Happening(msgspec.Struct, frozen=True):
    """Something that happened to an incident."""

    at: int
    what: str
    who: str = ""
    why: str = ""


class Sent(msgspec.Struct, frozen=True):
    """One notice on its way to one channel, or there."""

    channel: str
    created: int
    outcome: str
    reason: str = ""
    tries: int = 0
    error: str = ""


class Story(msgspec.Struct, frozen=True):
    """`/api/v1/incidents/<key>/story`."""

    at: int
    began: int
    ended: int | None = None
    story: list[Happening] = []
    deliveries: list[Sent] = []


class Matcher(msgspec.Struct, frozen=True):
    """One condition of a silence."""

    label: str
    value: str
    is_regex: bool = False
    is_equal: bool = True

    def holds(self, value: str) -> bool:
        """Whether it is true of a label; one that is not there is empty."""
        if self.is_regex:
            return (re.fullmatch(self.value, value) is not None) is self.is_equal
        return (self.value == value) is self.is_equal

    def __str__(self) -> str:
        """As people write it."""
        sign = ("=" if self.is_equal else "!") + (
            "~" if self.is_regex else "" if self.is_equal else "="
        )
        return f"{self.label}{sign}{self.value}"


class Silence(msgspec.Struct, frozen=True):
    """Alerts that nobody is to be told of for a while."""

    id: str
    matchers: list[Matcher]
    who: str
    why: str
    starts: int
    ends: int
    maintenance: bool = False


class Silences(msgspec.Struct, frozen=True):
    """`/api/v1/silences`."""

    silences: list[Silence]
