"""Open spans of time, from means to hours, and the frames that wait for them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.folder import kinds
from aggregator.influx.aggregates import SpanAggregates, empty, join, layers
from aggregator.settings.influx import EXACT_SECONDS, InfluxConfig
from aggregator.store.protocol import Frames
from telemetry.metric import Lane
from telemetry.wire.schema import SCHEMA, SCHEMA_ID

# Spans of time that are still open, one step above another: when each is over, and its aggregates. Pure.
#
# A span is over when its end has passed and no frame came for it for a while; a frame that comes still
# later opens it again and makes a part of its own. A part carries the time of its first reading,
# so that made twice of the same frames (after a kill -9) it replaces itself.

SECOND = 10**9
GRACE = 2 * SECOND
"""ns that a span waits after its last frame, and after its end."""
AHEAD = 3600 * SECOND
"""ns: a span that ends so much later than now is of a wrong clock, and its end is not waited for."""
ROOM = 64
PART = 5000


class DeviceRows:
    """The row of each device in the spans of a block, the same in all of them."""

    def __init__(self) -> None:
        self._row = np.full(ROOM, -1, np.int64)
        self.size = 0

    def of(self, device: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """Return the rows of devices; new ones get the next."""
        top = int(device.max(initial=-1)) + 1
        if top > len(self._row):
            self._row = np.r_[self._row, np.full(max(top, 2 * len(self._row)), -1, np.int64)]
        rows = self._row[device]
        if (rows < 0).any():
            new = np.unique(device[rows < 0])
            self._row[new] = np.arange(self.size, self.size + len(new))
            self.size += len(new)
            rows = self._row[device]
        return rows.astype(np.intp)


@dataclass(slots=True)
class OpenSpan:
    """An open span of time."""

    number: int
    """Its start divided by its length."""
    touched: int = 0
    """When its last frame came, ns, the aggregator's clock."""
    blocks: dict[int, SpanAggregates] = field(default_factory=dict)
    frames: list[Frames] = field(default_factory=list)
    """Frames that count as stored when this span is."""


class OpenSpans:
    """The open spans of one step."""

    def __init__(self, step: int, places: dict[int, DeviceRows]) -> None:
        """`step` in seconds; `places` by block, shared by all steps."""
        self.step = step
        self.length = step * SECOND
        self.open: dict[int, OpenSpan] = {}
        self._places = places

    def add(self, block: int, cells: SpanAggregates, at: int) -> None:
        """Add frames, or closed spans of a shorter step, that came at `at`."""
        numbers = cells.first // self.length
        for number in np.unique(numbers).tolist():
            among = np.flatnonzero(numbers == number)
            part = cells if len(among) == len(cells) else cells.select(among)
            span = self.span(number, at)
            for rows in layers(part.device, part.first):
                whole = len(rows) == len(part) and bool((rows[:-1] < rows[1:]).all())
                self._join(span, block, part if whole else part.select(rows))

    def _join(self, span: OpenSpan, block: int, cells: SpanAggregates) -> None:
        rows = self._places.setdefault(block, DeviceRows()).of(cells.device)
        size = self._places[block].size
        there = span.blocks.get(block)
        if there is None or len(there) < size:
            there = span.blocks[block] = _grown(block, there, size)
        join(there, rows, cells)

    def span(self, number: int, at: int) -> OpenSpan:
        """Return a span that a frame came for at `at`."""
        span = self.open.setdefault(number, OpenSpan(number))
        span.touched = max(span.touched, at)
        return span

    def hold(self, frames: Frames, at: int) -> None:
        """Hold frames until their spans are closed."""
        numbers = frames.sampled_at // self.length
        for number in np.unique(numbers).tolist():
            self.span(number, at).frames.append(some(frames, numbers == number))

    def due(self, at: int, finer: OpenSpans | None, *, every: bool = False) -> Iterator[OpenSpan]:
        """Remove and yield the spans that are over, oldest first; `finer` is the step below."""
        for number in sorted(self.open):
            if every or (self._over(self.open[number], at) and not self._waits(number, finer)):
                yield self.open.pop(number)

    def _over(self, span: OpenSpan, at: int) -> bool:
        end = (span.number + 1) * self.length
        return at >= span.touched + GRACE and (at >= end + GRACE or end > at + AHEAD)

    def _waits(self, number: int, finer: OpenSpans | None) -> bool:
        """Return whether a span below is still open that is a part of this one."""
        if finer is None:
            return False
        ratio = self.step // finer.step
        return any(below // ratio == number for below in finer.open)


def some(frames: Frames, rows: npt.NDArray[np.bool_]) -> Frames:
    """Return some of the frames."""
    return Frames(
        frames.run[rows], frames.seq[rows], frames.sampled_at[rows], frames.received_at[rows], frames.backfilled[rows]
    )


def closed(span: OpenSpan) -> Iterator[tuple[int, SpanAggregates]]:
    """Yield the aggregates of a span, by block, `PART` rows at a time."""
    for block, cells in sorted(span.blocks.items()):
        rows = np.flatnonzero(cells.readings)
        for start in range(0, len(rows), PART):
            yield block, cells.select(rows[start : start + PART])


def _grown(block: int, cells: SpanAggregates | None, size: int) -> SpanAggregates:
    room = max(ROOM, size + size // 8)
    new = empty(SCHEMA.blocks[block], room)
    if cells is not None:
        for name, values in new.arrays().items():
            values[: len(cells)] = getattr(cells, name)
    return new


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    """A span that is over."""

    rollup: int
    """Seconds of the roll-up; 0 for the means."""
    blocks: list[tuple[int, SpanAggregates]]
    frames: list[Frames]
    """Frames that count as stored once this is in the spool."""


class SpanLadder:
    """Open spans of all steps, one above another; used by one thread at a time."""

    def __init__(self, config: InfluxConfig) -> None:
        places: dict[int, DeviceRows] = {}
        every = int(config.every_seconds)
        self.means = OpenSpans(every, places) if every else None
        self._rollups = [OpenSpans(step, places) for step in config.rollup_seconds]
        self._chain = ([self.means] if self.means else []) + self._rollups
        exact = [each for each in self._chain if each.step <= EXACT_SECONDS]
        self._holding = exact[-1] if exact else None
        self.stored: list[Frames] = []
        """Frames that wait for no mean, or for none any more; the caller clears it."""

    def add(self, block: int, cells: SpanAggregates, at: int) -> None:
        """Add frames that came at `at`."""
        if self.means is not None and SCHEMA.blocks[block].lane is Lane.FAST:
            self.means.add(block, cells, at)
        elif self._rollups:
            self._rollups[0].add(block, cells, at)

    def hold(self, frames: Frames, at: int) -> None:
        """Hold frames until their means are written; without means they count as stored."""
        if not len(frames):
            return
        if self._holding is None:
            self.stored.append(frames)
        else:
            self._holding.hold(frames, at)

    def due(self, at: int, *, every: bool) -> Iterator[FinishedSpan]:
        """Yield the spans that are over, the short before the long; with `every` all but the long."""
        finer: OpenSpans | None = None
        for number, spans in enumerate(self._chain):
            coarser = self._chain[number + 1] if number + 1 < len(self._chain) else None
            all_of = every and spans.step <= EXACT_SECONDS
            for span in spans.due(at, finer, every=all_of):
                found = list(closed(span))
                if coarser is not None:
                    for block, cells in found:
                        coarser.add(block, cells, at)
                rollup = 0 if spans is self.means else spans.step
                yield FinishedSpan(rollup, found, span.frames)
            finer = spans

    # -- Spans longer than a frame may wait -------------------------------------------------

    def save(self, path: Path) -> None:
        """Save the long spans that are open; their aggregates are in no other place."""
        arrays: dict[str, npt.NDArray[Any]] = {"schema": np.array([SCHEMA_ID])}
        for spans in self._rollups:
            if spans.step > EXACT_SECONDS:
                for span in spans.open.values():
                    for part, (block, cells) in enumerate(closed(span)):
                        for name, values in cells.arrays().items():
                            arrays[f"{spans.step}/{part}/{span.number}/{block}/{name}"] = values
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **arrays)
        new = path.with_suffix(".new")
        try:
            new.write_bytes(packed.getbuffer())
            new.replace(path)
        except OSError as error:
            log.warning("%s: open hours are not saved: %s", path, error)

    def restore(self, path: Path) -> None:
        """Restore the saved spans; those of another release are left alone."""
        arrays = kinds.read(path, _arrays)
        if arrays is not None and arrays.pop("schema", np.zeros(1)).tolist() == [SCHEMA_ID]:
            self._put(arrays)

    def _put(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        spans: dict[tuple[int, ...], dict[str, npt.NDArray[Any]]] = {}
        for name, values in arrays.items():
            *numbers, field = name.split("/")
            spans.setdefault(tuple(map(int, numbers)), {})[field] = values
        for (step, _, _, block), found in sorted(spans.items()):
            for rollup in self._rollups:
                if rollup.step == step and rollup.step > EXACT_SECONDS:
                    rollup.add(block, SpanAggregates(**found), 0)


def _arrays(raw: bytes) -> dict[str, npt.NDArray[Any]]:
    with np.load(io.BytesIO(raw)) as found:
        return {name: found[name] for name in found.files}
