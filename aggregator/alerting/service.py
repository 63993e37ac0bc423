"""Alerting as a service: opens the journal, judges in rhythm, commits, sends, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from aggregator.alerting.delivery_admin import DeliveryAdmin
from aggregator.alerting.evaluation_schedule import EvaluationSchedule
from aggregator.alerting.journal_writer import JournalWriter
from aggregator.alerting.node_labels import Places
from aggregator.alerting.pipeline import AlertPipeline, patience_of
from aggregator.alerting.self_alerts import channel_parts, journal_part
from aggregator.config import AggregatorConfig, shard_names
from aggregator.mqtt.incident_topics import IncidentTopics
from aggregator.stats import add_lags
from alerts.delivery.heartbeat import Heartbeat
from alerts.delivery.outbox import Outbox
from alerts.delivery.routing import Router
from alerts.engine.restore import AlertRecord
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import StateChanges
from alerts.journal.journal import Journal
from alerts.rules.rule import Rule
from api.fleet import StoredEvent
from api.stats import Stats
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event
from telemetry.errors import StoreError
from telemetry.fleet import Fleet

log = logging.getLogger(__name__)

FILE = "alerts.sqlite"
"""The journal's name in the aggregator's folder."""
RECALLED = 86_400_000_000_000
"""ns: how far back events are read at a start."""
MOST_RECALLED = 50_000
UNSURE = 15_000_000_000
"""ns: events so shortly before the last word of the journal may have been judged, or not. They are
judged again: where their alert fires already, that tells nobody anything new."""
LEAST_PAUSE = 0.02
"""Seconds between two turns of the desk."""

EventQuery = Callable[[int, int, str | None, str | None, int], Awaitable[list[StoredEvent]]]
"""`StoreExecutor.events`."""
SnapshotReader = Callable[[float, int], Sequence[PowerSnapshot]]
Surroundings = Callable[[Fleet, int], tuple[Places, tuple[float, str] | None]]
"""What no reading says, at a wall time: where nodes stand, and what a kWh costs in which money."""

Ailing = Callable[[], Mapping[str, str]]


def _nowhere(_: Fleet, __: int) -> tuple[Places, None]:
    return {}, None


class AlertInputs(Protocol):
    """What came since the rules last looked; `aggregator.ingest.router.Ingest` is one."""

    def drain_events(self) -> list[Event]:
        """Return the events that no rule has seen yet."""

    def drain_sample_times(self) -> npt.NDArray[np.int64]:
        """Return when the frames were sampled that no rule has seen yet, ns since 1970."""


class AlertingService:
    """Rules to pages; `open` it, `run` it, and leave it."""

    def __init__(
        self,
        config: AggregatorConfig,
        rules: Sequence[Rule],
        stats: Stats,
        patience: NotificationTimings | None = None,
    ) -> None:
        """`patience`: another than the settings ask for."""
        self._config = config
        self._patience = patience or patience_of(config.alerts)
        self._rules = rules
        self._stats = stats
        self.rhythm = EvaluationSchedule(config.rule_seconds)
        self.billboard = IncidentTopics(config.cluster, shard_names(config.shards))
        self.heartbeat: Heartbeat | None = None
        beat = config.alerts.heartbeat
        if beat is not None:
            self.heartbeat = Heartbeat(beat, proxy=config.alerts.proxy)
        self._parts: _Parts | None = None
        self._late: list[Event] = []
        """Events of before the start that perhaps nobody has judged."""
        self._surroundings: Surroundings = _nowhere
        self._ailing: Ailing = dict
        self._stirred = asyncio.Event()
        self._news = False
        self._urgent = False

    # -- What others see -------------------------------------------------------------------------

    @property
    def alarms(self) -> AlertPipeline:
        """Rules, alerts, incidents, silences. Only once it is open."""
        return self._open.alarms

    @property
    def office(self) -> DeliveryAdmin:
        """Deliveries and channels. Only once it is open."""
        return self._open.office

    @property
    def fired(self) -> int:
        """Alerts that began to fire since the start."""
        return 0 if self._parts is None else self._parts.alarms.fired

    def tell_news(self) -> None:
        """Say that the fleet has new readings."""
        self._news = True
        self._stirred.set()

    def tell_event(self) -> None:
        """Say that something happened on a node."""
        if not self._urgent:
            self._urgent = True
            self._stirred.set()

    def progress(self, part: str) -> None:
        """Say that a part of the aggregator did what it is for."""
        if self.heartbeat is not None:
            self.heartbeat.progress(part)

    # -- Life ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self, fleet: Fleet, stored_events: EventQuery) -> AsyncIterator[None]:
        """Go on where the journal ends; what was decided by the end of the block is on disk then.

        Raises `StoreError` when there can be no journal, `ConfigError` for channels that lack
        their secrets.
        """
        config = self._config
        config.alerts.open()
        path = config.data_dir / FILE
        journal = await asyncio.to_thread(_open_journal, path)
        outbox = Outbox(config.alerts, journal, cluster=config.cluster)
        clerk = JournalWriter(journal, Router(config.alerts).route, outbox.wake)
        try:
            now, wall = time.monotonic(), time.time_ns()

            def save(step: StateChanges, records: Sequence[AlertRecord] | None) -> None:
                clerk.add(step, records)

            alarms = AlertPipeline(
                self._rules,
                save,
                cluster=config.cluster,
                patience=self._patience,
                memory=journal.memory,
                records=journal.lives,
                now=now,
                wall=wall,
            )
            office = DeliveryAdmin(
                config.alerts, config.cluster, journal, clerk, outbox, self.heartbeat
            )
            self._parts = _Parts(alarms, journal, clerk, outbox, office)
            pulse = journal.memory.pulse
            await self._recall(fleet, stored_events, None if pulse is None else pulse.wall - UNSURE)
            yield
        finally:
            await clerk.close()

    async def _recall(self, fleet: Fleet, stored_events: EventQuery, judged: int | None) -> None:
        """Let the rules remember the events of the last day. Those that came after `judged` (ns,
        our clock; None is never) are judged now."""
        wall = time.time_ns()
        try:
            found = await stored_events(wall - RECALLED, wall + RECALLED, None, None, MOST_RECALLED)
        except StoreError as error:
            log.warning("alerts: the events of the last day can't be read: %s", error)
            return
        events = found[::-1]
        old = [judged is None or one.received_at <= judged for one in events]
        known = [one.event for one, is_old in zip(events, old, strict=True) if is_old]
        self._late = [one.event for one, is_old in zip(events, old, strict=True) if not is_old]
        self.alarms.recall(fleet, known, time.monotonic(), wall)

    async def run(
        self,
        fleet: Fleet,
        news: AlertInputs,
        snapshots: SnapshotReader,
        publish: Callable[[str, bytes], bool],
        surroundings: Surroundings = _nowhere,
        ailing: Ailing = dict,
    ) -> None:
        """Judge, commit and send until cancelled. `ailing`: what else is wrong with the monitor, in
        words, by the name of its rule in `monitor.toml`."""
        parts, self._surroundings, self._ailing = self._open, surroundings, ailing
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.clerk.run(), name="journal")
            group.create_task(parts.outbox.run(), name="outbox")
            if self.heartbeat is not None:
                group.create_task(self.heartbeat.run(), name="heartbeat")
            while True:
                await self._due()
                self._judge(fleet, news, snapshots)
                self._publish(publish)

    async def _due(self) -> None:
        """Wait until the rules are due; meanwhile do what the desk has to do."""
        alarms = self.alarms
        turned = 0.0
        while True:
            now = time.monotonic()
            wait = self.rhythm.wait(now, news=self._news, urgent=self._urgent)
            if wait <= 0:
                return
            due = alarms.next_due()
            if due is not None and due <= now and now - turned >= LEAST_PAUSE:
                alarms.turn(now, time.time_ns())
                turned = now
                continue
            if due is not None:
                wait = min(wait, max(LEAST_PAUSE, due - now))
            self._stirred.clear()
            # Not `wait_for`: on Python 3.11 it loses a cancellation that comes with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stirred.wait()

    def _judge(self, fleet: Fleet, news: AlertInputs, snapshots: SnapshotReader) -> None:
        parts, stats = self._open, self._stats
        began, cpu = time.monotonic(), time.thread_time()
        self._news = self._urgent = False
        events, clocks = [*self._late, *news.drain_events()], news.drain_sample_times()
        self._late = []
        wall = time.time_ns()
        found, troubles = self._look(fleet, snapshots, began, wall)
        parts.alarms.judge(
            fleet, began, wall, events,
            listening=stats.bus_connected,
            snapshots=found,
            troubles=troubles,
            parts=[journal_part(parts.journal, wall), *channel_parts(parts.outbox.health())],
        )  # fmt: skip
        parts.outbox.feed(parts.alarms.told())
        ended = time.monotonic()
        self.rhythm.ran(began, ended, time.thread_time() - cpu)
        stats.rules.add(ended - began)
        add_lags(stats.evaluated, (time.time_ns() - clocks) / 1e9)
        if not parts.alarms.failed:
            self.progress("rules")

    def _look(
        self, fleet: Fleet, snapshots: SnapshotReader, now: float, wall: int
    ) -> tuple[Sequence[PowerSnapshot], Mapping[str, str]]:
        """Return the power snapshots, and what is wrong with the monitor itself."""
        stats, troubles, engine = self._stats, dict(self._ailing()), self.alarms.engine
        if not stats.bus_connected:
            troubles["bus_lost"] = ""
        if not stats.store_ok:
            troubles["store_failing"] = ""
        try:
            engine.node_labels, engine.tariff = self._surroundings(fleet, wall)
            return snapshots(now, wall), troubles
        except Exception as error:  # circuits that can't be computed must not end the other rules
            log.exception("power: the circuits were not computed")
            return (), {**troubles, "circuits_failing": repr(error)}

    def _publish(self, publish: Callable[[str, bytes], bool]) -> None:
        self.billboard.show(self.alarms.take_changed(), time.monotonic())
        if self._stats.bus_connected:
            self.billboard.states.send(publish, self._stats.bus_connects)

    @property
    def _open(self) -> _Parts:
        if self._parts is None:
            raise RuntimeError("alerting is not open")
        return self._parts


@dataclass(frozen=True, slots=True)
class _Parts:
    """What there is once the journal is open."""

    alarms: AlertPipeline
    journal: Journal
    clerk: JournalWriter
    outbox: Outbox
    office: DeliveryAdmin


def _open_journal(path: Path) -> Journal:
    path.parent.mkdir(parents=True, exist_ok=True)
    return Journal.open(path, time.time_ns())
