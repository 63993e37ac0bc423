"""The map: every GPU of the fleet, however many there are. Pure.

A map is a grid of cells, and each cell stands for a few GPUs, as many as the zoom says: one with
its value as a digit, two as the halves of a block, eight as the dots of one braille sign, a whole
rack. `lay_out` decides who is where; it runs when the fleet or the window changes. `draw` colours
the cells; it runs at every tick, on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tui.text import clean, fit
from tui.theme import INK, STEPS, Line, Piece

Ints = npt.NDArray[np.intp]
Bytes = npt.NDArray[np.uint8]
MISSING = 255
"""Level of a GPU whose metric is not known."""
OK, STALE, WARN, CRIT, DOWN = range(5)
"""`tui.board.Standing`, as numbers in a column."""
MOST_DIGITS = 400
"""GPUs that are shown as digits; above that nobody reads them."""
_DOTS = (0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80)
"""Dot of each of eight GPUs: left to right, then down."""
_CHIPS = {STALE: "stale_chip", WARN: "warn_chip", CRIT: "crit_chip", DOWN: "down"}
_SIGNS = {STALE: "▒", WARN: "!", CRIT: "▲", DOWN: "\u00d7"}


class Zoom(StrEnum):
    """What a cell stands for."""

    DIGITS = "digits"
    HALVES = "half-blocks"
    DOTS = "dots"
    RACKS = "groups"


@dataclass(frozen=True)
class Grid:
    """Who is where."""

    zoom: Zoom
    slots: Ints
    """Rows, columns, GPUs of a cell: row numbers of the board; -1 where there is nobody."""
    labels: tuple[str, ...]
    """One a line, before its cells; empty without."""
    wide: int
    """Signs of a cell."""

    @property
    def margin(self) -> int:
        """Signs before the first cell of a line."""
        return max(map(len, self.labels), default=-1) + 1

    @property
    def height(self) -> int:
        """Lines."""
        return len(self.slots)

    def place(self, row: int) -> tuple[int, int] | None:
        """Line and column of the cell of a GPU."""
        found = np.argwhere(self.slots == row)
        return (int(found[0][0]), int(found[0][1])) if len(found) else None

    def at(self, x: int, y: int) -> int | None:
        """The first GPU of the cell at a position of the drawing; None where nobody is."""
        column = (x - self.margin) // self.wide
        if not (0 <= y < len(self.slots) and x >= self.margin and column < self.slots.shape[1]):
            return None
        row = int(self.slots[y, column, 0])
        return None if row < 0 else row


def lay_out(
    order: Ints, node: Ints, group: Ints, names: Sequence[str], width: int, height: int,
    zoom: Zoom | None = None,
) -> Grid:  # fmt: skip
    """Place the GPUs, finest zoom first, until all fit into `width` x `height`.

    `order`: row numbers as they follow each other; `node` and `group`: a number of each, in that
    order; `names`: of the groups, by number.
    """
    for choice in [zoom] if zoom else list(Zoom):
        if choice is Zoom.DIGITS and zoom is None and len(order) > MOST_DIGITS:
            continue
        grid = _grid(choice, order, node, group, names, width, height)
        if grid.height <= height or choice is Zoom.RACKS or zoom is not None:
            return grid
    raise AssertionError("the loop ends with the coarsest zoom")


def _grid(
    zoom: Zoom, order: Ints, node: Ints, group: Ints, names: Sequence[str], width: int, height: int
) -> Grid:
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
    if grouped is not None and len(grouped[0]) <= height:
        return Grid(zoom, *grouped, wide)
    numbered = zoom is Zoom.DOTS
    margin = len(str(len(cells))) + 1 if numbered else 0
    columns = max(1, (width - margin) // wide)
    if numbered and columns >= 16:
        columns -= columns % 8
    rows = max(1, -(-len(cells) // columns))
    slots = np.full((rows * columns, cells.shape[1] if len(cells) else 1), -1, np.intp)
    slots[: len(cells)] = cells
    labels = [f"{n * columns:>{margin - 1}}" for n in range(rows)] if numbered else []
    return Grid(zoom, slots.reshape(rows, columns, -1), tuple(labels), wide)


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


def _by_group(
    cells: Ints, owner: Ints, names: Sequence[str], width: int, wide: int
) -> tuple[Ints, tuple[str, ...]] | None:
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
    return np.stack(lines), tuple(labels)


def quantise(
    values: npt.NDArray[np.float64], span: tuple[float, float], before: Bytes | None
) -> Bytes:
    """Return the level of each value on a fixed span. A value that moves a little over a border
    keeps the level of `before`, so that noise repaints nothing."""
    scaled = (values - span[0]) / (span[1] - span[0]) * STEPS
    known = ~np.isnan(scaled)
    level = np.full(len(values), MISSING, np.uint8)
    level[known] = np.clip(scaled[known], 0, STEPS - 1).astype(np.uint8)
    if before is not None and len(before) == len(level):
        near = known & (before < STEPS)
        off = scaled[near] - before[near]
        keep = (off > -0.15) & (off < 1.15)
        held = np.flatnonzero(near)[keep]
        level[held] = before[held]
    return level


@dataclass(frozen=True)
class Cells:
    """What the map shows, by row of the board."""

    level: Bytes | None
    """0 to 7, or `MISSING`; None shows only who is ill."""
    digits: Sequence[str]
    """Text of each GPU at the zoom of digits; empty at others."""
    standing: npt.NDArray[np.int8]
    dimmed: npt.NDArray[np.bool_] | None = None
    """What the filter leaves out stays where it is, without colour: position is memory."""


def draw(grid: Grid, cells: Cells, *, shaded: bool, cursor: int | None = None) -> list[Line]:
    """Draw the map. `shaded`: levels are colours; else signs."""
    slots, present = grid.slots, grid.slots >= 0
    if not present.any():
        return []
    standing = np.where(present, cells.standing[slots], -1)
    if cells.dimmed is not None:
        standing = np.where(present & cells.dimmed[slots], np.minimum(standing, OK), standing)
    worst = standing.max(axis=2, initial=-1)
    paint = _halves if grid.zoom is Zoom.HALVES and shaded else _plain
    lines: list[Line] = []
    place = None if cursor is None else grid.place(cursor)
    for y in range(grid.height):
        pieces: list[Piece] = []
        if grid.labels:
            pieces.append((f"{grid.labels[y]:>{grid.margin - 1}} ", "dim"))
        here = place[1] if place is not None and place[0] == y else None
        pieces += paint(grid, cells, y, standing[y], worst[y], here, shaded)
        lines.append(pieces)
    return lines


def _halves(
    grid: Grid, cells: Cells, y: int, standing: npt.NDArray[np.int8],
    worst: npt.NDArray[np.int8], here: int | None, shaded: bool,
) -> list[Piece]:  # fmt: skip
    """Two GPUs a cell. Cells that look the same are one run of text: 8 times fewer bytes."""
    code = _levels(cells, grid.slots[y])
    key = code[:, 0].astype(np.int64) * 16 + code[:, 1]
    key = np.where(worst > OK, 1000 + worst.astype(np.int64), key)
    if here is not None:
        key[here] = 2000
    pieces: list[Piece] = []
    for start, end in _runs(key):
        value, count = int(key[start]), end - start
        if value == 2000:
            pieces.append((_SIGNS.get(int(worst[start]), "◆"), "here"))
        elif value >= 1000:
            pieces.append((_SIGNS[value - 1000] * count, _CHIPS[value - 1000]))
        else:
            top, bottom = divmod(value, 16)
            pieces.append(("▀" * count, f"{_SHADES[top]}/{_SHADES[bottom]}"))
    return pieces


_SHADES = (*(f"r{level}" for level in range(STEPS)), "faint", "none")
"""Tones of half a cell: 8 levels, not known, nobody there."""


def _levels(cells: Cells, slots: Ints) -> Bytes:
    """Code of each slot: 0 to 7, 8 for not known (and for what the filter leaves out), 9 for
    nobody."""
    if cells.level is None:
        code = np.full(slots.shape, 0, np.uint8)
    else:
        code = np.minimum(cells.level[slots], STEPS).astype(np.uint8)
    if cells.dimmed is not None:
        code[cells.dimmed[slots]] = STEPS
    code[slots < 0] = STEPS + 1
    return code


def _runs(key: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    bounds = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]).tolist() if len(key) else []
    return list(pairwise([*bounds, len(key)]))


def _plain(
    grid: Grid, cells: Cells, y: int, standing: npt.NDArray[np.int8],
    worst: npt.NDArray[np.int8], here: int | None, shaded: bool,
) -> list[Piece]:  # fmt: skip
    """One sign or more a cell: digits, dots, groups, and halves where there is no colour."""
    code = _levels(cells, grid.slots[y])
    pieces: list[Piece] = []
    tone, text = "", ""
    for x in range(len(worst)):
        sign, its = _cell(grid, cells, y, x, code[x], standing[x], int(worst[x]), shaded)
        if x == here:
            its = "here"
        if its != tone and text:
            pieces.append((text, tone))
            text = ""
        tone, text = its, text + sign
    return [*pieces, (text, tone)] if text else pieces


def _cell(
    grid: Grid, cells: Cells, y: int, x: int, code: Bytes,
    standing: npt.NDArray[np.int8], worst: int, shaded: bool,
) -> Piece:  # fmt: skip
    blank = " " * grid.wide
    if worst < 0:
        return blank, ""
    there = code <= STEPS
    known = code[code < STEPS]
    mean = round(float(known.mean())) if len(known) else None
    left_out = cells.dimmed is not None and not len(known) and bool(there.any())
    match grid.zoom:
        case Zoom.DIGITS:
            row = int(grid.slots[y, x, 0])
            text = f"{cells.digits[row]:>4} " if cells.digits else blank
            if worst > OK:
                return f"{_SIGNS[worst]}{text[1:]}", _CHIPS[worst]
            return text, _shade(mean, shaded, left_out)
        case Zoom.DOTS:
            if worst in {WARN, CRIT} or (
                worst > OK and not (standing[standing >= 0] == worst).all()
            ):
                dots = sum(_DOTS[n] for n in range(8) if standing[n] > OK)
                return chr(0x2800 + dots), _CHIPS[worst] if worst != DOWN else "down_chip"
        case _:
            pass
    if worst > OK:
        return _SIGNS[worst].center(grid.wide), _CHIPS[worst]
    if cells.level is None:
        return "·" * 1 + blank[1:], "faint" if left_out else "ok"
    if not shaded:
        return ("-" if mean is None else INK[mean]) * grid.wide, "faint" if left_out else ""
    if mean is None:
        return "·" + blank[1:], "faint"
    return blank, f"on_r{mean}"


def _shade(mean: int | None, shaded: bool, left_out: bool) -> str:
    if left_out or mean is None:
        return "faint" if left_out else "dim"
    return f"on_r{mean}" if shaded else ""
