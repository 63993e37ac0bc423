"""The journey of a message: decode it, sequence its frame, batch it; what can't be read is counted.

A frame goes through `FrameSequence` (is it new?) into the `Batcher` and no further: the work on values
is done once a flush. `MessageRouter` is what the service sees of ingest.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

import msgspec

from aggregator.config import AggregatorConfig
from aggregator.ingest.backfill import NodeCommand
from aggregator.ingest.batcher import Batcher, SampleTimes
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.layout import make_layout
from aggregator.ingest.node_clocks import NodeClocks
from aggregator.ingest.refusals import Refusals
from aggregator.ingest.sequence import FrameSequence, NodeTracker
from aggregator.store.protocol import Batch
from api.fleet import StoredEvent
from api.stats import Stats
from telemetry import border
from telemetry.devices import Event, Gpu
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.frame import Frame
from telemetry.intervals import IntervalSet
from telemetry.inventory import Inventory
from telemetry.schema import SCHEMA, Schema
from telemetry.topics import Topic

log = logging.getLogger(__name__)

REMEMBERED_EVENTS = 100_000
"""Events by which one that comes again is recognised."""
RECENT_EVENTS = 1000

MOST_KEPT = 4096
"""Distinct values that are remembered; beyond that the memory is cleared."""


class Interner:
    """Shared copies of equal parts of inventories: a schema and the capabilities of GPUs.

    A fleet of one model has one schema and a few sets of capabilities; as decoded, every node brings
    its own copies of them, 66 kB a node of eight GPUs, against 7 kB when they are shared.
    """

    def __init__(self) -> None:
        self._schemas: dict[Schema, Schema] = {SCHEMA: SCHEMA}
        self._capabilities: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def inventory(self, inventory: Inventory) -> Inventory:
        """Return an equal inventory that shares its parts with those before it."""
        for kept in (self._schemas, self._capabilities):
            if len(kept) > MOST_KEPT:
                kept.clear()
        return msgspec.structs.replace(
            inventory,
            schema=self._schemas.setdefault(inventory.schema, inventory.schema),
            gpus=tuple(map(self._gpu, inventory.gpus)),
            links=tuple(
                msgspec.structs.replace(link, gpu=sys.intern(link.gpu)) for link in inventory.links
            ),
        )

    def _gpu(self, gpu: Gpu) -> Gpu:
        found = gpu.capabilities
        return msgspec.structs.replace(
            gpu,
            name=sys.intern(gpu.name),
            capabilities=self._capabilities.setdefault(tuple(found.items()), found),
        )


class EventIntake:
    """Events of the fleet, each once however often it comes: for the store, the rules and viewers."""

    def __init__(self, stats: Stats, clocks: NodeClocks) -> None:
        self._stats = stats
        self._clocks = clocks
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._unstored: list[StoredEvent] = []
        self._unevaluated: list[Event] = []
        self.recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        """Newest last."""

    def add(self, node: str, payload: bytes, wall: int) -> None:
        """Add an event of a node, received at `wall`, ns since 1970. Raises `WireError`."""
        event = border.decode_event(payload, node)
        key = event.node, event.id
        if key in self._seen:
            self._stats.events_duplicate += 1
            return
        self._seen[key] = None
        if len(self._seen) > REMEMBERED_EVENTS:
            self._seen.popitem(last=False)
        at = self._clocks.of_event(node, event.at, wall)
        if at != event.at:
            event = msgspec.structs.replace(event, at=at)
        self.recent.append(event)
        self._unevaluated.append(event)
        self._unstored.append(StoredEvent(event, wall))

    def drain_unstored(self) -> list[StoredEvent]:
        """Return the events that no batch has yet."""
        events, self._unstored = self._unstored, []
        return events

    def drain_unevaluated(self) -> list[Event]:
        """Return the events that the rules have not evaluated yet."""
        events, self._unevaluated = self._unevaluated, []
        return events


class MessageRouter:
    """Ingest of all nodes of a cluster or shard. One loop owns it; its only I/O is that of dead
    letters."""

    def __init__(
        self,
        config: AggregatorConfig,
        fleet: Fleet,
        stats: Stats,
        registry: IdRegistry,
        dead_letters: DeadLetters,
    ) -> None:
        self._config = config
        self._stats = stats
        self._registry = registry
        self._dead_letters = dead_letters
        self._interner = Interner()
        self._sequence = FrameSequence(config.backfill, fleet, stats, registry)
        self._batcher = Batcher(fleet, stats)
        self._clocks = NodeClocks()
        self._events = EventIntake(stats, self._clocks)
        self.refusals = Refusals(stats)
        self._inventories: list[Inventory] = []
        """New ones that no batch has yet."""
        self._routes: dict[str, tuple[NodeTracker, Topic]] = {}
        self.nodes = self._sequence.nodes
        self.ledger = self._sequence.ledger
        """Which frames are accounted for."""
        self.recent = self._events.recent
        """The last events, newest last."""

    def restore(
        self,
        inventories: Iterable[Inventory],
        accounted: Mapping[tuple[str, int], IntervalSet],
    ) -> None:
        """Begin with what the store knows: its nodes show as stale, not as absent."""
        for inventory in inventories:
            try:  # an older release may have stored what is refused today
                border.check_inventory(inventory)
            except WireError as error:
                log.warning("node=%s its stored inventory is left out: %s", inventory.node, error)
                continue
            shared = self._interner.inventory(inventory)
            layout = make_layout(shared, self._registry)
            self._sequence.add_layout(self._sequence.node(shared.node), layout)
        for (name, session), stored in accounted.items():
            self._sequence.restore(name, session, stored)

    # -- In --------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes, now: float, wall: int) -> None:
        """Process one message; `now` is monotonic seconds, `wall` ns since 1970. Never raises."""
        stats = self._stats
        stats.bytes_received += len(payload)
        node = None
        try:
            node, kind = self._routes.get(topic) or self._route(topic)
            stats.messages[kind] = stats.messages.get(kind, 0) + 1
            match kind:
                case Topic.FRAME:
                    self._frame(node, payload, now, wall, live=True)
                case Topic.BACKFILL:
                    self._backfill(node, payload, now, wall)
                case Topic.EVENT:
                    self._events.add(node.name, payload, wall)
                case Topic.STATUS:
                    self._status(node, payload, now)
                case Topic.INVENTORY:
                    self._inventory(node, payload, now, wall)
                case Topic.REPLY:
                    self._sequence.reply(node, border.decode_reply(payload), now)
                case Topic.COMMAND:
                    pass  # a request to a collector; not ours to answer
        except WireError as error:
            self.refuse(error, topic, payload, now, wall, node)
        except Exception as error:  # our fault; still no reason to stop receiving
            log.exception("ingest: %s", border.clean(topic))
            self.refuse(WireError("error", repr(error)), topic, payload, now, wall, node)

    def refuse(
        self,
        error: WireError,
        topic: str,
        payload: bytes,
        now: float,
        wall: int,
        node: NodeTracker | None = None,
    ) -> None:
        """Count a message that is refused, and keep a sample; `node`: of whom, if it is known."""
        detail, topic = border.clean(str(error)[:512]), border.clean(topic[:512])
        self._stats.drop(error.reason)
        ours = node is not None and (node.layouts or node.status is not None)
        self.refusals.add(node.name if node and ours else None, error.reason, detail, now)
        self._dead_letters.add(error.reason, topic, payload, detail, wall)

    def _route(self, topic: str) -> tuple[NodeTracker, Topic]:
        address = border.check_topic(topic, self._config.cluster)
        route = self._routes[topic] = self._sequence.node(address.node), address.kind
        return route

    def _frame(
        self, node: NodeTracker, payload: bytes, now: float, wall: int, *, live: bool
    ) -> None:
        frame = border.decode_frame(payload)
        if not live or self._clocks.offsets or not border.live(frame.sampled_at, wall):
            frame = self._timed(node, frame, wall, live=live)
        self._stats.frames_received += 1
        self._accept(node, frame, len(payload), wall, now, live=live)

    def _timed(self, node: NodeTracker, frame: Frame, wall: int, *, live: bool) -> Frame:
        """Return a frame with a time that it can have. Raises `WireError` (`clock`)."""
        name, session, at = node.name, frame.session, frame.sampled_at
        if live:
            right: int | None = self._clocks.of_live(name, session, at, wall)
            offset = self._clocks.offsets.get(name)
            if node.fleet_node is not None:
                node.fleet_node.clock_offset = 0 if offset is None else offset.ns
        else:
            right = self._clocks.of_backfilled(name, session, at, wall)
        if right is None:  # requested again it would come with the same time
            self._sequence.give_up(node, session, frame.seq, "clock")
            raise WireError("clock", f"a frame of {at / 1e9:.0f} s since 1970")
        return frame if right == at else msgspec.structs.replace(frame, sampled_at=right)

    def _accept(
        self,
        node: NodeTracker,
        frame: Frame,
        size: int,
        received_at: int,
        now: float,
        *,
        live: bool,
    ) -> None:
        room = not self._batcher.full(self._config.store.pending_bytes)
        arrived = self._sequence.accept(node, frame, size, received_at, now, live=live, room=room)
        if arrived is None:
            return
        self._batcher.add(arrived)
        if arrived.stored:
            for event in frame.events:
                try:
                    self._events.add(node.name, event, received_at)
                except WireError as error:  # the frame and its other events are none the worse
                    self.refuse(error, f"{node.name}/frame/event", event, now, received_at, node)

    def _backfill(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        for each in border.decode_backfill(payload):
            try:
                self._frame(node, each, now, wall, live=False)
            except WireError as error:
                self.refuse(error, f"{node.name}/backfill", each, now, wall, node)

    def _inventory(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        found = border.decode_inventory(payload, node.name, wall)
        inventory = self._interner.inventory(found)
        first = not node.layouts
        if first or node.layouts[0].inventory != inventory:
            self._inventories.append(inventory)
            self._sequence.add_layout(node, make_layout(inventory, self._registry))
        for each in self._sequence.fitting(node):
            self._accept(node, each.frame, each.size, each.received_at, now, live=each.live)
        if first:
            self._sequence.wake(node, now)

    def _status(self, node: NodeTracker, payload: bytes, now: float) -> None:
        status = border.decode_status(payload)
        for span in status.ring:
            if span.session == node.session and not node.credible(span.last, now):
                raise WireError("malformed", f"a ring up to {span.last}, behind {node.seq}: a leap")
        self._sequence.report_status(node, status, now)

    # -- Out -------------------------------------------------------------------------------------

    def flush(self, now: float, wall: int) -> SampleTimes:
        """Bring the newest frames into the fleet, and all into the batch; return when the newest
        were sampled."""
        return self._batcher.flush(now, wall)

    def drain_batch(self, wall: int) -> Batch:
        """Return what came since the last batch and is to be stored; call `stored` when it is."""
        batch = self._batcher.drain(wall)
        batch.events = self._events.drain_unstored()
        batch.holes = self._sequence.drain_holes()
        batch.inventories, self._inventories = self._inventories, []
        batch.runs, batch.devices = self._registry.drain_new()
        return batch

    def stored(self) -> None:
        """Note that the batch drained last is no longer in memory."""
        self._batcher.stored()

    def drain_commands(self, now: float) -> list[NodeCommand]:
        """Return the commands to send now."""
        behind = self._batcher.full(self._config.store.pending_bytes / 2)
        return self._sequence.drain_commands(now, paused=behind)

    def drain_events(self) -> list[Event]:
        """Return the events that the rules have not evaluated yet."""
        return self._events.drain_unevaluated()

    def drain_sample_times(self) -> SampleTimes:
        """Return when the frames were sampled that the rules have not evaluated yet."""
        return self._batcher.drain_sample_times()
