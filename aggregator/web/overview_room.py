"""The room on the overview: one screen of 1440x900 is shared by the map, the power chain and who uses what. The map takes the
most detailed form that leaves the others their least height, the chain what is left. Lengths are px of the style sheets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from aggregator.web.fleet_map import ACROSS, CELL, GAP, MapForm, columns_of, place_of

ROOM, APART = 541.0, 12.0
"""Height below the tiles, less that of a second line of a reason; and what lies between two panels."""
INSIDE = {False: 836.0, True: 895.0}
"""Width inside a panel of the left column, by whether that is the wide one: beside what has no folded chain."""
USERS, PORTS, LEAST_CHAIN = 72.0, 73.0, 232.0
"""Heights of who uses what in two lines of text, of the ports when all are well (of nodes without GPUs about the same), and of a
diagram of two nodes, fed from two sides."""
FEW = 64
"""GPUs of which each may have its figure."""
_WRONG, _BREAKERS, _TABLE, _ROW, _CAPTION = 249.0, 74.0, 94.0, 30.0, 20.0
"""Heights of what is wrong, of the nearest breakers and of who uses what without rows, of a row, and of a caption."""
_HEAD, _NAME, _EDGES, _BETWEEN = 60.0, 26.4, 12.0, 6.0
"""Heights of a map without racks and of a rack without cells; both edges of a rack, and what lies between two."""
_LEAST, _LETTER, _MARK = 59.0, 6.4, 14.0
"""Least width of a rack; widths of a letter of its name, and of the mark of what is wrong."""
_BOX, _FIGURE_ROW, _FIGURE, _TITLE = 31.6, 32.5, 47.0, 7.5
"""Height of a node's box without figures and of a row of them; widths of a figure, and of a letter of a box's title."""
Size = tuple[float, float]
"""Width and height."""


class MapNode(NamedTuple):
    """A node on the map."""

    rack: str
    name: str
    gpus: int


def form_of(nodes: Sequence[MapNode], beside: float = 0.0) -> MapForm:
    """Return the form of the map. `beside`: height of what stands in its column, but for the chain and who uses what."""
    if sum(one.gpus for one in nodes) <= FEW:
        left = ROOM - map_height(nodes, MapForm.FIGURES, INSIDE[False]) - beside
        if left >= APART + LEAST_CHAIN:
            return MapForm.FIGURES
    named = map_height(nodes, MapForm.NAMED, INSIDE[False])
    return MapForm.NAMED if named + APART + USERS <= ROOM else MapForm.DENSE


def map_height(nodes: Sequence[MapNode], form: MapForm, inside: float) -> float:
    """Return the height of the panel of the map in a form with figures or names."""
    sizes = _boxes(nodes, inside) if form is MapForm.FIGURES else _racks(nodes)
    return _HEAD + _wrapped(sizes, inside)


def table_rows(circuits: int) -> int:
    """Return the rows of who uses what for which the nearest breakers leave room; negative without room for its head.
    `circuits`: rows of the nearest breakers."""
    breakers = _BREAKERS + _ROW * circuits + (_CAPTION if circuits > 1 else 0) + APART
    left = ROOM - _WRONG - APART - (breakers if circuits else 0) - _TABLE
    return int(left // _ROW)


def _boxes(nodes: Iterable[MapNode], inside: float) -> Iterator[Size]:
    for one in nodes:
        most = max(1, int((inside - _EDGES) // _FIGURE))
        title = _TITLE * len(f"{one.name} {one.rack}") + _MARK
        rows = -(-one.gpus // most)
        yield _EDGES + max(_FIGURE * min(most, one.gpus), title), _BOX + _FIGURE_ROW * rows


def _racks(nodes: Iterable[MapNode]) -> Iterator[Size]:
    ordered = sorted(nodes, key=lambda one: place_of(one.rack))
    for rack, inside in groupby(ordered, key=lambda one: one.rack):
        rows = sum(-(-one.gpus // ACROSS) for one in inside)
        columns, deep = columns_of(rows)
        cells = columns * (ACROSS * (CELL + GAP) + GAP)
        name = _LETTER * len(rack or "in no rack") + _MARK
        yield max(_LEAST, _EDGES + max(cells, name)), _NAME + deep * (CELL + GAP) - GAP


def _wrapped(sizes: Iterable[Size], inside: float) -> float:
    """Return the height of boxes side by side in as many lines as they need; those of a line are as high as its highest."""
    total = at = high = 0.0
    for width, height in sizes:
        if at and at + width > inside:
            total, at, high = total + high + _BETWEEN, 0.0, 0.0
        at, high = at + width + _BETWEEN, max(high, height)
    return total + high
