"""From the frames of one flush to arrays: one pass over the frames, none over the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aggregator.ingest.layout import BlockLayout, NodeLayout, translate
from aggregator.store.protocol import BlockRows, Frames
from telemetry.frame import Frame
from telemetry.metric import Table
from telemetry.schema import SCHEMA

Rows = Mapping[Table, npt.NDArray[np.intp]]
"""A node's rows in the fleet, by table."""


@dataclass(slots=True)
class ArrivedFrame:
    """A frame that was accepted and waits for the next flush."""

    frame: Frame
    layout: NodeLayout
    run: int
    received_at: int
    backfilled: bool
    place: Rows | None
    """Where it goes in the fleet; None for a frame that is not its node's newest."""


@dataclass(slots=True)
class _Group:
    """All rows of one block of one schema."""

    block: BlockLayout
    gauges: list[bytes] = field(default_factory=list)
    counters: list[bytes] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    devices: list[npt.NDArray[np.int32]] = field(default_factory=list)
    places: list[npt.NDArray[np.intp]] = field(default_factory=list)


@dataclass(slots=True)
class Assembled:
    """The rows of one block, and where they go in the fleet."""

    rows: BlockRows
    places: npt.NDArray[np.intp] | None


def frames_of(arrivals: Sequence[ArrivedFrame]) -> Frames:
    """Return the identity and clocks of the frames as arrays."""
    return Frames(
        np.array([each.run for each in arrivals], np.int32),
        np.array([each.frame.seq for each in arrivals], np.int64),
        np.array([each.frame.sampled_at for each in arrivals], np.int64),
        np.array([each.received_at for each in arrivals], np.int64),
        np.array([each.backfilled for each in arrivals], np.bool_),
    )


def assemble(arrivals: Sequence[ArrivedFrame], offset: int) -> list[Assembled]:
    """Return the rows of all blocks; `offset` is the position of the first frame in its batch.

    Either all arrivals have a place in the fleet or none has. Rows stand in arrival order, so that
    when a node comes twice the later frame is the one that stays in the fleet.
    """
    groups: dict[tuple[int, int], _Group] = {}
    for position, arrival in enumerate(arrivals, offset):
        layout = arrival.layout
        for packed in arrival.frame.blocks:
            number = packed.block
            block = layout.blocks[number]
            if block.target < 0 or not block.rows:
                continue
            group = groups.get((layout.schema_id, number))
            if group is None:
                group = groups[layout.schema_id, number] = _Group(block)
            group.gauges.append(packed.gauges)
            group.counters.append(packed.counters)
            group.positions.append(position)
            group.counts.append(block.rows)
            group.devices.append(block.devices)
            if arrival.place is not None:
                group.places.append(arrival.place[block.source.table])
    return [_arrays(group) for group in groups.values()]


def _arrays(group: _Group) -> Assembled:
    source, rows = group.block.source, sum(group.counts)
    gauges = np.frombuffer(b"".join(group.gauges), "<f4").reshape(rows, len(source.gauges))
    counters = np.frombuffer(b"".join(group.counters), "<f8").reshape(rows, len(source.counters))
    if not group.block.same:
        gauges, counters = translate(source, SCHEMA.blocks[group.block.target], gauges, counters)
    positions = np.repeat(np.array(group.positions, np.int32), group.counts)
    block = BlockRows(
        group.block.target, positions, np.concatenate(group.devices), gauges, counters
    )
    return Assembled(block, np.concatenate(group.places) if group.places else None)
