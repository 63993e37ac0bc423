"""What the desk remembers, and what one step of it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from alerts.notice import Notice
from api.alerts import (
    Alert,
    Incident,
    IncidentEvent,
    IncidentNote,
    NotificationState,
    Severity,
    Silence,
)

STORY = 100
"""Happenings that are kept of one incident."""


class TrackedAlert(msgspec.Struct, kw_only=True):
    """One alert before the desk. Times are seconds of the desk's own clock."""

    order: int
    """In which cases came; ties are broken by it, the same after a restart."""
    alert: Alert
    """As it was last told."""
    firing: bool = False
    since: float = 0.0
    """When it last began to fire."""
    standing: NotificationState = NotificationState.NOTIFIED
    """TOLD, INHIBITED, SILENCED or MAINTENANCE; the desk adds FLAPPING and STORM."""
    by: str = ""
    """What holds it back: key of the cause, id of the silence."""
    release: float | None = None
    """What held it back is gone; it is told at this time if it still fires then."""
    incident: str = ""
    """Key of the incident that it belongs to, even when it has resolved there."""
    flips: list[float] = []
    """When it began to fire or resolved, lately."""
    flaps: bool = False


class IncidentRecord(msgspec.Struct, kw_only=True):
    """One incident before the desk: what the public `Incident` does not show."""

    key: str
    base: str
    """What the key is made of, but for how often that came within ten minutes."""
    order: int
    group: dict[str, str]
    place: tuple[str, str]
    """Kind and name of what its alerts have in common."""
    severity: Severity
    """The worst that it ever was: who was told of the worst hears of the end."""
    title: str = ""
    """Of what has no alert any more."""
    began: int
    """ns since 1970."""
    changed: int
    opened: float
    """When it was opened."""
    joined: float
    """When an alert last joined it."""
    wait_until: float
    """When it is told."""
    ended: int | None = None
    closed: float | None = None
    told: Severity | None = None
    """The worst severity at which a trigger was told; None while it was not."""
    told_at: float = 0.0
    told_firing: int = 0
    """How many of its alerts fired when people were last told."""
    told_total: int = 0
    told_flaps: bool = False
    cause_untold: bool = False
    """Its cause showed up behind it since people were last told."""
    next_update: float = 0.0
    repeat_at: float | None = None
    quiet_since: float | None = None
    """Since when none of its alerts fires."""
    ack: IncidentNote | None = None
    ack_until: float | None = None
    storm: str = ""
    """Key of the storm's incident that tells of it."""
    storming: bool | None = None
    """Of a storm's own incident: whether it still goes on; None of any other."""
    held: int = 0
    """Of a storm's own incident: how many incidents it has held back."""
    told_held: int = 0
    rules: list[str] = []
    """Names of the rules whose alerts are or were its."""
    final: Incident | None = None
    """How it stood when it ended."""
    notices: int = 0
    """How many notices there were about it: numbers them."""
    members: dict[str, None] = {}
    """Not kept in the journal: follows from the cases."""
    story: list[IncidentEvent] = []
    """What happened to it, oldest first; of very much, its beginning and the newest."""

    def happened(self, at: int, what: str, who: str = "", why: str = "") -> None:
        """Write down what happened."""
        self.story.append(IncidentEvent(at=at, what=what, who=who, why=why))
        if len(self.story) > STORY:
            del self.story[STORY // 5]


class SilenceWindow(msgspec.Struct, kw_only=True):
    """A silence or maintenance window before the desk."""

    silence: Silence
    order: int
    starts: float
    """On the desk's clock, so that a step of the wall clock ends no silence early."""
    ends: float
    begun: bool = False
    over: bool = False


class ManagerClock(msgspec.Struct, kw_only=True):
    """The desk's clock and counters, as they stood at a step."""

    time: float
    """Seconds that the desk has lived; goes on over restarts, never back."""
    wall: int
    """ns since 1970, then."""
    latest: int
    """As `wall`, but never back."""
    order: int = 0
    arrivals: dict[str, list[float]] = {}
    """By severity, when incidents last came."""


class RecordKey(NamedTuple):
    """Under which the journal keeps a record of the desk."""

    kind: str
    """`case`, `dossier`, `window` or `pulse`."""
    key: str


class IncidentMemory(msgspec.Struct, kw_only=True):
    """All that a desk remembers, as the journal gives it back."""

    pulse: ManagerClock | None = None
    """None: the desk begins its life."""
    cases: list[TrackedAlert] = []
    dossiers: list[IncidentRecord] = []
    windows: list[SilenceWindow] = []


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What must be written down in one transaction before anybody is told of it.

    Two steps that were not written yet join into one: `first.then(second)`.
    """

    notices: tuple[Notice, ...] = ()
    """In the order in which they were decided."""
    incidents: tuple[Incident, ...] = ()
    """Those that have changed, as they stand now; with `ended` when they are over."""
    silences: tuple[Silence, ...] = ()
    """Those that were made, changed, began or ended."""
    alerts: tuple[str, ...] = ()
    """Keys of the alerts that came, went, or whose standing changed."""
    records: Mapping[RecordKey, bytes | None] = field(default_factory=dict)
    """The desk's memory where it changed; None is to be forgotten."""
    wall_ns: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to write; every 30 s the desk's clock is, whatever happens."""
        return bool(self.records or self.notices)

    def then(self, later: StateChanges) -> StateChanges:
        """Return this step and a later one as one."""
        incidents = {incident.key: incident for incident in (*self.incidents, *later.incidents)}
        silences = {silence.id: silence for silence in (*self.silences, *later.silences)}
        return StateChanges(
            self.notices + later.notices,
            tuple(incidents.values()),
            tuple(silences.values()),
            tuple(dict.fromkeys((*self.alerts, *later.alerts))),
            {**self.records, **later.records},
            later.wall_ns,
        )
