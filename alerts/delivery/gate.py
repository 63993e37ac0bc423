"""The protocol by which one of several processes with the same deliveries sends each of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from alerts.notice import Notice


class ClaimAnswer(StrEnum):
    """Decision about a delivery that is due."""

    SEND = "send"
    AGAIN = "again"
    """Send it, though another process may have done so before it ended."""
    DONE = "done"
    """Another process has sent it."""
    WAIT = "wait"
    """Not ours to send now, or nobody can be asked."""


class DeliveryGate(Protocol):
    """Gate between the outbox and the channels."""

    def is_open(self) -> bool:
        """Return whether this process sends now."""

    async def claim(self, notice: Notice, channel: str) -> ClaimAnswer:
        """Claim the delivery of a notice to a channel before it is sent. Raises nothing."""

    async def mark(self, notice: str, channel: str) -> None:
        """Mark a delivery as settled, whatever its outcome. Raises nothing; retried until it is marked."""
