"""What the alerts' part of the HTTP API takes and answers: its types alone, light enough for the
commands that talk to it."""

from __future__ import annotations

import msgspec

from alerts.alert import Alert, Severity, Subject
from alerts.notice import (
    Action,
    DeliveryOutcome,
    Incident,
    IncidentEvent,
    NotificationState,
    Silence,
)


class AlertRow(Alert, frozen=True, kw_only=True):
    """An alert, and who hears of it."""

    standing: NotificationState = NotificationState.TOLD
    """Whether anybody is told, and if not, why."""
    incident: str | None = None
    """Key of the incident that it belongs to, if to any."""


class AlertsReply(msgspec.Struct, frozen=True):
    """Alerts, worst first."""

    at: int
    """ns since 1970."""
    alerts: list[AlertRow]


class IncidentsReply(msgspec.Struct, frozen=True):
    """Incidents, worst first; history: newest first."""

    at: int
    """ns since 1970."""
    incidents: list[Incident]


class IncidentReply(msgspec.Struct, frozen=True):
    """One incident as it stands."""

    at: int
    """ns since 1970."""
    incident: Incident
    saved: bool = True
    """False when a change of it holds, but the journal could not be written yet: a crash within
    the next moments would forget it."""


class StoryReply(msgspec.Struct, frozen=True):
    """What happened to one incident, and who was told of it."""

    at: int
    """ns since 1970."""
    incident: str
    """Its whole key."""
    began: int
    ended: int | None
    story: tuple[IncidentEvent, ...]
    """Oldest first."""
    deliveries: list[DeliveryRow]
    """Newest first."""


class AckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody takes care of an incident."""

    who: str
    """Who does it: a name that others know."""
    why: str = ""
    lasts: str | float | None = msgspec.field(name="for", default=None)
    """How long, as `2h` or in seconds; without, until the incident is over."""


class DoneRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody ends what was asked for before."""

    who: str = "somebody"
    """Who ends it."""
    why: str = "no longer needed"


class MatcherWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A matcher in parts, as Alertmanager's API has it."""

    name: str
    value: str
    is_regex: bool = msgspec.field(name="isRegex", default=False)
    is_equal: bool = msgspec.field(name="isEqual", default=True)


class SilenceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nobody is to hear of some alerts for a while."""

    matchers: tuple[str | MatcherWords, ...]
    """Each as `node=dgx-01`, `rule=~"gpu_.*"`, `severity!=page`, or in parts; all must match."""
    who: str
    """Who does it: a name that others know."""
    why: str
    starts: str | int | None = None
    """RFC 3339, ns since 1970, or `now`; now without."""
    ends: str | int | None = None
    """As `starts`. Name one of `ends` and `for`."""
    lasts: str | float | None = msgspec.field(name="for", default=None)
    """How long from its start, as `2h` or in seconds."""
    maintenance: bool = False
    """A planned window: what fires in it is no incident at all."""


class SilencesReply(msgspec.Struct, frozen=True):
    """Silences and maintenance windows: those in force, those to come, those that ended lately."""

    at: int
    """ns since 1970."""
    silences: list[Silence]


class SilenceReply(msgspec.Struct, frozen=True):
    """One silence as it stands."""

    at: int
    """ns since 1970."""
    silence: Silence
    saved: bool = True
    """As in IncidentReply."""


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that is in force."""

    name: str
    id: str
    subject: Subject
    kind: str
    """Kind of its condition: `above`, `rate`, `event`, ..."""
    severity: Severity
    hold: float
    """Seconds that it must be bad before it fires."""
    keep: float
    """Seconds that it must be good before it resolves."""
    summary: str
    description: str
    runbook: str
    pending: int
    firing: int


class RulesReply(msgspec.Struct, frozen=True):
    """The rules in force."""

    at: int
    """ns since 1970."""
    rules: list[RuleRow]


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One notice on its way to one channel, or there."""

    id: int
    channel: str
    incident: str
    """Key."""
    title: str
    action: Action
    reason: str
    created: int
    """ns since 1970."""
    due: int
    tries: int
    outcome: DeliveryOutcome
    error: str


class DeliveriesReply(msgspec.Struct, frozen=True):
    """Deliveries, newest first."""

    at: int
    """ns since 1970."""
    deliveries: list[DeliveryRow]


class ChannelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way to tell people, and how it does since the start."""

    name: str
    kind: str
    """`pagerduty`, `alertmanager`, `webhook`, `slack`, ..."""
    waiting: int
    """Deliveries that are not there yet."""
    oldest_seconds: float | None
    """Age of the oldest of them; null when none waits."""
    delivered: int
    failed: int
    """Tries that were, or will be, repeated."""
    refused: int
    expired: int
    superseded: int
    failing: str
    """Why it fails now; empty while it does not."""
    last_error: str
    last_delivered: int | None
    """ns since 1970."""


class ChannelsReply(msgspec.Struct, frozen=True):
    """All channels."""

    at: int
    """ns since 1970."""
    channels: list[ChannelRow]


class TestReply(msgspec.Struct, frozen=True):
    """What became of a test notice."""

    channel: str
    delivered: bool
    seconds: float
    error: str = ""
    """What the receiver, or the network, said."""


class AlertFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal and the heartbeat say of themselves, since the start."""

    commits: int = 0
    commit_errors: int = 0
    commit_seconds: float = 0.0
    journal_ok: bool = True
    heartbeat_at: int | None = None
    """When the last ping was heard, ns since 1970."""
    heartbeat_failed: int | None = None
    """None without a heartbeat."""
