"""Columns of a table, and how they share its width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tui.kit.text import fit
from tui.kit.theme import Piece

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[S]):
    """A column: title, width, and the function that draws a cell."""

    title: str
    width: int
    """Cells at least."""
    draw: Callable[[S, int, int], Piece]
    """Source, row and width in; text (padded or cut to the width afterwards) and tone out."""
    right: bool = False
    tail: bool = False
    """Cut at the front: names differ at their end."""
    grow: int = 0
    """Share of the width that is left over."""
    most: int = 1000
    need: int = 0
    """Width of the whole table from which on the column is shown."""


def share(columns: Sequence[TableColumn[S]], width: int) -> list[tuple[TableColumn[S], int]]:
    """Return the columns that are shown in a table of `width` cells, and how wide each is."""
    shown = [column for column in columns if width >= column.need]
    sizes = [column.width for column in shown]
    left = width - sum(sizes) - len(shown) + 1
    while left > 0:
        able = [n for n, c in enumerate(shown) if c.grow and sizes[n] < c.most]
        shares = sum(shown[n].grow for n in able)
        if not able:
            break
        given = 0
        for n in able:
            more = min(max(1, left * shown[n].grow // shares), shown[n].most - sizes[n])
            more = min(more, left - given)
            sizes[n] += more
            given += more
        left -= given
    return list(zip(shown, sizes, strict=True))


def head(shares: Sequence[tuple[TableColumn[S], int]], sorted_by: str) -> list[Piece]:
    """Draw the line of titles; the column that rows are sorted by is marked."""
    pieces: list[Piece] = []
    for column, width in shares:
        mark = "▼" if column.title == sorted_by and column.title else ""
        title = fit(f"{mark}{column.title}", width, right=column.right)
        pieces += [(title, "strong" if mark else "head"), (" ", "head")]
    return pieces[:-1]


def line(shares: Sequence[tuple[TableColumn[S], int]], source: S, row: int) -> list[Piece]:
    """Draw a row."""
    pieces: list[Piece] = []
    for column, width in shares:
        text, tone = column.draw(source, row, width)
        pieces += [(fit(text, width, right=column.right, tail=column.tail), tone), (" ", "")]
    return pieces[:-1]
