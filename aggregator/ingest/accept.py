"""Intake: is a frame new, can it be read, is it its node's newest, is there room for it?

Every frame ends in exactly one of: on its way to the store, there already, waiting for an inventory
that it fits, missing (and so asked for again), or lost for good.
"""

from __future__ import annotations

import logging

from aggregator.config import AggregatorConfig
from aggregator.ingest.assemble import ArrivedFrame
from aggregator.ingest.backfill import BackfillPlanner, NodeCommand
from aggregator.ingest.batcher import Pending
from aggregator.ingest.events import EventIntake
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.ledger import FrameLedger, SessionAccount
from aggregator.ingest.node_tracker import HELD_FRAMES, REJECTIONS, NodeTracker, WaitingFrame
from aggregator.stats import Stats
from aggregator.store.protocol import Hole
from telemetry.errors import WireError
from telemetry.fleet import Fleet
from telemetry.frame import Frame
from telemetry.inventory import Command, CommandKind

log = logging.getLogger(__name__)

HELD_BYTES = 32 * 1024 * 1024
"""Frames of all nodes that may wait for an inventory."""
ASK_INVENTORY_EVERY = 10.0
"""Seconds, per node."""


class FrameAcceptor:
    """The frames of all nodes, and the account of them."""

    def __init__(
        self,
        config: AggregatorConfig,
        fleet: Fleet,
        stats: Stats,
        registry: IdRegistry,
        pending: Pending,
        news: EventIntake,
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._stats = stats
        self._registry = registry
        self._pending = pending
        self._news = news
        self.ledger = FrameLedger()
        self.planner = BackfillPlanner(config.backfill)
        self.asks: list[NodeCommand] = []
        """Inventories to ask for."""
        self._held_bytes = 0

    # -- Frames --------------------------------------------------------------------------------

    def accept(self, node: NodeTracker, held: WaitingFrame, now: float) -> None:
        """Account for a frame, unless it can't be read or kept. Raises `WireError`."""
        frame = held.frame
        if held.live and frame.session == node.session and not node.credible(frame.seq, now):
            raise WireError("malformed", f"number {frame.seq} behind {node.seq}: a leap of frames")
        account = node.accounts.get(frame.session)
        if account is None:
            account = self.account(node, frame.session)
            self.too_old(node, account, frame.seq)
        layout = node.layout_for(frame)
        if layout is None:
            account.exists(frame.seq)
            self._hold(node, held, now)
            return
        fresh = held.live and self._is_fresh(node, frame, now)
        place = node.place if fresh and layout is node.layouts[0] else None
        arrival = ArrivedFrame(frame, layout, account.run, held.received_at, not held.live, place)
        pending = self._pending
        if pending.full(self._config.store.pending_bytes):
            account.exists(frame.seq)
            if place is not None:
                pending.show_only(arrival)
            self._count("no_room")
            return
        if not account.receive(frame.seq):
            self._stats.frames_duplicate += 1
            return
        pending.add(arrival, held.size)
        for body in frame.events:
            self._news.take(node.name, body, held.received_at)

    def _is_fresh(self, node: NodeTracker, frame: Frame, now: float) -> bool:
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

    def retry_held(self, node: NodeTracker, now: float) -> None:
        """Look again at the frames that waited for an inventory."""
        for _ in range(len(node.held)):
            held = self._unhold(node)
            if node.layout_for(held.frame) is None:
                self._reject(node, held)
            else:
                self.accept(node, held, now)

    def _hold(self, node: NodeTracker, held: WaitingFrame, now: float) -> None:
        """Keep a frame until an inventory comes that it fits, within bounds."""
        if now - node.inventory_asked >= ASK_INVENTORY_EVERY:
            node.inventory_asked = now
            self.asks.append(NodeCommand(node.name, Command(kind=CommandKind.INVENTORY)))
        node.held.append(held)
        self._held_bytes += held.size
        while len(node.held) > HELD_FRAMES or (node.held and self._held_bytes > HELD_BYTES):
            self._reject(node, self._unhold(node))

    def _unhold(self, node: NodeTracker) -> WaitingFrame:
        held = node.held.popleft()
        self._held_bytes -= held.size
        return held

    def _reject(self, node: NodeTracker, held: WaitingFrame) -> None:
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
            self.lost(account.lose(frame.seq, frame.seq, "malformed"))
        elif len(counts) > 10 * HELD_FRAMES:
            counts.clear()

    # -- Accounts ------------------------------------------------------------------------------

    def account(self, node: NodeTracker, session: int) -> SessionAccount:
        """Return the account of a node's session, a new one if need be."""
        account = node.accounts.get(session)
        if account is None:
            run = self._registry.run(node.name, session)
            account = node.accounts[session] = self.ledger.account(node.name, session, run)
        return account

    def too_old(self, node: NodeTracker, account: SessionAccount, newest: int) -> None:
        """Give up at once what a session new to us sampled before the bound, if there is one."""
        bound = self._config.backfill.max_age_seconds
        if bound:
            self.lost(account.lose(0, newest - 1 - int(bound / node.interval), "too_old"))

    def lost(self, holes: list[Hole]) -> None:
        """Record what nobody has any more."""
        self._pending.batch.holes += holes
        for hole in holes:
            count = hole.last - hole.first + 1
            self._stats.frames_lost += count
            log.warning("node=%s: %d frames are lost (%s): session %d, %d to %d",
                        hole.node, count, hole.reason, hole.session, hole.first, hole.last)  # fmt: skip

    def _count(self, reason: str) -> None:
        self._stats.dropped[reason] = self._stats.dropped.get(reason, 0) + 1
