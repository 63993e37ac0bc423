"""The order of each node's frames: is a frame new, can it be read, is it the newest of its node?

Every frame ends in exactly one of: on its way to the store, there already, waiting for an inventory
that it fits, missing (and so requested again), or lost for good.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.config import BackfillConfig
from aggregator.ingest.backfill import BackfillPlanner, NodeCommand
from aggregator.ingest.budgets import NEWCOMER_SESSIONS, ClusterBudget, NodeBudget, TokenBucket, over
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.layout import NodeLayout, first_numbers, make_layout
from aggregator.ingest.ledger import FrameLedger, SessionAccount
from aggregator.settings.budgets import IngestBudgets
from aggregator.store.protocol import Hole, LostFrames
from api.stats import Stats
from telemetry.errors import WireError
from telemetry.fleet import STALE_INTERVALS, Fleet, Node
from telemetry.metric import Table
from telemetry.wire.border import FRAMES_END
from telemetry.wire.frame import Frame
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import (
    CollectorStatus,
    Command,
    CommandKind,
    CommandReply,
    FrameSpan,
    Inventory,
    NodeState,
)
from telemetry.wire.topics import shard_of

log = logging.getLogger(__name__)

BELIEVED_FRAMES = 3600
"""Lost frames of a node that count though fewer of it ever came: an hour of one that has just begun."""
LEAP = 1000
"""Frames by which a live number may run ahead at any time: more than any burst."""
LEAP_RATE = 4.0
"""... and how many times faster than its interval a node may count while nothing comes from it."""
KEPT_LAYOUTS = 8
"""Inventories of a node that frames of the past may still be read with."""
WAITING_FRAMES = 128
"""Most frames of a node that wait for its inventory."""
WAITING_BYTES = 32 * 1024 * 1024
"""Most bytes of frames of all nodes that wait for an inventory."""
NODE_WAITING_BYTES = 4 * 1024 * 1024
"""Most of them of one node."""
LEAST_INTERVALS = 4
"""Spans of frames that a session may have however many sessions its node has."""
REJECTIONS = 3
"""A frame that fits no inventory so many times is given up: it would be requested forever."""
REQUEST_INVENTORY_EVERY = 10.0
"""Seconds between two requests for an inventory, per node."""
INVENTORIES_PER_SECOND = 100.0
"""Requests for an inventory, over all nodes, once as many were sent as there may be nodes."""
_NO_SESSIONS: frozenset[int] = frozenset()
_NO_ROWS = np.zeros(0, np.intp)
"""Of most nodes: one object for all of them, since at 100,000 GPUs each is a megabyte or two."""
FleetRows = Mapping[Table, npt.NDArray[np.intp]]
"""A node's rows in the fleet, by table."""


@dataclass(slots=True)
class ArrivedFrame:
    """A frame that waits for the next flush."""

    node: NodeTracker
    frame: Frame
    layout: NodeLayout
    run: int
    """The number of its session in the store."""
    received_at: int
    """ns since 1970, our clock."""
    size: int
    """Bytes of the message."""
    backfilled: bool
    rows: FleetRows | None
    """Its rows in the fleet; None for a frame that is not its node's newest."""
    stored: bool
    """False for lack of room, or when history is shed: the fleet shows it, and it stays missing."""
    count: ClassVar[int] = 1
    """Number of frames."""


@dataclass(frozen=True, slots=True)
class WaitingFrame:
    """A frame that waits for an inventory that it fits."""

    frame: Frame
    size: int
    received_at: int
    live: bool


@dataclass(slots=True, eq=False)
class NodeTracker:
    """The sessions, layouts and waiting frames of one node. Equal to itself alone."""

    name: str
    accounts: dict[int, SessionAccount]
    """By session; the ledger has the same."""
    budget: NodeBudget
    since: float
    """When it was first heard of since the start, monotonic seconds."""
    proven: bool = False
    """Whether it has sent an inventory and a frame that fits it, now or before the start."""
    layouts: list[NodeLayout] = field(default_factory=list)
    """Newest first; the first is the one in the fleet."""
    session: int | None = None
    """The current session."""
    superseded: frozenset[int] = _NO_SESSIONS
    """Sessions that another followed: their frames are history, even when they come as live."""
    seq: int = -1
    """Newest live frame of the current session."""
    slow_seq: int = -1
    """Newest frame of it whose slow lane is in the fleet."""
    last_frame: float = float("-inf")
    """When its newest live frame came, monotonic seconds."""
    last_frame_wall: int = 0
    """The same, ns since 1970."""
    online: bool = False
    ended: bool = False
    """Whether its last session ended by a shutdown, rather than being lost."""
    status: CollectorStatus | None = None
    """Its last status, without the spans of its ring."""
    ring: frozenset[int] = _NO_SESSIONS
    """Sessions of which its ring had frames by its last status."""
    claimed: int = 0
    """Frames that exist by its word alone: behind a number, or in its ring."""
    frames: int = 0
    """Frames of it that came, or that the store had at the start."""
    lost: int = 0
    """Frames of it that were lost."""
    waiting: list[WaitingFrame] = field(default_factory=list)
    waiting_bytes: int = 0
    rejections: dict[tuple[int, int], int] = field(default_factory=dict)
    """By session and number of the frame."""
    inventory_requested: float = float("-inf")
    """Monotonic seconds."""
    withheld_until: float = 0.0
    """Monotonic seconds until which its frames are not requested: a fault of ours sets it aside."""
    fleet_node: Node | None = None
    rows: FleetRows | None = None
    """Its rows in the fleet."""
    numbers: bytes = b""
    """Its `first_numbers`; empty where they say too little."""
    topic: str = ""
    """Of its live frames, once it was steady."""
    steady: int = -1
    """Its place in `SteadyNodes`, which then know more than this; -1 while it is not steady."""

    @property
    def interval(self) -> float:
        """Seconds between its frames by its status; 1 before there is one."""
        return self.status.interval if self.status is not None else 1.0

    def credible(self, seq: int, now: float, wall: int) -> bool:
        """Return whether a live number of the current session can be true. One flipped bit in it
        would make all true frames look old, and call a million frames missing."""
        ahead = seq - self.seq
        if self.seq < 0 or ahead <= LEAP:
            return True
        # While our machine is suspended, its monotonic clock stands still and nodes count on.
        passed = max(now - self.last_frame, (wall - self.last_frame_wall) / 1e9)
        return ahead <= LEAP + LEAP_RATE * passed / self.interval

    def silent(self, now: float) -> bool:
        """Return whether no frame of the current session came for three intervals: a superseded
        session whose frames arrive may be the current one after all."""
        return now - self.last_frame > STALE_INTERVALS * self.interval

    def is_newest(self, frame: Frame, now: float, wall: int) -> bool:
        """Return whether a live frame is the newest; the first frame of a session makes it the
        current one, and any frame of that shows that the node is online."""
        if frame.session != self.session:
            if frame.session in self.superseded and not self.silent(now):
                return False
            self.enter(frame.session)
        self.online = True
        if frame.seq <= self.seq:
            return False
        self.seq, self.last_frame, self.last_frame_wall = frame.seq, now, wall
        return True

    def enter(self, session: int) -> None:
        """Make a session the current one."""
        if session == self.session:
            return
        if self.session is not None:
            self.superseded |= {self.session}
        if session in self.superseded:
            self.superseded -= {session}
        self.session, self.seq, self.slow_seq = session, -1, -1

    def layout_for(self, frame: Frame) -> NodeLayout | None:
        """Return the layout that a frame was made with, as far as can be known.

        Of several that fit, it is the newest that was there when the frame was sampled.
        """
        layouts = self.layouts
        if len(layouts) == 1:
            return layouts[0] if layouts[0].fits(frame) else None
        fitting = [layout for layout in layouts if layout.fits(frame)]
        for layout in fitting:
            if layout.taken_at <= frame.sampled_at:
                return layout
        return fitting[-1] if fitting else None

    def add_layout(self, layout: NodeLayout, past: Iterable[NodeLayout], fleet: Fleet) -> None:
        """Make a layout the current one and give the node its rows in the fleet. `past`: those before it, newest first."""
        self.layouts = _joined([layout, *past], self.layouts)[:KEPT_LAYOUTS]
        placed = self.fleet_node = fleet.place(layout.inventory)
        self.rows = {
            table: np.arange(rows.start, rows.stop, dtype=np.intp) if rows.stop > rows.start else _NO_ROWS
            for table, rows in placed.rows.items()
        }
        self.numbers = first_numbers(self.layouts[0], self.rows)
        self.show(fleet)

    def show(self, fleet: Fleet) -> None:
        """Bring session, status and whether it is online into the fleet."""
        placed = self.fleet_node
        if placed is None:
            return
        placed.online = self.online
        placed.ended = self.ended and not self.online
        if self.session is not None and placed.session != self.session:
            placed.session, placed.seq = self.session, -1
        status = self.status
        if status is not None and (placed.interval, placed.slow_interval) != (status.interval, status.slow_interval):
            fleet.set_intervals(placed, status.interval, status.slow_interval)


class FrameSequence:
    """The frames of all nodes: which are new, which are missing, and which are lost."""

    def __init__(
        self, config: BackfillConfig, budgets: IngestBudgets, fleet: Fleet, stats: Stats, registry: IdRegistry
    ) -> None:
        self._config = config
        self._budgets = budgets
        self.devices = ClusterBudget(budgets)
        self._fleet = fleet
        self._stats = stats
        self._registry = registry
        self.nodes: dict[str, NodeTracker] = {}
        self.ledger = FrameLedger()
        self.planner = BackfillPlanner(config)
        self._requests: list[NodeCommand] = []
        """Inventories to request."""
        self._inventory_rate = TokenBucket(INVENTORIES_PER_SECOND, budgets.nodes, 0.0)
        self._holes: list[Hole] = []
        self.waiting_bytes = 0
        """Bytes of frames that wait for an inventory."""
        self.withheld_shards: set[str] = set()
        """Shards of whose nodes nothing is requested now: another member still receives them."""

    def node(self, name: str, now: float) -> NodeTracker:
        """Return a node, a new one if need be."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeTracker(name, self.ledger.sessions(name), NodeBudget(self._budgets, now), now)
        return node

    def restore(self, node: NodeTracker, session: int, stored: IntervalSet) -> None:
        """Begin the account of a session with the frames that the store has."""
        account = self.ledger.account(node.name, session, self._registry.run(node.name, session))
        account.since = node.since
        credible = _credible(stored, self._most_frames(node))
        node.frames += len(credible)
        self.ledger.restore(account, credible)

    # -- Frames ----------------------------------------------------------------------------------

    def accept(
        self,
        node: NodeTracker,
        frame: Frame,
        size: int,
        received_at: int,
        now: float,
        *,
        live: bool,
        room: bool,
        waits: bool = True,
    ) -> ArrivedFrame | None:
        """Account for a frame; return it unless it is there already, must wait for an inventory, or
        has neither `room` to be stored nor is its node's newest. Raises `WireError`. One that is
        to be accepted again at once, with another inventory, `waits` for none."""
        session, seq = frame.session, frame.seq
        if live and session == node.session and not node.credible(seq, now, received_at):
            raise WireError("malformed", f"number {seq} behind {node.seq}: a leap of frames")
        account = node.accounts.get(session)
        if account is None:
            account = self._new_account(node, session, seq, now)
            self._lose_too_old(node, account, seq)
        elif account.missing or seq != account.end + 1:
            self._claim(node, account, seq, now)
            if room and not self._intact(node, account, seq):
                self._stats.drop("scattered")
                room = False
        layout = node.layout_for(frame)
        if layout is None:
            account.exists(seq)
            if waits:
                self._wait(node, WaitingFrame(frame, size, received_at, live), now)
            return None
        newest = live and self._is_newest(node, frame, now, received_at)
        rows = node.rows if newest and layout is node.layouts[0] else None
        if not room:
            account.exists(seq)
            if rows is None:
                return None
        elif not account.receive(seq):
            self._stats.frames_duplicate += 1
            return None
        node.frames += 1
        if account.run < 0:
            account.run = self._registry.run(node.name, session)
        return ArrivedFrame(node, frame, layout, account.run, received_at, size, not live, rows, room)

    def _is_newest(self, node: NodeTracker, frame: Frame, now: float, wall: int) -> bool:
        was_online = node.online
        newest = node.is_newest(frame, now, wall)
        if node.online and not was_online:
            self.planner.wake(node.accounts.values(), now)
            node.show(self._fleet)
        return newest

    # -- Frames that fit no inventory ------------------------------------------------------------

    def fitting(self, node: NodeTracker) -> Iterator[WaitingFrame]:
        """Yield the frames that waited for the newest inventory, and reject those that fit none."""
        for _ in range(len(node.waiting)):
            waiting = self._next_waiting(node)
            if node.layout_for(waiting.frame) is None:
                self._reject(node, waiting)
            else:
                yield waiting

    def _wait(self, node: NodeTracker, waiting: WaitingFrame, now: float) -> None:
        """Hold a frame until an inventory comes that it fits, within bounds."""
        if now - node.inventory_requested >= REQUEST_INVENTORY_EVERY:
            node.inventory_requested = now
            self.request_inventory(node.name, now)
        node.waiting.append(waiting)
        node.waiting_bytes += waiting.size
        self.waiting_bytes += waiting.size
        while node.waiting and (
            len(node.waiting) > WAITING_FRAMES
            or node.waiting_bytes > NODE_WAITING_BYTES
            or self.waiting_bytes > WAITING_BYTES
        ):
            self._reject(node, self._next_waiting(node))

    def request_inventory(self, name: str, now: float) -> None:
        """Request an inventory, a few a second: where names can be invented, each would cost a command."""
        if self._inventory_rate.spend(1.0, now):
            self._requests.append(NodeCommand(name, Command(kind=CommandKind.INVENTORY)))

    def _next_waiting(self, node: NodeTracker) -> WaitingFrame:
        waiting = node.waiting.pop(0)
        node.waiting_bytes -= waiting.size
        self.waiting_bytes -= waiting.size
        return waiting

    def _reject(self, node: NodeTracker, waiting: WaitingFrame) -> None:
        """Drop a frame that fits no inventory; it stays missing, until it has come too often."""
        known = any(layout.schema_id == waiting.frame.schema for layout in node.layouts)
        self._stats.drop("malformed" if known else "schema")
        if not node.layouts:
            return
        frame, counts = waiting.frame, node.rejections
        key = frame.session, frame.seq
        counts[key] = counts.get(key, 0) + 1
        if counts[key] >= REJECTIONS:
            del counts[key]
            account = node.accounts[frame.session]
            self._lose(account.lose(frame.seq, frame.seq, "malformed"))
        elif len(counts) > 10 * WAITING_FRAMES:
            counts.clear()

    def give_up(self, node: NodeTracker, session: int, seq: int, reason: str) -> None:
        """Record a frame as lost that came and can't be stored, unless it is accounted for."""
        account = node.accounts.get(session)
        if account is not None and seq <= account.end:
            self._lose(account.lose(seq, seq, reason))

    # -- Nodes -----------------------------------------------------------------------------------

    def check_devices(self, node: NodeTracker, inventory: Inventory, now: float) -> None:
        """Raise `WireError` for more devices than the node or the cluster may have."""
        before = node.layouts[0].inventory if node.layouts else None
        self.devices.check(inventory, before)
        new = self._registry.unknown(inventory)
        if new:
            node.budget.devices(new, now)

    def add_layout(self, node: NodeTracker, inventory: Inventory) -> None:
        """Make the layout of an inventory a node's current one."""
        layout = make_layout(inventory, self._registry)
        self.devices.replace(inventory, node.layouts[0].inventory if node.layouts else None)
        past = [make_layout(each, self._registry) for each in inventory.past()]
        node.add_layout(layout, past, self._fleet)

    def remove(self, name: str) -> bool:
        """Remove a node with all that is in memory of it; return whether there was one. The store and
        the registry keep the numbers of its sessions and devices, as its history does."""
        node = self.nodes.pop(name, None)
        if node is None:
            return False
        if node.layouts:
            self.devices.replace(None, node.layouts[0].inventory)
        if name in self._fleet.nodes:
            self._fleet.remove(name)
        node.fleet_node = node.rows = None  # frames that wait for the next flush are history
        node.numbers = b""
        while node.waiting:
            self._next_waiting(node)
        self.planner.remove(node.accounts.values())
        self.ledger.remove(name)
        return True

    def silent_since(self, before: float) -> list[str]:
        """Return the nodes that are offline and of which nothing was heard since `before`."""
        return [
            name for name, node in self.nodes.items() if not node.online and max(node.since, node.last_frame) < before
        ]

    def end_sessions(self, node: NodeTracker, before: float = float("inf")) -> int:
        """Remove sessions from memory of which nothing can come any more: complete, superseded, no
        longer in the ring, and known since `before`. Return how many."""
        over_now = [
            account
            for session, account in node.accounts.items()
            if account.since < before and session != node.session and session not in node.ring and not account.missing
        ]
        for account in over_now:
            del node.accounts[account.session]
            node.superseded -= {account.session}
            if account.run >= 0:
                self._registry.end_run(node.name, account.session)
        self._stats.sessions_expired += len(over_now)
        return len(over_now)

    def wake(self, node: NodeTracker, now: float) -> None:
        """Request what is missing of a node again, now that it can be understood."""
        self.planner.wake(node.accounts.values(), now)

    def report_status(self, node: NodeTracker, status: CollectorStatus, now: float) -> None:
        """Apply a node's status: its session, what its ring holds, or that its session has ended."""
        if status.state is NodeState.OFFLINE:
            self._end(node, status, now)
            return
        node.enter(status.session)
        node.online, node.status = True, msgspec.structs.replace(status, ring=())
        node.show(self._fleet)
        try:
            self._compare_ring(node, status, now)
        finally:  # a ring that can't be is refused; that the node is online counts
            self.planner.wake(node.accounts.values(), now)

    def _compare_ring(self, node: NodeTracker, status: CollectorStatus, now: float) -> None:
        """Note which frames a node's ring has, and which are lost. Raises `WireError`."""
        spans = _outlines(status.ring)
        node.ring = frozenset(spans) or _NO_SESSIONS
        for span in spans.values():
            account = node.accounts.get(span.session)
            if account is None:
                account = self._new_account(node, span.session, span.last, now)
                self._lose_too_old(node, account, span.last)
            else:
                self._claim(node, account, span.last, now)
        self._lose(self.ledger.ring(node.name, status.session, spans))

    def _end(self, node: NodeTracker, status: CollectorStatus, now: float) -> None:
        """End a session; this counts only for the current one."""
        if node.session is None:
            node.enter(status.session)  # retained from before our start: it is the current one
        if status.session == node.session:
            node.online, node.ended = False, status.reason == "shutdown"
            node.show(self._fleet)
            for span in status.ring:  # what its last frames were; requested when it is back
                account = node.accounts.get(span.session)
                if account is not None:
                    self._claim(node, account, span.last, now)
                    account.exists(span.last)

    def reply(self, node: NodeTracker, reply: CommandReply, now: float) -> None:
        """Apply a node's answer to a request for frames."""
        account = node.accounts.get(reply.about)
        if account is not None:
            room = self._most_intervals(node) - account.have.spans
            self._lose(self.planner.replied(account, reply, now, max(1, room)))

    # -- Out -------------------------------------------------------------------------------------

    def drain_commands(self, now: float, *, share: float = 1.0) -> list[NodeCommand]:
        """Return the commands to send now; `share` of the usual requests for frames may be under
        way, none at 0."""
        opened, self.ledger.opened = self.ledger.opened, []
        self.planner.wake(opened, now)
        self.planner.share = share
        requests, self._requests = self._requests, []
        planned = self.planner.plan(lambda name: self._ready(name, now), now)
        self._stats.resend_requests += len(planned)
        return requests + planned

    def refill(self, lost: Iterable[LostFrames], now: float) -> None:
        """Request frames again that the store has lost; a ring that lacks them leaves a hole."""
        for each in lost:
            account = self.ledger.find(each.node, each.session)
            if account is not None:
                account.reopen(each.first, each.last)
                self.planner.wake([account], now)

    def drain_holes(self) -> list[Hole]:
        """Return the frames that were lost since the last call."""
        holes, self._holes = self._holes, []
        return holes

    def _ready(self, name: str, now: float) -> bool:
        node = self.nodes.get(name)
        if node is None or now < node.withheld_until:
            return False
        if self.withheld_shards and shard_of(name) in self.withheld_shards:
            return False
        return node.online and bool(node.layouts)

    # -- Accounts --------------------------------------------------------------------------------

    def _new_account(self, node: NodeTracker, session: int, last: int, now: float) -> SessionAccount:
        """Return a new account of a session that has frame `last`. Raises `WireError`."""
        most = self._budgets.sessions_per_node if node.proven else NEWCOMER_SESSIONS
        if len(node.accounts) >= most and not (node.proven and self.end_sessions(node)):
            setting = "sessions_per_node" if node.proven else "newcomers"
            raise over(setting, f"more than {most} sessions of one node")
        self._check_claim(node, last, now)
        node.budget.session(now)
        node.claimed += last
        account = self.ledger.account(node.name, session)
        account.since = now
        return account

    def _claim(self, node: NodeTracker, account: SessionAccount, last: int, now: float) -> None:
        """Count the frames that exist if there is a frame `last`. Raises `WireError` when these are
        more than the node can have sampled: it would be asked for them, or they would be lost."""
        more = last - account.end - 1
        if more > 0:
            self._check_claim(node, more, now)
            node.claimed += more

    def _check_claim(self, node: NodeTracker, more: int, now: float) -> None:
        if more > LEAP and node.claimed + more > self._most_frames(node, now - node.since):
            raise over("session_seconds", f"{more} frames more than the node can have sampled")

    def _most_frames(self, node: NodeTracker, seconds: float = 0.0) -> float:
        """Return how many frames a node can have sampled, `seconds` after it was first heard of."""
        sampled = (self._budgets.session_seconds + LEAP_RATE * seconds) / node.interval
        return min(sampled, FRAMES_END)

    def _intact(self, node: NodeTracker, account: SessionAccount, seq: int) -> bool:
        """Return whether a frame may be stored, rather than requested again in order, so that the
        account does not fall into too many spans."""
        have = account.have
        if have.spans < self._most_intervals(node):
            return True
        return seq - 1 in have or seq + 1 in have

    def _most_intervals(self, node: NodeTracker) -> int:
        share = self._budgets.intervals_per_node // max(1, len(node.accounts))
        return max(LEAST_INTERVALS, share)

    def _lose_too_old(self, node: NodeTracker, account: SessionAccount, newest: int) -> None:
        """Give up at once what a session new to us sampled before the bound, if there is one."""
        bound = self._config.max_age_seconds
        if bound:
            self._lose(account.lose(0, newest - 1 - int(bound / node.interval), "too_old"))

    def record_lost(self, holes: list[Hole]) -> None:
        """Record frames that arrived and could not be stored."""
        self._lose(holes)

    def _lose(self, holes: list[Hole]) -> None:
        """Record frames that neither we nor the node's ring has any more."""
        self._holes += holes
        for hole in holes:
            self._registry.run(hole.node, hole.session)
            count = hole.last - hole.first + 1
            node = self.nodes.get(hole.node)
            if node is not None:
                node.lost += count
            if node is None or (node.frames and node.lost <= max(node.frames, BELIEVED_FRAMES)):
                self._stats.frames_lost += count
            else:  # anybody may name a node and claim a year
                self._stats.frames_lost_claimed += count
            log.warning(
                "node=%s: %d frames are lost (%s): session %d, %d to %d",
                hole.node,
                count,
                hole.reason,
                hole.session,
                hole.first,
                hole.last,
            )


def _joined(newer: list[NodeLayout], known: Sequence[NodeLayout]) -> list[NodeLayout]:
    """Return the first of some layouts, then the others and those that are known, by when they were taken, newest first.

    Layouts that follow each other and have the same rows are one: facts of the host have changed, and frames since the
    oldest of them were made with it as well.
    """
    found = newer[:1]
    for layout in sorted([*newer[1:], *known], key=lambda each: -each.taken_at):
        if _same_rows(found[-1], layout):
            found[-1] = replace(found[-1], taken_at=min(layout.taken_at, found[-1].taken_at))
        else:
            found.append(layout)
    return found


def _same_rows(one: NodeLayout, other: NodeLayout) -> bool:
    return one.schema_id == other.schema_id and all(
        np.array_equal(mine.devices, theirs.devices) for mine, theirs in zip(one.blocks, other.blocks, strict=True)
    )


def _credible(stored: IntervalSet, most: float) -> IntervalSet:
    """Return the numbers up to the first gap that no ring can fill: what is beyond was forged, and
    would be missing for ever."""
    kept = IntervalSet()
    for first, last in stored:
        if last >= FRAMES_END or first - kept.end > most:
            break
        kept.add_span(first, last)
    return kept


def _outlines(ring: Iterable[FrameSpan]) -> dict[int, FrameSpan]:
    """Return one span per session: a torn ring has several of one."""
    spans: dict[int, FrameSpan] = {}
    for span in ring:
        other = spans.get(span.session, span)
        spans[span.session] = FrameSpan(span.session, min(span.first, other.first), max(span.last, other.last))
    return spans
