"""One look at everything: what all rules of one tick judge, each column read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from alerts.engine.peer_groups import PeerGroups
from alerts.engine.row_index import RowIndex
from alerts.engine.state_machine import AlertPhase
from alerts.rules.condition import Flags, Floats, Index
from alerts.rules.names import home
from api.alerts import Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.fleet import Fleet, gaps_of
from telemetry.gap import Gap
from telemetry.inventory import Event
from telemetry.metric import Table

_HOLDER = {Subject.LINK: Subject.GPU, Subject.GPU: Subject.NODE}


@dataclass(slots=True)
class FleetSnapshot:
    """The fleet and the power snapshots at one instant, and what happened since the look before."""

    fleet: Fleet
    snapshots: Mapping[SnapshotKind, PowerSnapshot]
    census: RowIndex
    now: float
    wall: int
    """ns since 1970."""
    listening_since: float
    """Since when the aggregator itself could hear, monotonic seconds: nobody is called silent for
    a time in which we were deaf."""
    happened: Mapping[Table, list[tuple[int, Event]]]
    likeness: PeerGroups
    """Which GPUs may be compared."""
    calm_at: Mapping[Table, Floats]
    """When the readings of each row were last disturbed, monotonic seconds."""
    _columns: dict[tuple[str, Subject], Floats] = field(default_factory=dict)
    _silence: tuple[Floats, Floats] | None = None
    _ended: Flags | None = None

    def size(self, subject: Subject) -> int:
        """How many rows there are of a subject, free ones included."""
        if subject.table is not None:
            return self.fleet.size(subject.table)
        snapshot = self.snapshots.get(SnapshotKind(subject.value))
        return 0 if snapshot is None else len(snapshot.names)

    def has(self, subject: Subject) -> bool:
        """Whether there is anything to judge of a subject."""
        return subject.snapshot_kind is None or subject.snapshot_kind in self.snapshots

    def values(self, metric: str, subject: Subject) -> Floats:
        """One metric of every row of a subject; links see their GPU's, GPUs their node's."""
        found = self._columns.get((metric, subject))
        if found is None:
            if subject.snapshot_kind is not None:
                found = np.asarray(self.snapshots[subject.snapshot_kind].column(metric), np.float64)
            elif subject is home(metric):
                found = self.fleet.column(metric, self.now)
            else:  # one step up the tree of what holds what; a link reaches its node in two
                found = self.values(metric, _HOLDER[subject])[self.census.owner[Table(subject)]]
            self._columns[metric, subject] = found
        return found

    def silence(self) -> tuple[Floats, Floats]:
        """Seconds since each node was heard and the interval it promised; NaN for free rows."""
        if self._silence is None:
            size = self.fleet.size(Table.NODE)
            ages, intervals = np.full(size, np.nan), np.ones(size)
            nodes = self.fleet.nodes.values()
            rows = np.fromiter((node.rows[Table.NODE].start for node in nodes), np.intp)
            heard = np.fromiter((node.seen for node in nodes), np.float64)
            ages[rows] = self.now - np.maximum(heard, self.listening_since)
            intervals[rows] = np.fromiter((node.interval for node in nodes), np.float64)
            self._silence = ages, intervals
        return self._silence

    def intervals(self, subject: Subject) -> Floats:
        """Seconds between two frames of the node of each row."""
        intervals = self.silence()[1]
        if subject.snapshot_kind is not None:
            return np.ones(self.size(subject))
        if subject is Subject.LINK:
            return intervals[self.census.owner[Table.GPU]][self.census.owner[Table.LINK]]
        return intervals if subject is Subject.NODE else intervals[self.census.owner[Table.GPU]]

    def ended(self) -> Flags:
        """Nodes whose collector said goodbye and has not come back."""
        if self._ended is None:
            ended = self._ended = np.zeros(self.fleet.size(Table.NODE), np.bool_)
            for node in self.fleet.nodes.values():
                if node.ended:
                    ended[node.rows[Table.NODE]] = True
        return self._ended

    def skew(self) -> Floats:
        """Seconds by which each node's clock was ahead of ours when its newest frame came."""
        skew = np.full(self.fleet.size(Table.NODE), np.nan)
        for node in self.fleet.nodes.values():
            if node.sampled_at and node.seen > -np.inf:
                ours = self.wall - int((self.now - node.seen) * 1e9)
                skew[node.rows[Table.NODE]] = (node.sampled_at - ours) / 1e9
        return skew


@dataclass(slots=True)
class RuleInput:
    """A look through the eyes of one rule; fits `alerts.rules.condition.Sight`."""

    look: FleetSnapshot
    subject: Subject
    size: int
    phase: npt.NDArray[np.int8]

    @property
    def firing(self) -> Flags:
        """Rows where the rule fires."""
        firing: Flags = self.phase == AlertPhase.FIRING
        return firing

    @property
    def active(self) -> Flags:
        """Rows where the rule is pending or fires."""
        active: Flags = self.phase != AlertPhase.INACTIVE
        return active

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.look.now

    def values(self, metric: str) -> Floats:
        """One metric of every row of the rule's subject."""
        return self.look.values(metric, self.subject)

    def unsupported(self, metric: str) -> Flags:
        """Rows whose device will never have a metric."""
        never: Flags = gaps_of(self.values(metric)) == Gap.NOT_SUPPORTED
        return never

    def silence(self) -> tuple[Floats, Floats]:
        """Silence and interval of each node."""
        return self.look.silence()

    def ended(self) -> Flags:
        """Nodes that are silent on purpose."""
        return self.look.ended()

    def skew(self) -> Floats:
        """Seconds by which each node's clock is ahead of ours."""
        return self.look.skew()

    def kinds(self, among: str) -> tuple[Index, int]:
        """Which GPUs are alike."""
        return self.look.likeness.groups(among)

    def intervals(self) -> Floats:
        """Seconds between two frames of each row's node."""
        return self.look.intervals(self.subject)

    def calm(self) -> Floats:
        """When each row was last disturbed."""
        table = self.subject.table
        return np.full(self.size, -np.inf) if table is None else self.look.calm_at[table]

    def drivers(self, states: Sequence[str]) -> Flags:
        """Nodes whose driver is in one of some states."""
        return self.look.census.drivers(states)

    def age(self, event: Event) -> float:
        """Seconds since an event."""
        return max(0.0, (self.look.wall - event.at) / 1e9)

    def happened(self) -> list[tuple[int, Event]]:
        """Events by row of the rule's subject."""
        table = self.subject.table
        return [] if table is None else self.look.happened[table]
