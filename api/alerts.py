"""Alerts, incidents, silences, rules, deliveries and channels: `/api/v1/alerts` and its neighbours.

The alerting engine works with the same types: an alert is an `Alert` from the rule that evaluates it
to the screen that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from api.decoding import OpenEnum
from api.power import SnapshotKind
from telemetry.metric import Table


class AlertState(OpenEnum):
    """The stage of an alert's life."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Severity(OpenEnum):
    """Who is notified of an alert."""

    PAGE = "page"
    """A person, now."""
    TICKET = "ticket"
    """A person, in working hours."""
    INFO = "info"
    """No person; it is stored and shown."""


class Remediation(OpenEnum):
    """The means that ends an alert."""

    RESET = "reset"
    """A reset of the GPU, once nothing runs on it."""
    REBOOT = "reboot"
    """A reboot of the node."""
    COLD_START = "cold_start"
    """Power off, and hands at the machine: reseat a board, riser or cable, then start cold."""
    REPLACE = "replace"
    """A part that the maker replaces."""
    FACILITY = "facility"
    """Power, cooling or network of the site."""
    APPLICATION = "application"
    """A program or job, or the person whose it is."""
    MONITOR = "monitor"
    """Kilowatch itself: its settings, its collectors, its machine."""

    @property
    def text(self) -> str:
        """The remediation as a page names it."""
        return str(self.value).replace("_", " ")


class Subject(OpenEnum):
    """The kind of thing that an alert is about: a device of the fleet, or a row of a power snapshot."""

    GPU = "gpu"
    LINK = "link"
    NODE = "node"
    PORT = "port"
    INSTANCE = "instance"
    CIRCUIT = "circuit"
    BUDGET = "budget"
    UPS = "ups"
    SUPPLY = "supply"
    MONITOR = "monitor"
    """A part of kilowatch itself; only rules are about it: its alerts are shown as a node's."""

    @property
    def table(self) -> Table | None:
        """The fleet's table; None for a row of a power snapshot."""
        return _TABLES.get(self)

    @property
    def snapshot_kind(self) -> SnapshotKind | None:
        """The kind of power snapshot; None for a device of the fleet."""
        return None if self in _TABLES else (_KINDS.get(self) or SnapshotKind(self.value))


_TABLES: dict[str, Table] = {table.value: table for table in Table}
_KINDS: dict[str, SnapshotKind] = {kind.value: kind for kind in SnapshotKind}


UNIT_LABELS = ("unit", "server")
"""Labels that belong to one fault of an alert."""


class Alert(msgspec.Struct, frozen=True):
    """The verdict of a rule on one device or circuit, with its state."""

    key: str
    """`<rule>/<node>/<device>`, or `<rule>/<subject>/<name>` of a power snapshot: one alert per key."""
    rule: str
    state: AlertState
    severity: Severity
    node: str
    """Empty for what belongs to no single node: a circuit, a budget."""
    gpu: str | None = None
    """UUID, when the alert is about one GPU."""
    subject: Subject = Subject.GPU
    name: str = ""
    """Name of the circuit, budget or UPS."""
    labels: dict[str, str] = {}
    """Labels that pages, routes and silences match: `cluster`, `gpu` (index), `uuid`, `serial`, `pci`,
    `slot`, `model`, `link`, `port`, `circuits` (names joined by commas), `rack`, `job`, `process` (the cause
    of the error, where the kernel's log names it), `unit` (mount, drive, memory module, adapter, switch port) and
    `server` (of a mount), `fault` (in an incident: one of `faults`), as far as they are known."""
    limit: float | None = None
    """The threshold that `value` is compared with."""
    value_text: str = ""
    """`value` with its unit, as people write it."""
    limit_text: str = ""
    id: str = ""
    """The rule's id where it has one: `E02`."""
    since: int = 0
    """When the condition was first true, ns since 1970."""
    changed: int = 0
    """When `state` was reached."""
    value: float | None = None
    summary: str = ""
    """The problem and its place in one line."""
    act: str = ""
    """The act that is asked for, the gentlest first; empty where the rule names nothing."""
    description: str = ""
    """The meaning of the alert."""
    runbook: str = ""
    ended: str = ""
    """Why it resolved, if not because all is well: `forgotten`, its node was removed, by a person or at its expiry;
    `moved`, another aggregator of the cluster has its node now."""
    remediation: Remediation | None = None
    """The means that ends it, by its rule; null of an alert of a release before 2026.2."""
    owner: str | None = ""
    """Person or team that it belongs to, by `[[owners]]`; empty or null where no entry is for it."""
    faults: tuple[str, ...] = ()
    """Different faults that came at one place while the rule fired there, in their order: `GPU7` as the
    driver numbers it, a kind, or a unit. In an incident each is an alert of its own."""
    units: dict[str, dict[str, str]] = {}
    """By fault: labels of the unit that it is about (`unit`, `server`)."""

    @property
    def advice(self) -> str:
        """Act and meaning in one text."""
        return " ".join(filter(None, (self.act, self.description)))

    def matched_labels(self) -> dict[str, str]:
        """Return everything that a matcher may name."""
        return {
            **self.labels,
            "rule": self.rule,
            "id": self.id,
            "node": self.node,
            "severity": self.severity,
            "state": self.state,
            "subject": self.subject,
            "remediation": self.remediation or "",
            "owner": self.owner or "",
            "name": self.name,
        }


class NotificationState(OpenEnum):
    """Notification state of an alert: whether a person is notified now, and if not, why."""

    NOTIFIED = "told"
    INHIBITED = "inhibited"
    """Its cause has an alert of its own."""
    SILENCED = "silenced"
    MAINTENANCE = "maintenance"
    FLAPPING = "flapping"
    STORM = "storm"
    """Suppressed by the storm limiter: one notification has their number."""


class AlertRow(Alert, frozen=True, kw_only=True):
    """An alert, and who is notified of it."""

    notification: NotificationState = msgspec.field(name="standing", default=NotificationState.NOTIFIED)
    """Notification state: whether a person is notified, and if not, why."""
    incident: str | None = None
    """Key of the incident that it belongs to, if any."""


class AlertsReply(msgspec.Struct, frozen=True):
    """Alerts, worst first."""

    at: int
    """ns since 1970."""
    alerts: list[AlertRow]


class IncidentNote(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledgement: who, when and why."""

    who: str
    why: str = ""
    at: int = 0
    """ns since 1970."""
    until: int | None = None
    """When it expires; null is at the end of the incident."""


class IncidentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the life of an incident: a notification, or what a person did."""

    at: int
    """ns since 1970."""
    what: str
    """`told` (notified; `why`: the notification's reason), `acknowledged`, `taken_back` (the
    acknowledgement was removed), `lapsed` (the acknowledgement expired), `marked_false`, `mark_removed`, `recovery` (a step
    of `kilowatch recover`; `why`: which, and how it ended), `ended` (`why`: `resolved`,
    `merged` or `forgotten`)."""
    who: str = ""
    """Empty where no person did it."""
    why: str = ""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts of one cause."""

    key: str
    """Dedup key, the same from trigger to resolve and never used again; at most 255 characters."""
    group: dict[str, str] = {}
    """The labels that its alerts have in common: `{"rule": "gpu_lost", "node": "dgx-01"}`."""
    severity: Severity
    """The worst of its alerts."""
    title: str
    """The problem and its place in one line."""
    began: int
    """ns since 1970."""
    changed: int = 0
    ended: int | None = None
    alerts: tuple[Alert, ...] = ()
    """Firing alerts, worst first, then those that have resolved since it began; 100 at most."""
    firing: int = 0
    """How many fire now, listed or not."""
    total: int = 0
    """How many have fired since it began."""
    acknowledged: IncidentNote | None = None
    false: IncidentNote | None = None
    """Who marked it as false, when and why; null where nobody did."""
    inhibited: tuple[str, ...] = ()
    """Keys of the alerts that are its consequence: shown below it, never notified; 100 at most."""
    hidden: int = 0
    """How many of these there are, listed or not."""
    remediation: Remediation | None = None
    """Remediation of its first alert; null where that has none, and of a storm."""
    owner: str | None = ""
    """Owner of its alerts; up to three, joined by commas."""
    shared: tuple[str, ...] = ()
    """Traits that the nodes of a storm share and hardly any other has, the most telling first: `rack r12`."""

    @property
    def onset(self) -> int:
        """Time at which the condition of its first alert was first true, ns since 1970: a rule fires after its hold."""
        return min([self.began, *(one.since for one in self.alerts if one.since)])


class IncidentsReply(msgspec.Struct, frozen=True):
    """Incidents, worst first; of the past, newest first."""

    at: int
    """ns since 1970."""
    incidents: list[Incident]


class IncidentReply(msgspec.Struct, frozen=True):
    """An incident."""

    at: int
    """ns since 1970."""
    incident: Incident
    saved: bool = True
    """False when a change is in force but not yet in the journal: a crash within the next moments
    would lose it."""


class Action(OpenEnum):
    """The kind of a notification."""

    TRIGGER = "trigger"
    """The incident began, grew worse, or is repeated because no one has responded."""
    UPDATE = "update"
    """More of the same, or fewer: for channels that show it, never a new page."""
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


class DeliveryOutcome(OpenEnum):
    """How a delivery ended."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    REFUSED = "refused"
    """The receiver will never accept it: a 4xx that is no 408, 425 or 429."""
    EXPIRED = "expired"
    """Too old to be of use."""
    SUPERSEDED = "superseded"
    """Not sent, because a later notification of the same incident supersedes it."""


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """A notification to a channel, with its outcome."""

    id: int = 0
    channel: str
    incident: str = ""
    """Key of the incident."""
    title: str = ""
    action: Action = Action.TRIGGER
    reason: str = ""
    created: int
    """ns since 1970."""
    due: int = 0
    tries: int = 0
    outcome: DeliveryOutcome
    error: str = ""
    """How the last try ended."""


class DeliveriesReply(msgspec.Struct, frozen=True):
    """Deliveries, newest first."""

    at: int
    """ns since 1970."""
    deliveries: list[DeliveryRow]


class TimelineReply(msgspec.Struct, frozen=True, kw_only=True):
    """The timeline of an incident, and its notifications."""

    at: int
    """ns since 1970."""
    incident: str = ""
    """Its whole key."""
    began: int
    ended: int | None = None
    events: tuple[IncidentEvent, ...] = ()
    """Oldest first."""
    deliveries: list[DeliveryRow] = []
    """Newest first."""


class Matcher(msgspec.Struct, frozen=True):
    """A condition on an alert's labels, written as Alertmanager writes it: `node=~"dgx-.*"`."""

    label: str
    """`rule`, `node`, `severity`, `subject`, `remediation`, `owner`, `name`, or any of `Alert.labels`."""
    value: str
    is_regex: bool = False
    is_equal: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it holds; a label that is absent is an empty one."""
        value = labels.get(self.label, "")
        found = compiled(self.value).fullmatch(value) is not None if self.is_regex else self.value == value
        return found is self.is_equal

    def __str__(self) -> str:
        """Return the text that `alerts.incidents.matchers.parse` reads as this condition."""
        sign = ("=" if self.is_equal else "!") + ("~" if self.is_regex else "")
        return f"{self.label}{'!=' if sign == '!' else sign}{self.value}"


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a matcher's pattern, compiled. Raises `re.error`."""
    return re.compile(pattern)


def matches_all(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Whether all conditions hold."""
    return all(matcher.matches(labels) for matcher in matchers)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts without notifications for a while."""

    id: str
    matchers: tuple[Matcher, ...]
    who: str
    why: str
    starts: int
    """ns since 1970."""
    ends: int
    created: int = 0
    maintenance: bool = False
    """A planned window: alerts that fire in it open no incident, nor do its after-effects within two
    minutes of its end (a reloaded driver, counters that fell)."""


class SilencesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Silences and maintenance windows: in force, planned, and recently ended."""

    at: int = 0
    """ns since 1970."""
    silences: list[Silence]


class SilenceReply(msgspec.Struct, frozen=True):
    """A silence."""

    at: int
    """ns since 1970."""
    silence: Silence
    saved: bool = True
    """As in IncidentReply."""


class AckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The acknowledgement of an incident."""

    who: str = ""
    """A name beside that of the token, which is the `who` of what is done."""
    why: str = ""
    duration: str | float | None = msgspec.field(name="for", default=None)
    """How long, as `2h` or in seconds; until the incident is over if absent."""
    false: bool = False
    """Mark its pages and tickets as false too, with `why`; also possible when it is over, for as long as
    its quality is recorded."""


class EndRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of an acknowledgement or of a silence."""

    who: str = ""
    """As in AckRequest."""
    why: str = "no longer needed"
    false: bool = False
    """Of an acknowledgement: remove the mark that it is false, and nothing else."""


class MatcherParts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A matcher in parts, as in Alertmanager's API."""

    name: str
    value: str
    is_regex: bool = msgspec.field(name="isRegex", default=False)
    is_equal: bool = msgspec.field(name="isEqual", default=True)


class SilenceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new silence or maintenance window."""

    matchers: tuple[str | MatcherParts, ...]
    """Each as `node=dgx-01`, `rule=~"gpu_.*"`, `severity!=page`, or in parts; all must match."""
    who: str = ""
    """As in AckRequest."""
    why: str
    starts: str | int | None = None
    """RFC 3339, ns since 1970, or `now`; now if absent."""
    ends: str | int | None = None
    """As `starts`. Either `ends` or `for` is required."""
    duration: str | float | None = msgspec.field(name="for", default=None)
    """How long from its start, as `2h` or in seconds."""
    maintenance: bool = False
    """A planned window: alerts that fire in it open no incident."""


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in force."""

    name: str
    id: str
    subject: Subject
    kind: str
    """Kind of its condition: `above`, `rate`, `event`, ..."""
    severity: Severity
    hold: float
    """Seconds that the condition must be true before the alert fires."""
    keep: float
    """Seconds that the condition must be false before the alert resolves."""
    summary: str
    act: str = ""
    """The act that is asked for, the gentlest first."""
    description: str
    """The meaning of its alerts."""
    runbook: str
    remediation: Remediation | None = None
    """The means that ends its alerts; null of an aggregator of a release before 2026.2."""
    pending: int
    """How many of its alerts are pending."""
    firing: int


class RulesReply(msgspec.Struct, frozen=True):
    """The rules in force."""

    at: int
    """ns since 1970."""
    rules: list[RuleRow]


class ChannelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver of notifications, with its counters since the start."""

    name: str
    kind: str
    """`pagerduty`, `alertmanager`, `webhook`, `slack`, ..."""
    waiting: int
    """Deliveries that have not arrived yet."""
    oldest_seconds: float | None
    """Age of the oldest of them; null when none waits."""
    delivered: int
    failed: int
    """Tries that were, or will be, repeated."""
    refused: int
    expired: int
    superseded: int
    failing: str
    """Why it fails now; empty while it works."""
    last_error: str
    last_delivered: int | None
    """ns since 1970."""


class ChannelsReply(msgspec.Struct, frozen=True):
    """Every channel."""

    at: int
    """ns since 1970."""
    channels: list[ChannelRow]


class TestReply(msgspec.Struct, frozen=True):
    """The outcome of a test notification."""

    channel: str
    delivered: bool
    seconds: float
    error: str = ""
    """The receiver's or the network's error."""
