"""An alert: a verdict with a life."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from power.snapshot.kind import SnapshotKind
from telemetry.metric import Table


class Verdict(StrEnum):
    """What a rule says of one device now. Not knowing is an answer of its own."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class AlertState(StrEnum):
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


class Subject(StrEnum):
    """What an alert is about: a device of the fleet, or a row of a board of `power.snapshot.snapshot`."""

    GPU = "gpu"
    LINK = "link"
    NODE = "node"
    CIRCUIT = "circuit"
    BUDGET = "budget"
    UPS = "ups"
    SUPPLY = "supply"

    @property
    def table(self) -> Table | None:
        """The fleet's table; None for what stands on a board."""
        return Table(self.value) if self.value in _TABLES else None

    @property
    def board(self) -> SnapshotKind | None:
        """The board; None for what stands in the fleet."""
        return None if self.value in _TABLES else SnapshotKind(self.value)


_TABLES = frozenset(table.value for table in Table)


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's verdict on one device or circuit, as it stands."""

    key: str
    """`<rule>/<node>/<device>`, or `<rule>/<subject>/<name>` on a board: one alert per key."""
    rule: str
    state: AlertState
    severity: Severity
    node: str
    """Empty for what is of no single node: a circuit, a budget."""
    gpu: str | None = None
    """UUID, when the alert is about one GPU."""
    subject: Subject = Subject.GPU
    name: str = ""
    """On a board: the circuit's, budget's or UPS's name."""
    labels: dict[str, str] = {}
    """What a page, a route or a silence goes by: `cluster`, `gpu` (index), `uuid`, `serial`, `pci`,
    `slot`, `model`, `link`, `circuits` (names joined by commas), `rack`, `job`, `process` (whose
    error it was, where the kernel's line says so), those known."""
    limit: float | None = None
    """The level that `value` is compared with."""
    value_text: str = ""
    """`value` with its unit, as people write it."""
    limit_text: str = ""
    id: str = ""
    """The rule's id where it has one: `E02`."""
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
