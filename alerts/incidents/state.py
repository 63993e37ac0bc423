"""Records of the incident manager, as the journal stores them, and the changes of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from alerts.incidents.quality_record import QualityMemory
from alerts.notice import ChannelMemory, Notice
from api.alerts import Alert, Incident, IncidentEvent, IncidentNote, NotificationState, Severity, Silence

MAX_TIMELINE = 100
"""Events that are kept of one incident."""


_assign = msgspec.Struct.__setattr__


class StoredRecord(msgspec.Struct, kw_only=True, dict=True):
    """A record that marks itself as changed in the table that contains it.

    Fields are immutable values, so that every change is an assignment.
    """

    _changed: ClassVar[dict[str, None] | None] = None
    _key: ClassVar[str] = ""

    def report_to(self, changed: dict[str, None], key: str) -> None:
        """Add `key` to `changed` whenever a field gets another value."""
        self.__dict__.update(_changed=changed, _key=key)

    if not TYPE_CHECKING:  # for the type checker, unknown attributes stay an error

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field; where that changes it, report the record as changed."""
            before = getattr(self, name)
            if before is not value and before != value:
                _assign(self, name, value)
                if self._changed is not None:
                    self._changed[self._key] = None


class TrackedAlert(StoredRecord, kw_only=True):
    """An alert that fires or has fired within the hour. Times are seconds of `SteadyClock`."""

    order: int
    """Position in the order of arrival; breaks ties, and survives a restart."""
    alert: Alert
    """The newest version."""
    firing: bool = False
    since: float = 0.0
    """When it last began to fire."""
    state: NotificationState = msgspec.field(default=NotificationState.NOTIFIED, name="standing")
    """NOTIFIED, INHIBITED, SILENCED or MAINTENANCE; `IncidentManager.status` adds FLAPPING and
    STORM."""
    by: str = ""
    """The reason: key of the cause, id of the silence."""
    release: float | None = None
    """The suppression has ended; if the alert still fires at this time, it is notified."""
    incident: str = ""
    """Key of the incident that it belongs to, even when it has resolved there."""
    flips: tuple[float, ...] = ()
    """Recent times at which it began to fire or resolved."""
    flaps: bool = False


class IncidentRecord(StoredRecord, kw_only=True):
    """The internal state of an incident, beyond what the public `Incident` shows."""

    key: str
    base: str
    """The text that the key is made of, without the number of its repetitions within ten minutes."""
    order: int
    group: Mapping[str, str]
    place: tuple[str, str]
    """Kind and name of what its alerts have in common."""
    severity: Severity
    """The worst that it ever had: who was notified of the worst is notified of the end."""
    title: str = ""
    """Last title, for an incident that has no alert any more."""
    began: int
    """ns since 1970."""
    changed: int
    opened: float
    joined: float
    """When an alert last joined it."""
    wait_until: float
    """When the first notification is due."""
    held: bool = msgspec.field(default=False, name="waits_again")
    """Whether it waits longer, because its rule has paged at its place before."""
    ended: int | None = None
    closed: float | None = None
    notified: Severity | None = msgspec.field(default=None, name="told")
    """The worst severity of a trigger that was sent; None before the first."""
    notified_at: float = msgspec.field(default=0.0, name="told_at")
    notified_firing: int = msgspec.field(default=0, name="told_firing")
    """How many of its alerts fired at the last notification."""
    notified_total: int = msgspec.field(default=0, name="told_total")
    notified_flapping: bool = msgspec.field(default=False, name="told_flaps")
    next_update: float = 0.0
    repeat_at: float | None = None
    escalates_from: float | None = None
    """When it first paged, or its acknowledgement ended: escalations count from then."""
    escalated: int = 0
    """How many steps of escalation were notified."""
    quiet_since: float | None = None
    """Since when none of its alerts fires."""
    ack: IncidentNote | None = None
    ack_until: float | None = None
    counted_at: float | None = None
    """When it counted for a storm of its node; None before."""
    storm: str = ""
    """Key of the storm incident that suppresses it."""
    storming: bool | None = None
    """Whether a storm incident still goes on; None of any other incident."""
    suppressed: int = msgspec.field(default=0, name="held")
    """How many incidents a storm incident has suppressed."""
    shared: tuple[str, ...] = ()
    """Traits that the nodes of a storm share and other nodes do not have."""
    notified_suppressed: int = msgspec.field(default=0, name="told_held")
    rules: tuple[str, ...] = ()
    """Names of the rules whose alerts are or were part of it."""
    final: Incident | None = None
    """The public incident at its end."""
    notices: int = 0
    """How many notices were made of it; numbers them."""
    timeline: tuple[IncidentEvent, ...] = msgspec.field(default=(), name="story")
    """Its events, oldest first; of more than `MAX_TIMELINE` the first ones and the newest."""

    def add_event(self, at: int, what: str, who: str = "", why: str = "") -> None:
        """Append an event to the timeline."""
        events = (*self.timeline, IncidentEvent(at=at, what=what, who=who, why=why))
        drop = MAX_TIMELINE // 5
        self.timeline = events if len(events) <= MAX_TIMELINE else (*events[:drop], *events[drop + 1 :])


class SilenceWindow(StoredRecord, kw_only=True):
    """A silence or maintenance window, and whether it has begun and ended."""

    silence: Silence
    order: int
    starts: float
    """In time of `SteadyClock`, so that a step of the wall clock ends no silence early."""
    ends: float
    begun: bool = False
    over: bool = False


class ManagerClock(msgspec.Struct, kw_only=True):
    """Clock and counters of the incident manager at a step."""

    time: float
    """Seconds that it has run; continues over restarts, and never goes back."""
    wall: int
    """ns since 1970 at `time`."""
    latest: int
    """As `wall`, but never goes back."""
    order: int = 0
    arrivals: dict[str, list[float]] = {}
    """By severity, when incidents were last opened; by `severity/rule` those of other rules than a storm's."""


class RecordKey(NamedTuple):
    """Key of a record in the journal."""

    kind: str
    """`case` (an alert), `dossier` (an incident), `window` (a silence) or `pulse` (the clock): the
    words of the journal's format; `quality`, `quality_silenced` and `quality_start`: alert quality;
    `evidence`: the cards of an incident; `channels`: the channels of the settings."""
    key: str


class IncidentMemory(msgspec.Struct, kw_only=True):
    """Records of the incident manager, as the journal returns them."""

    clock: ManagerClock | None = None
    """None at the first start."""
    alerts: list[TrackedAlert] = []
    incidents: list[IncidentRecord] = []
    windows: list[SilenceWindow] = []
    quality: QualityMemory = msgspec.field(default_factory=QualityMemory)
    channels: ChannelMemory = ChannelMemory()


@dataclass(frozen=True, slots=True)
class IncidentChanges:
    """Changes of one step of the incident manager, stored in one transaction before any notice is sent.

    Two steps that are not stored yet join into one: `first.then(second)`.
    """

    notices: tuple[Notice, ...] = ()
    """In the order of the decisions."""
    incidents: tuple[Incident, ...] = ()
    """Incidents that have changed; those that are over have `ended`."""
    silences: tuple[Silence, ...] = ()
    """Silences that were made, changed, began or ended."""
    alerts: tuple[str, ...] = ()
    """Keys of the alerts that appeared, were removed, or whose state changed."""
    records: Mapping[RecordKey, bytes | None] = field(default_factory=dict)
    """Records that have changed; None is to be deleted."""
    wall_ns: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to store; the clock is stored every 30 s in any case."""
        return bool(self.records or self.notices)

    def then(self, later: IncidentChanges) -> IncidentChanges:
        """Return this step and a later one as one."""
        incidents = {incident.key: incident for incident in (*self.incidents, *later.incidents)}
        silences = {silence.id: silence for silence in (*self.silences, *later.silences)}
        return IncidentChanges(
            self.notices + later.notices,
            tuple(incidents.values()),
            tuple(silences.values()),
            tuple(dict.fromkeys((*self.alerts, *later.alerts))),
            {**self.records, **later.records},
            later.wall_ns,
        )
