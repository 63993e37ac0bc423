"""What ingest remembers of one node: its layouts, its sessions, and frames that must wait."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from aggregator.ingest.assemble import Rows
from aggregator.ingest.layout import NodeLayout
from aggregator.ingest.ledger import SessionAccount
from telemetry.fleet import STALE_INTERVALS, Fleet
from telemetry.fleet import Node as Placed
from telemetry.frame import Frame
from telemetry.inventory import CollectorStatus

LEAP = 1000
"""Frames by which a live number may run ahead at any time: more than any burst."""
LEAP_RATE = 4.0
"""... and how many times faster than its interval a node may count while it is not heard."""
KEPT_LAYOUTS = 8
"""Inventories of a node that frames of the past may still be read with."""
HELD_FRAMES = 128
"""Frames of a node that may wait for its inventory."""
REJECTIONS = 3
"""A frame that fits no inventory so many times is given up: it would be asked for for ever."""


@dataclass(frozen=True, slots=True)
class WaitingFrame:
    """A frame that waits for an inventory that it fits."""

    frame: Frame
    size: int
    received_at: int
    live: bool


@dataclass(slots=True)
class NodeTracker:
    """One node, as ingest sees it."""

    name: str
    layouts: list[NodeLayout] = field(default_factory=list)
    """Newest first; the first is the one in the fleet."""
    accounts: dict[int, SessionAccount] = field(default_factory=dict)
    """By session."""
    session: int | None = None
    """The current one."""
    superseded: set[int] = field(default_factory=set)
    """Sessions that another followed: their frames are history, even when they come as live."""
    seq: int = -1
    """Newest live frame of the current session."""
    slow_seq: int = -1
    """Newest frame of it whose slow lane is in the fleet."""
    heard: float = float("-inf")
    """When its newest live frame came, monotonic seconds."""
    online: bool = False
    ended: bool = False
    """Whether its last session said goodbye, rather than being lost."""
    status: CollectorStatus | None = None
    held: deque[WaitingFrame] = field(default_factory=deque)
    rejections: dict[tuple[int, int], int] = field(default_factory=dict)
    """By session and number of the frame."""
    inventory_asked: float = float("-inf")
    placed: Placed | None = None
    place: Rows | None = None

    @property
    def interval(self) -> float:
        """Seconds between its frames, as far as it has told."""
        return self.status.interval if self.status is not None else 1.0

    def credible(self, seq: int, now: float) -> bool:
        """Return whether a live number of the current session can be true. One flipped bit in it
        would make all true frames look old, and call a million frames missing."""
        if self.seq < 0:
            return True
        return seq - self.seq <= LEAP + LEAP_RATE * (now - self.heard) / self.interval

    def silent(self, now: float) -> bool:
        """Return whether the current session has not been heard for three intervals: one that it
        followed and that is heard may then have been the true one all along."""
        return now - self.heard > STALE_INTERVALS * self.interval

    def layout_for(self, frame: Frame) -> NodeLayout | None:
        """Return the layout that a frame was made with, as far as can be told.

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

    def add_layout(self, layout: NodeLayout, fleet: Fleet) -> None:
        """Make a layout the current one and give the node its rows in the fleet."""
        same = [
            kept
            for kept in self.layouts
            if kept.schema_id != layout.schema_id or not _same_rows(kept, layout)
        ]
        self.layouts = [layout, *same][:KEPT_LAYOUTS]
        placed = self.placed = fleet.place(layout.inventory)
        self.place = {
            table: np.arange(rows.start, rows.stop, dtype=np.intp)
            for table, rows in placed.rows.items()
        }
        self.show(fleet)

    def show(self, fleet: Fleet) -> None:
        """Bring what the status says into the fleet."""
        placed = self.placed
        if placed is None:
            return
        placed.online = self.online
        placed.ended = self.ended and not self.online
        if self.session is not None and placed.session != self.session:
            placed.session, placed.seq = self.session, -1
        status = self.status
        if status is not None and (placed.interval, placed.slow_interval) != (
            status.interval,
            status.slow_interval,
        ):
            fleet.pace(placed, status.interval, status.slow_interval)

    def enter(self, session: int) -> bool:
        """Make a session the current one; return whether it was not."""
        if session == self.session:
            return False
        if self.session is not None:
            self.superseded.add(self.session)
        self.superseded.discard(session)
        self.session, self.seq, self.slow_seq = session, -1, -1
        return True


def _same_rows(one: NodeLayout, other: NodeLayout) -> bool:
    return all(
        np.array_equal(mine.devices, theirs.devices)
        for mine, theirs in zip(one.blocks, other.blocks, strict=True)
    )
