"""Notices, which the incident manager makes, their deliveries, which the outbox sends, and what is known of the channels.

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
    person or at its expiry), `acknowledged`, `storm`, `flapping`, `new_channel` (it stands, and the channel is new), `test`; of earlier
    versions `cause` and `merged`."""
    escalation: int = 0
    """The step of an escalation, 1 for the first, whose channels receive it; 0 for all other notices. With `channels`,
    the steps up to it count."""
    channels: tuple[str, ...] = ()
    """Names of the channels that alone may receive it, where the routes name them too; with none, all may."""


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


class KnownChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel of the settings, as it was at the last start. Times are ns since 1970; 0: since before this was kept."""

    receiver: str
    """`Channel.receiver` of its settings."""
    known: int
    """Since when it leads to this receiver: what was sent before, others have received."""
    since: int
    """Since when it is there without a break: what was notified before, the routes did not lead to it."""
    removed: bool = False
    """Whether the settings do not have it any more."""


class KnownChannels(msgspec.Struct, frozen=True):
    """The channels of the settings at the last start, as the journal stores them."""

    by_name: dict[str, KnownChannel]


class SentBefore(msgspec.Struct, frozen=True):
    """Outcome of the notices of an incident to a channel."""

    arrived: int | None
    """When the newest was made that has arrived, ns since 1970; None where none has."""
    waits: bool
    """Whether one waits, and will be sent."""


class ChannelMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Channels at the last start, and their notices, as the journal has them at opening."""

    known: KnownChannels | None = None
    """None at the first start."""
    sent: dict[tuple[str, str], SentBefore] = {}
    """By key of an open incident and channel, where any notice was made for it."""
