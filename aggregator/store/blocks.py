"""Rows of readings into their tables: whole columns at a time, no Python object per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.model import BlockRows, Frames
from aggregator.store.duck import Engine
from telemetry.schema import SCHEMA


def insert_blocks(
    engine: Engine,
    tables: Mapping[str, str],
    parts: Sequence[BlockRows],
    frames: Frames,
    fresh: npt.NDArray[np.bool_] | None,
) -> None:
    """Insert the rows of a batch; with `fresh`, only those of frames that it marks."""
    by_block: dict[int, list[BlockRows]] = {}
    for part in parts:
        by_block.setdefault(part.block, []).append(part)
    for number, found in sorted(by_block.items()):
        columns = _columns(number, found, frames, fresh)
        if len(columns["seq"]):
            engine.insert(tables[SCHEMA.blocks[number].name], columns)


def _columns(
    number: int,
    parts: Sequence[BlockRows],
    frames: Frames,
    fresh: npt.NDArray[np.bool_] | None,
) -> dict[str, npt.NDArray[Any]]:
    block = SCHEMA.blocks[number]
    frame = np.concatenate([part.frame for part in parts])
    device = np.concatenate([part.device for part in parts])
    # Column by column in memory, as the engine reads them: a copy now is cheaper than strides then.
    wide = np.concatenate([part.gauges.T for part in parts], axis=1)
    tall = np.concatenate([part.counters.T for part in parts], axis=1)
    for values in (wide, tall):  # copies of ours
        values[np.isinf(values)] = np.nan  # no number: it would be the mean of its whole bucket
    if fresh is not None:
        kept = fresh[frame]
        frame, device, wide, tall = frame[kept], device[kept], wide[:, kept], tall[:, kept]
    columns: dict[str, npt.NDArray[Any]] = {
        "run": frames.run[frame],
        "device": device,
        "seq": frames.seq[frame],
        "ts": frames.sampled_at[frame],
        "received": frames.received_at[frame],
    }
    columns.update(zip(block.gauges, np.ascontiguousarray(wide), strict=True))
    columns.update(zip(block.counters, np.ascontiguousarray(tall), strict=True))
    return columns
