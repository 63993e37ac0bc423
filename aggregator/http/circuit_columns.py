"""`/api/v1/circuits?columns=`: every circuit by columns, as `/api/v1/fleet` has the GPUs.

700 circuits are 130 kB, where the whole objects with all their words are 1.4 MB and take 100 ms to
make: who looks at all of them once a second takes the columns, and the object of the one circuit
whose page is open.
"""

from __future__ import annotations

import msgspec
import numpy as np

from aggregator.http.errors import bad, unknown
from power.board import Board, BoardKind
from power.layout import Layout
from power.quantities import QUANTITIES

ALL = "*"
NAMES = tuple(quantity.name for quantity in QUANTITIES if quantity.board is BoardKind.CIRCUIT)
DIGITS = 4


class CircuitRows(msgspec.Struct, frozen=True):
    """Who the rows are: parallel arrays, parents before what they feed."""

    id: list[str]
    kind: list[str]
    """`circuit` or `panel`."""
    parent: list[str | None]
    """What feeds it."""
    nodes: list[list[str]]
    """Nodes with a cord in it."""


def chosen(text: str) -> tuple[str, ...]:
    """Return the quantities that were asked for. Raises a 400 with the nearest word."""
    if text == ALL:
        return NAMES
    names = tuple(text.split(","))
    for name in names:
        if name not in NAMES:
            raise unknown("columns", name, NAMES, status=400)
    if len(set(names)) < len(names):
        raise bad("columns", "a column is asked for twice", "Name each once.")
    return names


def rows(layout: Layout, board: Board) -> CircuitRows:
    """Return who is on the board of circuits."""
    nodes: dict[str, dict[str, None]] = {}
    for cord in layout.cords:
        nodes.setdefault(cord.line, {})[cord.machine] = None
    lines = [layout.lines[name] for name in board.names]
    return CircuitRows(
        list(board.names),
        ["panel" if line.is_panel else "circuit" for line in lines],
        [line.parent for line in lines],
        [list(nodes.get(name, ())) for name in board.names],
    )


def columns(board: Board, names: tuple[str, ...]) -> dict[str, list[float | None]]:
    """Return quantities of all circuits; null is not known, and for seconds never."""
    return {name: _plain(board.column(name)) for name in names}


def _plain(values: np.ndarray[tuple[int], np.dtype[np.floating]]) -> list[float | None]:
    finite = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    found: list[float | None] = np.round(finite, DIGITS).tolist()
    return found  # a NaN becomes null when msgspec writes it
