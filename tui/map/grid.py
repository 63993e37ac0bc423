"""The places of GPUs on the map, however many there are. Pure.

A map is a grid of cells, and each cell represents a few GPUs, as many as the zoom sets: one with
its value as a digit, two as the halves of a block, eight as the dots of one braille sign, a whole
rack. It is laid out again when the fleet or the window changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tui.kit.text import clean, fit

Ints = npt.NDArray[np.intp]
MOST_DIGITS = 400
"""GPUs that are shown as digits at most."""


class Zoom(StrEnum):
    """The kind of a cell."""

    DIGITS = "digits"
    HALVES = "half-blocks"
    DOTS = "dots"
    RACKS = "groups"


@dataclass(frozen=True)
class Grid:
    """The GPUs of each cell."""

    zoom: Zoom
    slots: Ints
    """Lines, columns, GPUs of a cell, as rows of the state; -1 for an empty slot."""
    labels: tuple[str, ...]
    """Labels of lines, before their cells; may be empty."""
    wide: int
    """Signs of a cell."""
    captions: tuple[tuple[tuple[int, str], ...], ...] = ()
    """Names of groups that share a line, with the column of each, by line; they stand on empty cells."""
    named: bool = True
    """Whether labels or captions name the groups; True where there is one group."""

    @property
    def margin(self) -> int:
        """Signs before the first cell of a line."""
        return max(map(len, self.labels), default=-1) + 1

    @property
    def height(self) -> int:
        """Lines."""
        return len(self.slots)

    def place(self, row: int) -> tuple[int, int] | None:
        """Return line and column of the cell of a GPU."""
        found = np.argwhere(self.slots == row)
        return (int(found[0][0]), int(found[0][1])) if len(found) else None

    def at(self, x: int, y: int) -> int | None:
        """Return the first GPU of the cell at a position of the drawing; None where there is none."""
        column = (x - self.margin) // self.wide
        if not (0 <= y < len(self.slots) and x >= self.margin and column < self.slots.shape[1]):
            return None
        row = int(self.slots[y, column, 0])
        return None if row < 0 else row


MOST_ALONE = 8
"""Lines of groups from which on groups share lines."""
Grouped = tuple[Ints, tuple[str, ...], tuple[tuple[tuple[int, str], ...], ...]]
"""Slots, labels and captions."""
GAPS: tuple[int | None, ...] = (1, 0, None)
"""Empty cells between groups that share a line, as many as there is room for; None: groups also go on in the next line."""


def lay_out(
    order: Ints, node: Ints, group: Ints, names: Sequence[str], width: int, height: int, zoom: Zoom | None = None
) -> Grid:
    """Place the GPUs, finest zoom first, until all fit into `width` x `height` with the names of their groups.

    `order`: row numbers as they follow each other; `node` and `group`: a number of each, in that
    order; `names`: of the groups, by number.
    """
    unnamed = None
    for choice in [zoom] if zoom else list(Zoom):
        if choice is Zoom.DIGITS and zoom is None and len(order) > MOST_DIGITS:
            continue
        grid = _grid(choice, order, node, group, names, width, height)
        if zoom is not None or (grid.named and grid.height <= height):
            return grid
        if choice is Zoom.HALVES and grid.height <= height:
            unnamed = grid  # one sign for eight GPUs that names its racks is better
        elif grid.height <= height or choice is Zoom.RACKS:
            return unnamed or grid
    raise AssertionError("the loop ends with the coarsest zoom")


def _grid(zoom: Zoom, order: Ints, node: Ints, group: Ints, names: Sequence[str], width: int, height: int) -> Grid:
    match zoom:
        case Zoom.DIGITS:
            cells, owner, wide = order[:, None], group, 5
        case Zoom.HALVES:
            cells, owner, wide = _chunks(order, np.zeros(len(order), np.intp), 2)[0], group[::2], 1
        case Zoom.DOTS:
            cells, first = _chunks(order, node, 8)
            owner, wide = group[first], 1
        case Zoom.RACKS:
            # A fleet of more groups than cells: a cell is several groups, as many as it takes.
            count = len(np.unique(group))
            merge = max(1, -(-count // max(1, width // 2 * height)))
            rank = np.cumsum(np.r_[False, group[1:] != group[:-1]]) if len(group) else group
            cells, first = _chunks(order, rank // merge, 0)
            owner, wide = group[first], 2
    grouped = _by_group(cells, owner, names, width, wide) if zoom is not Zoom.RACKS else None
    if grouped is not None:
        if len(grouped[0]) > MOST_ALONE:
            grouped = _side_by_side(*grouped, width, wide)
        if len(grouped[0]) <= height:
            return Grid(zoom, grouped[0], grouped[1], wide, grouped[2])
    several = len(owner) > 1 and owner[0] != owner[-1]
    for gap in () if not several else GAPS[-1:] if zoom is Zoom.RACKS else GAPS:
        grouped = _wrapped(cells, owner, names, width, wide, gap)
        if len(grouped[0]) <= height:
            return Grid(zoom, grouped[0], grouped[1], wide, grouped[2])
    numbered = zoom is Zoom.DOTS
    margin = len(str(len(cells))) + 1 if numbered else 0
    columns = max(1, (width - margin) // wide)
    if numbered and columns >= 16:
        columns -= columns % 8
    rows = max(1, -(-len(cells) // columns))
    slots = np.full((rows * columns, cells.shape[1]), -1, np.intp)
    slots[: len(cells)] = cells
    labels = [f"{n * columns:>{margin - 1}}" for n in range(rows)] if numbered else []
    return Grid(zoom, slots.reshape(rows, columns, -1), tuple(labels), wide, named=not several)


def _chunks(order: Ints, owner: Ints, size: int) -> tuple[Ints, Ints]:
    """Cut `order` where the owner changes and after every `size` (0: never). Returns the pieces,
    padded with -1, and the position of the first of each."""
    if not len(order):
        return np.empty((0, max(1, size)), np.intp), np.empty(0, np.intp)
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    within = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    first = np.flatnonzero((within % size if size else within) == 0)
    most = int(np.diff(np.r_[first, len(order)]).max())
    piece = np.cumsum(np.isin(np.arange(len(order)), first)) - 1
    cells = np.full((len(first), max(size, most)), -1, np.intp)
    cells[piece, np.arange(len(order)) - first[piece]] = order
    return cells, first


def _by_group(cells: Ints, owner: Ints, names: Sequence[str], width: int, wide: int) -> Grouped | None:
    """Start a line for each group, with its name before it."""
    if not len(cells):
        return None
    bounds = [*np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).tolist(), len(cells)]
    if len(bounds) - 1 > 500:
        return None
    margin = min(max(len(names[int(owner[b])]) for b in bounds[:-1]), max(8, width // 5)) + 1
    columns = max(1, (width - margin) // wide)
    columns = min(columns, max(last - first for first, last in pairwise(bounds)))
    lines: list[Ints] = []
    labels: list[str] = []
    for first, last in pairwise(bounds):
        for start in range(first, last, columns):
            line = np.full((columns, cells.shape[1]), -1, np.intp)
            piece = cells[start : min(start + columns, last)]
            line[: len(piece)] = piece
            lines.append(line)
            name = clean(names[int(owner[first])]) if start == first else ""
            labels.append(fit(name, margin - 1, tail=True))
    return np.stack(lines), tuple(labels), ()


def _wrapped(cells: Ints, owner: Ints, names: Sequence[str], width: int, wide: int, gap: int | None) -> Grouped:
    """Fill lines with groups as a text with words; the name of the first one stands before each line."""
    bounds = [*np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).tolist(), len(cells)]
    margin = min(max(len(names[int(owner[b])]) for b in bounds[:-1]), max(8, width // 5)) + 1
    columns = max(1, (width - margin) // wide)
    place = np.arange(len(cells))
    if gap is not None:
        at = 0
        for first, last in pairwise(bounds):
            if at % columns:
                free = columns - at % columns
                at += gap if last - first + gap <= free else free
            place[first:last] = np.arange(at, at + last - first)
            at += last - first
    rows = int(place[-1]) // columns + 1
    slots = np.full((rows * columns, cells.shape[1]), -1, np.intp)
    slots[place] = cells
    starts = np.searchsorted(place, np.arange(rows) * columns)
    labels = [fit(clean(names[int(owner[n])]), margin - 1, tail=True) for n in starts.tolist()]
    return slots.reshape(rows, columns, -1), tuple(labels), ()


def _side_by_side(lines: Ints, labels: tuple[str, ...], _: object, width: int, wide: int) -> Grouped:
    """Put groups into columns, as many as fit, each with a border and its name before it."""
    name = max(map(len, labels)) + 2
    before = -(-name // wide)
    block = before + lines.shape[1] + 1
    across = (width // wide + 1) // block
    if across < 2:
        return lines, labels, ()
    tall = -(-len(lines) // across)
    across = -(-len(lines) // tall)
    slots = np.full((tall, across * block - 1, lines.shape[2]), -1, np.intp)
    captions: list[list[tuple[int, str]]] = [[] for _ in range(tall)]
    for number, label in enumerate(labels):
        column, y = divmod(number, tall)
        start = column * block
        slots[y, start + before : start + before + lines.shape[1]] = lines[number]
        border = "│" if column else ""
        captions[y].append((start * wide, f"{border}{label}"))
    return slots, (), tuple(map(tuple, captions))
