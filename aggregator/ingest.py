"""Ingest: messages in; the fleet's newest readings and batches for the store out.

Taking a message is cheap: look up its topic, decode the envelope, enter it in the ledger, append.
The work on values is done once a flush, for all frames together. What can't be read is counted by
reason and never stops anything.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from aggregator.arrival import Arrival, Assembled, assemble, frames_of
from aggregator.backfill import Ask, Planner
from aggregator.config import AggregatorConfig
from aggregator.display import Display
from aggregator.layout import check_inventory, make_layout
from aggregator.ledger import Account, Ledger
from aggregator.model import Batch, Frames, Hole, Stats, StoredEvent
from aggregator.nodes import HELD_FRAMES, REJECTIONS, Held, NodeState
from aggregator.quarantine import Quarantine
from aggregator.registry import Registry
from aggregator.shared import Shared
from telemetry import frame as frames
from telemetry import inventory as messages
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.frame import Frame
from telemetry.intervals import IntervalSet
from telemetry.inventory import Command, CommandKind, Event, Inventory, Reply, Span, Status
from telemetry.inventory import NodeState as State
from telemetry.topics import Topic, parse, shard_of

log = logging.getLogger(__name__)

HELD_BYTES = 32 * 1024 * 1024
"""Frames of all nodes that may wait for an inventory."""
LONGEST_BACKFILL = 16 * 1024 * 1024
"""Bytes of one backfill message."""
REMEMBERED_EVENTS = 100_000
RECENT_EVENTS = 1000
ASK_INVENTORY_EVERY = 10.0
"""Seconds, per node."""
SESSIONS_END = 1 << 63
CLOCK_END = 1 << 62
"""ns since 1970: the year 2116."""


class Ingest:
    """All nodes of a cluster or shard. One loop owns it; it does no I/O but the quarantine's."""

    def __init__(
        self,
        config: AggregatorConfig,
        fleet: Fleet,
        stats: Stats,
        registry: Registry,
        quarantine: Quarantine,
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._stats = stats
        self._registry = registry
        self._quarantine = quarantine
        self._shared = Shared()
        self.ledger = Ledger()
        self.planner = Planner(config.backfill)
        self.nodes: dict[str, NodeState] = {}
        self.recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        """Newest last."""
        self._display = Display(fleet, stats, self.nodes.__getitem__)
        self._routes: dict[str, tuple[NodeState, Topic]] = {}
        self._asks: list[Ask] = []
        self._fresh: list[Arrival] = []
        self._late: list[Arrival] = []
        self._shown: list[Arrival] = []
        """Newest frames that there is no room to store: they are shown, and missing."""
        self._held_bytes = 0
        self._seen_events: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._unjudged: list[Event] = []
        self._unjudged_clocks: list[npt.NDArray[np.int64]] = []
        self.newest = Frames.none().sampled_at
        """When the frames that the last flush brought into the fleet were sampled, ns since 1970."""
        self._parts: list[Frames] = []
        self._batch = Batch()
        self._frames = 0
        self.pending_bytes = 0
        """Bytes of frames in memory that no taken batch holds."""
        self.storing_bytes = 0
        """Bytes of frames in the batch that is being written; kept by whoever writes it."""

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
            account = self._account(self._node(name), session)
            self.ledger.restore(account, stored)

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
                    self._event(node, payload, wall)
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

    def _route(self, topic: str) -> tuple[NodeState, Topic]:
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

    def _frame(self, node: NodeState, payload: bytes, now: float, wall: int, *, live: bool) -> None:
        frame = frames.decode(payload)
        if not (
            frame.session < SESSIONS_END
            and frame.seq < CLOCK_END
            and 0 < frame.sampled_at < CLOCK_END
        ):
            raise WireError("malformed", "a number is out of range")
        self._stats.frames_received += 1
        self._accept(node, Held(frame, len(payload), wall, live), now)

    def _backfill(self, node: NodeState, payload: bytes, now: float, wall: int) -> None:
        if len(payload) > LONGEST_BACKFILL:
            raise WireError("oversize", f"{len(payload)} bytes")
        for each in frames.decode_many(payload):
            try:
                self._frame(node, each, now, wall, live=False)
            except WireError as error:
                self._drop(error, f"{node.name}/backfill", each, wall)

    def _accept(self, node: NodeState, held: Held, now: float) -> None:
        """Account for a frame, unless it can't be read or kept."""
        frame = held.frame
        if held.live and frame.session == node.session and not node.credible(frame.seq, now):
            raise WireError("malformed", f"number {frame.seq} behind {node.seq}: a leap of frames")
        account = node.accounts.get(frame.session)
        if account is None:
            account = self._account(node, frame.session)
            self._too_old(node, account, frame.seq)
        layout = node.layout_for(frame)
        if layout is None:
            account.exists(frame.seq)
            self._hold(node, held, now)
            return
        fresh = held.live and self._is_fresh(node, frame, now)
        place = node.place if fresh and layout is node.layouts[0] else None
        arrival = Arrival(frame, layout, account.run, held.received_at, not held.live, place)
        if self.pending_bytes + self.storing_bytes > self._config.store.pending_bytes:
            account.exists(frame.seq)
            if place is not None:
                self._shown.append(arrival)
            self._count("no_room")
            return
        if not account.receive(frame.seq):
            self._stats.frames_duplicate += 1
            return
        (self._late if place is None else self._fresh).append(arrival)
        self.pending_bytes += held.size
        for body in frame.events:
            self._event(node, body, held.received_at)

    def _is_fresh(self, node: NodeState, frame: Frame, now: float) -> bool:
        """Return whether a live frame is its node's newest; a new session begins with it."""
        if frame.session != node.session:
            if frame.session in node.superseded and not node.silent(now):
                return False
            node.enter(frame.session)
        if not node.online:
            node.online = True
            self.planner.wake(self.ledger.of(node.name), now)
            node.show(self._fleet)
        if frame.seq <= node.seq:
            return False
        node.seq, node.heard = frame.seq, now
        return True

    # -- Frames that fit no inventory ------------------------------------------------------------

    def _hold(self, node: NodeState, held: Held, now: float) -> None:
        """Keep a frame until an inventory comes that it fits, within bounds."""
        if now - node.inventory_asked >= ASK_INVENTORY_EVERY:
            node.inventory_asked = now
            self._asks.append(Ask(node.name, Command(kind=CommandKind.INVENTORY)))
        node.held.append(held)
        self._held_bytes += held.size
        while len(node.held) > HELD_FRAMES or (node.held and self._held_bytes > HELD_BYTES):
            self._reject(node, self._unhold(node))

    def _unhold(self, node: NodeState) -> Held:
        held = node.held.popleft()
        self._held_bytes -= held.size
        return held

    def _reject(self, node: NodeState, held: Held) -> None:
        """Drop a frame that fits no inventory; it stays missing, until it has come too often."""
        known = any(layout.schema_id == held.frame.schema for layout in node.layouts)
        self._count("malformed" if known else "schema")
        if not node.layouts:
            return
        frame, counts = held.frame, node.rejections
        key = frame.session, frame.seq
        counts[key] = counts.get(key, 0) + 1
        if counts[key] >= REJECTIONS:
            del counts[key]
            account = node.accounts[frame.session]
            self._lost(account.lose(frame.seq, frame.seq, "malformed"))
        elif len(counts) > 10 * HELD_FRAMES:
            counts.clear()

    def _retry_held(self, node: NodeState, now: float) -> None:
        for _ in range(len(node.held)):
            held = self._unhold(node)
            if node.layout_for(held.frame) is None:
                self._reject(node, held)
            else:
                self._accept(node, held, now)

    # -- JSON messages ---------------------------------------------------------------------------

    def _inventory(self, node: NodeState, payload: bytes, now: float) -> None:
        inventory = self._shared.inventory(messages.decode(_checked(payload), Inventory))
        if inventory.node != node.name:
            raise WireError("foreign", f"an inventory of {inventory.node!r}")
        if not 0 <= inventory.session < SESSIONS_END or not 0 <= inventory.version < SESSIONS_END:
            raise WireError("malformed", "a number is out of range")
        check_inventory(inventory)
        first = not node.layouts
        if first or node.layouts[0].inventory != inventory:
            self._batch.inventories.append(inventory)
            node.add_layout(make_layout(inventory, self._registry), self._fleet)
        self._retry_held(node, now)
        if first:
            self.planner.wake(self.ledger.of(node.name), now)

    def _status(self, node: NodeState, payload: bytes, now: float) -> None:
        status = messages.decode(_checked(payload), Status)
        if status.interval <= 0 or status.slow_interval <= 0:
            raise WireError("malformed", "an interval that is not above 0")
        if status.state is State.OFFLINE:
            if node.session is None:
                node.enter(status.session)  # retained from before we came: it is the current one
            if status.session == node.session:
                node.online = False
                node.show(self._fleet)
                for span in status.ring:  # what its last frames were; asked for when it is back
                    if span.session in node.accounts and span.last < CLOCK_END:
                        node.accounts[span.session].exists(span.last)
            return
        node.enter(status.session)
        node.online, node.status = True, status
        spans: dict[int, Span] = {}
        for span in status.ring:
            if 0 <= span.first <= span.last < CLOCK_END and 0 <= span.session < SESSIONS_END:
                other = spans.get(span.session, span)  # a torn ring has several spans of a session
                spans[span.session] = Span(
                    span.session, min(span.first, other.first), max(span.last, other.last)
                )
                if span.session not in node.accounts:
                    account = self._account(node, span.session)
                    self._too_old(node, account, span.last)
        self._lost(self.ledger.ring(node.name, status.session, spans))
        node.show(self._fleet)
        self.planner.wake(self.ledger.of(node.name), now)

    def _reply(self, node: NodeState, payload: bytes, now: float) -> None:
        reply = messages.decode(_checked(payload), Reply)
        account = node.accounts.get(reply.about)
        if account is not None:
            self._lost(self.planner.replied(account, reply, now))

    def _event(self, node: NodeState, payload: bytes, wall: int) -> None:
        event = messages.decode(_checked(payload), Event)
        if event.node != node.name:
            raise WireError("foreign", f"an event of {event.node!r}")
        key = event.node, event.id
        if key in self._seen_events:
            self._stats.events_duplicate += 1
            return
        self._seen_events[key] = None
        if len(self._seen_events) > REMEMBERED_EVENTS:
            self._seen_events.popitem(last=False)
        self.recent.append(event)
        self._unjudged.append(event)
        self._batch.events.append(StoredEvent(event, wall))

    # -- Out ---------------------------------------------------------------------------------

    def flush(self, now: float, wall: int) -> None:
        """Bring the newest frames into the fleet, and all into the batch."""
        fresh, late, shown = self._fresh, self._late, self._shown
        self._fresh, self._late, self._shown = [], [], []
        display = self._display
        moved = [each for each in fresh if not display.stands(each)]
        if moved:  # the node's devices changed after the frame came: it is history already
            late = moved + late
            fresh = [each for each in fresh if display.stands(each)]
        for each in moved:
            each.place = None
        display.show(self._keep(fresh), now)
        self.newest = self._parts[-1].sampled_at if fresh else Frames.none().sampled_at
        self._unjudged_clocks.append(self.newest)
        shown = [each for each in shown if display.stands(each)]
        display.show(assemble(shown, 0), now)
        self._keep(late)
        for each in (*fresh, *shown):
            display.note(each, now, wall)
        display.show_late(late, now)

    def _keep(self, arrivals: list[Arrival]) -> list[Assembled]:
        if not arrivals:
            return []
        assembled = assemble(arrivals, self._frames)
        self._parts.append(frames_of(arrivals))
        self._frames += len(arrivals)
        self._batch.blocks += [each.rows for each in assembled]
        return assembled

    def take_batch(self, wall: int) -> Batch:
        """Return all that came since the last batch and is to be stored."""
        batch = self._batch
        batch.frames = Frames.join(self._parts)
        batch.runs, batch.devices = self._registry.take_new()
        batch.at = wall
        self._batch, self._parts, self._frames = Batch(), [], 0
        self.storing_bytes, self.pending_bytes = self.pending_bytes, 0
        return batch

    def take_asks(self, now: float) -> list[Ask]:
        """Return the commands to send now."""
        opened, self.ledger.opened = self.ledger.opened, []
        self.planner.wake(opened, now)
        bound = self._config.store.pending_bytes
        self.planner.paused = self.pending_bytes + self.storing_bytes > bound / 2
        asks, self._asks = self._asks, []
        planned = self.planner.plan(self._ready, now)
        self._stats.resend_requests += len(planned)
        return asks + planned

    def take_events(self) -> list[Event]:
        """Return the events that no rule has seen yet."""
        events, self._unjudged = self._unjudged, []
        return events

    def take_clocks(self) -> npt.NDArray[np.int64]:
        """Return when the frames were sampled that no rule has seen yet, ns since 1970."""
        clocks, self._unjudged_clocks = self._unjudged_clocks, []
        return np.concatenate([Frames.none().sampled_at, *clocks])

    # -- Small things --------------------------------------------------------------------------

    def _ready(self, name: str) -> bool:
        node = self.nodes[name]
        return node.online and bool(node.layouts)

    def _node(self, name: str) -> NodeState:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeState(name)
        return node

    def _account(self, node: NodeState, session: int) -> Account:
        account = node.accounts.get(session)
        if account is None:
            run = self._registry.run(node.name, session)
            account = node.accounts[session] = self.ledger.account(node.name, session, run)
        return account

    def _too_old(self, node: NodeState, account: Account, newest: int) -> None:
        """Give up at once what a session new to us sampled before the bound, if there is one."""
        bound = self._config.backfill.max_age_seconds
        if bound:
            self._lost(account.lose(0, newest - 1 - int(bound / node.interval), "too_old"))

    def _lost(self, holes: list[Hole]) -> None:
        self._batch.holes += holes
        for hole in holes:
            count = hole.last - hole.first + 1
            self._stats.frames_lost += count
            log.warning("node=%s: %d frames are lost (%s): session %d, %d to %d",
                        hole.node, count, hole.reason, hole.session, hole.first, hole.last)  # fmt: skip

    def _count(self, reason: str) -> None:
        self._stats.dropped[reason] = self._stats.dropped.get(reason, 0) + 1


def _checked(payload: bytes) -> bytes:
    if len(payload) > frames.MAX_FRAME_BYTES:
        raise WireError("oversize", f"{len(payload)} bytes")
    return payload
