"""Spans of time that are still open, one step above another: when each is over, and what it held. Pure.

A span is over when its end has passed and nothing more came for it for a while; what comes still
later opens it again and makes a part of its own. A part carries the time of its first reading,
so that made twice of the same frames (after a kill -9) it replaces itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aggregator.influx.cells import Cells, empty, join, layers
from aggregator.model import Frames
from telemetry.schema import SCHEMA

SECOND = 10**9
GRACE = 2 * SECOND
"""How long a span waits for more after the last that came, and after its end."""
AHEAD = 3600 * SECOND
"""A span that ends so much later than now is of a wrong clock: its end is not waited for."""
ROOM = 64
PART = 5000


class Places:
    """Which row each device has in the spans of a block: the same in all of them."""

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
class Pane:
    """One span of time."""

    number: int
    """Its start divided by its length."""
    touched: int = 0
    """When something came for it, ns, the aggregator's clock."""
    blocks: dict[int, Cells] = field(default_factory=dict)
    frames: list[Frames] = field(default_factory=list)
    """Frames that count as stored when this span is."""


class Panes:
    """The open spans of one step."""

    def __init__(self, step: int, places: dict[int, Places]) -> None:
        """`step` in seconds; `places` by block, shared by all steps."""
        self.step = step
        self.length = step * SECOND
        self.open: dict[int, Pane] = {}
        self._places = places

    def add(self, block: int, cells: Cells, at: int) -> None:
        """Take frames, or closed spans of a shorter step, that came at `at`."""
        numbers = cells.first // self.length
        for number in np.unique(numbers).tolist():
            among = np.flatnonzero(numbers == number)
            part = cells if len(among) == len(cells) else cells.take(among)
            pane = self.pane(number, at)
            for rows in layers(part.device, part.first):
                whole = len(rows) == len(part) and bool((rows[:-1] < rows[1:]).all())
                self._join(pane, block, part if whole else part.take(rows))

    def _join(self, pane: Pane, block: int, cells: Cells) -> None:
        rows = self._places.setdefault(block, Places()).of(cells.device)
        size = self._places[block].size
        there = pane.blocks.get(block)
        if there is None or len(there) < size:
            there = pane.blocks[block] = _grown(block, there, size)
        join(there, rows, cells)

    def pane(self, number: int, at: int) -> Pane:
        """Return a span that something came for at `at`."""
        pane = self.open.setdefault(number, Pane(number))
        pane.touched = max(pane.touched, at)
        return pane

    def hold(self, frames: Frames, at: int) -> None:
        """Keep frames until their spans are closed."""
        numbers = frames.sampled_at // self.length
        for number in np.unique(numbers).tolist():
            self.pane(number, at).frames.append(some(frames, numbers == number))

    def due(self, at: int, finer: Panes | None, *, every: bool = False) -> Iterator[Pane]:
        """Take out the spans that are over, oldest first; `finer` is the step below."""
        for number in sorted(self.open):
            if every or (self._over(self.open[number], at) and not self._waits(number, finer)):
                yield self.open.pop(number)

    def _over(self, pane: Pane, at: int) -> bool:
        end = (pane.number + 1) * self.length
        return at >= pane.touched + GRACE and (at >= end + GRACE or end > at + AHEAD)

    def _waits(self, number: int, finer: Panes | None) -> bool:
        """Whether a span below is open still, which is a part of this one."""
        if finer is None:
            return False
        ratio = self.step // finer.step
        return any(below // ratio == number for below in finer.open)


def some(frames: Frames, rows: npt.NDArray[np.bool_]) -> Frames:
    """Return some of the frames."""
    return Frames(
        frames.run[rows], frames.seq[rows], frames.sampled_at[rows],
        frames.received_at[rows], frames.backfilled[rows],
    )  # fmt: skip


def closed(pane: Pane) -> Iterator[tuple[int, Cells]]:
    """Yield what a span held, by block, `PART` rows at a time."""
    for block, cells in sorted(pane.blocks.items()):
        rows = np.flatnonzero(cells.readings)
        for start in range(0, len(rows), PART):
            yield block, cells.take(rows[start : start + PART])


def _grown(block: int, cells: Cells | None, size: int) -> Cells:
    room = max(ROOM, size + size // 8)
    new = empty(SCHEMA.blocks[block], room)
    if cells is not None:
        for name, values in new.arrays().items():
            values[: len(cells)] = getattr(cells, name)
    return new
