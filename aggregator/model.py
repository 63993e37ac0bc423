"""The values that the aggregator's parts hand to each other: batches in, answers out, counters.

Ingest makes a `Batch` every tick, a `Store` keeps it in one transaction, HTTP asks the store for a
`HistorySeries` and everything else for what it shows. `AggregatorView` is all that HTTP may see of the service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.alerting.messages import AlertFigures, ChannelRow, TestReply
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from alerts.alert import Alert
from alerts.notice import Delivery, Incident
from telemetry.fleet import Fleet, Floats
from telemetry.intervals import IntervalSet
from telemetry.inventory import Event, Inventory
from telemetry.metric import Lane, Table


@dataclass(frozen=True, slots=True)
class CollectorRun:
    """One session of one node, under a small number that rows carry instead of both."""

    id: int
    node: str
    session: int


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """What a row of readings belongs to, under a small number that rows carry instead of it."""

    id: int
    node: str
    key: str
    """GPU UUID; `<uuid>/<link number>` in link blocks; node name in node blocks."""
    index: int | None = None
    """GPU index or link number, for people."""
    name: str = ""


@dataclass(slots=True)
class StoredState:
    """The numbers that the store has given out already."""

    runs: list[CollectorRun] = field(default_factory=list)
    devices: list[StoredDevice] = field(default_factory=list)


@dataclass(slots=True)
class Frames:
    """Which frames are in a batch, one array an attribute: their identity, their clock and ours."""

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
    """Frames that nobody has any more: recorded, so that loss has an exact size."""

    node: str
    session: int
    first: int
    last: int
    reason: str
    """`ring_overflow`, `gone`, `malformed`, `unreadable`, `too_old`."""


@dataclass(slots=True)
class BlockRows:
    """Rows of one block, in arrival order; a batch may hold several of the same block."""

    block: int
    """Number in `telemetry.schema.SCHEMA`."""
    frame: npt.NDArray[np.int32]
    """For each row, the position in `Batch.frames` of the frame that it came in."""
    device: npt.NDArray[np.int32]
    """For each row, the number of its `StoredDevice`."""
    gauges: npt.NDArray[np.float32]
    counters: npt.NDArray[np.float64]


@dataclass(slots=True)
class Batch:
    """What one commit of the store holds: all of it, or nothing."""

    frames: Frames = field(default_factory=Frames.none)
    blocks: list[BlockRows] = field(default_factory=list)
    events: list[StoredEvent] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    inventories: list[Inventory] = field(default_factory=list)
    runs: list[CollectorRun] = field(default_factory=list)
    """Runs that no batch before has named."""
    devices: list[StoredDevice] = field(default_factory=list)
    """Devices that no batch before has named."""
    at: int = 0
    """ns, the aggregator's clock when the batch was closed."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(
            len(self.frames)
            or self.events
            or self.holes
            or self.inventories
            or self.runs
            or self.devices
        )


class HistorySeries(msgspec.Struct, frozen=True):
    """One metric of one device over time, in buckets of `step` seconds (0: every reading)."""

    device: str
    metric: str
    step: float
    at: list[int]
    """Start of each bucket, ns since 1970, the node's clock."""
    mean: list[float | None]
    """Gauges: mean; counters: last value. None where there was no reading."""
    low: list[float | None]
    high: list[float | None]


@dataclass(frozen=True, slots=True)
class PastInstants:
    """Moments at one distance from each other, ns since 1970."""

    first: int
    step: int
    """ns; what it is does not matter where there is one moment."""
    count: int

    @property
    def last(self) -> int:
        """The newest of them."""
        return self.first + (self.count - 1) * self.step

    def all(self) -> npt.NDArray[np.int64]:
        """Return every one of them."""
        return self.first + self.step * np.arange(self.count, dtype=np.int64)


@dataclass(slots=True)
class FleetPast:
    """What the store has of a table's devices at some instants: the newest readings before each."""

    devices: list[StoredDevice]
    """Those of which it has anything."""
    columns: dict[str, Floats]
    """By metric, shape (instants, devices); NaN where there was no reading."""
    seen: dict[Lane, npt.NDArray[np.int64]]
    """When these readings were taken, by lane and in the same shape, the nodes' clock; 0 for none."""
    slack: dict[Lane, int]
    """ns that a reading of a roll-up may be older than one that was kept by itself."""
    later: set[tuple[str, str]]
    """Node and key of devices that came only after the first instant."""
    begins: int | None = None
    """ns since 1970: about when the oldest reading of the table was taken; None where nobody knows."""


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as the store keeps it."""

    event: Event
    received_at: int


class Store(Protocol):
    """Where readings go to stay. Every method may block: it is called from a worker thread, one
    call at a time, but for those that it names in `apart`. To add a store, write one class and name
    it in `aggregator.store.open_store`."""

    def write(self, batch: Batch) -> int:
        """Keep a batch in one transaction. Returns how many frames were new: a frame that is there
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
        `reach`: how much older than its instant a reading may be, ns. May be called from any
        thread."""

    def events(
        self, start: int, end: int, node: str | None, kind: str | None, limit: int
    ) -> list[StoredEvent]:
        """Return events, newest first."""

    def tidy(self) -> bool:
        """Do what a commit leaves to be done, before the next one comes; returns whether there was
        anything to do."""

    def maintain(self, now: int) -> bool:
        """Do one short piece of what is due: begin or end the sealing of a period, drop what is too
        old or too much. Returns whether there is more to do now, by `seal` first. `now` is ns since
        1970."""

    def seal(self) -> None:
        """Do one long piece: make a Parquet file of a period that is over, or a roll-up. It is called
        from a thread of its own, beside all others but `maintain`."""

    def size(self) -> dict[str, int]:
        """Return bytes by part: `hot`, `sealed`, `rollups`."""

    def close(self) -> None:
        """Write everything down and let go of the files."""


@dataclass(slots=True)
class Timing:
    """How long something took: enough for a Prometheus summary without quantiles."""

    count: int = 0
    total: float = 0.0
    last: float = 0.0
    highest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one run."""
        self.count += 1
        self.total += seconds
        self.last = seconds
        self.highest = max(self.highest, seconds)


LAG_BOUNDS = tuple(0.001 * 1.5**step for step in range(29))
"""Upper bounds of the buckets of a `Spread`, seconds: 1 ms to 85 s, each half as much again."""


@dataclass(slots=True)
class Spread:
    """How a lag is distributed: enough for a Prometheus histogram, and so for p50 and p99."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_BOUNDS) + 1))
    """By bucket of `LAG_BOUNDS`; the last one is for all that is longer."""
    total: float = 0.0
    highest: float = 0.0

    def add(self, lags: npt.NDArray[np.float64]) -> None:
        """Count lags in seconds; a source's clock that is ahead makes them negative."""
        if lags.size:
            found = np.searchsorted(LAG_BOUNDS, lags)
            new = np.bincount(found, minlength=len(self.counts)).tolist()
            self.counts = [old + more for old, more in zip(self.counts, new, strict=True)]
            self.total += float(lags.sum())
            self.highest = max(self.highest, float(lags.max()))


@dataclass(slots=True)
class Stats:
    """What the aggregator says of itself. Counters only grow."""

    messages: dict[str, int] = field(default_factory=dict)
    """Received, by topic kind."""
    bytes_received: int = 0
    frames_received: int = 0
    frames_stored: int = 0
    frames_backfilled: int = 0
    """Of those stored, the ones that came on request."""
    frames_duplicate: int = 0
    """Came again, and were not stored again."""
    frames_lost: int = 0
    """Recorded as holes: nobody has them any more."""
    holes_open: int = 0
    """Frames missing now and asked for (gauge)."""
    resend_requests: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Messages thrown away, by reason: `malformed`, `oversize`, `foreign`, `schema`, ..."""
    events_stored: int = 0
    events_duplicate: int = 0
    bus_connects: int = 0
    bus_connected: bool = False
    store_errors: int = 0
    remote_samples: int = 0
    """Samples that a receiver of remote write has taken."""
    remote_errors: int = 0
    """Its requests that were not taken, and are made again."""
    remote_dropped: int = 0
    """Samples that nobody will get: refused, or too many waited."""
    store_ok: bool = True
    flush: Timing = field(default_factory=Timing)
    """Batch to fleet matrix."""
    store: Timing = field(default_factory=Timing)
    """Batch to committed."""
    rules: Timing = field(default_factory=Timing)
    lag: Timing = field(default_factory=Timing)
    """Sampled at the node to present in the fleet, seconds; assumes synchronised clocks."""
    shown: Spread = field(default_factory=Spread)
    """The same, distributed, live frames only."""
    judged: Spread = field(default_factory=Spread)
    """Sampled at the node to judged by the rules."""
    committed: Spread = field(default_factory=Spread)
    """Sampled at the node to committed by the store; live frames only."""


class DeliveryView(Protocol):
    """What is told to people, on its way and there; and the journal that it is written in."""

    async def saved(self, seconds: float) -> bool:
        """Wait until all that was decided is on disk; False when that takes too long."""

    async def history(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that are open or ended since a time (ns), newest first."""

    async def deliveries(
        self, since: int, limit: int, incident: str | None = None
    ) -> list[Delivery]:
        """Return deliveries made since a time (ns), newest first; all, or those of one incident."""

    def channels(self) -> list[ChannelRow]:
        """Return all channels, and how they do."""

    async def test(self, channel: str) -> TestReply:
        """Send a test notice to a channel now."""

    def figures(self) -> AlertFigures:
        """Return what journal and heartbeat say of themselves."""


class AggregatorView(Protocol):
    """All that HTTP may see of the aggregator."""

    fleet: Fleet
    stats: Stats
    store: Store
    cluster: str
    started_at: int
    """ns since 1970."""
    electrical: ElectricalService
    """Circuits, budgets, and what the whole has taken."""

    @property
    def alarms(self) -> AlertPipeline:
        """Rules, alerts, incidents, silences."""

    @property
    def post(self) -> DeliveryView:
        """Deliveries and channels."""

    def now(self) -> float:
        """The monotonic clock that the fleet's ages are counted with, seconds."""

    def wall(self) -> int:
        """The wall clock, ns since 1970."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts that are pending, firing or just resolved, worst first."""

    def recent_events(self) -> Sequence[Event]:
        """The last events in memory, newest first, a thousand at most."""

    async def ask_store(self, function: str, *args: object) -> object:
        """Call a method of the store in its own thread and await the answer."""

    def subscribe(self) -> TickQueue:
        """Return a queue that gets a token after every flush; for the WebSocket."""


class TickQueue(Protocol):
    """Wakes a viewer once a flush; slow viewers miss ticks instead of holding up ingest."""

    async def wait(self) -> int:
        """Wait for the next flush after the last one seen; returns its number."""

    def close(self) -> None:
        """Stop listening."""
