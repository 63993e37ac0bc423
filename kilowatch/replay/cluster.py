"""A recording served as if it were a cluster: what `kilowatch top --replay FILE` looks at.

The messages go through the aggregator's own intake into a fleet and a store of their own, rules, desk
and circuits judge them second by second in recorded time. What is served stands at the recording's
end; all before it is the past, as `/api/v1/fleet/frames` and its like have it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aggregator.alerting.pipeline import AlertPipeline, patience_of
from aggregator.config import AggregatorConfig
from aggregator.electrical.service import SAVE_SECONDS, ElectricalService
from aggregator.http.app import listening
from aggregator.http.broadcast import FlushBroadcast, Subscription
from aggregator.http.config import HttpConfig
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.router import MessageRouter
from aggregator.stats import Stats
from aggregator.store.executor import StoreExecutor
from aggregator.store.open import open_store
from aggregator.store.protocol import Store, StoredState
from aggregator.view import AlertStats
from alerts.engine.restore import AlertRecord
from alerts.incidents.state import StateChanges
from alerts.notice import Delivery
from alerts.rules.rule import load as load_rules
from api.alerts import Alert, ChannelRow, Incident, TestReply
from collector.recording.file import RecordedMessage
from kilowatch.replay.rules import STEP, inventory_of
from telemetry.errors import DeskError, SourceError
from telemetry.fleet import Fleet
from telemetry.inventory import Event
from telemetry.topics import Topic, topic

log = logging.getLogger(__name__)

COMMIT_EVERY = 60
"""Recorded seconds in one commit."""
BEAT_SECONDS = 1.0
"""How often viewers are told that they are not forgotten."""


class RecordedAlerts:
    """What would have been told, kept; `aggregator.view.DeliveryView`."""

    def __init__(self) -> None:
        self.incidents: dict[str, Incident] = {}

    def take(self, step: StateChanges, _: Sequence[AlertRecord] | None) -> None:
        """Remember the newest state of each incident."""
        self.incidents.update({incident.key: incident for incident in step.incidents})

    async def saved(self, seconds: float) -> bool:
        """Nothing of it is to outlast us."""
        return seconds > 0

    async def history(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that were open or ended since a time (ns), newest first."""
        found = [one for one in self.incidents.values() if one.ended is None or one.ended >= since]
        return sorted(found, key=lambda one: -one.began)[:limit]

    async def deliveries(
        self, since: int, limit: int, incident: str | None = None
    ) -> list[Delivery]:
        """Nobody is told anything."""
        del since, limit, incident
        return []

    def channels(self) -> list[ChannelRow]:
        """There are none."""
        return []

    async def test(self, channel: str) -> TestReply:
        """Raise `DeskError`: there are no channels."""
        raise DeskError(f"channel: no channel {channel!r}: a recording tells nobody")

    def figures(self) -> AlertStats:
        """Nothing is written."""
        return AlertStats()


class RecordedCluster:
    """A recording that was read; `aggregator.view.AggregatorView`."""

    def __init__(self, config: AggregatorConfig, power: Mapping[str, Any]) -> None:
        self._at = 0
        """Recorded time up to which it was read, ns since 1970."""
        self.fleet, self.stats = Fleet(), Stats(bus_connected=True)
        self.cluster = config.cluster
        self.started_at = 0
        self.electrical = ElectricalService(power, config.data_dir, clock=self.wall)
        self.post = RecordedAlerts()
        config.data_dir.mkdir(parents=True, exist_ok=True)
        self._writer: Store = open_store(config)
        self._config = config
        self.store = StoreExecutor(self._writer, self.stats)
        self._ticks = FlushBroadcast()
        quarantine = DeadLetters(config.data_dir / "quarantine", 0)
        self._ingest = MessageRouter(
            config, self.fleet, self.stats, IdRegistry(StoredState()), quarantine
        )
        self._alarms: AlertPipeline | None = None

    # -- Reading it ------------------------------------------------------------------------------

    def read(self, path: Path, entries: Iterable[RecordedMessage]) -> int:
        """Take all in; returns how many messages there were. Raises `SourceError` for none."""
        due, messages = 0, 0
        for entry in entries:
            if not messages:
                self.started_at, due = entry.at, entry.at + STEP
                self._alarms = AlertPipeline(
                    load_rules(self._config.rules), self.post.take, cluster=self.cluster,
                    patience=patience_of(self._config.alerts), now=entry.at / 1e9, wall=entry.at,
                )  # fmt: skip
            while due <= entry.at:
                self._second(due)
                due += STEP
            payload = entry.payload
            if entry.kind is Topic.INVENTORY:
                payload = inventory_of(payload, self.cluster)
            where = topic(self.cluster, entry.node, entry.kind)
            self._ingest.take(where, payload, entry.at / 1e9, entry.at)
            messages += 1
        if not messages:
            raise SourceError(f"{path} holds no message. Record with `kilowatch record {path}`.")
        self._second(due)
        self._commit()
        return messages

    def _second(self, at: int) -> None:
        """Let a recorded second be over."""
        self._at, now = at, at / 1e9
        self._ingest.flush(now, at)
        self._ingest.take_asks(now)
        self._ingest.take_clocks()
        snapshots = self.electrical.snapshots(self.fleet, now, at)
        judged = () if snapshots is None else snapshots.all()
        self.alarms.judge(
            self.fleet, now, at, self._ingest.take_events(), listening=True, snapshots=judged
        )
        second = at // STEP
        if snapshots is not None and second % int(SAVE_SECONDS) == 0:
            self.electrical.tape.add(at, self.electrical.configuration.version, judged)
        if second % COMMIT_EVERY == 0:
            self._commit()

    def _commit(self) -> None:
        batch = self._ingest.take_batch(self._at)
        if batch:
            self.stats.frames_stored += self._writer.write(batch)
        self._ingest.stored()

    # -- What HTTP sees --------------------------------------------------------------------------

    def now(self) -> float:
        """The end of the recording, seconds."""
        return self._at / 1e9

    def wall(self) -> int:
        """The same, ns since 1970."""
        return self._at

    @property
    def alarms(self) -> AlertPipeline:
        """Rules, alerts, incidents as they stood at the end."""
        if self._alarms is None:
            raise RuntimeError("nothing has been read")
        return self._alarms

    def alerts(self) -> Sequence[Alert]:
        """Alerts at the end, worst first."""
        return self.alarms.alerts()

    def recent_events(self) -> Sequence[Event]:
        """The last events, newest first."""
        return list(reversed(self._ingest.recent))

    def subscribe(self) -> Subscription:
        """Return a queue that gets a token now and then."""
        return Subscription(self._ticks)

    async def serve(self, host: str, port: int, stop: asyncio.Event) -> None:
        """Serve it until `stop`."""
        try:
            async with listening(self, HttpConfig(listen=f"{host}:{port}")):
                while not stop.is_set():
                    self.stats.flush.add(0.0)
                    self._ticks.tick()
                    try:
                        await asyncio.wait_for(stop.wait(), BEAT_SECONDS)
                    except TimeoutError:
                        continue
        finally:
            await self.store.close()
