"""The alerting service: opens the journal, evaluates rules on schedule, stores and sends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from aggregator.alerting import rule_memory
from aggregator.alerting.delivery_view import AlertStats
from aggregator.alerting.evaluation_schedule import EvaluationSchedule
from aggregator.alerting.journal_writer import JournalWriter
from aggregator.alerting.node_labels import LabelsByNode
from aggregator.alerting.picture_key import signer_of
from aggregator.alerting.pipeline import AlertPipeline, timings_of
from aggregator.alerting.self_alerts import aggregator_key, channel_parts, journal_part
from aggregator.alerting.shared_incidents import SharedIncidents
from aggregator.config import AggregatorConfig, shard_names
from aggregator.impairments import SHOWN, Impairments, LoopTurns, MonitorPart
from aggregator.load.round_robin import RoundRobin
from aggregator.mqtt.incident_topics import IncidentTopics
from aggregator.register.owners import Owners
from aggregator.stats import add_lags
from alerts.delivery.heartbeat import Heartbeat
from alerts.delivery.new_channels import NewChannels
from alerts.delivery.outbox import Outbox, deliver_test
from alerts.delivery.routing import Router
from alerts.engine.restore import AlertRecord
from alerts.incidents.policy import NotificationTimings, policies_of
from alerts.incidents.state import IncidentChanges, IncidentMemory
from alerts.journal.journal import KEPT_INCIDENTS, KEPT_NS, Journal
from alerts.message.picture import picture_of
from alerts.message.picture_link import PictureLink, PictureSigner
from alerts.notice import Delivery, Notice
from alerts.notifiers.result import Delivered
from alerts.rules.rule import Rule
from api.alerts import ChannelRow, Incident, TestReply
from api.evidence import EvidenceReply
from api.fleet import StoredEvent
from api.stats import Stats
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.errors import ConfigError, StoreError
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import PartFault, PartKind
from telemetry.runtime.supervision import ProgressMarks, Supervisor
from telemetry.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

FILE = "alerts.sqlite"
"""The journal's name in the aggregator's folder."""
RECALLED = 86_400_000_000_000
"""ns: how far back events are read at a start."""
MOST_RECALLED = 50_000
OVERLAP = 15_000_000_000
"""ns: events so shortly before the last step in the journal may have been evaluated or not. They are
evaluated again: an alert that fires already is not notified twice."""
SLICE_SECONDS = 0.01
"""Seconds of rules at a time before other work on the loop has its turn."""
FEED_SECONDS = 10.0
"""Seconds after which Alertmanagers are given texts of which a number alone has changed."""
LEAST_PAUSE = 0.02
"""Least seconds between two steps of the incident manager without the rules."""

EventQuery = Callable[[int, int, str | None, str | None, int], Awaitable[list[StoredEvent]]]
"""`StoreExecutor.events`."""
SnapshotReader = Callable[[float, int], Sequence[PowerSnapshot]]
SiteFacts = Callable[[Fleet, int], tuple[LabelsByNode, tuple[float, str] | None]]
"""Returns, for a wall time, what no reading contains: labels of nodes, and the price and currency of
a kWh."""

ProblemReader = Callable[[], Mapping[str, str]]


def _no_facts(_: Fleet, __: int) -> tuple[LabelsByNode, None]:
    return {}, None


class AlertInputs(Protocol):
    """Input since the last evaluation; implemented by `aggregator.ingest.router.MessageRouter`."""

    def drain_events(self) -> list[Event]:
        """Return the events since the last call."""

    def drain_sample_times(self) -> npt.NDArray[np.int64]:
        """Return the sampling times of the frames since the last call, ns since 1970."""


class EvidenceSource(Protocol):
    """Collector of the evidence of incidents; implemented by
    `aggregator.evidence.collector.EvidenceCollector`."""

    def note(self, step: IncidentChanges) -> None:
        """Note the changes of the incident manager; takes no time."""

    async def of_notice(self, notice: Notice) -> EvidenceReply | None:
        """Return the evidence for a page, within two seconds; None for a notice that has none."""

    async def of_incident(self, incident: Incident) -> EvidenceReply:
        """Return the evidence of an incident that is open, or ended within the hour."""

    async def of_key(self, key: str) -> EvidenceReply | None:
        """Return the stored evidence of an incident by its whole key."""

    def faults(self) -> dict[str, str]:
        """Return what could not be collected or kept since the last call, with the reasons."""

    async def run(self) -> None:
        """Collect until cancelled."""


class AlertingService:
    """Rules, incidents, journal, outbox and heartbeat of an aggregator; enter `opened`, then `run`.

    Implements `aggregator.alerting.delivery_view.DeliveryView` while it is open.
    """

    def __init__(
        self,
        config: AggregatorConfig,
        rules: Sequence[Rule],
        stats: Stats,
        timings: NotificationTimings | None = None,
        impairments: Impairments | None = None,
        supervisor: Supervisor | None = None,
        marks: ProgressMarks | None = None,
        round_robin: RoundRobin | None = None,
        more_parts: Callable[[], Sequence[MonitorPart]] = list,
        behind: Callable[[], float] = float,
    ) -> None:
        """`timings`: instead of those of the settings. `more_parts` returns what other parts of the aggregator
        report by rules of `monitor.toml`, `behind` the seconds by which it is behind with what it receives. `supervisor` runs its tasks; `marks` and
        `round_robin`: those of the aggregator."""
        self._round_robin = round_robin or RoundRobin()
        self._behind = behind
        self._supervisor = supervisor or Supervisor()
        self._marks = marks
        self.impairments = impairments or Impairments()
        """Problems of the aggregator itself, of all its parts."""
        self._turns = LoopTurns(self.impairments)
        self._config = config
        self._timings = timings or timings_of(config.alerts)
        self._rules = rules
        self._stats = stats
        self.schedule = EvaluationSchedule(config.rule_seconds)
        self.topics = IncidentTopics(config.cluster, shard_names(config.shards))
        self.heartbeat: Heartbeat | None = None
        beat = config.alerts.heartbeat
        if beat is not None:
            self.heartbeat = Heartbeat(beat, proxy=config.alerts.proxy)
            self.impairments.watch(self.heartbeat.aside.faults)
        self.evidence_of: Callable[[Journal], EvidenceSource] | None = None
        """Makes what collects evidence; without it there is none."""
        self._more_parts = more_parts
        self.owners = Owners()
        """Owners of alerts, by the settings; replaced when they change."""
        self.shared: SharedIncidents | None = None
        """The incidents of several aggregators; set before `opened`."""
        self._shared_works: dict[str, Callable[[], Awaitable[None]]] = {}
        self._parts: _Parts | None = None
        self._late: list[Event] = []
        """Events of before the start that may not have been evaluated."""
        self._site_facts: SiteFacts = _no_facts
        self._other_problems: ProblemReader = dict
        self._problems: set[str] = set()
        """Rules of the problems that were reported in the last tick."""
        self._woken = asyncio.Event()
        self.idle = asyncio.Event()
        """Clear while the rules are evaluated, in slices: the fleet must not change then."""
        self.idle.set()
        self._finished: float | None = None
        """When the last evaluation ended, monotonic seconds."""
        self._fresh = False
        self._urgent = False
        self._fed: tuple[int, int, int] | None = None
        """State of the alerts that the Alertmanagers were given last, and when."""
        self._fed_at: float | None = None

    @property
    def pipeline(self) -> AlertPipeline:
        """Rules, alerts, incidents, silences. Only while it is open."""
        return self._open.pipeline

    @property
    def fired(self) -> int:
        """Alerts that began to fire since the start."""
        return 0 if self._parts is None else self._parts.pipeline.fired

    def note_readings(self) -> None:
        """Note that the fleet has new readings."""
        self._fresh = True
        self._woken.set()

    def note_event(self) -> None:
        """Note that a node has sent an event, so that the rules are evaluated soon."""
        if not self._urgent:
            self._urgent = True
            self._woken.set()

    def late(self, now: float) -> float:
        """Return by how many seconds the next evaluation is late; 0 before the first."""
        return 0.0 if self._finished is None else max(0.0, now - self._finished - self._config.rule_seconds)

    def progress(self, part: str) -> None:
        """Note that a part of the aggregator has made progress."""
        if self.heartbeat is not None:
            self.heartbeat.progress(part)

    # -- Journal and outbox (`aggregator.alerting.delivery_view.DeliveryView`) --------------------

    async def saved(self, seconds: float) -> bool:
        """Wait until all changes are on disk; False when that takes too long."""
        return await self._open.writer.saved(seconds)

    async def history(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that are open or ended since a time (ns), newest first."""
        return await asyncio.to_thread(self._open.journal.incidents, since, limit)

    async def deliveries(self, since: int, limit: int, incident: str | None = None) -> list[Delivery]:
        """Return deliveries made since a time (ns), newest first; all, or those of one incident."""
        return await asyncio.to_thread(self._open.journal.history, since, limit, incident)

    async def evidence(self, key: str, incident: Incident | None) -> EvidenceReply | None:
        """Return the evidence of an incident, by its key where it is over for more than an hour; None
        where there is none."""
        collector = self._open.evidence
        if collector is None:
            return None
        return await (collector.of_key(key) if incident is None else collector.of_incident(incident))

    async def picture(self, link: PictureLink, wall: int) -> bytes | None:
        """Return the picture of a card that a signed link opens; None for any other link, and where the
        card is not kept any more or has too few readings."""
        parts = self._open
        if parts.evidence is None or parts.pictures is None or not parts.pictures.opens(link, wall):
            return None
        found = await parts.evidence.of_key(link.incident)
        cards = () if found is None else found.cards
        card = next((one for one in cards if one.alert == link.alert), None)
        return None if card is None else await asyncio.to_thread(picture_of, card)

    def channels(self) -> list[ChannelRow]:
        """Return the state of all channels."""
        return self._open.outbox.channels()

    async def test(self, channel: str) -> TestReply:
        """Send a test message to a channel now."""
        began = time.monotonic()
        try:
            result = await deliver_test(self._config.alerts, channel, cluster=self._config.cluster)
        except ConfigError as error:
            return TestReply(channel, False, 0.0, str(error))
        took = round(time.monotonic() - began, 3)
        if isinstance(result, Delivered):
            return TestReply(channel, True, took)
        return TestReply(channel, False, took, result.reason)

    def alert_stats(self) -> AlertStats:
        """Return the counters of journal and heartbeat."""
        writer, beat = self._open.writer, None if self.heartbeat is None else self.heartbeat.stats
        return AlertStats(
            commits=writer.commits,
            commit_errors=writer.errors,
            commit_seconds=writer.seconds,
            journal_ok=not self._open.journal.trouble,
            heartbeat_at=None if beat is None else beat.last_delivered,
            heartbeat_failed=None if beat is None else beat.failed,
        )

    # -- Open and run ----------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self, fleet: Fleet, stored_events: EventQuery) -> AsyncIterator[None]:
        """Continue from the journal; at the end of the block all changes are on disk.

        Raises `StoreError` when there can be no journal, `ConfigError` for channels that lack
        their secrets.
        """
        config = self._config
        config.alerts.open()
        path = config.data_dir / FILE
        journal = await asyncio.to_thread(_open_journal, path)
        evidence = None if self.evidence_of is None else self.evidence_of(journal)
        signer = None
        if any(channel.fetches_pictures for channel in config.alerts.notifiers().values()):
            signer = await asyncio.to_thread(signer_of, config.data_dir)
        outbox = Outbox(
            config.alerts,
            journal,
            cluster=config.cluster,
            evidence=None if evidence is None else evidence.of_notice,
            pictures=signer,
            gate=None if self.shared is None else self.shared.gate,
        )
        router = Router(config.alerts)
        writer = JournalWriter(journal, router.route, outbox.wake)
        new_channels = NewChannels(
            config.alerts.notifiers(),
            router,
            journal.memory.channels,
            journal.memory.incidents,
            time.monotonic(),
            time.time_ns(),
        )
        writer.add(new_channels.changes())

        shared = self.shared

        def store(step: IncidentChanges, records: Sequence[AlertRecord] | None) -> None:
            if evidence is not None:  # first: the page that the writer wakes waits for what is noted
                with self._turns.turn("evidence"):
                    evidence.note(step)
            with self._turns.turn("what new channels were told"):
                new_channels.note(step)
            writer.add(step, records)

        try:
            pipeline = AlertPipeline(
                self._rules,
                store,
                cluster=config.cluster,
                timings=self._timings,
                memory=journal.memory if shared is None else IncidentMemory(quality=journal.memory.quality),
                records=journal.alert_records if shared is None else (),
                past=_past_incidents(journal, time.time_ns()),
                impairments=self.impairments,
                now=time.monotonic(),
                wall=time.time_ns(),
                shared=shared,
            )
            if shared is not None:
                self._shared_works = shared.open(
                    journal, policies_of(self._rules), self._timings, pipeline.follow, outbox.wake
                )
            self._parts = _Parts(pipeline, journal, writer, outbox, router, new_channels, evidence, signer)
            self.impairments.watch(outbox.faults, router.aside.faults, writer.aside.faults, self._faults)
            clock = journal.memory.clock
            with self._turns.turn("events of the last day"):
                await self._recall(fleet, stored_events, None if clock is None else clock.wall - OVERLAP)
            await self._resume_memory()
            try:
                yield
            finally:
                await self._keep_memory_once()
        finally:
            await writer.close()

    async def _recall(self, fleet: Fleet, stored_events: EventQuery, evaluated: int | None) -> None:
        """Give the rules the events of the last day. Those that were received after `evaluated` (ns
        since 1970; None: no event) are evaluated in the first tick."""
        wall = time.time_ns()
        try:
            found = await stored_events(wall - RECALLED, wall + RECALLED, None, None, MOST_RECALLED)
        except StoreError as error:
            log.warning("alerts: the events of the last day can't be read: %s", error)
            return
        events = found[::-1]
        old = [evaluated is None or one.received_at <= evaluated for one in events]
        known = [one.event for one, is_old in zip(events, old, strict=True) if is_old]
        self._late = [one.event for one, is_old in zip(events, old, strict=True) if not is_old]
        self.pipeline.engine.recall(fleet, known, time.monotonic(), wall)

    async def _resume_memory(self) -> None:
        """Give the rules that compare rates the memory of before the restart."""
        with self._turns.turn("memory of the rules"):
            kept = await asyncio.to_thread(rule_memory.load, self._config.data_dir)
            if kept is not None:
                self.pipeline.engine.resume_memory(kept, time.monotonic(), time.time_ns())

    async def _keep_memory(self) -> None:
        """Store the memory of the rules that compare rates, again and again."""
        while True:
            await asyncio.sleep(rule_memory.PERIOD)
            await self._keep_memory_once()

    async def _keep_memory_once(self) -> None:
        with self._turns.turn("memory of the rules"):
            copy = self.pipeline.engine.keep_memory(time.time_ns())
            await asyncio.to_thread(rule_memory.save, self._config.data_dir, copy)

    async def run(
        self,
        fleet: Fleet,
        inputs: AlertInputs,
        snapshots: SnapshotReader,
        publish: Callable[[str, bytes], bool],
        site_facts: SiteFacts = _no_facts,
        other_problems: ProblemReader = dict,
    ) -> None:
        """Evaluate, store and send until cancelled. `other_problems`: returns problems of other parts,
        by the name of their rule in `monitor.toml`."""
        parts, self._site_facts, self._other_problems = self._open, site_facts, other_problems
        supervisor = self._supervisor
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "rules": lambda: self._evaluate_when_due(fleet, inputs, snapshots, publish),
            "rule memory": self._keep_memory,
            "journal": parts.writer.run,
            "threads journal": parts.writer.threads.watch,
            "outbox": lambda: parts.outbox.run(supervisor),
        }
        if parts.evidence is not None:
            works["evidence"] = parts.evidence.run
        if self.heartbeat is not None:
            works["heartbeat"] = self.heartbeat.run
        works |= self._shared_works
        async with TaskGroup() as group:
            for name, work in works.items():
                group.create_task(supervisor.run(name, work), name=name)

    async def _evaluate_when_due(
        self, fleet: Fleet, inputs: AlertInputs, snapshots: SnapshotReader, publish: Callable[[str, bytes], bool]
    ) -> None:
        delayed = True
        while True:
            with self._turns.turn("schedule of the rules"):
                await self._due()
                delayed = False
            turns = self._turns
            if delayed or "rules" in turns or "counters of the rules" in turns:
                # The schedule does not know of the last evaluation: it would never wait.
                await asyncio.sleep(self._config.rule_seconds)
            delayed = True
            self.idle.clear()
            try:
                with self._turns.turn("rules", rule="rules_failing", whole=True):
                    await self._evaluate(fleet, inputs, snapshots)
            finally:
                self.idle.set()
            reasons = turns.reasons() if len(turns) else {}
            broken = reasons.get("rules") or reasons.get("evaluation of the rules")
            if broken:
                with turns.turn("page without rules"):
                    self.pipeline.page_without_rules(broken, time.monotonic(), time.time_ns())
            await asyncio.sleep(0)  # the next may be due at once: what waited for this has a turn
            self._publish(publish)

    async def _due(self) -> None:
        """Wait until the rules are due; meanwhile advance the incident manager."""
        pipeline = self.pipeline
        advanced = 0.0
        while True:
            now = time.monotonic()
            wait = self.schedule.wait(now, fresh=self._fresh, urgent=self._urgent)
            if wait <= 0:
                return
            due = None
            with self._turns.turn("schedule of notifications"):
                due = pipeline.next_due()
            if due is not None and due <= now and now - advanced >= LEAST_PAUSE:
                pipeline.advance(now, time.time_ns())
                advanced = now
                continue
            if due is not None:
                wait = min(wait, max(LEAST_PAUSE, due - now))
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def _evaluate(self, fleet: Fleet, inputs: AlertInputs, snapshots: SnapshotReader) -> None:
        parts, stats, turn = self._open, self._stats, self._turns.turn
        began, wall = time.monotonic(), time.time_ns()
        spent = SlicedCpu(self._round_robin)
        self._fresh = self._urgent = False
        monitored: list[MonitorPart] = []
        clocks = np.zeros(0, np.int64)
        with turn("events for the rules", whole=True):
            self._late += inputs.drain_events()  # until they are evaluated
            del self._late[:-MOST_RECALLED]
            clocks = inputs.drain_sample_times()
        with turn("channels"):
            monitored.append(journal_part(parts.journal, wall))
            channels = parts.outbox.channels()
            monitored += channel_parts(channels)
        with turn("reports of other parts"):
            monitored += self._more_parts()
        found: Sequence[PowerSnapshot] = ()
        with turn("inputs of the rules"):
            found = self._inputs(fleet, snapshots, began, wall)
        with turn("evaluation of the rules", rule="rules_failing", whole=True):
            events, self._late = self._late, []
            try:
                for _ in parts.pipeline.steps(
                    fleet,
                    began,
                    wall,
                    events,
                    listening=stats.bus_connected,
                    behind=self._behind(),
                    snapshots=found,
                    parts=monitored,
                ):
                    with turn("pauses of the rules"):
                        await spent.pause()
            except BaseException:
                self._late = events
                raise
            if not parts.pipeline.failed:
                self.progress("rules")
                if self._marks is not None:
                    self._marks.mark("rules")
        late, pipeline = IncidentChanges(), parts.pipeline
        with turn("new channels"):
            late = parts.new_channels.notify(pipeline.manager, pipeline.recovering, began, wall)
        with turn("notices to new channels"):
            pipeline.commit((None, late))
        with turn("Alertmanagers"):
            self._feed(parts, began)
        with turn("counters of the rules"):
            ended = time.monotonic()
            before, self._finished = self._finished, ended
            stats.rules.add(ended - began)
            if before is not None:
                stats.rule_period.add(ended - before)
            self.schedule.ran(began, ended, spent.total())
            add_lags(stats.evaluated, (time.time_ns() - clocks) / 1e9)

    def _feed(self, parts: _Parts, now: float) -> None:
        """Give the Alertmanagers the alerts where any began or ended, and their new texts now and then."""
        turn, at = parts.pipeline.notified_turn, self._fed_at
        if turn != self._fed or at is None or now - at >= FEED_SECONDS:
            parts.outbox.feed(parts.pipeline.notified())
            self._fed, self._fed_at = turn, now

    def _faults(self) -> Iterator[PartFault]:
        """Yield what of a step could not be written to the journal, or of an incident not collected."""
        journal, evidence = self._open.journal, self._open.evidence
        for name, why in journal.faults.items():
            yield PartKind.JOURNAL.fault(name, why)
        for name, why in ({} if evidence is None else evidence.faults()).items():
            yield PartKind.EVIDENCE.fault(name, why)
        if why := journal.recent_fault():
            yield PartKind.DELIVERY.fault("journal", why)

    def _inputs(self, fleet: Fleet, snapshots: SnapshotReader, now: float, wall: int) -> Sequence[PowerSnapshot]:
        """Return the power snapshots, and report the problems of the aggregator itself."""
        stats, engine = self._stats, self.pipeline.engine
        problems: dict[str, str] = {}
        with self._turns.turn("state of the store"):
            problems |= self._other_problems()
        if not stats.bus_connected:
            problems["bus_lost"] = "there is no connection to the broker"
        if not stats.store_ok:
            problems["store_failing"] = "the store can't be written"
        found: Sequence[PowerSnapshot] = ()
        engine.texts.owner_of = self.owners.of
        with self._turns.turn("labels of nodes"):
            engine.texts.node_labels, engine.texts.tariff = self._site_facts(fleet, wall)
        try:
            found = snapshots(now, wall)
        except Exception as error:  # circuits that can't be computed must not end the other rules
            log.exception("power: the circuits could not be computed")
            problems["circuits_failing"] = repr(error)
        self._report(problems)
        return found

    def _report(self, problems: Mapping[str, str]) -> None:
        own = aggregator_key(self._config.cluster)
        for rule, reason in problems.items():
            self.impairments.report(rule, own, reason, whole=True)
        for rule in self._problems - problems.keys():
            self.impairments.clear(rule, own, after=SHOWN if rule == "circuits_failing" else 0.0)
        self._problems = set(problems)

    def _publish(self, publish: Callable[[str, bytes], bool]) -> None:
        now = time.monotonic()
        with self._turns.turn("incidents on the bus"):
            changed = self.pipeline.drain_changed()
            for incident in changed:
                with self._turns.turn("an incident on the bus"):
                    self.topics.show((incident,), now)
            self.topics.show((), now)
            if self._stats.bus_connected and (self.shared is None or self.shared.publishes):
                self.topics.states.send(publish, self._stats.bus_connects)

    @property
    def _open(self) -> _Parts:
        if self._parts is None:
            raise RuntimeError("alerting is not open")
        return self._parts


class SlicedCpu:
    """The CPU time of a piece of work on the event loop that lets other work in between."""

    def __init__(self, round_robin: RoundRobin) -> None:
        self._round_robin = round_robin
        self._before = 0.0
        self._cpu = time.thread_time()
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Give other work a turn, when this one has lasted long enough."""
        if time.monotonic() - self._began < SLICE_SECONDS:
            return
        self._before = self.total()
        await self._round_robin.turn()
        self._cpu, self._began = time.thread_time(), time.monotonic()

    def total(self) -> float:
        """Return the CPU seconds of all turns."""
        return self._before + time.thread_time() - self._cpu


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts that exist while the journal is open."""

    pipeline: AlertPipeline
    journal: Journal
    writer: JournalWriter
    outbox: Outbox
    router: Router
    new_channels: NewChannels
    evidence: EvidenceSource | None
    pictures: PictureSigner | None


def _open_journal(path: Path) -> Journal:
    path.parent.mkdir(parents=True, exist_ok=True)
    return Journal.open(path, time.time_ns())


def _past_incidents(journal: Journal, wall: int) -> list[Incident]:
    """Return the incidents of the last 30 days, oldest first; none where the journal can't be read."""
    try:
        return journal.incidents(wall - KEPT_NS, KEPT_INCIDENTS)[::-1]
    except StoreError as error:
        log.warning("the incidents of before are not counted: %s", error)
        return []
