"""What came and is on its way: arrivals to the fleet at the next flush, a batch to the store.

The work on values is done here, once a flush, for all frames together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.ingest.assemble import ArrivedFrame, Assembled, assemble, frames_of
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.node_tracker import NodeTracker
from aggregator.stats import Stats
from aggregator.store.protocol import Batch, Frames
from telemetry.fleet import Fleet
from telemetry.frame import PackedBlock
from telemetry.metric import Lane

# Brings frames into the fleet: the newest of each node, and of the slow lane what nothing newer told.
#
# A frame that comes late never overwrites what is newer. But the slow lane is read every 15 s only;
# when the frame that carried it comes late, its readings are still the newest there are.


class Display:
    """The way from arrivals to the fleet's matrices."""

    def __init__(self, fleet: Fleet, stats: Stats, find: Callable[[str], NodeTracker]) -> None:
        self._fleet = fleet
        self._stats = stats
        self._find = find

    def stands(self, arrival: ArrivedFrame) -> bool:
        """Return whether the node still has the rows that the frame was meant for."""
        return self._node(arrival).place is arrival.place

    def show(self, assembled: Sequence[Assembled], now: float) -> None:
        """Store rows that have a place."""
        for each in assembled:
            if each.places is not None:
                self._fleet.store(
                    each.rows.block, each.places, each.rows.gauges, each.rows.counters, now
                )

    def note(self, arrival: ArrivedFrame, now: float, wall: int) -> None:
        """Remember that a node's newest frame is in the fleet."""
        node, frame = self._node(arrival), arrival.frame
        if _slow(arrival):
            node.slow_seq = max(node.slow_seq, frame.seq)
        placed = node.placed
        if placed is not None:
            placed.seen = now
            placed.sampled_at, placed.session, placed.seq = (
                frame.sampled_at,
                frame.session,
                frame.seq,
            )
            self._stats.lag.add((wall - frame.sampled_at) / 1e9)

    def show_late(self, arrivals: Sequence[ArrivedFrame], now: float) -> None:
        """Show the slow lane of late frames where no newer frame has told it; as old as it is."""
        for arrival in arrivals:
            node, frame = self._node(arrival), arrival.frame
            if (
                frame.session != node.session
                or frame.seq <= node.slow_seq
                or node.placed is None
                or node.place is None
                or arrival.layout is not node.layouts[0]
            ):
                continue
            slow = _slow(arrival)
            if not slow:
                continue
            node.slow_seq = frame.seq
            part = replace(
                arrival, frame=msgspec.structs.replace(frame, blocks=slow), place=node.place
            )
            age = max(0.0, (node.placed.sampled_at - frame.sampled_at) / 1e9)
            self.show(assemble([part], 0), now - age)

    def _node(self, arrival: ArrivedFrame) -> NodeTracker:
        return self._find(arrival.layout.inventory.node)


def _slow(arrival: ArrivedFrame) -> tuple[PackedBlock, ...]:
    blocks = arrival.layout.blocks
    return tuple(
        packed for packed in arrival.frame.blocks if blocks[packed.block].source.lane is Lane.SLOW
    )


class Pending:
    """Arrivals since the last flush, and the batch since the last commit."""

    def __init__(
        self,
        fleet: Fleet,
        stats: Stats,
        registry: IdRegistry,
        find: Callable[[str], NodeTracker],
    ) -> None:
        self._registry = registry
        self._display = Display(fleet, stats, find)
        self._fresh: list[ArrivedFrame] = []
        self._late: list[ArrivedFrame] = []
        self._shown: list[ArrivedFrame] = []
        """Newest frames that there is no room to store: they are shown, and missing."""
        self._unjudged_clocks: list[npt.NDArray[np.int64]] = []
        self.newest = Frames.none().sampled_at
        """When the frames that the last flush brought into the fleet were sampled, ns since 1970."""
        self.batch = Batch()
        """What is to be stored next; events, holes and inventories are added by who has them."""
        self._parts: list[Frames] = []
        self._frames = 0
        self.bytes = 0
        """Bytes of frames in memory that no taken batch holds."""
        self.storing_bytes = 0
        """Bytes of frames in the batch that is being written; kept by whoever writes it."""

    def full(self, bound: float) -> bool:
        """Return whether more than `bound` bytes wait to be stored."""
        return self.bytes + self.storing_bytes > bound

    def add(self, arrival: ArrivedFrame, size: int) -> None:
        """Take a frame of `size` bytes to show, where it has a place, and to store."""
        (self._late if arrival.place is None else self._fresh).append(arrival)
        self.bytes += size

    def show_only(self, arrival: ArrivedFrame) -> None:
        """Take a frame to show that there is no room to store."""
        self._shown.append(arrival)

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

    def _keep(self, arrivals: list[ArrivedFrame]) -> list[Assembled]:
        if not arrivals:
            return []
        assembled = assemble(arrivals, self._frames)
        self._parts.append(frames_of(arrivals))
        self._frames += len(arrivals)
        self.batch.blocks += [each.rows for each in assembled]
        return assembled

    def take_batch(self, wall: int) -> Batch:
        """Return all that came since the last batch and is to be stored."""
        batch = self.batch
        batch.frames = Frames.join(self._parts)
        batch.runs, batch.devices = self._registry.take_new()
        batch.at = wall
        self.batch, self._parts, self._frames = Batch(), [], 0
        self.storing_bytes, self.bytes = self.bytes, 0
        return batch

    def take_clocks(self) -> npt.NDArray[np.int64]:
        """Return when the frames were sampled that no rule has seen yet, ns since 1970."""
        clocks, self._unjudged_clocks = self._unjudged_clocks, []
        return np.concatenate([Frames.none().sampled_at, *clocks])
