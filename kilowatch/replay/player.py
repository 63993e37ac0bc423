"""A recording played offline: rules, circuits and incidents, second by second in recorded time.

The messages go through the aggregator's own ingest into a fleet of their own, so the
results are those of the time of the recording. `kilowatch replay` reports it, `kilowatch top --replay` serves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from aggregator.alerting.pipeline import AlertPipeline, timings_of
from aggregator.config import AggregatorConfig
from aggregator.electrical.service import ElectricalService
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.router import MessageRouter
from aggregator.store.protocol import StoredState
from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentChanges
from alerts.notice import Notice
from alerts.rules.rule import Rule
from api.alerts import Incident
from api.stats import Stats
from collector.recording.file import RecordedMessage, no_message
from telemetry.fleet import Fleet
from telemetry.text.decoders import of_json
from telemetry.wire.inventory import Inventory
from telemetry.wire.topics import Topic, topic

STEP = 1_000_000_000
"""ns of recorded time between two applications of messages, and by default between two evaluations of
the rules."""
LONGEST_SILENCE = 900
"""Seconds without a message that are evaluated; the rest of a longer silence is skipped: all rules that
fire on silence have fired by then."""
MOST_SILENCE = 3600
"""Seconds of such silences that are evaluated in all of a recording; then each is skipped from its
first `SETTLE_SECONDS` on."""
SETTLE_SECONDS = 30.0
"""Seconds after the last message in which notifications may still be decided: a ticket waits for
others of its kind."""


class Player:
    """Player of one recording, with its fleet, circuits, alerts and incidents."""

    def __init__(
        self,
        path: Path,
        entries: Iterable[RecordedMessage],
        config: AggregatorConfig,
        rules: Sequence[Rule],
        folder: Path,
        every: float = 1.0,
    ) -> None:
        """`folder`: for messages that can't be read; `every`: seconds between two evaluations of the
        rules. Raises `SourceError` when there are no messages."""
        self._every = round(every * 1e9)
        self._entries = iter(entries)
        first = next(self._entries, None)
        if first is None:
            raise no_message(path)
        self._next: RecordedMessage | None = first
        self.began = self.at = self.last = first.at
        """Recorded time of the first message, of the last second that was played, and of the last
        message, ns since 1970."""
        self._evaluated = first.at
        self.messages = 0
        self.skipped = 0
        """Recorded seconds that were skipped, because no message came for long."""
        self.notices: list[Notice] = []
        """What would have been sent, in the order of time."""
        self.incidents: dict[str, Incident] = {}
        """The newest state of each, by key."""
        self.fleet, self.stats = Fleet(), Stats(bus_connected=True)
        self.electrical = ElectricalService(config.power, folder, clock=lambda: self.at)
        self.router = MessageRouter(
            config, self.fleet, self.stats, IdRegistry(StoredState()), DeadLetters(folder / "quarantine", 0)
        )
        self.pipeline = AlertPipeline(
            rules,
            self._record,
            cluster=config.cluster,
            timings=timings_of(config.alerts),
            now=first.at / 1e9,
            wall=first.at,
        )
        self._cluster = config.cluster

    def play(self) -> Iterator[int]:
        """Yield the end of each recorded second (ns since 1970), after its messages were applied and the
        rules were evaluated where that is due."""
        due, silent = self.began + STEP, 0
        while (entry := self._next) is not None:
            seconds = (entry.at - due) // STEP + 1
            longest = LONGEST_SILENCE if silent < MOST_SILENCE else int(SETTLE_SECONDS)
            if seconds > SETTLE_SECONDS:
                silent += min(seconds, longest)
            for _ in range(min(seconds, longest)):
                yield self._apply(due)
                due += STEP
            if seconds > longest:
                self.skipped += seconds - longest
                due += (seconds - longest) * STEP
            self._receive(entry)
            self._next = next(self._entries, None)
        yield self._apply(due)

    def settle(self) -> None:
        """Decide the notifications that still wait; nothing new is evaluated."""
        for tenth in range(1, int(SETTLE_SECONDS * 10)):
            later = self.at + tenth * STEP // 10
            self.pipeline.advance(later / 1e9, later)

    def _receive(self, entry: RecordedMessage) -> None:
        self.messages += 1
        self.last = max(self.last, entry.at)
        payload = entry.payload
        if entry.kind is Topic.INVENTORY:
            payload = _inventory_of(payload, self._cluster)
        where = topic(self._cluster, entry.node, entry.kind)
        self.router.receive(where, payload, entry.at / 1e9, entry.at)

    def _apply(self, at: int) -> int:
        self.at, now = at, at / 1e9
        self.router.flush(now, at)
        self.router.drain_commands(now)
        self.router.drain_sample_times()
        if at - self._evaluated >= self._every or self._next is None:
            self._evaluated = at
            self._evaluate(now, at)
        return at

    def _evaluate(self, now: float, at: int) -> None:
        snapshots = self.electrical.snapshots(self.fleet, now, at)
        self.pipeline.evaluate(
            self.fleet,
            now,
            at,
            self.router.drain_events(),
            listening=True,
            snapshots=() if snapshots is None else snapshots.all(),
        )

    def _record(self, step: IncidentChanges, _: Sequence[AlertRecord] | None) -> None:
        self.notices += step.notices
        self.incidents.update({incident.key: incident for incident in step.incidents})


def _inventory_of(payload: bytes, cluster: str) -> bytes:
    """Return an inventory as if it were of a cluster; one that can't be read as it is."""
    try:
        found = of_json(Inventory).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return payload
    return msgspec.json.encode(msgspec.structs.replace(found, cluster=cluster))
