"""Notices, which the incident manager makes, and their deliveries, which the outbox sends.

An *incident* is all alerts of one cause; it has one dedup key from its first page to its end. A
*notice* is one notification of it; a *delivery* is one notice to one channel.
"""

from __future__ import annotations

import msgspec

from api.alerts import Action, DeliveryOutcome, Incident


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification of an incident, for any channel."""

    id: str
    """Unique, and the same after a restart."""
    action: Action
    incident: Incident
    at: int
    """ns since 1970."""
    reason: str = ""
    """`new`, `worse`, `more`, `fewer`, `repeat`, `escalated`, `resolved`, `forgotten` (its node was removed, by a
    person or at its expiry), `acknowledged`, `storm`, `flapping`, `test`; of earlier versions `cause`
    and `merged`."""
    escalation: int = 0
    """The step of an escalation, 1 for the first, whose channels receive it; 0 for all other notices."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notice to one channel, until it is delivered, refused or expired."""

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
    """Error of the last try."""
