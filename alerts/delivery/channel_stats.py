"""What became of a channel's messages, for metrics and for the alert that a channel fails."""

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
    """Why the last message that was given up was; "" when one got through since."""

    def took(self, wall_ns: int, number: int = 1) -> bool:
        """The receiver has some; returns whether it had taken nothing before."""
        back = self.trouble_since is not None or bool(self.lost)
        self.delivered += number
        self.last_delivered = wall_ns
        self.trouble_since, self.lost = None, ""
        return back

    def fails(self, reason: str, now: float) -> bool:
        """A try failed; returns whether that is news."""
        self.failed += 1
        self.last_error = reason
        news = self.trouble_since is None
        if self.trouble_since is None:
            self.trouble_since = now
        return news

    def refuses(self, reason: str) -> bool:
        """The receiver will never take one; returns whether that is news."""
        self.refused += 1
        news = self.lost != reason
        self.lost = self.last_error = reason
        return news

    def expires(self) -> None:
        """One was too old when it could have been sent."""
        self.expired += 1
        self.lost = f"a message waited too long: {self.last_error}".rstrip(": ")

    def failing(self, now: float) -> str:
        """Return why the channel fails, or "" while it does not."""
        if self.lost:
            return self.lost
        if self.trouble_since is not None and now - self.trouble_since >= FAILING_AFTER:
            return f"nothing gets through: {self.last_error}"
        return ""
