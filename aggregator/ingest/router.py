"""Ingest: messages in; the fleet's newest readings and batches for the store out.

Taking a message is cheap: look up its topic, decode the envelope, enter it in the ledger, append.
The work on values is done once a flush (`aggregator.ingest.batcher`). What can't be read is counted by
reason and never stops anything.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.config import AggregatorConfig
from aggregator.ingest.accept import FrameAcceptor
from aggregator.ingest.backfill import BackfillPlanner, NodeCommand
from aggregator.ingest.batcher import Pending
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.events import EventIntake, checked
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.layout import check_inventory, make_layout
from aggregator.ingest.ledger import FrameLedger
from aggregator.ingest.node_tracker import NodeTracker, WaitingFrame
from aggregator.stats import Stats
from aggregator.store.protocol import Batch, Hole
from telemetry import frame as frames
from telemetry import inventory as messages
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.intervals import IntervalSet
from telemetry.inventory import CollectorStatus, CommandReply, Event, FrameSpan, Gpu, Inventory
from telemetry.inventory import NodeState as State
from telemetry.schema import SCHEMA, Schema
from telemetry.topics import Topic, parse, shard_of

# One copy of what all nodes say alike: a schema and a GPU's gaps are most of an inventory.
#
# A fleet of one model has one schema and a few sets of capabilities; as decoded, every node brings
# its own copies of them, 66 kB a node of eight GPUs, against 7 kB when they are shared.

MOST_KEPT = 4096
"""Distinct values that are remembered; beyond that it begins anew."""


class Interner:
    """Remembers what it has seen and gives the first copy back."""

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


log = logging.getLogger(__name__)

LONGEST_BACKFILL = 16 * 1024 * 1024
"""Bytes of one backfill message."""
SESSIONS_END = 1 << 63
CLOCK_END = 1 << 62
"""ns since 1970: the year 2116."""


class MessageRouter:
    """All nodes of a cluster or shard. One loop owns it; it does no I/O but the quarantine's."""

    def __init__(
        self,
        config: AggregatorConfig,
        fleet: Fleet,
        stats: Stats,
        registry: IdRegistry,
        quarantine: DeadLetters,
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._stats = stats
        self._registry = registry
        self._quarantine = quarantine
        self._shared = Interner()
        self.nodes: dict[str, NodeTracker] = {}
        self._pending = Pending(fleet, stats, registry, self.nodes.__getitem__)
        self._news = EventIntake(self._pending, stats)
        self._intake = FrameAcceptor(config, fleet, stats, registry, self._pending, self._news)
        self._routes: dict[str, tuple[NodeTracker, Topic]] = {}

    @property
    def ledger(self) -> FrameLedger:
        """Which frames are accounted for."""
        return self._intake.ledger

    @property
    def planner(self) -> BackfillPlanner:
        """What is asked for again, and when."""
        return self._intake.planner

    @property
    def recent(self) -> deque[Event]:
        """The last events, newest last."""
        return self._news.recent

    @property
    def newest(self) -> npt.NDArray[np.int64]:
        """When the frames that the last flush brought into the fleet were sampled, ns since 1970."""
        return self._pending.newest

    # -- Start ---------------------------------------------------------------------------------

    def restore(
        self,
        inventories: Iterable[Inventory],
        accounted: dict[tuple[str, int], IntervalSet],
    ) -> None:
        """Begin with what the store knows: its nodes show as stale, not as absent."""
        for inventory in map(self._shared.inventory, inventories):
            node = self._node(inventory.node)
            node.add_layout(make_layout(inventory, self._registry), self._fleet)
        for (name, session), stored in accounted.items():
            self.ledger.restore(self._intake.account(self._node(name), session), stored)

    # -- Messages ------------------------------------------------------------------------------

    def take(self, topic: str, payload: bytes, now: float, wall: int) -> None:
        """Take one message; `now` is monotonic seconds, `wall` ns since 1970. Never raises."""
        stats = self._stats
        stats.bytes_received += len(payload)
        try:
            route = self._routes.get(topic) or self._route(topic)
            node, kind = route
            stats.messages[kind] = stats.messages.get(kind, 0) + 1
            match kind:
                case Topic.FRAME:
                    self._frame(node, payload, now, wall, live=True)
                case Topic.BACKFILL:
                    self._backfill(node, payload, now, wall)
                case Topic.EVENT:
                    self._news.take(node.name, payload, wall)
                case Topic.STATUS:
                    self._status(node, payload, now)
                case Topic.INVENTORY:
                    self._inventory(node, payload, now)
                case Topic.REPLY:
                    self._reply(node, payload, now)
                case Topic.COMMAND:
                    pass  # somebody's question to a collector; not ours to answer
        except WireError as error:
            self._drop(error, topic, payload, wall)
        except Exception as error:  # our fault; still no reason to stop taking the others
            log.exception("ingest: %s", topic)
            self._drop(WireError("error", repr(error)), topic, payload, wall)

    def _route(self, topic: str) -> tuple[NodeTracker, Topic]:
        address = parse(topic)
        if address is None:
            level = topic.split("/", 2)
            if len(level) > 1 and level[0] == "kilowatch" and level[1] != "1":
                raise WireError("version", f"kilowatch/{level[1][:20]} is not spoken here")
            raise WireError("foreign", "no topic of ours")
        if address.cluster != self._config.cluster or address.shard != shard_of(address.node):
            raise WireError("foreign", "another cluster, or the wrong shard for the node")
        route = self._routes[topic] = self._node(address.node), address.kind
        return route

    def _drop(self, error: WireError, topic: str, payload: bytes, wall: int) -> None:
        dropped = self._stats.dropped
        dropped[error.reason] = dropped.get(error.reason, 0) + 1
        self._quarantine.keep(error.reason, topic, payload, str(error), wall)

    def _frame(
        self, node: NodeTracker, payload: bytes, now: float, wall: int, *, live: bool
    ) -> None:
        frame = frames.decode(payload)
        if not (
            frame.session < SESSIONS_END
            and frame.seq < CLOCK_END
            and 0 < frame.sampled_at < CLOCK_END
        ):
            raise WireError("malformed", "a number is out of range")
        self._stats.frames_received += 1
        self._intake.accept(node, WaitingFrame(frame, len(payload), wall, live), now)

    def _backfill(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        if len(payload) > LONGEST_BACKFILL:
            raise WireError("oversize", f"{len(payload)} bytes")
        for each in frames.decode_many(payload):
            try:
                self._frame(node, each, now, wall, live=False)
            except WireError as error:
                self._drop(error, f"{node.name}/backfill", each, wall)

    # -- JSON messages ---------------------------------------------------------------------------

    def _inventory(self, node: NodeTracker, payload: bytes, now: float) -> None:
        inventory = self._shared.inventory(messages.decode(checked(payload), Inventory))
        if inventory.node != node.name:
            raise WireError("foreign", f"an inventory of {inventory.node!r}")
        if not 0 <= inventory.session < SESSIONS_END or not 0 <= inventory.version < SESSIONS_END:
            raise WireError("malformed", "a number is out of range")
        check_inventory(inventory)
        first = not node.layouts
        if first or node.layouts[0].inventory != inventory:
            self._pending.batch.inventories.append(inventory)
            node.add_layout(make_layout(inventory, self._registry), self._fleet)
        self._intake.retry_held(node, now)
        if first:
            self.planner.wake(self.ledger.of(node.name), now)

    def _status(self, node: NodeTracker, payload: bytes, now: float) -> None:
        status = messages.decode(checked(payload), CollectorStatus)
        if status.interval <= 0 or status.slow_interval <= 0:
            raise WireError("malformed", "an interval that is not above 0")
        if status.state is State.OFFLINE:
            self._gone(node, status)
            return
        node.enter(status.session)
        node.online, node.status = True, status
        spans = _outlines(status.ring)
        for span in spans.values():
            if span.session not in node.accounts:
                account = self._intake.account(node, span.session)
                self._intake.too_old(node, account, span.last)
        self._intake.lost(self.ledger.ring(node.name, status.session, spans))
        node.show(self._fleet)
        self.planner.wake(self.ledger.of(node.name), now)

    def _gone(self, node: NodeTracker, status: CollectorStatus) -> None:
        """A session has ended; it counts only if it is the current one."""
        if node.session is None:
            node.enter(status.session)  # retained from before we came: it is the current one
        if status.session == node.session:
            node.online, node.ended = False, status.reason == "shutdown"
            node.show(self._fleet)
            for span in status.ring:  # what its last frames were; asked for when it is back
                if span.session in node.accounts and span.last < CLOCK_END:
                    node.accounts[span.session].exists(span.last)

    def _reply(self, node: NodeTracker, payload: bytes, now: float) -> None:
        reply = messages.decode(checked(payload), CommandReply)
        account = node.accounts.get(reply.about)
        if account is not None:
            self._intake.lost(self.planner.replied(account, reply, now))

    # -- Out ---------------------------------------------------------------------------------

    def flush(self, now: float, wall: int) -> None:
        """Bring the newest frames into the fleet, and all into the batch."""
        self._pending.flush(now, wall)

    def take_batch(self, wall: int) -> Batch:
        """Return all that came since the last batch and is to be stored; say `stored` when it is."""
        return self._pending.take_batch(wall)

    def stored(self) -> None:
        """Note that the last batch taken is no longer in memory."""
        self._pending.storing_bytes = 0

    def lost(self, holes: list[Hole]) -> None:
        """Record frames that nobody has any more."""
        self._intake.lost(holes)

    def take_asks(self, now: float) -> list[NodeCommand]:
        """Return the commands to send now."""
        opened, self.ledger.opened = self.ledger.opened, []
        self.planner.wake(opened, now)
        self.planner.paused = self._pending.full(self._config.store.pending_bytes / 2)
        asks, self._intake.asks = self._intake.asks, []
        planned = self.planner.plan(self._ready, now)
        self._stats.resend_requests += len(planned)
        return asks + planned

    def take_events(self) -> list[Event]:
        """Return the events that no rule has seen yet."""
        return self._news.take_unjudged()

    def take_clocks(self) -> npt.NDArray[np.int64]:
        """Return when the frames were sampled that no rule has seen yet, ns since 1970."""
        return self._pending.take_clocks()

    # -- Small things --------------------------------------------------------------------------

    def _ready(self, name: str) -> bool:
        node = self.nodes[name]
        return node.online and bool(node.layouts)

    def _node(self, name: str) -> NodeTracker:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeTracker(name)
        return node


def _outlines(ring: Iterable[FrameSpan]) -> dict[int, FrameSpan]:
    """Return one span per session: a torn ring has several of one. What can't be is left out."""
    spans: dict[int, FrameSpan] = {}
    for span in ring:
        if 0 <= span.first <= span.last < CLOCK_END and 0 <= span.session < SESSIONS_END:
            other = spans.get(span.session, span)
            spans[span.session] = FrameSpan(
                span.session, min(span.first, other.first), max(span.last, other.last)
            )
    return spans
