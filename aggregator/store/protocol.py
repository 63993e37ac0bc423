"""The interface of a store, and the values that cross it: batches in, answers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.jobs.stored import JobQuery, StoredJob
from api.fleet import StoredEvent
from api.jobs import JobRow
from telemetry.errors import StoreError
from telemetry.fleet import Floats
from telemetry.metric import Lane, Table
from telemetry.wire.exposition import Family
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import JobKey

SPAN_SECONDS = 10
"""Seconds of the nodes' clocks in one provisional mean."""


class ContentError(StoreError):
    """The content of a batch can't be written: no retry helps, and the disk is not the cause."""


@dataclass(frozen=True, slots=True)
class CollectorRun:
    """A session of a node, with a small number that rows carry instead of both."""

    id: int
    node: str
    session: int


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """The device of a row of readings, with a small number that rows carry instead of its names."""

    id: int
    node: str
    key: str
    """GPU UUID; `<uuid>/<link number>` in link blocks; node name in node blocks; the identity of a port
    or of a MIG instance."""
    index: int | None = None
    """GPU index, number of the link, port or GPU instance, for people."""
    name: str = ""


@dataclass(slots=True)
class StoredState:
    """The numbers that the store has assigned already."""

    runs: list[CollectorRun] = field(default_factory=list)
    devices: list[StoredDevice] = field(default_factory=list)


@dataclass(slots=True)
class Frames:
    """The frames of a batch, one array an attribute: identity, the node's clock and ours."""

    run: npt.NDArray[np.int32]
    """Number of the `CollectorRun`."""
    seq: npt.NDArray[np.int64]
    sampled_at: npt.NDArray[np.int64]
    """ns, the node's clock."""
    received_at: npt.NDArray[np.int64]
    """ns, the aggregator's clock."""
    backfilled: npt.NDArray[np.bool_]

    @classmethod
    def none(cls) -> Frames:
        """Return no frames at all."""
        empty = np.empty(0, np.int64)
        return cls(np.empty(0, np.int32), empty, empty, empty, np.empty(0, np.bool_))

    @classmethod
    def join(cls, parts: Sequence[Frames]) -> Frames:
        """Return the frames of all parts, in order."""
        if not parts:
            return cls.none()
        return cls(
            np.concatenate([part.run for part in parts]),
            np.concatenate([part.seq for part in parts]),
            np.concatenate([part.sampled_at for part in parts]),
            np.concatenate([part.received_at for part in parts]),
            np.concatenate([part.backfilled for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(slots=True)
class Hole:
    """Frames that are lost for good: recorded, so that loss has an exact size."""

    node: str
    session: int
    first: int
    last: int
    reason: str
    """`ring_overflow`, `gone`, `malformed`, `unreadable`, `too_old`, `unstorable`."""


class LostFrames(NamedTuple):
    """Frames of a session whose readings the store has lost, both ends included."""

    node: str
    session: int
    first: int
    last: int


@dataclass(slots=True)
class BlockRows:
    """Rows of one block, in arrival order; a batch may hold several of the same block."""

    block: int
    """Number in `telemetry.wire.schema.SCHEMA`."""
    frame: npt.NDArray[np.int32]
    """For each row, the position of its frame in `Batch.frames`."""
    device: npt.NDArray[np.int32]
    """For each row, the number of its `StoredDevice`."""
    gauges: npt.NDArray[np.float32]
    counters: npt.NDArray[np.float64]


@dataclass(slots=True)
class MeanRows:
    """Provisional rows of one block: means of frames that were shed, a row a device and span."""

    block: int
    """Number in `telemetry.wire.schema.SCHEMA`."""
    device: npt.NDArray[np.int32]
    run: npt.NDArray[np.int32]
    first: npt.NDArray[np.int64]
    """Number of the first frame of each span, and of the last."""
    last: npt.NDArray[np.int64]
    sampled_at: npt.NDArray[np.int64]
    """Of the last frame, ns, the node's clock."""
    received_at: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int32]
    """Frames that each row is made of: fewer than its span has when some were not decoded."""
    gauges: npt.NDArray[np.float32]
    """Means; NaN without a reading."""
    counters: npt.NDArray[np.float64]
    """Last readings."""

    @staticmethod
    def join(parts: Sequence[MeanRows]) -> MeanRows:
        """Return all rows of several parts of one block."""
        columns = [each.name for each in fields(MeanRows)[1:]]
        return MeanRows(parts[0].block, *(np.concatenate([getattr(part, name) for part in parts]) for name in columns))

    def only(self, wanted: npt.NDArray[np.bool_]) -> MeanRows:
        """Return some of the rows."""
        return MeanRows(
            self.block,
            self.device[wanted],
            self.run[wanted],
            self.first[wanted],
            self.last[wanted],
            self.sampled_at[wanted],
            self.received_at[wanted],
            self.frames[wanted],
            self.gauges[wanted],
            self.counters[wanted],
        )


@dataclass(slots=True)
class Batch:
    """The content of one commit of the store."""

    frames: Frames = field(default_factory=Frames.none)
    blocks: list[BlockRows] = field(default_factory=list)
    events: list[StoredEvent] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    inventories: list[Inventory] = field(default_factory=list)
    runs: list[CollectorRun] = field(default_factory=list)
    """New runs."""
    devices: list[StoredDevice] = field(default_factory=list)
    """New devices."""
    removed_nodes: list[str] = field(default_factory=list)
    """Nodes whose inventories are removed before those of this batch are stored; all else of them
    stays."""
    ended_runs: list[tuple[str, int]] = field(default_factory=list)
    """Sessions (node, session) of which no frame can come any more: memory need not know them."""
    means: list[MeanRows] = field(default_factory=list)
    """Provisional; a store that has no place for them leaves them out."""
    at: int = 0
    """ns, the aggregator's clock when the batch was closed."""

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(
            len(self.frames)
            or self.events
            or self.holes
            or self.inventories
            or self.runs
            or self.devices
            or self.removed_nodes
            or self.ended_runs
            or self.means
        )


class HistorySeries(msgspec.Struct, frozen=True):
    """A metric of a device over time, in buckets of `step` seconds (0: every reading)."""

    device: str
    metric: str
    step: float
    at: list[int]
    """Start of each bucket, ns since 1970, the node's clock."""
    mean: list[float | None]
    """Gauges: mean; counters: last value. None where there was no reading."""
    low: list[float | None]
    high: list[float | None]
    incomplete: list[tuple[int, int]] = []
    """Windows whose files were removed or damaged, ns since 1970: what is shown there is coarser than
    what was stored, or nothing."""
    provisional: list[tuple[int, int]] = []
    """Windows in which means stand for readings that were shed, and that the nodes may send again."""
    missing: list[str] = []
    """Aggregators of the cluster that did not answer: the newest readings are theirs."""


@dataclass(frozen=True, slots=True)
class PastInstants:
    """Equidistant instants, ns since 1970."""

    first: int
    step: int
    """ns; has no meaning for a single instant."""
    count: int

    @property
    def last(self) -> int:
        """The newest instant."""
        return self.first + (self.count - 1) * self.step

    def all(self) -> npt.NDArray[np.int64]:
        """Return all instants."""
        return self.first + self.step * np.arange(self.count, dtype=np.int64)


@dataclass(slots=True)
class FleetPast:
    """The newest readings of a table's devices before each of some instants."""

    devices: list[StoredDevice]
    """The devices with readings."""
    columns: dict[str, Floats]
    """By metric, shape (instants, devices); NaN where there was no reading."""
    seen: dict[Lane, npt.NDArray[np.int64]]
    """Times of these readings, by lane and in the same shape, the nodes' clock; 0 for none."""
    slack: dict[Lane, int]
    """ns that a reading from a roll-up may be older than a single one before it is stale."""
    later: set[tuple[str, str]]
    """Node and key of devices that came only after the first instant."""
    begins: int | None = None
    """ns since 1970: about the time of the table's oldest reading; None where it is not known."""
    incomplete: list[tuple[int, int]] = field(default_factory=list)
    """As of `HistorySeries`."""
    missing: list[str] = field(default_factory=list)
    """As of `HistorySeries`."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The state of a store, for health, metrics and the aggregator's own alerts."""

    name: str
    """The alert `<name>_failing` of alerts/rules/monitor.toml fires while there is a `problem`."""
    problem: str = ""
    """Why the server behind the store accepts no data, in its words; empty while it does."""
    warning: str = ""
    """The same for health pages, which show no configuration: they need no token."""
    lost_files: int = 0
    """Sealed files that another program removed or damaged, and that are missing now."""
    families: tuple[Family, ...] = ()
    """Metrics of the store's own, for `/metrics`."""


class OtherStores(Protocol):
    """The stores of other aggregators of a cluster: who asks one of them is answered from all."""

    async def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return the history of a device that any of them holds."""

    async def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the past of all of their devices, or of those of some nodes."""

    async def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Return events of all of them, newest first."""


class Store(Protocol):
    """A place where readings stay. To add one, write a class with these methods and return it from
    `aggregator.assembly.store_choice.open_store`.

    Every method may block. `StoreExecutor` calls them one at a time in the store's thread, but for
    `history`, `past`, `find_jobs`, `seal` and `check_next`, which run in threads beside it, and `status`, which never blocks.
    """

    def write(self, batch: Batch) -> int:
        """Store a batch in one transaction; return how many frames were new: a frame that is there
        already (node, session, seq) is not stored twice. Raises `StoreError`; then nothing of it
        is stored and the same batch may be written again."""

    def known(self) -> StoredState:
        """Return the runs and devices that have a number already."""

    def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Return which frames of each (node, session) are stored or recorded as holes."""

    def inventories(self) -> list[Inventory]:
        """Return the newest inventory of each node."""

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return one metric of one device, `start` <= time < `end` in ns since 1970; in wider buckets
        than `step` where nothing finer is kept."""

    def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the newest readings of all devices of a table, or of some nodes, at each instant.
        `reach`: how much older than its instant a reading may be, ns."""

    def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Return events, newest first."""

    def write_jobs(self, jobs: Sequence[StoredJob]) -> None:
        """Store jobs in one transaction, each in place of what is stored of it. Raises `StoreError`;
        then nothing of it is stored."""

    def open_jobs(self) -> list[StoredJob]:
        """Return the jobs that a start goes on with: those that last, and those whose energy is still to be counted."""

    def jobs_of(self, keys: Sequence[JobKey]) -> list[StoredJob]:
        """Return the jobs of some keys, as far as they are stored."""

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """Return jobs, the newest begin first; in any thread."""

    def tidy(self) -> bool:
        """Do the work that a commit left, before the next one; return whether there was any."""

    def maintain(self, now: int) -> bool:
        """Do one short piece of upkeep: begin or end the sealing of a period, drop data that is too old
        or too large. Return whether there is more to do now, by `seal` first. `now` is ns since
        1970."""

    def seal(self) -> None:
        """Do one long piece of upkeep: make a Parquet file of a finished period, or a roll-up; in a
        thread of its own, beside all methods but `maintain`."""

    def check_next(self) -> None:
        """Verify one sealed file, the next of an endless pass; in a thread of its own."""

    def drain_refill(self) -> list[LostFrames]:
        """Return frames whose readings were lost with a file since the last call: they are to be
        requested again, and `write` stores what is missing of them."""

    def size(self) -> dict[str, int]:
        """Return bytes by part: `hot`, `sealed`, `rollups` on disk, `memory` of the database."""

    def status(self) -> StoreStatus:
        """Return the state of the store, from any thread and without waiting for a lock or disk."""

    def close(self) -> None:
        """Write everything and close the files."""
