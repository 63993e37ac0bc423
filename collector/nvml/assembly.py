"""From the probe's packed readings to rows of a frame; what is missing becomes gaps. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from collector.probe.protocol import Reading, Status
from collector.source import Rows
from telemetry.gap import GAP, Gap
from telemetry.metric import Lane
from telemetry.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, SCHEMA

_LAYOUT = ((Lane.FAST, GPU_FAST, LINK_FAST), (Lane.SLOW, GPU_SLOW, LINK_SLOW))
"""The order of a reading's values: lane by lane, the GPU's row and then one for each link."""
_WIDTH = tuple(len(block.names) for block in SCHEMA.blocks)
_GAPS = {
    Status.LOST: Gap.DEVICE_LOST,
    Status.RESET_REQUIRED: Gap.DEVICE_LOST,
    Status.HUNG: Gap.TIMED_OUT,
    Status.LATE: Gap.TIMED_OUT,
}


class Shape(NamedTuple):
    """What rows are wanted."""

    links: tuple[int, ...]
    """Links of each GPU, in the order of the rows."""
    lanes: frozenset[Lane]


def assemble(shape: Shape, readings: Sequence[Reading | None], absent: Gap) -> Rows:
    """Return the blocks of `shape`, one reading a GPU; None is a GPU that is `absent`."""
    rows: Rows = {}
    for lane, gpu_block, link_block in _LAYOUT:
        if lane in shape.lanes:
            rows[gpu_block], rows[link_block] = [], []
    for links, reading in zip(shape.links, readings, strict=True):
        values: list[float] | None = None
        reason = absent
        if reading is not None:
            if reading.status is Status.OK:
                packed = array("d")
                packed.frombytes(reading.values)
                values = packed.tolist()
            reason = _GAPS.get(reading.status, Gap.ERROR)
        _add(rows, links, values, GAP[reason])
    return rows


def _add(
    rows: dict[int, list[list[float]]], links: int, values: list[float] | None, gap: float
) -> None:
    """Add the rows of one GPU; values of another shape than expected are gaps."""
    size = sum(_WIDTH[g] + links * _WIDTH[k] for _, g, k in _LAYOUT if g in rows)
    if values is None or len(values) != size:
        values = [gap] * size
    start = 0
    for _, gpu_block, link_block in _LAYOUT:
        if gpu_block not in rows:
            continue
        for block, count in ((gpu_block, 1), (link_block, links)):
            width = _WIDTH[block]
            stop = start + count * width
            rows[block] += [values[at : at + width] for at in range(start, stop, width)]
            start = stop
