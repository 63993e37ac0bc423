"""Objects that stay are kept from the garbage collector: with 25,000 nodes one full collection would hold
up the event loop for a second."""

from __future__ import annotations

import gc

THRESHOLDS = (4_000, 5, 1_000)
"""Allocations before the youngest generation is collected, and collections of each before the next one.
With Python's own (700, 10, 10) an overloaded aggregator of 20,000 nodes collected everything every few
seconds, which held up the loop each time; with 20,000 in the place of 4,000 a collection of the second
generation took 40 to 80 ms, in which no thread ran."""
LEAST_NODES = 100
"""Nodes by which a fleet must have grown at least; fewer hold up nothing."""
GROWTH = 1.1
_BEFORE = gc.get_threshold()


def fill_heap() -> None:
    """Collect no garbage until `keep_heap`: what a start loads and restores stays."""
    if gc.isenabled():  # else nobody has collected what was loaded, and it stays
        gc.collect()
        gc.disable()


def keep_heap() -> None:
    """Keep what is in memory now from the collector, and let it run less often; `release_heap` undoes it."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(*THRESHOLDS)


def release_heap() -> None:
    """Undo `keep_heap`, with the thresholds of before the first."""
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*_BEFORE)


class HeapFreezer:
    """Freezes the heap whenever the fleet has grown: its inventories are most of what stays."""

    def __init__(self) -> None:
        self._nodes = 0
        """Nodes at the last time."""

    def update(self, nodes: int) -> bool:
        """Freeze what is in memory now if there are clearly more nodes than last time; return whether
        that was done. `gc.unfreeze` undoes it."""
        if nodes < GROWTH * self._nodes + LEAST_NODES:
            return False
        self._nodes = nodes
        gc.freeze()
        return True
