"""The colours of the map: what each cell of a grid shows. Pure.

`tui.map.grid` places the GPUs; `draw` colours the cells, at every tick, on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tui.kit.theme import INK, STEPS, Line, Piece
from tui.map.grid import Grid, Ints, Zoom

Bytes = npt.NDArray[np.uint8]
MISSING = 255
"""Level of a GPU whose metric is not known."""
OK, STALE, WARN, CRIT, DOWN = range(5)
"""`tui.state.row_status.RowStatus`, as numbers in a column."""
_DOTS = (0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80)
"""Dot of each of eight GPUs: left to right, then down."""
_CHIPS = {STALE: "stale_chip", WARN: "warn_chip", CRIT: "crit_chip", DOWN: "down"}
_SIGNS = {STALE: "▒", WARN: "!", CRIT: "▲", DOWN: "\u00d7"}


def quantise(values: npt.NDArray[np.float64], span: tuple[float, float], before: Bytes | None) -> Bytes:
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
class HeatmapCells:
    """The values of the map, by row of the state."""

    level: Bytes | None
    """0 to 7, or `MISSING`; None shows only the status."""
    digits: Sequence[str]
    """Text of each GPU at the zoom of digits; empty at others."""
    status: npt.NDArray[np.int8]
    dimmed: npt.NDArray[np.bool_] | None = None
    """GPUs that a filter leaves out: they stay in their places, without colour."""


def draw(grid: Grid, cells: HeatmapCells, *, shaded: bool, cursor: int | None = None) -> list[Line]:
    """Draw the map. `shaded`: levels are colours; else signs."""
    slots, present = grid.slots, grid.slots >= 0
    if not present.any():
        return []
    status = np.where(present, cells.status[slots], -1)
    if cells.dimmed is not None:
        status = np.where(present & cells.dimmed[slots], np.minimum(status, OK), status)
    worst = status.max(axis=2, initial=-1)
    paint = _halves if grid.zoom is Zoom.HALVES and shaded else _plain
    lines: list[Line] = []
    place = None if cursor is None else grid.place(cursor)
    for y in range(grid.height):
        pieces: list[Piece] = []
        if grid.labels:
            pieces.append((f"{grid.labels[y]:>{grid.margin - 1}} ", "dim"))
        here = place[1] if place is not None and place[0] == y else None
        painted = paint(grid, cells, y, status[y], worst[y], here, shaded)
        pieces += _captioned(painted, grid.captions[y]) if grid.captions else painted
        lines.append(pieces)
    return lines


def _captioned(pieces: list[Piece], captions: Sequence[tuple[int, str]]) -> list[Piece]:
    """Write names over the empty cells before groups."""
    left = list(captions)
    drawn: list[Piece] = []
    x = 0
    for whole, tone in pieces:
        text = whole
        while left and left[0][0] < x + len(text):
            column, name = left.pop(0)
            if column > x:
                drawn.append((text[: column - x], tone))
            drawn.append((name, "dim"))
            text, x = text[column - x + len(name) :], column + len(name)
        if text:
            drawn.append((text, tone))
        x += len(text)
    return drawn


def _halves(
    grid: Grid,
    cells: HeatmapCells,
    y: int,
    status: npt.NDArray[np.int8],
    worst: npt.NDArray[np.int8],
    here: int | None,
    shaded: bool,
) -> list[Piece]:
    """Draw two GPUs a cell. Equal neighbours are one run of text: 8 times fewer bytes."""
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
"""Tones of half a cell: 8 levels, not known, empty."""


def _levels(cells: HeatmapCells, slots: Ints) -> Bytes:
    """Return the code of each slot: 0 to 7, 8 for not known or left out by the filter, 9 for empty."""
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
    grid: Grid,
    cells: HeatmapCells,
    y: int,
    status: npt.NDArray[np.int8],
    worst: npt.NDArray[np.int8],
    here: int | None,
    shaded: bool,
) -> list[Piece]:
    """Draw one sign or more a cell: digits, dots, groups, and halves without colour."""
    code = _levels(cells, grid.slots[y])
    pieces: list[Piece] = []
    tone, text = "", ""
    for x in range(len(worst)):
        sign, its = _cell(grid, cells, y, x, code[x], status[x], int(worst[x]), shaded)
        if x == here:
            its = "here"
        if its != tone and text:
            pieces.append((text, tone))
            text = ""
        tone, text = its, text + sign
    return [*pieces, (text, tone)] if text else pieces


def _cell(
    grid: Grid, cells: HeatmapCells, y: int, x: int, code: Bytes, status: npt.NDArray[np.int8], worst: int, shaded: bool
) -> Piece:
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
            if worst in {WARN, CRIT} or (worst > OK and not (status[status >= 0] == worst).all()):
                dots = sum(_DOTS[n] for n in range(8) if status[n] > OK)
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
