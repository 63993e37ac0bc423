"""The aggregator as a service: its tasks, their clocks and their end.

One loop receives messages, evaluates the rules and serves HTTP; one thread stores. This file decides
nothing itself: `ingest`, `store`, `electrical` and `alerting` do.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from aggregator.access.tokens import TOKENS
from aggregator.alerting.delivery_view import DeliveryView
from aggregator.alerting.node_labels import LabelsByNode, NodeLabels
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.alerting.service import AlertingService
from aggregator.assembly.http_server import listening
from aggregator.assembly.jobs_loop import JobsLoop
from aggregator.assembly.membership import peers_of, shared_groups_of, shared_incidents_of, site_role_of
from aggregator.assembly.register_watch import RegisterWatch
from aggregator.assembly.scheduler_choice import poll_of, word_of
from aggregator.assembly.store_choice import Lock, open_store
from aggregator.config import AggregatorConfig, shard_names
from aggregator.electrical.service import ElectricalService
from aggregator.evidence.collector import EvidenceCollector
from aggregator.fitness.service import FILE as FITNESS_FILE
from aggregator.fitness.service import FitnessTracker, node_states, nodes_of_jobs
from aggregator.folder.damage import RULE as DAMAGE_RULE
from aggregator.folder.damage import find_damage
from aggregator.homeassistant.publisher import HomeAssistantPublisher
from aggregator.http.config import HttpConfig
from aggregator.http.page_check import PageCheck
from aggregator.impairments import Impairments, LoopTurns, report_blocked, report_task
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.held_messages import HeldMessages, when_idle
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.router import MessageRouter
from aggregator.jobs.service import JobService
from aggregator.load.every import every
from aggregator.load.heap import HeapFreezer, fill_heap, keep_heap, release_heap
from aggregator.load.meter import ArrivalClock, release_memory
from aggregator.load.round_robin import RoundRobin
from aggregator.load.shedder import LoadShedder
from aggregator.load.shedding import Shedding
from aggregator.mqtt.broker_watch import BrokerWatch
from aggregator.mqtt.client import FanInClient
from aggregator.mqtt.power_topics import PowerTopics, spoken
from aggregator.register.drift_tracker import FILE as DRIFT_FILE
from aggregator.register.drift_tracker import DriftTracker
from aggregator.register.node_register import FILE as REGISTER_FILE
from aggregator.register.node_register import NodeRegister
from aggregator.register.node_status import status_of
from aggregator.register.owners import Owners
from aggregator.remote.push import Pusher
from aggregator.stats import add_lags
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import Batch
from aggregator.view import AggregatorView, FlushBroadcast, SingleView, parts_of
from alerts.rules.rule import load as load_rules
from alerts.rules.rule import monitor_rules
from api.alerts import Alert
from api.fleet import NodeStatus
from api.stats import Stats
from power.report.months import months_between
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event, Gpu
from telemetry.errors import BusError, ConfigError, KilowattError, NodeError, WireError
from telemetry.files.local_token import state_folders
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import Isolation, PartFault, PartKind
from telemetry.runtime.supervision import ProgressMarks, Supervisor
from telemetry.runtime.tasks import TaskGroup, end, first_error
from telemetry.text import counted
from telemetry.text.service_log import log_refused, log_reload
from telemetry.wire.jobs import NodeJobs
from telemetry.wire.topics import Topic, check_name, shard_of, topic

if TYPE_CHECKING:
    from aggregator.cluster.member import ClusterMember
    from aggregator.store.shared.groups import SharedGroups

log = logging.getLogger(__name__)

DRIFT_SECONDS = 5.0
"""Seconds between two comparisons of the nodes with each other."""
UPKEEP_SECONDS = 5.0
"""Seconds between two runs of the store's upkeep."""
PROGRESS_LIMITS = {"flush": 10.0, "rules": 30.0, "commit": 90.0, "checkpoint": 90.0}
"""Seconds without progress after which a part counts as blocked. A commit of 100,000 GPUs takes a
second or two; one that failed is tried again after 30 s at most."""
FLUSH_AT_ONCE = 2000
"""Frames that are brought into the fleet before others on the loop have their turn: about 5 ms, and 40 one by one."""
STATES_AT_ONCE = 1000
"""Nodes whose fitness is looked at before others on the loop have their turn: about 5 ms."""
VITAL = frozenset({"flush", "rules", "commit"})
"""Parts that must make progress, or a restart may help."""
LAST_SECONDS = 5.0
"""Seconds that tasks have to end by themselves, and then to be ended."""
LAST_SPILL_SECONDS = 10.0
"""Seconds that the end of a member may wait until the shared storage has what it stored."""
LAST_COMMIT_SECONDS = 4.0
"""Seconds that the end may wait for the last commit."""


class Aggregator(SingleView):
    """An aggregator; `run` it once."""

    cluster_member: ClusterMember | None = None
    """This aggregator among others; None for a single one."""
    http_address: tuple[str, int] | None = None
    """Where HTTP listens, once it does."""
    started_at = 0
    _shared: SharedGroups | None = None
    _batch: Batch | None = None
    """The batch that is being written."""

    def __init__(self, config: AggregatorConfig, reread: Callable[[], AggregatorConfig] | None = None) -> None:
        """`reread` reads the settings again, for those that can change while it runs."""
        config.check()
        self.config = config
        self.cluster = config.cluster
        self.fleet = Fleet()
        self.stats = Stats()
        self.store: StoreExecutor
        """Only while `run` runs."""
        self.impairments = Impairments()
        self.site_role = site_role_of(config, self.impairments)
        self.electrical = ElectricalService(
            config.power,
            config.data_dir,
            (lambda: reread().power) if reread else None,
            config.broker,
            **({} if self.site_role is None else self.site_role.electrical()),
        )
        self.jobs = JobService(
            lambda: self.electrical.site.config.site.currency,
            word_of(config, self._gpus_of, self.wall()),
            shares=bool(config.members.nats),
            months=lambda begin, end: months_between(begin, end, self.electrical.site.zone),
        )
        self._turns = LoopTurns(self.impairments)
        self.register = NodeRegister(config.data_dir / REGISTER_FILE)
        self.fitness = FitnessTracker(config.data_dir / FITNESS_FILE)
        self.drift = DriftTracker(config.expected, config.drift, config.data_dir / DRIFT_FILE)
        self.supervisor = Supervisor(functools.partial(report_task, self.impairments))
        """Runs every task of the aggregator that lives as long as it does."""
        self._commit_done: asyncio.Event
        """Set at the end of the commit under way, and then another one. Only while `run` runs."""
        self._held: HeldMessages
        """Only while `run` runs."""
        self.shedding = Shedding()
        self.pages_aside = Isolation(PartKind.PAGE)
        self.process_words = config.process_series.words()
        self._arrivals = ArrivalClock()
        self._shedder = LoadShedder(self.shedding, self.impairments, config.memory_limit_bytes)
        self.marks = ProgressMarks(PROGRESS_LIMITS, VITAL)
        self._round_robin = RoundRobin()
        rules = load_rules(config.rules)
        self.alerting = AlertingService(
            config,
            rules,
            self.stats,
            impairments=self.impairments,
            supervisor=self.supervisor,
            marks=self.marks,
            round_robin=self._round_robin,
            more_parts=self.drift.parts,
            behind=self.shedding.behind,
        )
        self.alerting.shared = shared_incidents_of(
            self.site_role, lambda: {} if self.cluster_member is None else self.cluster_member.planner.held
        )
        self.alerting.owners = Owners(config.owners)
        self.alerting.evidence_of = lambda journal: EvidenceCollector(
            self, journal, [*rules, *monitor_rules()], config.alerts.links(config.cluster)
        )
        self._jobs_loop = JobsLoop(
            self.jobs,
            self.fleet,
            self.electrical,
            config.data_dir,
            idle=self.alerting.idle,
            turns=self._turns,
            round_robin=self._round_robin,
            now=self.now,
            wall=self.wall,
        )
        self._node_labels = NodeLabels()
        self.flushes = FlushBroadcast()
        self._ingest: MessageRouter | None = None
        self._bus: FanInClient | None = None
        self.ready = asyncio.Event()
        """Set when the store is open and messages are received."""
        self.serving = asyncio.Event()
        """Set when HTTP listens too, where the settings want it: the start has succeeded."""
        self.when_serving: Callable[[tuple[str, int] | None], None] = lambda _: None
        """Called with this address when the start has succeeded."""
        self._reread = reread
        self._view: AggregatorView = self
        """The view that HTTP shows: this aggregator, or all of its cluster as one."""

    # -- `aggregator.view.AggregatorView`, for HTTP ----------------------------------------------

    def now(self) -> float:
        """The monotonic clock that the fleet's ages are counted with, seconds."""
        return time.monotonic()

    def wall(self) -> int:
        """The wall clock, ns since 1970."""
        return time.time_ns()

    def alerts(self) -> Sequence[Alert]:
        """Alerts that are pending, firing or just resolved, worst first."""
        return self.pipeline.alerts()

    @property
    def pipeline(self) -> AlertPipeline:
        """Rules, alerts, incidents, silences. Only while `run` runs."""
        return self.alerting.pipeline

    @property
    def delivery(self) -> DeliveryView:
        """Deliveries and channels. Only while `run` runs."""
        return self.alerting

    @property
    def alerts_fired(self) -> int:
        """Alerts that began to fire since the start."""
        return self.alerting.fired

    def recent_events(self) -> Sequence[Event]:
        """The last events in memory, newest first, a thousand at most."""
        return list(reversed(self._ingest.recent)) if self._ingest is not None else []

    def record_event(self, event: Event) -> None:
        """Add an event of the aggregator's own about a node. Raises `NodeError` while it starts."""
        if self._ingest is None:
            raise NodeError("the aggregator is starting. Try again.")
        self._ingest.record_event(event, self.wall())

    async def forget(self, node: str) -> bool:
        """Remove a node that is gone for good, and what the broker retained of it; return whether it was
        known. Its history stays. Raises `NodeError`, `BusError` or `ConfigError`."""
        check_name("node", node)
        await when_idle(self.alerting.idle)  # the rules are evaluated on a fleet that stays
        ingest, bus = self._ingest, self._bus
        if ingest is None or bus is None:
            raise BusError("the aggregator is starting. Try again.")
        if ingest.shards is not None and shard_of(node) not in ingest.shards:
            raise NodeError(
                f"{node} is in shard group {shard_of(node)}, which another aggregator has. Ask that "
                "one: `kilowatch cluster` says which."
            )
        if ingest.online(node, self.now()):
            raise NodeError(f"{node} is online. Stop its collector first: systemctl stop kilowatch-collector.")
        for kind in (Topic.STATUS, Topic.INVENTORY, Topic.JOBS):
            if not bus.publish(topic(self.cluster, node, kind), b"", retain=True):
                raise BusError(
                    "there is no connection to the broker, which still retains the node's inventory. "
                    "Try again when it is back."
                )
        known = ingest.remove(node)
        self._forget_faults_and_alerts(node)
        self.stats.nodes_forgotten += known
        return known

    def _forget_faults_and_alerts(self, node: str, why: str = "forgotten") -> None:
        """Forget what other parts than ingest know of a node that was removed."""
        self.pipeline.engine.forget(node, why)
        self.electrical.forget(node)
        self.jobs.remove(node)
        self.store.content.aside.forget(node)

    def reload(self) -> None:
        """Apply changed settings, as far as they can change while it runs, and log those that can't."""
        in_force = self.electrical.configuration.version
        self.electrical.reload()
        if self._reread is None:
            return
        try:
            fresh = self._reread()
        except ConfigError as error:
            log_refused(error)
            return
        self.drift.configure(fresh.expected, fresh.drift)
        self.alerting.owners = Owners(fresh.owners)
        applied = self.electrical.configuration.version != in_force
        log_reload("aggregator", self.config, fresh, applied=("power", "expected", "drift", "owners"))
        self.config = msgspec.structs.replace(
            self.config,
            expected=fresh.expected,
            drift=fresh.drift,
            owners=fresh.owners,
            power=fresh.power if applied else self.config.power,
        )

    def nodes_reporting(self) -> int:
        """Return how many nodes are online."""
        now = self.now()
        return sum(status_of(node, now) is NodeStatus.ONLINE for node in self.fleet.nodes.values())

    def frames_received(self) -> int:
        """Return how many frames have come, live ones and others."""
        return self.stats.frames_received

    def status(self) -> str:
        """Return its state in a line, for the service manager."""
        text = f"{self.nodes_reporting()} of {len(self.fleet.nodes)} nodes report"
        if not self.stats.bus_connected:
            text += ", no connection to the broker"
        impaired = self.impairments.current()
        return f"{text}, impaired: {len(impaired)}" if impaired else text

    # -- Start and end ---------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Raises `ConfigError` or `StoreError` if it can't begin."""
        config = self.config
        self.started_at = self.wall()
        lock = Lock(config.data_dir)
        try:
            opened = await asyncio.to_thread(open_store, config)
            self.register.load()
            self.drift.load()
            self.fitness.load()
            self.electrical.load_checkpoint()
            store = self.store = StoreExecutor(opened, self.stats, lambda: self.marks.mark("commit"))
            try:
                ingest = self._ingest = await self._begin(store)
                async with self.alerting.opened(self.fleet, store.events):
                    await self._serve(store, ingest, stop)
            finally:
                await store.close()
                release_heap()
        except BaseExceptionGroup as errors:
            if errors.subgroup(KilowattError) is None:
                raise
            raise first_error(errors) from errors  # alone, as the command line expects it
        finally:
            lock.release()

    async def _begin(self, store: StoreExecutor) -> MessageRouter:
        fill_heap()
        registry = IdRegistry(await store.known())
        dead_letters = DeadLetters(self.config.data_dir / "quarantine", self.config.quarantine_bytes)
        ingest = MessageRouter(self.config, self.fleet, self.stats, registry, dead_letters, self.shedding, self.jobs)
        self.impairments.watch(
            ingest.faults,
            store.content.aside.faults,
            self.jobs.aside.faults,
            self.pages_aside.faults,
            self.electrical.faults,
            self._whole_faults,
        )
        store.content.run_of = registry.run_of
        store.content.lost = lambda node, part, why: ingest.lose(node, part, why, time.time_ns())
        if self.config.members.nats:  # its groups come and go; each is restored when it comes
            ingest.shards = set()
        else:
            with self._turns.turn("inventories of before"):
                accounted = self.register.under_present_names(await store.accounted())
                ingest.restore(await store.inventories(), accounted, time.monotonic())
        await self._jobs_loop.restore(store)
        with self._turns.turn("files of the data folder"):
            await self._report_damage()
        self._commit_done = asyncio.Event()
        keep_heap()
        return ingest

    async def _serve(self, store: StoreExecutor, ingest: MessageRouter, stop: asyncio.Event) -> None:
        config = self.config
        self.marks.restart()  # the start is as long as the store takes to open

        self.jobs.on_list = self._show_jobs
        states = self.alerting.topics.states
        circuits = PowerTopics(config.cluster, shard_names(config.shards))

        def process(topic: str, payload: bytes, now: float, wall: int) -> None:
            with self._turns.turn("states on the bus"):
                try:
                    if states.receive(topic, payload) or circuits.receive(topic, payload):
                        return
                except WireError as error:
                    ingest.refuse(error, topic, payload, now, wall)
                    return
            with self._turns.turn("messages"):
                ingest.receive(topic, payload, now, wall)
            if topic.endswith("/event"):
                with self._turns.turn("urgency of events"):
                    self.alerting.note_event()

        held = self._held = HeldMessages(process, self.alerting.idle, self._round_robin, ingest.held.hold)

        def receive(topic: str, payload: bytes) -> None:
            try:
                held.add(topic, payload, time.monotonic(), time.time_ns())
            except Exception:  # it would end the connection
                with self._turns.turn("arrival of messages"):
                    raise
            if "arrival of messages" in self._turns:
                with self._turns.turn("arrival of messages"):
                    pass

        shards = None if config.members.nats else shard_names(config.shards)
        bus = FanInClient(
            config.broker,
            config.cluster,
            shards,
            receive,
            self.stats,
            more=[f"{states.prefix}+/state", *circuits.filters()],
            too_long=lambda topic, size: self._refuse_unread(ingest, topic, size),
        )
        self._bus = bus
        supervisor, marks = self.supervisor, self.marks
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "bus": bus.run,
            "held messages": held.run,
            "flush": lambda: self._flush_loop(ingest, bus),
            "alerting": lambda: self._rules(ingest, bus),
            "jobs": lambda: self._jobs_loop.run(store),
            "upkeep": lambda: self._upkeep_loop(store, ingest),
            "expiry": lambda: self._expiry_loop(ingest),
            "drift": self._drift_loop,
            "load": lambda: self._shed(ingest, bus),
            "electrical": lambda: self.electrical.run(supervisor, marks),
            "circuits on the bus": lambda: self._publish_circuits(circuits, bus),
            "progress": lambda: report_blocked(self.impairments, marks),
            **{f"threads {threads.name}": threads.watch for threads in store.threads},
        }
        if config.broker.hosts:
            works["brokers"] = BrokerWatch(config.broker, self.impairments, lambda: bus.used).run
        works |= self._configured_works()
        works |= self._cluster_works(ingest, bus, store)
        over, committed = asyncio.Event(), asyncio.Event()
        async with TaskGroup() as group:
            tasks = [group.create_task(supervisor.run(name, work), name=name) for name, work in works.items()]
            storing = group.create_task(
                supervisor.run("store", lambda: self._store_loop(store, ingest, over), over=over.is_set), name="store"
            )
            storing.add_done_callback(lambda _: committed.set())
            self.ready.set()
            if not config.listen:
                self._started()
            await stop.wait()
            await self._leave()
            over.set()
            await self._end(tasks, storing, committed)

    def _refuse_unread(self, ingest: MessageRouter, topic: str, size: int) -> None:
        """Count a message that is longer than any may be, and that was not read."""
        with self._turns.turn("arrival of messages"):
            error = WireError("oversize", f"{size} bytes; it was not read")
            ingest.refuse_unread(error, topic, time.monotonic(), self.wall())

    async def _leave(self) -> None:
        """Hand over what other members can receive, and put into the shared storage what was stored."""
        if self.cluster_member is not None:
            await self.cluster_member.leave()
        if self.site_role is not None:
            await self.site_role.resign()
        if self._shared is not None:
            await self._shared.settle(None, LAST_SPILL_SECONDS)

    async def _end(
        self, tasks: Sequence[asyncio.Task[None]], storing: asyncio.Task[None], committed: asyncio.Event
    ) -> None:
        """End the tasks, at last the store's commits."""
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(LAST_COMMIT_SECONDS):
                await committed.wait()
        except TimeoutError:
            log.warning("store: the last commit does not end; its frames are requested again")
            storing.cancel()
        # A task can lose its cancellation, as when its connection breaks at the same moment.
        _, left = await asyncio.wait({*tasks, storing}, timeout=LAST_SECONDS)
        await end(left, LAST_SECONDS)
        if self._shared is not None:
            self._shared.close()

    def _member(self, ingest: MessageRouter, bus: FanInClient, store: StoreExecutor) -> ClusterMember | None:
        """Return what makes this aggregator one of several, where the settings want it."""
        if self.site_role is None:
            return None
        from aggregator.cluster.holder import GroupHolder  # noqa: PLC0415 - not for a single aggregator
        from aggregator.cluster.member import ClusterMember  # noqa: PLC0415

        self._shared = shared_groups_of(self.config, store, self.impairments)
        holder = GroupHolder(
            ingest,
            bus,
            store,
            idle=self.alerting.idle,
            moved=lambda node: self._forget_faults_and_alerts(node, "moved"),
            committed=self._next_commit,
            now=self.now,
            left=self.register.left,
            shared=self._shared,
        )
        self.cluster_member = ClusterMember(
            self.config.members,
            self.site_role.coordination,
            holder,
            self.impairments,
            lambda: ":".join(map(str, self.http_address)) if self.http_address else "",
        )
        return self.cluster_member

    def _cluster_works(
        self, ingest: MessageRouter, bus: FanInClient, store: StoreExecutor
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the tasks of one of several aggregators; none of a single one."""
        role, member = self.site_role, self._member(ingest, bus, store)
        if role is None or member is None:
            return {}
        role.admitted = lambda: member.admitted
        works = {"cluster": member.run, **self._one_view(member, store)}
        works["peers at other members"] = peers_of(self.pipeline.engine, member, self.impairments, self.now)
        return works | role.works(
            self.fleet,
            held=lambda: member.planner.held,
            owners=member.planner.epochs,
            listening=lambda: self.stats.bus_connected,
            beacon=self.electrical.meters.own,
        )

    @property
    def judges_site(self) -> bool:
        """Whether circuits and incidents of all nodes are this aggregator's to page about and to publish."""
        return self.site_role is None or self.site_role.leads

    def _one_view(self, member: ClusterMember, store: StoreExecutor) -> dict[str, Callable[[], Awaitable[None]]]:
        """Have HTTP show all members as one; return the tasks for what they share."""
        from aggregator.cluster.cluster_drift import DriftExchange  # noqa: PLC0415 - not for a single aggregator
        from aggregator.cluster.cluster_energy import ClusterEnergy  # noqa: PLC0415
        from aggregator.cluster.cluster_register import ClusterRegister  # noqa: PLC0415
        from aggregator.cluster.cluster_view import ClusterView  # noqa: PLC0415

        energy = ClusterEnergy(self.electrical, member, self.now, self.wall)
        self.electrical.energy.elsewhere = energy
        self.register.shared = ClusterRegister(member.coordination)
        view = self._view = ClusterView(self, member)
        store.others = view
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "answers to members": view.run,
            "energy at other members": energy.run,
            "nodes of other members": DriftExchange(self.drift, self.fleet, member, self.now).run,
        }
        if self._shared is not None:
            works["shared storage"] = self._shared.upkeep.run
            works["threads shared storage"] = self._shared.upkeep.threads.watch
        return works

    async def _next_commit(self) -> None:
        """Wait for the end of the next commit."""
        await self._commit_done.wait()

    def _configured_works(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the tasks that run only where the settings want them."""
        config, works = self.config, dict[str, Callable[[], Awaitable[None]]]()
        if config.listen:
            works["http"] = self._http
        if config.listen or config.remote_write.url:
            works["check of pages"] = PageCheck(self).run
        if config.remote_write.url:
            works["remote write"] = Pusher(self, config.remote_write).run
        if config.otlp.url:
            from aggregator.remote.otlp.exporter import Exporter  # noqa: PLC0415 - only where the settings want it

            works["otlp"] = Exporter(self, config.otlp).run
        poll = poll_of(config, self.impairments, self.jobs, self._jobs_loop.hear, self.wall)
        if poll is not None:
            self.jobs.sources = poll.states
            works["scheduler"] = poll.run
        home_assistant = HomeAssistantPublisher(self, config)
        if home_assistant.wanted:
            works["home assistant"] = home_assistant.run
        return works

    async def _http(self) -> None:
        async with listening(self._view, HttpConfig.of(self.config, state_folders()[0])) as address:
            self.http_address = address
            self._started()
            await asyncio.Event().wait()

    def _started(self) -> None:
        """Note that the start has succeeded: no error ends the aggregator from now on."""
        self.supervisor.started()
        self.serving.set()
        self.when_serving(self.http_address)

    # -- Loops -----------------------------------------------------------------------------------

    async def _flush_loop(self, ingest: MessageRouter, bus: FanInClient) -> None:
        """Bring new frames into the fleet, send commands to nodes, wake viewers."""
        flushed = -math.inf
        async for _ in every(self.config.flush_seconds):
            began = time.monotonic()
            if began - flushed < self.shedding.flush_seconds - self.config.flush_seconds / 2:
                continue
            flushed = began
            with self._turns.turn("flush", whole=True):
                await self._flush(ingest)
                self.flushes.tick()
                self.marks.mark("flush")
            with self._turns.turn("requests to collectors"):
                if self.stats.bus_connected:
                    for each in ingest.drain_commands(began):
                        bus.command(each.node, each.command)
            with self._turns.turn("reports of ingest"):
                ingest.refusals.report(self.impairments, began)
                self.pages_aside.forget_idle(began)
                self.impairments.refresh()

    async def _flush(self, ingest: MessageRouter) -> None:
        """Bring all new frames into the fleet, so many at a time that the loop is never held up."""
        spent, left = 0.0, ingest.waiting
        while True:
            await when_idle(self.alerting.idle)
            began = time.monotonic()
            sampled_at = ingest.flush(began, time.time_ns(), FLUSH_AT_ONCE)
            add_lags(self.stats.shown, (time.time_ns() - sampled_at) / 1e9)
            if sampled_at.size:
                self.alerting.note_readings()
            spent += time.monotonic() - began
            left -= FLUSH_AT_ONCE
            if left <= 0:
                break
            await self._round_robin.turn()
        self.stats.flush.add(spent)

    async def _shed(self, ingest: MessageRouter, bus: FanInClient) -> None:
        """Measure the load, and shed what can be missed when it is too much."""

        def readings(now: float) -> dict[str, float]:
            late = self._arrivals.update(now, self.fleet)
            return {
                **ingest.load(now),
                "ingest": bus.backlog(now),
                "flush": self.stats.flush.last,
                "rules": self.alerting.late(now),
                **({} if late is None else {"arrival": late}),
            }

        await self._shedder.run(readings)

    async def _store_loop(self, store: StoreExecutor, ingest: MessageRouter, stop: asyncio.Event) -> None:
        """Commit a batch once a tick; when that takes longer, the next batch is larger."""
        async for _ in every(self.config.store.write_seconds, stop):
            with self._turns.turn("store", whole=True):
                await self._commit(store, ingest, stop)
        with self._turns.turn("flush", whole=True):
            self._held.release()
            ingest.flush(time.monotonic(), time.time_ns())
        await self._commit(store, ingest, stop)
        await self._jobs_loop.settle(store)

    async def _commit(self, store: StoreExecutor, ingest: MessageRouter, stop: asyncio.Event) -> None:
        self.stats.holes_open = ingest.ledger.missing
        # A batch stays until it is written, whatever ends this task meanwhile.
        batch = self._batch = self._batch or ingest.drain_batch(time.time_ns())
        if batch and not await store.write(batch, stop):
            log.error(
                "store: %d frames were not stored before the end; they are requested again at the next start",
                len(batch.frames),
            )
        elif self.stats.store_ok:
            self.alerting.progress("store")
        self._batch = None
        self._commit_done.set()
        self._commit_done = asyncio.Event()
        ingest.stored()
        self.marks.mark("commit")

    def _whole_faults(self) -> Iterator[PartFault]:
        """Yield why no circuit can be computed, and what of the store fails for all nodes."""
        if self.electrical.failure:
            yield PartFault("circuits_failing", f"circuits/{self.cluster}", self.electrical.failure, whole=True)
        for part, why in self.store.faults.items():
            yield PartFault("loop_failing", f"task/{part}", why, whole="commit" in self.store.faults)

    async def _rules(self, ingest: MessageRouter, bus: FanInClient) -> None:
        """Evaluate the rules on the fleet and its circuits, and notify people."""

        def snapshots(now: float, wall: int) -> Sequence[PowerSnapshot]:
            role = self.site_role
            listening = self.stats.bus_connected if role is None else role.coordination.connected
            found = self.electrical.snapshots(self.fleet, now, wall, listening=listening, count=False)
            judges = role is None or role.candidate  # ready to, with what each rule waits for
            return found.all() if found is not None and judges else ()

        await self.alerting.run(
            self.fleet,
            ingest,
            snapshots,
            lambda topic, body: bus.publish(topic, body, retain=True),
            self._site_facts,
            self._store_problem,
        )

    def _store_problem(self) -> dict[str, str]:
        """Return the problem of the server behind the store, by the alert that it raises."""
        status = self.store.status()
        return {f"{status.name}_failing": status.problem} if status.problem else {}

    def _site_facts(self, fleet: Fleet, wall: int) -> tuple[LabelsByNode, tuple[float, str] | None]:
        """Return the labels of nodes by their place, and the price of a kWh now."""
        site = self.electrical.site
        price = self.electrical.energy.price(wall)
        tariff = None if price is None else (price, site.config.site.currency)
        return self._node_labels.of(fleet, site.layout), tariff

    async def _publish_circuits(self, states: PowerTopics, bus: FanInClient) -> None:
        """Count energy, and publish the states of circuits, budgets and UPSs."""
        async for now in every(1.0):
            with self._turns.turn("energy"):
                for _ in self.electrical.counting(self.fleet, now, self.wall()):
                    await self._round_robin.turn()
            with self._turns.turn("circuits on the bus"):
                states.show(
                    self.electrical, spoken(self.alerts(), self.pipeline.manager.status), now, parts_of(self, "bus")
                )
                if self.stats.bus_connected and self.judges_site:
                    states.send(lambda topic, body: bus.publish(topic, body, retain=True), self.stats.bus_connects)

    def _show_jobs(self, node: str, jobs: NodeJobs | None) -> None:
        """Hand the list of a node to the rules."""
        index = self.pipeline.engine.jobs
        if jobs is None:
            index.remove(node)
        else:
            index.put(node, jobs)

    def _gpus_of(self, node: str) -> Sequence[Gpu]:
        known = self.fleet.nodes.get(node)
        return () if known is None else known.inventory.gpus

    async def _upkeep_loop(self, store: StoreExecutor, ingest: MessageRouter) -> None:
        """Seal, roll up, drop and verify, a piece at a time, so that commits come between; find what is damaged."""
        async for _ in every(UPKEEP_SECONDS):
            with self._turns.turn("files of the data folder"):
                await self._report_damage()
            with self._turns.turn("upkeep"):
                more = True
                while more:
                    more = await store.maintain(time.time_ns())
                ingest.refill(await store.drain_refill(), time.monotonic())
            lost = store.status().lost_files
            if lost:
                self.impairments.report("files_lost", "store/files", f"{counted(lost, 'sealed file')} can't be read")
            else:
                self.impairments.clear("files_lost", "store/files")

    async def _expiry_loop(self, ingest: MessageRouter) -> None:
        """Remove names, nodes and sessions that are long gone, and note what is new and stays."""
        heap = HeapFreezer()
        register = RegisterWatch(
            self.register, self.fleet, self.impairments, forget=self.forget, now=self.now, wall=self.wall
        )
        async for _ in every(UPKEEP_SECONDS):
            await when_idle(self.alerting.idle)
            now = time.monotonic()
            for node in ingest.expire(now):
                self._forget_faults_and_alerts(node)
            self.store.content.aside.forget_idle(now)
            if heap.update(len(self.fleet.nodes)):
                await asyncio.to_thread(release_memory)  # in which inventories were decoded
            with self._turns.turn("register of nodes"):
                await register.compare(ingest, self.started_at)

    async def _drift_loop(self) -> None:
        """Compare the nodes with what is declared and with each other."""
        async for now in every(DRIFT_SECONDS):
            with self._turns.turn("drift"):
                labels, _ = self._site_facts(self.fleet, self.wall())
                await self.drift.update(self.fleet, labels, now, self.wall())
            with self._turns.turn("fitness"):
                await self._score(now)

    async def _score(self, now: float) -> None:
        """Compute whether the fleet is good."""
        wall, site = self.wall(), self.electrical.site.config.site
        price = self.electrical.energy.price(wall)
        states = []
        for state in node_states(
            self.fleet, now, self.alerts(), self.drift.newest, self.electrical.energy.node_watts()
        ):
            states.append(state)
            if len(states) % STATES_AT_ONCE == 0:
                await self._round_robin.turn()
        self.fitness.compute(
            states, nodes_of_jobs(self.jobs.lists), None if price is None else price * site.pue, site.currency, wall
        )
        await self.fitness.save()

    async def _report_damage(self) -> None:
        """Report the files of the data folder that could not be used, until a person has looked."""
        tokens = self.config.tokens_file or self.config.data_dir / TOKENS
        found = await asyncio.to_thread(find_damage, self.config.data_dir, tokens)
        self.impairments.update(DAMAGE_RULE, found)
