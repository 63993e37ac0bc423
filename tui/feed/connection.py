"""The state of the connection to the aggregator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ConnectionState(StrEnum):
    """State of the connection."""

    CONNECTING = "connecting"
    """No answer yet."""
    LIVE = "live"
    LOST = "lost"
    """The aggregator does not answer; the connection is retried."""
    REFUSED = "refused"
    """The server refuses the dashboard, or is no aggregator: an operator must act."""


@dataclass(frozen=True, slots=True)
class Connection:
    """State of the connection, and since when."""

    state: ConnectionState
    since: float
    """Monotonic seconds."""
    reason: str = ""
    retry_at: float | None = None
    slow: bool = False
    """Whether it is lost only because no answer came in time: the aggregator may be busy."""
