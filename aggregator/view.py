"""The interface of a running aggregator to HTTP and remote write."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, Self

from aggregator.alerting.delivery_view import DeliveryView
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from aggregator.impairments import Impairments
from aggregator.jobs.lookup import find_here, unheld_here, whole_here
from aggregator.jobs.scheduled import Word
from aggregator.jobs.service import JobService
from aggregator.jobs.stored import FoundJobs, JobQuery, UnheldMonth, WholeJobs
from aggregator.load.shedding import Shedding
from aggregator.register.drift_tracker import Labels
from aggregator.register.node_register import NodeRegister
from aggregator.store.executor import StoreExecutor
from api.alerts import Alert
from api.drift import DriftReply
from api.fitness import FitnessReply
from api.fleet import AggregatorRow
from api.stats import Stats
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import Isolation, Parts
from telemetry.runtime.supervision import ProgressMarks
from telemetry.wire.jobs import JobKey, JobSourceState, NodeJobs
from telemetry.wire.persons import PersonWords


class FlushBroadcast:
    """The number of the last flush of readings into the fleet. It wakes viewers that wait for the next; a
    slow viewer misses flushes and delays no other."""

    def __init__(self) -> None:
        self.number = 0
        self._next: asyncio.Future[None] | None = None

    def tick(self) -> None:
        """Count a flush, and wake all waiting viewers."""
        self.number += 1
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def after(self, number: int) -> int:
        """Wait until there was a later flush than `number`; return the number of the last."""
        while self.number <= number:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next)
        return self.number


class SiteView(Protocol):
    """The part of one aggregator of several in what one place must judge."""

    @property
    def leads(self) -> bool:
        """Whether this aggregator judges circuits and incidents of all nodes now."""

    @property
    def leader(self) -> str:
        """Name of the aggregator that does; "" where none is known."""

    @property
    def problem(self) -> str:
        """Why none does now; "" where one does."""


class FitnessView(Protocol):
    """Whether the fleet is good."""

    @property
    def newest(self) -> FitnessReply | None:
        """The newest scores; None before the first time that they were computed."""


class DriftView(Protocol):
    """How nodes differ."""

    @property
    def newest(self) -> DriftReply | None:
        """The last comparison; None before the first."""

    async def compare(self, fleet: Fleet, labels: Labels, now: float, wall: int) -> DriftReply:
        """Return how the nodes of a fleet differ now. `now`: its monotonic seconds."""

    def beside(self) -> DriftView:
        """Return the same for another fleet."""


class HoldersView(Protocol):
    """Who holds which GPU now."""

    @property
    def lists(self) -> Mapping[str, NodeJobs]:
        """The newest list of each node."""

    def held(self, key: JobKey) -> list[tuple[str, str]]:
        """Return node and UUID of the GPUs that a job holds."""

    def ids(self, own: str = "") -> Iterator[str]:
        """Yield the ids of jobs that run or did lately; `own`: those of a user alone."""

    @property
    def sources(self) -> Callable[[], list[JobSourceState]]:
        """Returns the state of the scheduler's word."""

    @property
    def word(self) -> Word | None:
        """Newest word of the scheduler; None where nobody asks it."""


class AggregatorView(Protocol):
    """The parts of an aggregator that HTTP reads and controls."""

    fleet: Fleet
    stats: Stats
    store: StoreExecutor
    cluster: str
    started_at: int
    """ns since 1970."""
    impairments: Impairments
    """The parts that do not work now."""
    marks: ProgressMarks
    """When each part last made progress."""
    shedding: Shedding
    """Work that is not done now because of the load."""
    pages_aside: Isolation
    """Parts of pages, pushes and reports that raise, as `node/NAME/PAGE`: they are left out, the rest is served."""
    process_words: PersonWords | None
    """Words in place of users in the series of processes; None where there are none."""
    flushes: FlushBroadcast
    """Wakes the viewers of the stream."""
    electrical: ElectricalService
    """Circuits, budgets and energy."""
    register: NodeRegister
    """The nodes that are expected, retired and renamed."""

    missing: Sequence[str]
    """Aggregators of the cluster that do not answer, with the number of their shard groups."""

    @property
    def fitness(self) -> FitnessView:
        """Whether the fleet is good."""

    @property
    def drift(self) -> DriftView:
        """Who differs from what is declared, or from nodes of its kind."""

    @property
    def jobs(self) -> HoldersView:
        """Who holds the GPUs."""

    async def find_jobs(self, wanted: JobQuery) -> FoundJobs:
        """Return jobs in memory and in the store, the newest begin first; memory is newer. Of a user who is
        asked for, none of which a part is another's."""

    async def whole_jobs(self, keys: Sequence[JobKey]) -> WholeJobs:
        """Return all that is known of some jobs, as far as they are known."""

    async def unheld(self, month: str) -> UnheldMonth:
        """Return the use of GPUs that no job held in a month."""

    def members(self) -> Sequence[AggregatorRow]:
        """Return the aggregators of the cluster, by name; none for a single one."""

    @property
    def here(self) -> AggregatorView:
        """This aggregator without the others of its cluster: for its own health."""

    async def refresh(self) -> None:
        """Bring in what other aggregators of the cluster know now, if that is a second ago."""

    @property
    def site_role(self) -> SiteView | None:
        """Our part among several aggregators; None for a single one."""

    @property
    def pipeline(self) -> AlertPipeline:
        """Rules, alerts, incidents, silences."""

    @property
    def delivery(self) -> DeliveryView:
        """Deliveries and channels."""

    def now(self) -> float:
        """The monotonic clock that the fleet's ages are counted with, seconds."""

    def wall(self) -> int:
        """The wall clock, ns since 1970."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts that are pending, firing or just resolved, worst first."""

    async def forget(self, node: str) -> bool:
        """Remove a node that is gone for good, and what the broker retained of it; return whether it was
        known. Its history stays. Raises `NodeError`, `BusError` or `ConfigError`."""

    def record_event(self, event: Event) -> None:
        """Add an event of the aggregator's own about a node to the store and the newest events. Raises
        `NodeError`."""

    def recent_events(self) -> Sequence[Event]:
        """The last events in memory, newest first, a thousand at most."""


def parts_of(view: AggregatorView, page: str) -> Parts:
    """Return what makes the parts of a page, each by itself."""
    return Parts(view.pages_aside, page, view.now())


class SingleView:
    """The part of an `AggregatorView` that is about others, where there are none."""

    missing: Sequence[str] = ()
    jobs: JobService
    store: StoreExecutor

    @abstractmethod
    def wall(self) -> int:
        """The wall clock, ns since 1970."""

    async def find_jobs(self, wanted: JobQuery) -> FoundJobs:
        """Return the jobs of memory and store."""
        return FoundJobs(await find_here(self.jobs, self.store, wanted, self.wall()))

    async def whole_jobs(self, keys: Sequence[JobKey]) -> WholeJobs:
        """Return what memory, else the store, has of some jobs."""
        return WholeJobs(await whole_here(self.jobs, self.store, keys, self.wall()))

    async def unheld(self, month: str) -> UnheldMonth:
        """Return what was counted of free GPUs."""
        return unheld_here(self.jobs, month)

    def members(self) -> Sequence[AggregatorRow]:
        """Return nothing: there is no cluster."""
        return ()

    @property
    def here(self) -> Self:
        """This aggregator."""
        return self

    async def refresh(self) -> None:
        """Do nothing: this one knows all."""
