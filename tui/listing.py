"""The two tables of the screen: nodes and GPUs. What stands in a cell, how rows are sorted and
which are shown. Pure views of a board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tui.board import (
    CLOCK,
    LIMIT,
    MEMORY_TOTAL,
    MEMORY_USED,
    POWER,
    REASONS,
    TEMPERATURE,
    UTILIZATION,
    Board,
    Floats,
    Standing,
)
from tui.columns import Column, head, line, share
from tui.fields import gpu_fields, node_fields
from tui.filter import ALL, Filter
from tui.text import CROSS, DASH, bar, clean, gibibytes, number, percent, span, watts
from tui.theme import Piece

Index = npt.NDArray[np.intp]
S = TypeVar("S")

MARKS: dict[Standing, Piece] = {
    Standing.OK: ("· ok", "ok"),
    Standing.STALE: ("▒ STALE", "stale"),
    Standing.WARN: ("! WARN", "warn"),
    Standing.CRIT: ("▲ CRIT", "crit"),
    Standing.DOWN: (f"{CROSS} DOWN", "down"),
}


@dataclass(frozen=True)
class Listing(Generic[S]):
    """Rows in the order in which they are shown."""

    source: S
    columns: Sequence[Column[S]]
    order: Index
    """Positions in the board."""
    keys: Sequence[str]
    """Name of each position: the cursor follows it, whatever the order."""
    total: int
    """Rows without the filter."""
    sorted_by: str = ""
    nothing: str = ""
    """What to say when there are no rows at all: why, and the next step."""

    def empty(self) -> list[Piece]:
        """What stands in place of the rows when there are none."""
        if self.total:
            return [(f"none of {self.total:,} matches; esc takes the filter back", "dim")]
        return [(self.nothing, "dim")]

    def head(self, width: int) -> list[Piece]:
        """The line of titles."""
        return head(share(self.columns, width), self.sorted_by)

    def line(self, place: int, width: int) -> list[Piece]:
        """The row at a place of the order."""
        return line(share(self.columns, width), self.source, int(self.order[place]))

    def record(self, place: int) -> dict[str, str]:
        """The row at a place as words by title, for export: what is drawn, uncut."""
        found = {"key": self.key(place)}
        for column in self.columns:
            text = column.draw(self.source, int(self.order[place]), 200)[0].strip()
            if column.title:
                found[column.title] = text
        return found

    def key(self, place: int) -> str:
        """Name of the row at a place of the order."""
        return self.keys[int(self.order[place])]

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of each name that is shown."""
        return {self.keys[row]: place for place, row in enumerate(self.order.tolist())}


class GpuSource:
    """What the cells of the GPU table are drawn from."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.gpus = board.gpus
        self.standing = board.gpu_standing

    def tone(self, row: int) -> str:
        """Numbers of a GPU that says nothing new are dimmed."""
        return "" if self.gpus.reporting[row] else "dim"


class NodeSource:
    """What the cells of the node table are drawn from."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.standing = board.node_standing
        self.power = board.node_sum(POWER)
        self.hottest = board.node_max(TEMPERATURE)
        self.busy = board.node_mean(UTILIZATION)
        self.reporting = board.node_reporting()

    def tone(self, row: int) -> str:
        """A node that says nothing new is dimmed."""
        return "" if self.board.nodes[row].state == "online" else "dim"


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _gpu_state(source: GpuSource, row: int, width: int) -> Piece:
    standing = Standing(source.standing[row])
    if standing is Standing.DOWN:
        hung = source.gpus.gap(TEMPERATURE, row) == "timed_out"
        return f"{CROSS} HUNG" if hung else f"{CROSS} LOST", "down"
    return MARKS[standing]


def _gpu_power(source: GpuSource, row: int, width: int) -> Piece:
    power, limit = source.gpus.value(POWER, row), source.gpus.value(LIMIT, row)
    of = "" if limit is None else f"/{number(limit)}"
    return f"{number(power)}{of}", source.tone(row)


def _gpu_power_bar(source: GpuSource, row: int, width: int) -> Piece:
    power, limit = source.gpus.value(POWER, row), source.gpus.value(LIMIT, row)
    return bar(power / limit if power is not None and limit else None, width), "bar"


def _gpu_memory(source: GpuSource, row: int, width: int) -> Piece:
    used, total = source.gpus.value(MEMORY_USED, row), source.gpus.value(MEMORY_TOTAL, row)
    of = "" if total is None else f"/{gibibytes(total)}"
    return f"{gibibytes(used)}{of}", source.tone(row)


def _gpu_clock(source: GpuSource, row: int, width: int) -> Piece:
    hertz = source.gpus.value(CLOCK, row)
    return DASH if hertz is None else f"{hertz / 1e6:.0f}", source.tone(row)


def _gpu_held(source: GpuSource, row: int, width: int) -> Piece:
    known = False
    for metric, word in REASONS:
        value = source.gpus.value(metric, row)
        known |= value is not None
        if value:
            # The power cap is how a busy GPU works; all others take speed away for a fault.
            return word, "dim" if word == "power cap" else "warn"
    return "" if known else DASH, source.tone(row)


GPU_COLUMNS: tuple[Column[GpuSource], ...] = (
    Column("GPUS", 7, _gpu_state),
    Column("node", 9, lambda s, row, _: (clean(s.gpus.who.node[row]), s.tone(row)),
           tail=True, grow=2, most=28),
    Column("#", 2, lambda s, row, _: (str(s.gpus.who.gpu[row]), s.tone(row)), right=True),
    Column("name", 22, lambda s, row, _: (s.gpus.who.name[row].removeprefix("NVIDIA "), "dim"),
           grow=1, most=30, need=112),
    Column("W/limit", 9, _gpu_power, right=True),
    Column("", 6, _gpu_power_bar, grow=3, most=24),
    Column("°C", 3, lambda s, row, _: (number(s.gpus.value(TEMPERATURE, row)), s.tone(row)),
           right=True),
    Column("util", 5, lambda s, row, _: (percent(s.gpus.value(UTILIZATION, row)), s.tone(row)),
           right=True),
    Column("", 5, lambda s, row, width: (bar(s.gpus.value(UTILIZATION, row), width), "bar"),
           grow=3, most=24),
    Column("GiB", 8, _gpu_memory, right=True),
    Column("MHz", 5, _gpu_clock, right=True),
    Column("held by", 11, _gpu_held),
    Column("uuid", 12, lambda s, row, _: (clean(s.gpus.who.uuid[row]), "dim"),
           grow=1, most=40, need=140),
)  # fmt: skip


def _node_state(source: NodeSource, row: int, width: int) -> Piece:
    standing = Standing(source.standing[row])
    if standing is Standing.OK and source.board.nodes[row].driver_state in _DRIVER_FAULTS:
        return "! NODRV", "warn"
    return MARKS[standing]


_DRIVER_FAULTS = {"missing", "mismatched", "hung", "no_permission"}


def _node_gpus(source: NodeSource, row: int, width: int) -> Piece:
    reporting, of = int(source.reporting[row]), source.board.nodes[row].gpus
    return f"{reporting}/{of}", source.tone(row) if reporting == of else "stale"


def _node_worst(source: NodeSource, row: int, width: int) -> Piece:
    node = source.board.nodes[row]
    alerts = source.board.node_alerts.get(node.node, [])
    if not alerts:
        age = node.age_seconds
        late = node.state != "online" and age is not None
        return f"silent {span(age)}" if late else "", "stale"
    tone = {"page": "crit", "ticket": "warn"}.get(alerts[0].severity, "dim")
    more = f" +{len(alerts) - 1}" if len(alerts) > 1 else ""
    return f"{clean(alerts[0].rule)}{more}", tone


NODE_COLUMNS: tuple[Column[NodeSource], ...] = (
    Column("NODES", 7, _node_state),
    Column("node", 9, lambda s, row, _: (clean(s.board.nodes[row].node), s.tone(row)),
           tail=True, grow=2, most=28),
    Column("GPUs", 5, _node_gpus, right=True),
    Column("GPU power", 9, lambda s, row, _: (watts(_known(s.power[row])), s.tone(row)),
           right=True),
    Column("wall", 8,
           lambda s, row, _: (watts(s.board.wall.get(s.board.nodes[row].node)), s.tone(row)),
           right=True),
    Column("°C", 3, lambda s, row, _: (number(_known(s.hottest[row])), s.tone(row)), right=True),
    Column("util", 5, lambda s, row, _: (percent(_known(s.busy[row])), s.tone(row)), right=True),
    Column("", 5, lambda s, row, width: (bar(_known(s.busy[row]), width), "bar"),
           grow=2, most=24),
    Column("driver", 14,
           lambda s, row, _: (clean(s.board.nodes[row].driver_version or DASH), "dim"), need=112),
    Column("source", 18,
           lambda s, row, _: (clean(s.board.nodes[row].source or DASH), "dim"), need=112),
    Column("worst alert", 15, _node_worst, grow=3),
)  # fmt: skip

GPU_SORTS: dict[str, Callable[[GpuSource], Floats] | None] = {
    "": None,
    "GPUS": lambda s: s.standing.astype(np.float64),
    "W/limit": lambda s: s.gpus.column(POWER),
    "°C": lambda s: s.gpus.column(TEMPERATURE),
    "util": lambda s: s.gpus.column(UTILIZATION),
    "GiB": lambda s: s.gpus.column(MEMORY_USED),
}
"""What the GPU table can be sorted by, in the order of `s`: the first is by node and index."""
NODE_SORTS: dict[str, Callable[[NodeSource], Floats] | None] = {
    "": None,
    "NODES": lambda s: s.standing.astype(np.float64),
    "GPU power": lambda s: s.power,
    "°C": lambda s: s.hottest,
    "util": lambda s: s.busy,
}


def gpu_listing(
    board: Board, sort: str, wanted: Filter = ALL, *, node: str | None = None,
    reverse: bool = False, faults: bool = False,
) -> Listing[GpuSource]:  # fmt: skip
    """List the GPUs of one node or of all that fit a filter. `faults`: only those that are ill."""
    source, who = GpuSource(board), board.gpus.who
    mask = wanted.mask(gpu_fields(board, board.gpus), len(board.gpus))
    if node is not None:
        mask &= np.array([name == node for name in who.node], bool).reshape(len(mask))
    if faults:
        mask &= board.gpu_standing > Standing.OK
    rows = np.flatnonzero(mask)
    key = GPU_SORTS[sort]
    if key is None:
        rows = rows[np.argsort(board.gpu_order[rows], kind="stable")]
        rows = rows[::-1] if reverse else rows
    else:
        rows = highest_first(rows, key(source), reverse=reverse)
    return Listing(source, GPU_COLUMNS, rows, who.uuid, len(board.gpus), sort, "no GPU yet")


def node_listing(
    board: Board, sort: str, wanted: Filter = ALL, *, reverse: bool = False, faults: bool = False
) -> Listing[NodeSource]:
    """List the nodes that fit a filter."""
    source, names = NodeSource(board), [node.node for node in board.nodes]
    mask = wanted.mask(node_fields(board), len(names))
    if faults:
        mask &= source.standing > Standing.OK
    rows = np.flatnonzero(mask)
    key = NODE_SORTS[sort]
    if key is not None:
        rows = highest_first(rows, key(source), reverse=reverse)
    elif reverse:
        rows = rows[::-1]
    return Listing(source, NODE_COLUMNS, rows, names, len(names), sort, "no node yet")


def highest_first(rows: Index, values: Floats, *, reverse: bool = False) -> Index:
    """Sort rows by value, highest (or lowest) first; what is missing comes last, equals stay as
    they are."""
    chosen = values[rows] if reverse else -values[rows]
    return rows[np.argsort(np.where(np.isnan(chosen), np.inf, chosen), kind="stable")]
