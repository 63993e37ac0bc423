"""The journey of a message: decode it, sequence its frame, batch it; what can't be read is counted.

A frame goes through `FrameSequence` (is it new?) into the `Batcher` and no further: the work on values
is done once a flush. `MessageRouter` is what the service sees of ingest.
"""

from __future__ import annotations

import logging
import math
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from aggregator.config import AggregatorConfig, StoreKind
from aggregator.ingest.backfill import NodeCommand
from aggregator.ingest.batcher import Batcher, SampleTimes
from aggregator.ingest.budgets import NodeBudget, over
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.held_frames import HeldFrames
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.newcomers import Newcomers
from aggregator.ingest.node_clocks import NodeClocks
from aggregator.ingest.refusals import FAULT, Refusals
from aggregator.ingest.sequence import REQUEST_INVENTORY_EVERY, FrameSequence, NodeTracker
from aggregator.jobs.service import JobService
from aggregator.load.shedding import Shedding
from aggregator.store.batch_parts import holes_of
from aggregator.store.content_faults import sample_of
from aggregator.store.protocol import Batch, LostFrames
from api.fleet import StoredEvent
from api.stats import Stats
from telemetry.devices import Event, Gpu
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import PartFault
from telemetry.wire import border
from telemetry.wire import frame as frames
from telemetry.wire.frame import Frame
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory, NodeState, encode, machine_of
from telemetry.wire.schema import SCHEMA, Schema
from telemetry.wire.topics import Address, Topic, shard_of, topic

log = logging.getLogger(__name__)

REMEMBERED_EVENTS = 100_000
"""Events by which one that comes again is recognised."""
RECENT_EVENTS = 1000
HELD_SECONDS = 600.0
"""Seconds after its last frame for which a GPU is its node's: a reboot takes less."""
RENAMED_SECONDS = 3.0
"""The same, at least, where the other name is one of the same machine that was not heard since our start: it would
have sent by then."""
MOST_UNSTORED = 100_000
"""Events that wait for a store that fails."""
FEW_SPANS = 16
"""Spans of a newcomer's ring that are compared before its first frame."""
ONLINE_SECONDS = 600.0
"""Seconds without a frame after which a node counts as offline though its status says online: a broker
that was killed never publishes the last wills."""
INVENTORIES_AT_ONCE = 1000
"""Inventories in one batch: a fleet that starts brings all of them in one second, and its frames would wait for them.
Until they are stored the broker has them."""
FEW_NODES = 64
"""Nodes of a fleet whose frames are never taken together: there are too few in a flush for arrays."""
SWEEP_EVERY = 60.0
"""Seconds between two searches for nodes and sessions that are long gone."""

SCHEMA_BYTES = len(encode(SCHEMA))
"""Bytes of an inventory that cost nothing once it is decoded: its schema is that of all others."""
MOST_SCHEMAS, MOST_KEPT = 32, 4096
"""Distinct values that are remembered; beyond that the memory is cleared."""


class Interner:
    """Shared copies of equal parts of inventories: a schema, the capabilities of GPUs, and texts that devices or nodes
    have in common.

    A fleet of one model has one schema and a few sets of capabilities; as decoded, every node brings
    its own copies of them, 66 kB a node of eight GPUs, against 4 kB when all are shared.
    """

    def __init__(self) -> None:
        self._schemas: dict[Schema, Schema] = {SCHEMA: SCHEMA}
        self._capabilities: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._last: dict[str, str] = {}
        """The shared capabilities of the GPU before: those of a node are mostly equal."""
        self._gpu_texts: dict[tuple[str | None, ...], dict[str, str]] = {}
        """By the texts of a GPU, shared copies of them by field: those of a fleet have a few dozen sets."""

    def inventory(self, inventory: Inventory) -> Inventory:
        """Return an equal inventory that shares its parts with those before it."""
        if len(self._schemas) > MOST_SCHEMAS:
            self._schemas = {SCHEMA: SCHEMA}
        for kept in (self._capabilities, self._gpu_texts):
            if len(kept) > MOST_KEPT:
                kept.clear()
        return msgspec.structs.replace(
            inventory,
            **_interned(inventory, _NODE_TEXTS),
            host={sys.intern(name): sys.intern(value) for name, value in inventory.host.items()},
            schema=self._schemas.setdefault(inventory.schema, inventory.schema),
            gpus=tuple(map(self._gpu, inventory.gpus)),
            links=tuple(msgspec.structs.replace(link, **_interned(link, _LINK_TEXTS)) for link in inventory.links),
            ports=tuple(msgspec.structs.replace(port, **_interned(port, _PORT_TEXTS)) for port in inventory.ports),
            before=tuple(map(self.inventory, inventory.before)),
        )

    def _gpu(self, gpu: Gpu) -> Gpu:
        texts = _gpu_texts(gpu)
        shared = self._gpu_texts.get(texts)
        if shared is None:
            shared = self._gpu_texts[texts] = _interned(gpu, _GPU_TEXTS)
        if gpu.capabilities != self._last:
            found = gpu.capabilities
            self._last = self._capabilities.setdefault(tuple(found.items()), found)
        return msgspec.structs.replace(gpu, **shared, capabilities=self._last)


_NODE_TEXTS = (
    "cluster", "kilowatch", "source", "role", "driver_version", "cuda_version", "nvml_version", "driver_state",
    "driver_message",
)  # fmt: skip
_GPU_TEXTS = ("name", "pci", "vbios", "part_number", "brand", "inforom", "architecture", "slot", "fabric_cluster")
_LINK_TEXTS = "gpu", "peer_kind", "peer_pci", "peer"
_PORT_TEXTS = (
    "adapter", "pci", "link_layer", "model", "firmware", "interface", "gpu", "role", "bond", "switch", "switch_port",
)  # fmt: skip
"""Fields that many devices or nodes have in common: all texts but identities."""
_gpu_texts = attrgetter(*_GPU_TEXTS)


def _interned(device: msgspec.Struct, names: Sequence[str]) -> dict[str, str]:
    """Return shared copies of some texts of a device, by field; without those that it has not."""
    texts = ((name, getattr(device, name)) for name in names)
    return {name: sys.intern(text) for name, text in texts if text is not None}


class EventIntake:
    """Events of the fleet, each once however often it comes: for the store, the rules and viewers."""

    def __init__(self, stats: Stats, clocks: NodeClocks, note: Callable[[Event], None] = lambda _: None) -> None:
        """`note`: called with each event of a node, once."""
        self._note = note
        self._stats = stats
        self._clocks = clocks
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._unstored: list[StoredEvent] = []
        self._unevaluated: list[Event] = []
        self.recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        """Newest last."""

    def add(self, node: str, payload: bytes, now: float, wall: int, budget: NodeBudget) -> None:
        """Add an event of a node, received at `wall`, ns since 1970. Raises `WireError`."""
        event = border.decode_event(payload, node)
        key = event.node, event.id
        if key in self._seen:
            self._stats.events_duplicate += 1
            return
        budget.event(len(payload), now)
        self._seen[key] = None
        at = self._clocks.of_event(node, event.at, wall)
        if at != event.at:
            event = msgspec.structs.replace(event, at=at)
        self._unevaluated.append(event)
        self._keep(event, wall)
        self._note(event)

    def record(self, event: Event, wall: int) -> None:
        """Add an event of the aggregator's own, which no rule evaluates; one with a known id is there
        already."""
        key = event.node, event.id
        if key not in self._seen:
            self._seen[key] = None
            self._keep(event, wall)

    def _keep(self, event: Event, wall: int) -> None:
        """Add an event to the newest ones, and to those that wait for the store."""
        if len(self._seen) > REMEMBERED_EVENTS:
            self._seen.popitem(last=False)
        self.recent.append(event)
        if len(self._unstored) < MOST_UNSTORED:
            self._unstored.append(StoredEvent(event, wall))
        else:
            self._stats.drop("no_room")

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
        shedding: Shedding | None = None,
        jobs: JobService | None = None,
    ) -> None:
        """`shedding`: what is shed now; nothing without it. `jobs`: of all nodes."""
        self.jobs = jobs or JobService()
        self._config = config
        self._shedding = shedding or Shedding()
        self._stats = stats
        self._registry = registry
        self._fleet = fleet
        self._began = 0.0
        """When it began with what the store knows, monotonic seconds."""
        self._listening = math.inf
        """When the first inventory came: from then on a node that runs is heard, monotonic seconds."""
        self._dead_letters = dead_letters
        self._interner = Interner()
        self._budgets = config.budgets
        self._newcomers = Newcomers(config.budgets)
        self._sequence = FrameSequence(config.backfill, config.budgets, fleet, stats, registry)
        self._clocks = NodeClocks()
        self._events = EventIntake(stats, self._clocks, self.jobs.faults.note)
        self.refusals = Refusals(stats)
        # Another store has no provisional rows: frames that are shed are gaps until they are refilled.
        self._batcher = Batcher(fleet, stats, means=config.store.kind is StoreKind.EMBEDDED)
        self.held = HeldFrames(self._batcher, self._shedding, stats, config.store.pending_bytes, self._single_frame)
        """Frames that wait for the next flush, and the nodes of which it knows more than their trackers."""
        self._batcher.leave = self.held.leave
        self._inventories: list[Inventory] = []
        """New ones that no batch has yet."""
        self._removed: list[str] = []
        """Nodes that the store is to remove from its inventories."""
        self.renamed: list[tuple[str, str]] = []
        """Old and new names of machines that have another name now, until the register has them."""
        self._unfinished: Batch | None = None
        """The batch in which an exception occurred before it was whole."""
        self.shards: set[str] | None = None
        """Shards whose nodes are received; None for all. `acquire` and `release` change it."""
        self._routes: dict[str, tuple[NodeTracker, Topic]] = {}
        self._swept = float("-inf")
        self.nodes = self._sequence.nodes
        self.ledger = self._sequence.ledger
        """Which frames are accounted for."""
        self.recent = self._events.recent
        """The last events, newest last."""

    def restore(
        self, inventories: Iterable[Inventory], accounted: Mapping[tuple[str, int], IntervalSet], now: float = 0.0
    ) -> None:
        """Begin with what the store knows: its nodes show as stale, not as absent. `now`: monotonic
        seconds."""
        self._began = now
        known = list(inventories)
        self._fleet.reserve(known)
        for inventory in known:
            try:  # an older release may have stored what is refused today
                border.check_inventory(inventory)
            except WireError as error:
                log.warning("node=%s its stored inventory is left out: %s", inventory.node, error)
                continue
            if len(self.nodes) >= self._budgets.nodes:
                log.warning(
                    "ingest: the store knows more nodes than aggregator.budgets.nodes = %d; the rest is left out",
                    self._budgets.nodes,
                )
                break
            shared = self._interner.inventory(inventory)
            node = self._sequence.node(shared.node, now)
            node.proven = True
            self._sequence.add_layout(node, shared)
        for (name, session), stored in accounted.items():
            found = self.nodes.get(name)
            if found is not None:  # not one that was removed, and whose history stays
                self._sequence.restore(found, session, stored)
        self._note_budgets()

    # -- In --------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes, now: float, wall: int) -> None:
        """Process one message; `now` is monotonic seconds, `wall` ns since 1970. Never raises."""
        if self.held.hold(topic, payload, now, wall):
            return
        stats = self._stats
        stats.bytes_received += len(payload)
        node = None
        try:
            route = self._routes.get(topic) or self._route(topic, payload, now, wall)
            if route is None:
                return
            node, kind = route
            stats.messages[kind] = stats.messages.get(kind, 0) + 1
            budget = node.budget
            budget.messages_left -= 1
            budget.bytes_left -= len(payload)
            if budget.messages_left < 0 or budget.bytes_left < 0:
                budget.refill(len(payload), now)
            if node.steady >= 0:
                if kind is Topic.FRAME and self.held.hold_second(topic, payload, now, wall):
                    return
                self.held.leave(node)
            match kind:
                case Topic.FRAME if self._shedding.coalesces:
                    self.held.coalesce(node, payload, now, wall)
                case Topic.FRAME:
                    self._frame(node, payload, now, wall, live=True)
                case Topic.BACKFILL:
                    self._backfill(node, payload, now, wall)
                case Topic.EVENT:
                    self._events.add(node.name, payload, now, wall, node.budget)
                case Topic.STATUS:
                    self._status(node, payload, now, wall)
                case Topic.INVENTORY:
                    self._inventory(node, payload, now, wall)
                case Topic.REPLY:
                    self._sequence.reply(node, border.decode_reply(payload), now)
                case Topic.COMMAND:
                    pass  # a request to a collector; not ours to answer
                case Topic.JOBS:
                    self._job_list(node, payload, now, wall)
            if kind is not Topic.FRAME:
                self._enter(node)
        except Exception as error:  # noqa: BLE001 - a fault of ours is no reason to stop receiving
            self._refuse(error, topic, payload, now, wall, node)

    def _refuse(
        self, error: Exception, topic: str, payload: bytes, now: float, wall: int, node: NodeTracker | None
    ) -> None:
        """Refuse a message on which something raised, whoever's fault it is."""
        if not isinstance(error, WireError):
            log.error("ingest: %s", border.clean(topic), exc_info=error)
            error = WireError(FAULT, repr(error))
        try:
            self.refuse(error, topic, payload, now, wall, node)
        except Exception:
            log.exception("ingest: a refused message was not counted")
            self.refusals.add(None if node is None else node.name, FAULT, str(error), now)

    def refuse(
        self, error: WireError, topic: str, payload: bytes, now: float, wall: int, node: NodeTracker | None = None
    ) -> None:
        """Count a message that is refused, and keep a sample; `node`: of whom, if it is known."""
        detail, topic = border.clean(str(error)[:512]), border.clean(topic[:512])
        self._stats.drop(error.reason)
        ours = node is not None and (node.layouts or node.status is not None)
        self.refusals.add(node.name if node and ours else None, error.reason, detail, now)
        self._dead_letters.add(error.reason, topic, payload, detail, wall)

    def refuse_unread(self, error: WireError, topic: str, now: float, wall: int) -> None:
        """Count a message of which only the topic was read."""
        try:
            node = self.nodes.get(border.check_topic(topic, self._config.cluster).node)
        except WireError:
            node = None
        self.refuse(error, topic, b"", now, wall, node)

    def _route(self, topic: str, payload: bytes, now: float, wall: int) -> tuple[NodeTracker, Topic] | None:
        """Return the node and kind of a topic; None for a message that is dealt with already."""
        address = border.check_topic(topic, self._config.cluster)
        if self.shards is not None and address.shard not in self.shards:
            return None  # came while its shard went to another member
        node = self.nodes.get(address.node) or self._newcomer(address, payload, now, wall)
        if node is None:
            return None
        route = self._routes[topic] = node, address.kind
        return route

    def _newcomer(self, address: Address, payload: bytes, now: float, wall: int) -> NodeTracker | None:
        """Return the new tracker of a name; None while its messages are held. Raises `WireError`."""
        name, kind, newcomers = address.node, address.kind, self._newcomers
        if kind is Topic.COMMAND or not payload:  # ours; or a retained message that was cleared
            return None
        if len(self.nodes) - len(newcomers) >= self._budgets.nodes:
            raise over("nodes", f"more than {self._budgets.nodes} nodes")
        if newcomers.admit(name, now):
            return self._sequence.node(name, now)
        if kind is Topic.FRAME:
            self._first_frame(name, payload, now, wall)
        elif kind in {Topic.STATUS, Topic.INVENTORY, Topic.JOBS} and len(payload) <= frames.MAX_FRAME_BYTES:
            newcomers.hold(name, kind, payload, now)
        else:
            raise over("newcomers", f"{len(newcomers)} names without an inventory and a frame")
        return None

    def _first_frame(self, name: str, payload: bytes, now: float, wall: int) -> None:
        """Make a node of a name whose messages were held, if its frame fits its inventory; else request
        its inventory. Raises `WireError`."""
        newcomers = self._newcomers
        if newcomers.fitting(name, border.decode_frame(payload), wall) is None:
            self._sequence.request_inventory(name, now)
            raise over("newcomers", f"{len(newcomers)} names without an inventory and a frame")
        node = self._sequence.node(name, now)
        try:
            self._status(node, newcomers.pop(name, Topic.STATUS), now, wall)
            self._frame(node, payload, now, wall, live=True)
        finally:
            if not node.proven:
                self.remove(name)

    def _frame(self, node: NodeTracker, payload: bytes, now: float, wall: int, *, live: bool) -> None:
        self.held.steady.leave(node)
        frame = border.decode_frame(payload)
        if not live or self._clocks.offsets or not border.live(frame.sampled_at, wall):
            frame = self._timed(node, frame, wall, live=live)
        self._stats.frames_received += 1
        if self._accept(node, frame, len(payload), wall, now, live=live):
            self.held.learn(node, payload, frame)
            self._enter(node)

    def _enter(self, node: NodeTracker) -> None:
        """Make a node steady if it can be, in a fleet that is large enough."""
        if len(self.nodes) >= FEW_NODES and node.steady < 0 and node.name not in self._clocks.offsets:
            node.topic = node.topic or topic(self._config.cluster, node.name, Topic.FRAME)
            self.held.steady.enter(node)

    def _single_frame(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        """Process a frame that was held."""
        try:
            self._frame(node, payload, now, wall, live=True)
        except Exception as error:  # noqa: BLE001 - as in `receive`
            self._refuse(error, f"{node.name}/frame", payload, now, wall, node)

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

    def _accept(self, node: NodeTracker, frame: Frame, size: int, received_at: int, now: float, *, live: bool) -> bool:
        """Accept a frame, or not; return whether it is its node's newest and fits what the node is now."""
        room = not self._batcher.full(self._config.store.pending_bytes)
        if not room:
            self._stats.drop("no_room")
        elif live and self._shedding.step and self._shedding.history_of(node.name):
            room = False
            self._shedding.frames += 1
        held = self._newcomers.fitting(node.name, frame, received_at) if live and not node.proven else None
        arrived = self._sequence.accept(node, frame, size, received_at, now, live=live, room=room, waits=held is None)
        if held is not None and arrived is None:  # it was not refused: its inventory may be in the fleet
            self._inventory(node, self._newcomers.pop(node.name, Topic.INVENTORY), now, received_at, held)
            arrived = self._sequence.accept(node, frame, size, received_at, now, live=live, room=room)
        if arrived is None:
            return False
        if not node.proven:
            self._prove(node, now, received_at)
        try:
            self._batcher.add(arrived)
        except Exception:
            if arrived.stored:  # it is requested again
                node.accounts[frame.session].forget(frame.seq)
            raise
        for event in frame.events:  # of a frame that is not stored too: events are never shed
            try:
                self._events.add(node.name, event, now, received_at, node.budget)
            except Exception as error:  # noqa: BLE001 - the frame and its others are none the worse
                self._refuse(error, f"{node.name}/frame/event", event, now, received_at, node)
        if held is not None:
            self._accept_waiting(node, now)
            self._sequence.wake(node, now)
        return arrived.rows is not None

    def _accept_waiting(self, node: NodeTracker, now: float) -> None:
        """Accept the frames that waited for the inventory that a node has now."""
        for each in self._sequence.fitting(node):
            self._accept(node, each.frame, each.size, each.received_at, now, live=each.live)

    def _prove(self, node: NodeTracker, now: float, wall: int) -> None:
        """Note that a newcomer is a node: its inventory is stored from now on."""
        node.proven = True
        self._newcomers.remove(node.name)
        inventory = node.layouts[0].inventory
        self._inventories.append(inventory)
        rows = [self._fleet.by_uuid.get(gpu.uuid) for gpu in inventory.gpus]
        holders = [None if row is None else self._fleet.gpus[row] for row in rows]
        if any(holder is None or holder[0] != node.name for holder in holders):
            self._fleet.place(inventory)  # another name without a frame listed its GPUs after it
        self._compare_held_ring(node, now, wall)

    def _compare_held_ring(self, node: NodeTracker, now: float, wall: int) -> None:
        held = self._newcomers.release(node.name)
        for kind in (Topic.STATUS, Topic.INVENTORY, Topic.JOBS):
            self._process_held(node, kind, held.get(kind, b""), now, wall)

    def _backfill(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        for each in border.decode_backfill(payload):
            try:
                self._frame(node, each, now, wall, live=False)
            except Exception as error:  # noqa: BLE001 - the other frames are none the worse
                self._refuse(error, f"{node.name}/backfill", each, now, wall, node)

    def _inventory(
        self, node: NodeTracker, payload: bytes, now: float, wall: int, proven: Inventory | None = None
    ) -> None:
        """Apply an inventory. `proven`: the same, decoded, when it was held until now, for a frame that is accepted next."""
        if not payload:
            return  # the retained message was cleared
        first = not node.layouts
        # After a start the broker sends all that it retains, most of which the store had: to encode what is known takes a
        # fifth of the time of decoding, checking and comparing what came.
        same = not first and payload == encode(node.layouts[0].inventory)
        found = None if same else proven or border.decode_inventory(payload, node.name, wall)
        self._listening = min(self._listening, now)
        inventory = None if found is None else self._interner.inventory(found)
        if inventory is not None and (first or node.layouts[0].inventory != inventory):
            self._check_holders(node, inventory, now)
            self._sequence.check_devices(node, inventory, now)
            size = len(payload) - (SCHEMA_BYTES if inventory.schema is SCHEMA else 0)
            if not node.proven and proven is None and not self._newcomers.place(node.name, size, payload, now):
                return  # held until a frame fits it
            if node.proven:
                self._inventories.append(inventory)
            if not first:
                self._batcher.take_apart()
            self._sequence.add_layout(node, inventory)
        if proven is not None:
            return
        self._accept_waiting(node, now)
        if first:
            self._compare_held_ring(node, now, wall)
            self._sequence.wake(node, now)

    def _job_list(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        """Apply a node's list of jobs; one that comes before its inventory and first frame waits."""
        if not payload:
            return  # the retained message was cleared
        if node.proven:
            gpus = {gpu.uuid for gpu in node.layouts[0].inventory.gpus}
            self.jobs.receive(node.name, payload, gpus, wall)
        else:
            self._newcomers.hold(node.name, Topic.JOBS, payload, now)

    def _process_held(self, node: NodeTracker, kind: Topic, payload: bytes, now: float, wall: int) -> None:
        """Apply a message that was held; one that is refused is no fault of what came with it, nor of the first frame."""
        apply = {Topic.STATUS: self._status, Topic.INVENTORY: self._inventory, Topic.JOBS: self._job_list}[kind]
        try:
            apply(node, payload, now, wall)
        except Exception as error:  # noqa: BLE001 - as in `receive`
            self._refuse(error, f"{node.name}/{kind}", payload, now, wall, node)

    def _check_holders(self, node: NodeTracker, inventory: Inventory, now: float) -> None:
        """Raise `WireError` (`foreign`) for a GPU that is another node's: history is found by UUID, and
        is not to be mixed. A board that has moved is its new node's once the other is shut down, has
        sent an inventory without it, or was silent for `HELD_SECONDS`. One of the same machine, which has
        another name now, is so too when we were started meanwhile. A name without a frame holds none."""
        fleet, former = self._fleet, set()
        machine = machine_of(inventory)
        for number, gpu in enumerate(inventory.gpus):
            row = fleet.by_uuid.get(gpu.uuid)
            name, held = (None, None) if row is None else fleet.gpus[row] or (None, None)
            if name is None or name == inventory.node or not gpu.present:
                continue
            if not self.nodes[name].proven:
                continue  # an old inventory that the broker retains, perhaps
            holder = fleet.nodes[name]
            same = bool(machine) and machine_of(holder.inventory) == machine
            unheard = same and not holder.online and not math.isfinite(holder.seen)
            soon = max(RENAMED_SECONDS, 3 * holder.interval)
            silent = now - max(holder.seen, self._began) > HELD_SECONDS or (unheard and now - self._listening > soon)
            if not (silent or holder.ended or (held is not None and not held.present)) and not (
                self._registry.had(inventory.node, gpu.uuid)
            ):
                if unheard:  # request it again as soon as it may be accepted
                    node.inventory_requested = now + soon - REQUEST_INVENTORY_EVERY
                raise WireError(
                    "foreign",
                    f"gpus[{number}] is of the node {name}. If that is an old name of this machine, stop its "
                    f"collector; if the GPU has moved here: kilowatch forget {name}",
                )
            if same:
                former.add(name)
        for name in sorted(former):
            self.renamed.append((name, inventory.node))
            for account in self._sequence.ledger.of(name):  # its ring has sessions of before
                self._sequence.restore(node, account.session, account.have)

    def _status(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        if not payload:
            return  # the retained message was cleared
        status = border.decode_status(payload)
        for span in status.ring:
            if span.session == node.session and not node.credible(span.last, now, wall):
                raise WireError("malformed", f"a ring up to {span.last}, behind {node.seq}: a leap")
        spans = len(status.ring)
        if spans > self._budgets.spans_per_status:
            raise over("spans_per_status", f"{spans} spans in a status")
        if status.state is NodeState.ONLINE and not node.proven and spans > (FEW_SPANS if node.layouts else 0):
            self._newcomers.hold(node.name, Topic.STATUS, payload, now)
            status = msgspec.structs.replace(status, ring=())
        self._sequence.report_status(node, status, now)

    # -- Removal ---------------------------------------------------------------------------------

    def acquire(
        self, shard: str, inventories: Iterable[Inventory], accounted: Mapping[tuple[str, int], IntervalSet], now: float
    ) -> None:
        """Begin with a shard: with what is known of its nodes and stored of their frames. Nothing is
        requested of them before `confirm`."""
        if self.shards is None:
            self.shards = set()
        self.shards.add(shard)
        self._sequence.withheld_shards.add(shard)
        self.restore(inventories, accounted, now)

    def confirm(self, shard: str, accounted: Mapping[tuple[str, int], IntervalSet], now: float) -> None:
        """Go on to request what is missing of a shard: nobody else receives it, and this is what was stored
        of it."""
        for (name, session), stored in accounted.items():
            node = self.nodes.get(name)
            if node is None:
                continue
            self.held.leave(node)
            account = node.accounts.get(session)
            if account is None:
                self._sequence.restore(node, session, stored)
            else:
                account.settle(stored)
        self._sequence.withheld_shards.discard(shard)
        for name, node in self.nodes.items():
            if shard_of(name) == shard:
                self._sequence.wake(node, now)

    def release(self, shard: str) -> list[str]:
        """End with a shard: remove its nodes from memory, and return them. The store keeps what it has,
        and what no batch has yet is stored."""
        if self.shards is not None:
            self.shards.discard(shard)
        self._sequence.withheld_shards.discard(shard)
        names = [name for name in self.nodes if shard_of(name) == shard]
        for name in names:
            self._drop(name)
            self._sequence.remove(name)
        return names

    def remove(self, name: str) -> bool:
        """Remove a node from memory, and its inventory from the store; return whether it was known.
        Its history stays."""
        held = self._drop(name)
        self._inventories = [each for each in self._inventories if each.node != name]
        node = self.nodes.get(name)
        if node is not None and node.proven:
            self._removed.append(name)
        return self._sequence.remove(name) or held

    def _drop(self, name: str) -> bool:
        """Drop what is in memory of a node beside its frames; return whether messages of it were held."""
        self._newcomers.remove(name)
        held = bool(self._newcomers.release(name))
        node = self.nodes.get(name)
        if node is not None:
            self.held.leave(node)
            self.held.forget(node)
            self._batcher.take_apart()
            self.held.steady.remove(node)
        for kind in Topic:
            self._routes.pop(topic(self._config.cluster, name, kind), None)
        self._clocks.offsets.pop(name, None)
        self._batcher.aside.forget(name)
        return held

    def online(self, name: str, now: float) -> bool:
        """Return whether the collector of a node runs: it is connected, or something came lately."""
        node = self.nodes.get(name)
        if node is not None:
            self.held.steady.bring_back(node)
        return node is not None and node.online and now - max(node.since, node.last_frame) < ONLINE_SECONDS

    def expire(self, now: float) -> list[str]:
        """Remove what is long gone: names without an inventory, nodes that are offline and silent, and
        sessions that another followed. Return the nodes that were removed."""
        removed: list[str] = []
        self._batcher.aside.forget_idle(now)
        for name in self._newcomers.expire(now):
            self.remove(name)
        if now - self._swept >= SWEEP_EVERY:
            self._swept = now
            before = now - self._budgets.expiry_seconds
            removed = self._sequence.silent_since(before)
            for name in removed:
                log.info(
                    "node=%s removed: nothing came from it for %.0f days", name, self._budgets.expiry_seconds / 86_400
                )
                self.remove(name)
                self._stats.nodes_expired += 1
            for node in self.nodes.values():
                self._sequence.end_sessions(node, before)
        self._note_budgets()
        return removed

    def _note_budgets(self) -> None:
        """Show how much of the cluster's budgets is used."""
        devices, newcomers, stats = self._sequence.devices, self._newcomers, self._stats
        stats.newcomers_expired = newcomers.expired
        stats.budget_used = {
            "nodes": len(self.nodes) - len(newcomers),
            "newcomers": len(newcomers),
            "newcomer_bytes": newcomers.bytes,
            "gpus": devices.gpus,
            "links": devices.links,
        }
        stats.budget_limit = {name: getattr(self._budgets, name) for name in stats.budget_used}

    # -- Out -------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Frames that wait for the next flush."""
        return self._batcher.waiting + len(self.held)

    def flush(self, now: float, wall: int, most: int | None = None) -> SampleTimes:
        """Bring the newest frames into the fleet, and all into the batch, `most` of each at a time;
        return when the newest were sampled."""
        self.held.process(most)
        return self._batcher.flush(now, wall, most)

    def load(self, now: float) -> dict[str, float]:
        """Return the readings of the load that concern frames in memory, by their signal."""
        return {"store": self._batcher.waits(now), "pending": self._batcher.share(self._config.store.pending_bytes)}

    def drain_batch(self, wall: int) -> Batch:
        """Return what came since the last batch and is to be stored; call `stored` when it is."""
        # Kept until it is whole: an exception in between loses nothing.
        batch = self._unfinished = self._unfinished or self._batcher.drain(wall)
        batch.events += self._events.drain_unstored()
        batch.holes += self._sequence.drain_holes()
        batch.inventories += self._inventories[:INVENTORIES_AT_ONCE]
        del self._inventories[:INVENTORIES_AT_ONCE]
        runs, devices = self._registry.drain_new()
        batch.runs += runs
        batch.devices += devices
        batch.ended_runs += self._registry.drain_ended()
        removed, self._removed = self._removed, []
        batch.removed_nodes += removed
        self._unfinished = None
        return batch

    def lose(self, node: str, part: Batch, reason: str, wall: int) -> None:
        """Record what could not be stored of a node: its frames are lost, a sample is kept."""
        self._dead_letters.add("store", node, sample_of(part), reason, wall)
        if (found := self.nodes.get(node)) is not None:
            self.held.steady.bring_back(found)
        self._sequence.record_lost(holes_of(part, self._registry.run_of, "unstorable"))

    def faults(self) -> Iterator[PartFault]:
        """Yield the nodes on whose frames a flush raises, or has raised since the last call."""
        return self._batcher.aside.faults()

    def stored(self) -> None:
        """Note that the batch drained last is no longer in memory."""
        self._batcher.stored()

    def refill(self, lost: Iterable[LostFrames], now: float) -> None:
        """Request frames again that the store has lost."""
        lost = list(lost)
        for each in lost:
            if (node := self.nodes.get(each.node)) is not None:
                self.held.leave(node)
        self._sequence.refill(lost, now)

    def drain_commands(self, now: float) -> list[NodeCommand]:
        """Return the commands to send now."""
        behind = self._batcher.full(self._config.store.pending_bytes / 2)
        share = 0.0 if behind else self._shedding.refill
        return self._sequence.drain_commands(now, share=share)

    def record_event(self, event: Event, wall: int) -> None:
        """Add an event of the aggregator's own at `wall`, ns since 1970: stored and shown, not evaluated."""
        self._events.record(event, wall)

    def drain_events(self) -> list[Event]:
        """Return the events that the rules have not evaluated yet."""
        return self._events.drain_unevaluated()

    def drain_sample_times(self) -> SampleTimes:
        """Return when the frames were sampled that the rules have not evaluated yet."""
        return self._batcher.drain_sample_times()
