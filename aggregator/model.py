"""The values that the aggregator's parts hand to each other: batches in, answers out, counters.

Ingest makes a `Batch` every tick, a `Store` keeps it in one transaction, HTTP asks the store for a
`History` and everything else for what it shows. `View` is all that HTTP may see of the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.alert import Alert
from telemetry.fleet import Fleet
from telemetry.intervals import IntervalSet
from telemetry.inventory import Event, Inventory


@dataclass(slots=True)
class FrameMark:
    """That one frame is in a batch: its identity, its clock and ours."""

    node: str
    session: int
    seq: int
    sampled_at: int
    """ns, the node's clock."""
    received_at: int
    """ns, the aggregator's clock."""
    backfilled: bool = False


@dataclass(slots=True)
class Hole:
    """Frames that nobody has any more: recorded, so that loss has an exact size."""

    node: str
    session: int
    first: int
    last: int
    reason: str
    """`ring_overflow`, `collector_gone`, `malformed`, ..."""


@dataclass(slots=True)
class BlockRows:
    """All rows of one block that came in one tick, in arrival order."""

    block: int
    """Number in `telemetry.schema.SCHEMA`."""
    frame: npt.NDArray[np.int32]
    """For each row, the position in `Batch.frames` of the frame that it came in."""
    device: list[str]
    """For each row: GPU UUID; `<uuid>/<link number>` in link blocks; node name in node blocks."""
    gauges: npt.NDArray[np.float32]
    counters: npt.NDArray[np.float64]


@dataclass(slots=True)
class Batch:
    """What one commit of the store holds: all of it, or nothing."""

    frames: list[FrameMark] = field(default_factory=list)
    blocks: list[BlockRows] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    inventories: list[Inventory] = field(default_factory=list)


class History(msgspec.Struct, frozen=True):
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


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as the store keeps it."""

    event: Event
    received_at: int


class Store(Protocol):
    """Where readings go to stay. Every method may block: it is called from a worker thread, one
    call at a time. To add a store, write one class and name it in `aggregator.store.open_store`."""

    def write(self, batch: Batch) -> int:
        """Keep a batch in one transaction. Returns how many frames were new: a frame that is there
        already (node, session, seq) is not stored twice. Raises `StoreError`; then nothing of it
        is stored and the same batch may be written again."""

    def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Return which frames of each (node, session) are stored or recorded as holes."""

    def inventories(self) -> list[Inventory]:
        """Return the newest inventory of each node."""

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> History:
        """Return one metric of one device, `start` <= time < `end` in ns since 1970."""

    def events(
        self, start: int, end: int, node: str | None, kind: str | None, limit: int
    ) -> list[StoredEvent]:
        """Return events, newest first."""

    def maintain(self, now: int) -> None:
        """Seal what is due to Parquet, make roll-ups, drop what is too old or too much."""

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
    store_ok: bool = True
    flush: Timing = field(default_factory=Timing)
    """Batch to fleet matrix."""
    store: Timing = field(default_factory=Timing)
    """Batch to committed."""
    rules: Timing = field(default_factory=Timing)
    lag: Timing = field(default_factory=Timing)
    """Sampled at the node to present in the fleet, seconds; assumes synchronised clocks."""


class View(Protocol):
    """All that HTTP may see of the aggregator."""

    fleet: Fleet
    stats: Stats
    store: Store
    cluster: str
    started_at: int
    """ns since 1970."""

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
