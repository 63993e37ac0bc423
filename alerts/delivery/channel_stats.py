"""Counters of a channel, for metrics and for the alert that a channel fails."""

from __future__ import annotations

from dataclasses import dataclass

FAILING_AFTER = 120.0
"""Seconds without success after which a channel counts as failing."""


@dataclass(slots=True)
class ChannelStats:
    """Counted since the start of the process."""

    delivered: int = 0
    failed: int = 0
    """Tries that are repeated."""
    refused: int = 0
    expired: int = 0
    superseded: int = 0
    last_delivered: int | None = None
    """ns since 1970."""
    last_error: str = ""
    trouble_since: float | None = None
    """Monotonic seconds: since when nothing gets through."""
    lost: str = ""
    """Why the last message was given up; "" when one got through since."""

    def add_delivered(self, wall_ns: int, number: int = 1) -> bool:
        """Count accepted messages; return whether the channel had failed before."""
        recovered = self.trouble_since is not None or bool(self.lost)
        self.delivered += number
        self.last_delivered = wall_ns
        self.trouble_since, self.lost = None, ""
        return recovered

    def add_failure(self, reason: str, now: float) -> bool:
        """Count a failed try; return whether it is the first since the last success."""
        self.failed += 1
        self.last_error = reason
        first = self.trouble_since is None
        if self.trouble_since is None:
            self.trouble_since = now
        return first

    def add_refusal(self, reason: str) -> bool:
        """Count a message that the receiver will never accept; return whether the reason is new."""
        self.refused += 1
        new = self.lost != reason
        self.lost = self.last_error = reason
        return new

    def add_expiry(self) -> None:
        """Count a message that was too old when it could have been sent."""
        self.expired += 1
        self.lost = f"a message waited too long: {self.last_error}".rstrip(": ")

    def failing(self, now: float) -> str:
        """Return why the channel fails, or "" while it does not."""
        if self.lost:
            return self.lost
        if self.trouble_since is not None and now - self.trouble_since >= FAILING_AFTER:
            return f"nothing gets through: {self.last_error}"
        return ""
