"""What the desk decides and the outbox sends: incidents, notices about them, deliveries of those.

An *incident* is all alerts of one cause; it has one dedup key from its first page to its end. A
*notice* is one thing to tell about it; a *delivery* is one notice on its way to one channel.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from alerts.alert import Alert, Severity


class Action(StrEnum):
    """What a notice says about its incident."""

    TRIGGER = "trigger"
    """It began, grew worse, or is repeated because nobody has answered."""
    UPDATE = "update"
    """More of the same, or fewer: for channels that show it, never a new page."""
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


class NotificationState(StrEnum):
    """Whether anybody is told of an alert now, and if not, why."""

    TOLD = "told"
    INHIBITED = "inhibited"
    """Its cause has an alert of its own."""
    SILENCED = "silenced"
    MAINTENANCE = "maintenance"
    FLAPPING = "flapping"
    STORM = "storm"
    """Held back by the storm brake: one notice says how many there are."""


class IncidentNote(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, when and why: an acknowledgement."""

    who: str
    why: str = ""
    at: int
    """ns since 1970."""
    until: int | None = None
    """When it ends by itself; None is the end of the incident."""


class IncidentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an incident: what was said of it, and who did what."""

    at: int
    """ns since 1970."""
    what: str
    """`told` (`why`: the notice's reason), `acknowledged`, `taken_back`, `lapsed` (the time of an
    acknowledgement is over), `ended` (`why`: `resolved` or `merged`)."""
    who: str = ""
    """Empty where nobody did it."""
    why: str = ""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """All alerts of one cause."""

    key: str
    """Dedup key: the same from trigger to resolve, of another incident never; at most 255 chars."""
    group: dict[str, str]
    """What its alerts have in common: `{"rule": "gpu_lost", "node": "dgx-01"}`."""
    severity: Severity
    """The worst of its alerts."""
    title: str
    """One line: what and where."""
    began: int
    changed: int
    ended: int | None = None
    alerts: tuple[Alert, ...] = ()
    """Those that fire, worst first, then those that have resolved since it began; 100 at most."""
    firing: int = 0
    """How many fire now, listed or not."""
    total: int = 0
    """How many have fired since it began."""
    acknowledged: IncidentNote | None = None
    inhibited: tuple[str, ...] = ()
    """Keys of alerts that are its consequence: shown below it, told to nobody; 100 at most."""
    hidden: int = 0
    """How many of these there are, listed or not."""


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


class DeliveryOutcome(StrEnum):
    """What became of a delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    REFUSED = "refused"
    """The receiver will never take it: a 4xx that is no 408, 425 or 429."""
    EXPIRED = "expired"
    """Too old to be of use."""
    SUPERSEDED = "superseded"
    """A later notice of the same incident says more: it was not yet sent."""


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


class Matcher(msgspec.Struct, frozen=True):
    """One condition on an alert's labels, written as Alertmanager writes it: `node=~"dgx-.*"`."""

    label: str
    """`rule`, `node`, `severity`, `subject`, `name`, or any of `Alert.labels`."""
    value: str
    is_regex: bool = False
    is_equal: bool = True


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that nobody is to be told of for a while."""

    id: str
    matchers: tuple[Matcher, ...]
    who: str
    why: str
    starts: int
    """ns since 1970."""
    ends: int
    created: int
    maintenance: bool = False
    """A planned window: what fires in it is no incident at all; nor is what it leaves behind for
    two minutes after its end (a driver that was loaded anew, counters that went back)."""
