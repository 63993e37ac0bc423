"""Aggregates of a span of time: sum, count, lowest, highest and last reading, a row a device. Pure.

A reading is a span with one frame. Spans of one device join without loss, so that means of 10 s make
the means of a minute, and those the hour's, with their lowest and highest readings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from aggregator.influx.names import ANNOUNCED, METRICS, keeps_last
from telemetry.fleet import gaps_of
from telemetry.gap import Gap
from telemetry.wire.schema import Block

Ints = npt.NDArray[np.int64]
_REASONS = np.array([int(reason) for reason in ANNOUNCED])
_SILENT = (np.uint8(Gap.NOT_SUPPORTED), np.uint8(Gap.NOT_READ))
NEVER = np.iinfo(np.int64).min
LATER = np.iinfo(np.int64).max


@dataclass(slots=True)
class SpanAggregates:
    """Rows of one block; every array has a row for each device."""

    device: Ints
    """Number of the `StoredDevice`."""
    first: Ints
    """When the first frame was sampled, ns since 1970."""
    last: Ints
    readings: Ints
    """Frames."""
    known: npt.NDArray[np.int32]
    """Readings that had a value, by metric, in the block's order."""
    total: npt.NDArray[np.float64]
    """Sum, by gauge."""
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]
    newest: npt.NDArray[np.float64]
    """Last value, of counters and states (`last_columns`)."""
    gaps: npt.NDArray[np.int32]
    """Readings that had none, by reason (`names.ANNOUNCED`)."""

    def __len__(self) -> int:
        return len(self.device)

    def select(self, rows: npt.NDArray[np.intp]) -> SpanAggregates:
        """Return some of the rows."""
        return SpanAggregates(*(getattr(self, each.name)[rows] for each in fields(self)))

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all arrays by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def last_columns(block: Block) -> list[int]:
    """Return the places of the metrics of a block whose last reading counts."""
    return [at for at, name in enumerate(block.names) if keeps_last(METRICS[name])]


def empty(block: Block, rows: int) -> SpanAggregates:
    """Return spans without readings."""
    gauges = len(block.gauges)
    return SpanAggregates(
        np.full(rows, -1, np.int64),
        np.full(rows, LATER, np.int64),
        np.full(rows, NEVER, np.int64),
        np.zeros(rows, np.int64),
        np.zeros((rows, len(block.names)), np.int32),
        np.zeros((rows, gauges)),
        np.full((rows, gauges), np.nan, np.float32),
        np.full((rows, gauges), np.nan, np.float32),
        np.full((rows, len(last_columns(block))), np.nan),
        np.zeros((rows, len(_REASONS)), np.int32),
    )


def of_readings(
    block: Block,
    device: npt.NDArray[np.int32],
    at: Ints,
    gauges: npt.NDArray[np.float32],
    counters: npt.NDArray[np.float64],
) -> SpanAggregates:
    """Return single frames as spans; a value that is not finite is a gap."""
    known_gauges, known_counters = np.isfinite(gauges), np.isfinite(counters)
    clean = np.where(known_gauges, gauges, np.float32(np.nan))
    places = [at - len(block.gauges) for at in last_columns(block)]
    newest = [
        np.where(known_counters[:, place], counters[:, place], np.nan)
        if place >= 0
        else clean[:, place + len(block.gauges)].astype(np.float64)
        for place in places
    ]
    return SpanAggregates(
        device.astype(np.int64),
        at,
        at,
        np.ones(len(at), np.int64),
        np.concatenate([known_gauges, known_counters], axis=1).astype(np.int32),
        np.where(known_gauges, gauges, 0).astype(np.float64),
        clean,
        clean,
        np.stack(newest, axis=1) if newest else np.empty((len(at), 0)),
        _gaps(gauges, counters),
    )


def _gaps(gauges: npt.NDArray[np.float32], counters: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    found = np.zeros((len(gauges), len(_REASONS)), np.int32)
    for values in (gauges, counters):
        absent = np.isnan(values)
        reasons = np.where(absent, gaps_of(values), _SILENT[0])
        if ((reasons == _SILENT[0]) | (reasons == _SILENT[1])).all():
            continue
        for place, reason in enumerate(_REASONS.tolist()):
            found[:, place] += (reasons == reason).sum(axis=1, dtype=np.int32)
    return found


def join(into: SpanAggregates, rows: npt.NDArray[np.intp], more: SpanAggregates) -> None:
    """Add spans to some rows, each of which occurs once."""
    newer = (more.last >= into.last[rows])[:, None] & ~np.isnan(more.newest)
    into.newest[rows] = np.where(newer, more.newest, into.newest[rows])
    into.device[rows] = more.device
    into.first[rows] = np.minimum(into.first[rows], more.first)
    into.last[rows] = np.maximum(into.last[rows], more.last)
    into.readings[rows] += more.readings
    into.known[rows] += more.known
    into.total[rows] += more.total
    into.low[rows] = np.fmin(into.low[rows], more.low)
    into.high[rows] = np.fmax(into.high[rows], more.high)
    into.gaps[rows] += more.gaps


def layers(device: Ints, at: Ints) -> Iterator[npt.NDArray[np.intp]]:
    """Yield rows in groups that have each device once, older frames of a device before newer."""
    if len(device) == 0:
        return
    order = np.lexsort((at, device))
    sorted_devices = device[order]
    begins = np.flatnonzero(np.r_[True, sorted_devices[1:] != sorted_devices[:-1]])
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.r_[begins, len(order)]))
    for each in range(int(rank.max()) + 1):
        yield order[rank == each]
