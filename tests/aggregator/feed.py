"""Ingest and store without a bus and without clocks: what a test sends is what they get."""

from __future__ import annotations

from pathlib import Path

from aggregator.config import AggregatorConfig, BackfillConfig, StoreConfig
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.router import MessageRouter
from aggregator.load.shedding import Shedding
from aggregator.settings.budgets import IngestBudgets
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.protocol import Batch
from api.fleet import StoredEvent
from api.stats import Stats
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.wire import inventory as messages
from telemetry.wire.frame import encode_many
from telemetry.wire.inventory import CollectorStatus, CommandReply, FrameSpan, Inventory, NodeState
from telemetry.wire.topics import Topic, topic
from tests.aggregator.node import START, inventory, payload

HOUR = 3600 * 10**9
ARRIVAL = 1_763_700_300 * 10**9
"""The aggregator's wall clock at the beginning: early in a period of an hour."""


class Feed:
    """An aggregator's inside, driven by hand; `reopen` is a restart after kill -9."""

    def __init__(
        self,
        folder: Path,
        store: StoreConfig | None = None,
        backfill: BackfillConfig | None = None,
        budgets: IngestBudgets | None = None,
    ) -> None:
        self.config = AggregatorConfig(
            data_dir=folder,
            store=store or StoreConfig(),
            backfill=backfill or BackfillConfig(),
            budgets=budgets or IngestBudgets(),
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.now = 100.0
        self.wall = ARRIVAL
        self.open()

    def open(self) -> None:
        """Open the store and begin with what it knows."""
        self.store = self.open_store()
        self.fleet, self.stats, self.shedding = Fleet(), Stats(), Shedding()
        self.ingest = MessageRouter(
            self.config,
            self.fleet,
            self.stats,
            IdRegistry(self.store.known()),
            DeadLetters(self.config.data_dir / "quarantine", self.config.quarantine_bytes),
            self.shedding,
        )
        self.ingest.restore(self.store.inventories(), self.store.accounted(), self.now)

    def open_store(self) -> EmbeddedStore:
        """Return the store; other feeds have others."""
        return EmbeddedStore(self.config.store, self.config.data_dir, self.config.name_limits)

    def reopen(self) -> None:
        """Close and open; what was not committed is gone."""
        self.store.close()
        self.open()

    def publish(self, node: str, kind: Topic, body: bytes) -> None:
        """Deliver a message."""
        self.ingest.receive(topic("default", node, kind), body, self.now, self.wall)

    def hello(self, node: str, gpus: int = 2, session: int = 1, ring: tuple[FrameSpan, ...] = ()) -> None:
        """Deliver a node's status and inventory."""
        status = CollectorStatus(state=NodeState.ONLINE, session=session, ring=ring)
        self.publish(node, Topic.STATUS, messages.encode(status))
        self.inventory(inventory(node, gpus, session))

    def inventory(self, body: Inventory) -> None:
        """Deliver an inventory."""
        self.publish(body.node, Topic.INVENTORY, messages.encode(body))

    def send(self, node: str, *seqs: int, gpus: int = 2, session: int = 1) -> None:
        """Deliver live frames."""
        for seq in seqs:
            self.publish(node, Topic.FRAME, payload(node, gpus, session, seq))

    def resend(self, node: str, *seqs: int, gpus: int = 2, session: int = 1) -> None:
        """Deliver frames from the node's ring: however old they are, their times are believed."""
        found = [payload(node, gpus, session, seq) for seq in seqs]
        self.publish(node, Topic.BACKFILL, encode_many(found))

    def gone(self, node: str, first: int, last: int, session: int = 1) -> None:
        """Deliver a node's answer that its ring no longer has some frames."""
        gone = (FrameSpan(session, first, last),)
        reply = CommandReply(about=session, first=first, last=last, gone=gone)
        self.publish(node, Topic.REPLY, messages.encode(reply))

    def flush(self) -> None:
        """Bring what came into the fleet."""
        self.ingest.flush(self.now, self.wall)

    def commit(self) -> int:
        """Flush and store; returns how many frames were new."""
        self.flush()
        new = self.store.write(self.ingest.drain_batch(self.wall))
        self.ingest.stored()
        self.stats.frames_stored += new
        return new

    def seal(self) -> None:
        """Do all upkeep that is due."""
        while self.store.maintain(self.wall):
            self.store.seal()

    def check_events(self) -> None:
        """What every store must do with events: keep each once, and find them newest first."""
        events = [
            StoredEvent(Event(id=f"1-{n}", node="a", at=START + n, kind=kind, gpu="GPU-a-0"), ARRIVAL)
            for n, kind in enumerate(["xid", "gpu_lost", "xid"])
        ]
        self.store.write(Batch(events=events, at=ARRIVAL))
        self.store.write(Batch(events=events[:1], at=ARRIVAL))
        found = self.store.events(START, START + 10, None, None, 10)
        assert [stored.event.id for stored in found] == ["1-2", "1-1", "1-0"]
        assert found[0].event.gpu == "GPU-a-0"
        assert [s.event.id for s in self.store.events(START, START + 10, "a", "xid", 1)] == ["1-2"]
        assert self.store.events(START, START + 10, "b", None, 10) == []
