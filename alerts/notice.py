"""What the desk decides and the outbox sends: incidents, notices about them, deliveries of those.

An *incident* is all alerts of one cause; it has one dedup key from its first page to its end. A
*notice* is one thing to tell about it; a *delivery* is one notice on its way to one channel.
"""

from __future__ import annotations

import msgspec

from api.alerts import Action, DeliveryOutcome, Incident


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to tell."""

    id: str
    """Of its own; the same after a restart."""
    action: Action
    incident: Incident
    at: int
    """ns since 1970."""
    reason: str = ""
    """`new`, `worse`, `more`, `fewer`, `cause` (what is behind it has shown up), `repeat`,
    `resolved`, `merged` (its alerts are consequences of another incident's), `acknowledged`,
    `storm`, `flapping`, `test`."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One notice on its way to one channel."""

    id: int
    """Number in the journal; deliveries of one channel and incident are sent in this order."""
    channel: str
    notice: Notice
    created: int
    due: int
    """Not before this time, ns since 1970."""
    tries: int = 0
    outcome: DeliveryOutcome = DeliveryOutcome.WAITING
    error: str = ""
    """What the last try ended with."""
