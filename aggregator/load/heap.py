"""Objects that stay are kept from the garbage collector: with 25,000 nodes one full collection would hold
up the event loop for a second."""

from __future__ import annotations

import gc

LEAST_NODES = 100
"""Nodes by which a fleet must have grown at least; fewer hold up nothing."""
GROWTH = 1.1


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
