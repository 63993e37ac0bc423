"""Input of the rules at one tick: the fleet and the power snapshots, each column read once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from alerts.rules.gpu_jobs import GpuJobs
from alerts.rules.names import home
from alerts.rules.row_memory import Flags, Floats, Index, of_holders
from api.alerts import Remediation, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet, Node, StaleRows, gaps_of
from telemetry.gap import Gap, gap
from telemetry.metric import Table

if TYPE_CHECKING:
    from alerts.rules.peers_elsewhere import PeersElsewhere

Outcome = TypeVar("Outcome")
_HOLDER = {
    Subject.LINK: Subject.GPU, Subject.GPU: Subject.NODE, Subject.PORT: Subject.NODE, Subject.INSTANCE: Subject.NODE,
}  # fmt: skip


class RepeatedFaults(Protocol):
    """Finder of boards and slots with many incidents."""

    def __call__(
        self, of: str, count: int, window: float, remediations: Collection[Remediation], /
    ) -> Mapping[int, int]:
        """Return GPU row and number of incidents of each `board` or `slot` with `count` or more in the
        last `window` seconds, of rules whose remedy has one of these remediations."""


class AlertPhase(IntEnum):
    """State of a rule on one row. Resolving is an instant, not a phase."""

    INACTIVE = 0
    PENDING = 1
    FIRING = 2


@dataclass(slots=True)
class FleetSnapshot:
    """The fleet and the power snapshots at one instant, and the events since the tick before."""

    fleet: Fleet
    snapshots: Mapping[SnapshotKind, PowerSnapshot]
    owner: Mapping[Table, Index]
    """For each row of a table, the row of its holder: a link's GPU, a GPU's node, the node itself;
    -1 for a row without one."""
    now: float
    """Monotonic seconds."""
    wall: int
    """ns since 1970."""
    listening_since: float
    """Monotonic seconds since which the aggregator itself has received frames without a pause: a
    node is not silent for a time in which nothing could be received."""
    events: Mapping[Table, list[tuple[int, Event]]]
    """Row and event, by table."""
    disturbed_at: Mapping[Table, Floats]
    """Monotonic seconds at which the readings of each row were last disturbed."""
    driver_rows: Callable[[Sequence[str]], Flags]
    """Returns the nodes whose driver is in one of some states, by their inventories."""
    peer_groups: Callable[[str], tuple[Index, int]]
    """Returns a number for each GPU row that GPUs which may be compared share (0 for a free row),
    and how many numbers there are; for peers of the same `job` or the same `model`."""
    gpu_jobs: GpuJobs
    """Holder of each GPU row."""
    repeated_faults: RepeatedFaults
    """Returns the GPU rows whose board or slot had so many incidents, with their number."""
    faults: dict[str, Exception] = field(default_factory=dict)
    """Exceptions of single nodes while they were read: their rows are unknown."""
    behind: float = 0.0
    """Seconds by which the aggregator itself, or its broker, is behind: for so long a node that sends may seem silent."""
    elsewhere: PeersElsewhere | None = None
    """Knowledge of the GPUs of our jobs that other aggregators have; None for a single one."""
    _columns: dict[tuple[str, Subject], Floats] = field(default_factory=dict)
    _stale: StaleRows = field(default_factory=dict)
    _silence: tuple[Floats, Floats] | None = None
    _heard: Floats | None = None
    _ended: Flags | None = None

    def size(self, subject: Subject) -> int:
        """Return the number of rows of a subject, free ones included."""
        if subject.table is not None:
            return self.fleet.size(subject.table)
        snapshot = self.snapshots.get(SnapshotKind(subject.value))
        return 0 if snapshot is None else len(snapshot.names)

    def has(self, subject: Subject) -> bool:
        """Return whether there is anything to evaluate of a subject."""
        kind = subject.snapshot_kind
        return kind is None or kind in self.snapshots

    def values(self, metric: str, subject: Subject) -> Floats:
        """Return one metric of every row of a subject, gaps as NaN. A link has also the metrics of
        its GPU, and a GPU those of its node."""
        found = self._columns.get((metric, subject))
        if found is None:
            kind = subject.snapshot_kind
            if kind is not None:
                found = np.asarray(self.snapshots[kind].column(metric), np.float64)
            elif subject is home(metric):
                found = self.fleet.column(metric, self.now, self._stale)
            else:  # of the holder; a link reaches its node in two steps
                held = self.values(metric, _HOLDER[subject])
                found = of_holders(held, self.owner[Table(subject)], gap(Gap.NOT_READ))
            self._columns[metric, subject] = found
        return found

    def silence(self) -> tuple[Floats, Floats]:
        """Return the seconds since the last frame of each node, and its interval; NaN for free rows."""
        if self._silence is None:
            self._silence = self._of_nodes(self._silence_of)
        return self._silence

    def heard(self) -> Floats:
        """Return the monotonic seconds of the last frame of each node, -inf before the first; NaN for free
        rows."""
        self.silence()
        return np.full(0, np.nan) if self._heard is None else self._heard

    def _silence_of(self, nodes: Sequence[Node]) -> tuple[Floats, Floats]:
        size = self.fleet.size(Table.NODE)
        ages, intervals = np.full(size, np.nan), np.ones(size)
        last = self._heard = np.full(size, np.nan)
        if nodes:
            rows, columns = self._rows_of(nodes), self.fleet.columns
            heard = columns.seen[rows]
            last[rows] = heard
            ages[rows] = np.maximum(self.now - np.maximum(heard, self.listening_since) - self.behind, 0.0)
            intervals[rows] = columns.interval[rows]
        return ages, intervals

    def _rows_of(self, nodes: Sequence[Node]) -> npt.NDArray[np.intp]:
        if len(nodes) == len(self.fleet.nodes):
            return self.fleet.node_rows()
        return np.fromiter((node.row for node in nodes), np.intp, len(nodes))

    def _of_nodes(self, read: Callable[[Sequence[Node]], Outcome]) -> Outcome:
        """Return what is read of all nodes together; where that raises, of those of which it can be read."""
        try:
            return read(list(self.fleet.nodes.values()))
        except Exception:  # one node's: the others are evaluated without it
            whole = [node for name, node in self.fleet.nodes.items() if self._reads(name, read)]
            if not self.faults:
                raise
            return read(whole)

    def _reads(self, name: str, read: Callable[[Sequence[Node]], object]) -> bool:
        """Return whether a node can be read; else note why not."""
        try:
            read([self.fleet.nodes[name]])
        except Exception as error:  # noqa: BLE001 - kept by the node's name
            self.faults[name] = error
            return False
        return True

    def intervals(self, subject: Subject) -> Floats:
        """Return the seconds between two frames of the node of each row."""
        intervals = self.silence()[1]
        if subject.snapshot_kind is not None:
            return np.ones(self.size(subject))
        if subject is Subject.LINK:
            return of_holders(self.intervals(Subject.GPU), self.owner[Table.LINK], 1.0)
        if subject is Subject.NODE:
            return intervals
        return of_holders(intervals, self.owner[Table(subject)], 1.0)

    def ended(self) -> Flags:
        """Return the nodes whose collector stopped on purpose and has not started again."""
        if self._ended is None:
            ended = self._ended = np.zeros(self.fleet.size(Table.NODE), np.bool_)
            for node in self.fleet.nodes.values():
                if node.ended:
                    ended[node.rows[Table.NODE]] = True
        return self._ended

    def skew(self) -> Floats:
        """Return the seconds by which each node's clock was ahead of the aggregator's when its
        newest frame came; negative when it is behind."""
        return self._of_nodes(self._skew_of)

    def _skew_of(self, nodes: Sequence[Node]) -> Floats:
        skew = np.full(self.fleet.size(Table.NODE), np.nan)
        if nodes:
            rows, columns = self._rows_of(nodes), self.fleet.columns
            rows = rows[(columns.sampled_at[rows] != 0) & np.isfinite(columns.seen[rows])]
            seen, theirs = columns.seen[rows], columns.sampled_at[rows] - columns.clock_offset[rows]
            ours = self.wall - ((self.now - seen) * 1e9).astype(np.int64)
            skew[rows] = (theirs - ours) / 1e9
        return skew

    def age(self, event: Event) -> float:
        """Return the seconds since an event, by its node's clock; never below 0."""
        return max(0.0, (self.wall - event.at) / 1e9)


@dataclass(slots=True)
class RuleInput:
    """The rows of a rule's subject at one instant, as its conditions read them."""

    snapshot: FleetSnapshot
    subject: Subject
    size: int
    phase: npt.NDArray[np.int8]
    """`AlertPhase` of each row."""

    @property
    def firing(self) -> Flags:
        """Rows where the rule fires; for a level of clearing apart from the level of firing."""
        firing: Flags = self.phase == AlertPhase.FIRING
        return firing

    @property
    def active(self) -> Flags:
        """Rows where the rule is pending or fires."""
        active: Flags = self.phase != AlertPhase.INACTIVE
        return active

    def values(self, metric: str) -> Floats:
        """Return one metric of every row, gaps as NaN."""
        return self.snapshot.values(metric, self.subject)

    def unsupported(self, metric: str) -> Flags:
        """Return the rows whose device does not support a metric: that is an answer, not a gap."""
        never: Flags = gaps_of(self.values(metric)) == Gap.NOT_SUPPORTED
        return never

    def events(self) -> list[tuple[int, Event]]:
        """Return row and event of each event since the tick before."""
        table = self.subject.table
        return [] if table is None else self.snapshot.events[table]

    def disturbed_at(self) -> Floats:
        """Return the monotonic seconds at which the readings of each row were last disturbed."""
        table = self.subject.table
        return np.full(self.size, -np.inf) if table is None else self.snapshot.disturbed_at[table]
