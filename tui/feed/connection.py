"""How the line to the aggregator is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ConnectionState(StrEnum):
    """How the line is."""

    CONNECTING = "connecting"
    """Nothing has come yet."""
    LIVE = "live"
    LOST = "lost"
    """It was live, or it can't be reached; tried again by itself."""
    REFUSED = "refused"
    """The other side answers and does not want us, or is no aggregator: an operator must act."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How the line is, and since when."""

    state: ConnectionState
    since: float
    """Monotonic seconds."""
    reason: str = ""
    retry_at: float | None = None
    slow: bool = False
    """Whether it is lost only because no answer came in time: the other side may be busy."""
