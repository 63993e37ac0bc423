"""Brings frames into the fleet: the newest of each node, and of the slow lane what nothing newer told.

A frame that comes late never overwrites what is newer. But the slow lane is read every 15 s only;
when the frame that carried it comes late, its readings are still the newest there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from aggregator.arrival import Arrival, Assembled, assemble
from aggregator.model import Stats
from aggregator.nodes import NodeState
from telemetry.fleet import Fleet
from telemetry.frame import Packed
from telemetry.metric import Lane


class Display:
    """The way from arrivals to the fleet's matrices."""

    def __init__(self, fleet: Fleet, stats: Stats, find: Callable[[str], NodeState]) -> None:
        self._fleet = fleet
        self._stats = stats
        self._find = find

    def stands(self, arrival: Arrival) -> bool:
        """Return whether the node still has the rows that the frame was meant for."""
        return self._node(arrival).place is arrival.place

    def show(self, assembled: Sequence[Assembled], now: float) -> None:
        """Store rows that have a place."""
        for each in assembled:
            if each.places is not None:
                self._fleet.store(
                    each.rows.block, each.places, each.rows.gauges, each.rows.counters, now
                )

    def note(self, arrival: Arrival, now: float, wall: int) -> None:
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

    def show_late(self, arrivals: Sequence[Arrival], now: float) -> None:
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

    def _node(self, arrival: Arrival) -> NodeState:
        return self._find(arrival.layout.inventory.node)


def _slow(arrival: Arrival) -> tuple[Packed, ...]:
    blocks = arrival.layout.blocks
    return tuple(
        packed for packed in arrival.frame.blocks if blocks[packed.block].source.lane is Lane.SLOW
    )
