"""A recording served as if it were a cluster: what `kilowatch top --replay FILE` shows.

All of it is played (`kilowatch.replay.player`) into a store of its own. What is served is that of the
recording's end; everything before is the past, at `/api/v1/fleet/frames` and similar paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from aggregator.alerting.delivery_view import AlertStats
from aggregator.assembly.http_server import listening
from aggregator.assembly.store_choice import open_store
from aggregator.config import AggregatorConfig
from aggregator.electrical.service import SAVE_SECONDS
from aggregator.fitness.service import FitnessTracker
from aggregator.http.config import HttpConfig
from aggregator.load.shedding import Shedding
from aggregator.register.drift_tracker import DriftTracker
from aggregator.register.node_register import NodeRegister
from aggregator.store.executor import StoreExecutor
from aggregator.view import FlushBroadcast, SingleView
from alerts.message.picture_link import PictureLink
from alerts.notice import Delivery
from alerts.rules.rule import load as load_rules
from api.alerts import Alert, ChannelRow, Incident, TestReply
from api.evidence import EvidenceReply
from collector.recording.file import RecordedMessage
from kilowatch.replay.player import STEP, Player
from telemetry.devices import Event
from telemetry.errors import IncidentError, NodeError
from telemetry.runtime.isolation import Isolation, PartKind
from telemetry.runtime.supervision import ProgressMarks
from telemetry.wire.persons import PersonWords

COMMIT_EVERY = 60
"""Recorded seconds in one commit."""
BEAT_SECONDS = 1.0
"""Seconds between two keepalive messages to viewers."""


class RecordedDeliveries:
    """Incidents without deliveries or channels; `aggregator.alerting.delivery_view.DeliveryView`."""

    def __init__(self, incidents: Mapping[str, Incident]) -> None:
        self._incidents = incidents

    async def saved(self, seconds: float) -> bool:
        """Return at once: nothing is written."""
        return seconds > 0

    async def history(self, since: int, limit: int) -> list[Incident]:
        """Return incidents that were open or ended since a time (ns), newest first."""
        found = [one for one in self._incidents.values() if one.ended is None or one.ended >= since]
        return sorted(found, key=lambda one: -one.began)[:limit]

    async def deliveries(self, since: int, limit: int, incident: str | None = None) -> list[Delivery]:
        """Return none: a recording sends nothing."""
        del since, limit, incident
        return []

    async def evidence(self, key: str, incident: Incident | None) -> EvidenceReply | None:
        """Return none: a recording notifies nobody."""
        del key, incident
        return None

    async def picture(self, link: PictureLink, wall: int) -> bytes | None:
        """Return none: a recording notifies nobody."""
        del link, wall
        return None

    def channels(self) -> list[ChannelRow]:
        """Return none: a recording has no channels."""
        return []

    async def test(self, channel: str) -> TestReply:
        """Raise `IncidentError`: there are no channels."""
        raise IncidentError(f"channel: no channel {channel!r}: a recording sends nothing")

    def alert_stats(self) -> AlertStats:
        """Return empty figures: there is no journal."""
        return AlertStats()


class RecordedCluster(SingleView):
    """Recording that was played to its end; `aggregator.view.AggregatorView`."""

    def __init__(self, path: Path, entries: Iterable[RecordedMessage], config: AggregatorConfig) -> None:
        """Play all of it: minutes for a big cluster. Raises `SourceError` when it holds nothing."""
        player = Player(path, entries, config, load_rules(config.rules), config.data_dir)
        self._player = player
        self.cluster, self.started_at = config.cluster, player.began
        self.fleet, self.stats, self.electrical = player.fleet, player.stats, player.electrical
        self.impairments = player.pipeline.impairments
        self.marks = ProgressMarks({}, ())
        self.shedding = Shedding()
        self.jobs = player.router.jobs
        self.pages_aside = Isolation(PartKind.PAGE)
        self.process_words: PersonWords | None = None
        self.site_role = None
        self.fitness = FitnessTracker()
        self.drift = DriftTracker()
        self.register = NodeRegister()
        self.pipeline = player.pipeline
        self.delivery = RecordedDeliveries(player.incidents)
        config.data_dir.mkdir(parents=True, exist_ok=True)
        self._writer = open_store(config)
        self.store = StoreExecutor(self._writer, self.stats)
        self.flushes = FlushBroadcast()
        for at in player.play():
            snapshots, second = self.electrical.latest, at // STEP
            if snapshots is not None and second % int(SAVE_SECONDS) == 0:
                version = self.electrical.configuration.version
                self.electrical.snapshot_log.add(at, version, snapshots.all())
            if second % COMMIT_EVERY == 0:
                self._commit()
        self._commit()
        self.messages = player.messages

    def _commit(self) -> None:
        batch = self._player.router.drain_batch(self._player.at)
        if batch:
            self.stats.frames_stored += self._writer.write(batch)
        self._player.router.stored()

    # -- HTTP interface -------------------------------------------------------------------------

    def now(self) -> float:
        """The end of the recording, seconds."""
        return self._player.at / 1e9

    def wall(self) -> int:
        """The same, ns since 1970."""
        return self._player.at

    def alerts(self) -> Sequence[Alert]:
        """Alerts at the end, worst first."""
        return self.pipeline.alerts()

    async def forget(self, node: str) -> bool:
        """Raise `NodeError`: a recording is what it is."""
        raise NodeError(f"{node} is part of a recording. Nothing of it can be removed.")

    def record_event(self, event: Event) -> None:
        """Raise `NodeError`: a recording is what it is."""
        raise NodeError(f"{event.node} is part of a recording. Nothing can be added to it.")

    def recent_events(self) -> Sequence[Event]:
        """The last events, newest first."""
        return list(reversed(self._player.router.recent))

    async def serve(
        self, host: str, port: int, stop: asyncio.Event, serving: Callable[[], None] = lambda: None
    ) -> None:
        """Serve it until `stop`. `serving` is called once it can be connected to."""
        try:
            async with listening(self, HttpConfig(listen=f"{host}:{port}")):
                serving()
                while not stop.is_set():
                    self.stats.flush.add(0.0)
                    self.flushes.tick()
                    try:
                        async with asyncio.timeout(BEAT_SECONDS):
                            await stop.wait()
                    except TimeoutError:
                        continue
        finally:
            await self.store.close()
