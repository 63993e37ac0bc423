"""What came and is on its way: arrivals to the fleet at the next flush, a batch to the store.

The work on values is done here, once a flush, for all frames together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from aggregator.arrival import Arrival, Assembled, assemble, frames_of
from aggregator.display import Display
from aggregator.model import Batch, Frames, Stats
from aggregator.nodes import NodeState
from aggregator.registry import Registry
from telemetry.fleet import Fleet


class Pending:
    """Arrivals since the last flush, and the batch since the last commit."""

    def __init__(
        self,
        fleet: Fleet,
        stats: Stats,
        registry: Registry,
        find: Callable[[str], NodeState],
    ) -> None:
        self._registry = registry
        self._display = Display(fleet, stats, find)
        self._fresh: list[Arrival] = []
        self._late: list[Arrival] = []
        self._shown: list[Arrival] = []
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

    def add(self, arrival: Arrival, size: int) -> None:
        """Take a frame of `size` bytes to show, where it has a place, and to store."""
        (self._late if arrival.place is None else self._fresh).append(arrival)
        self.bytes += size

    def show_only(self, arrival: Arrival) -> None:
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

    def _keep(self, arrivals: list[Arrival]) -> list[Assembled]:
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
