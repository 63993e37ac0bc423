"""The rows of a table in their order, and the marks of their status. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from present.device.gpu import unread_row
from present.row import FactRow, Tone
from tui.kit.text import CROSS
from tui.kit.theme import Piece
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats
from tui.state.readings import TEMPERATURE
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn, head, line, share

Index = npt.NDArray[np.intp]
S = TypeVar("S")

MARKS: dict[RowStatus, Piece] = {
    RowStatus.OK: ("· ok", "ok"),
    RowStatus.STALE: ("▒ STALE", "stale"),
    RowStatus.WARN: ("! WARN", "warn"),
    RowStatus.CRIT: ("▲ CRIT", "crit"),
    RowStatus.DOWN: (f"{CROSS} OFFLINE", "down"),
}
"""Sign and word of each status; docs/dashboard.md explains them."""


def gpu_mark(state: DashboardState, row: int) -> Piece:
    """Return the mark of a GPU's status; of an unread one, the reason."""
    status = RowStatus(state.gpu_status[row])
    if status in {RowStatus.DOWN, RowStatus.STALE}:
        return unread(state.gpus.who.present[row], (state.gpus.gap(TEMPERATURE, row),))
    return MARKS[status]


def unread(present: bool, gaps: Collection[str]) -> Piece:
    """Return the mark of an unread GPU, by the reasons of its gaps."""
    return unread_mark(unread_row(present, gaps))


def unread_mark(row: FactRow) -> Piece:
    """Return the mark of an unread GPU."""
    return (f"{CROSS} {row.short}", "down") if row.tone is Tone.CRIT else (f"▒ {row.short}", "stale")


@dataclass(frozen=True)
class Listing(Generic[S]):
    """Rows in the order in which they are shown."""

    source: S
    columns: Sequence[TableColumn[S]]
    order: Index
    """Rows of the state."""
    keys: Sequence[str]
    """Name of each row of the state; the cursor follows it when the order changes."""
    total: int
    """Number of rows without the filter."""
    sorted_by: str = ""
    nothing: str = ""
    """Message when there are no rows at all: the reason and the next step."""

    def empty(self) -> list[Piece]:
        """Return the line in place of the rows when there are none."""
        if self.total:
            return [(f"none of {self.total:,} matches; esc clears the filter", "dim")]
        return [(self.nothing, "dim")]

    def head(self, width: int) -> list[Piece]:
        """Return the line of titles."""
        return head(share(self.columns, width), self.sorted_by)

    def line(self, place: int, width: int) -> list[Piece]:
        """Return the row at a place of the order."""
        return line(share(self.columns, width), self.source, int(self.order[place]))

    def record(self, place: int) -> dict[str, str]:
        """Return the row at a place as uncut texts by title, for export."""
        found = {"key": self.key(place)}
        for column in self.columns:
            text = column.draw(self.source, int(self.order[place]), 200)[0].strip()
            if column.title:
                found[column.title] = text
        return found

    def key(self, place: int) -> str:
        """Return the name of the row at a place of the order."""
        return self.keys[int(self.order[place])]

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of each name that is shown."""
        return {self.keys[row]: place for place, row in enumerate(self.order.tolist())}


def highest_first(rows: Index, values: Floats, *, reverse: bool = False) -> Index:
    """Sort rows by value, highest (or lowest) first; what is missing comes last, equals stay as
    they are."""
    chosen = values[rows] if reverse else -values[rows]
    return rows[np.argsort(np.where(np.isnan(chosen), np.inf, chosen), kind="stable")]
