"""The table of GPUs: columns, sort orders and filters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from present.device.gpu import clock_limit_row, short_model
from present.units import in_gibibytes, in_megahertz, number, percent
from tui.kit.text import bar, clean
from tui.kit.theme import Piece
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats
from tui.state.readings import CLOCK, LIMIT, MEMORY_TOTAL, MEMORY_USED, POWER, TEMPERATURE, UTILIZATION
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn
from tui.tables.fields import gpu_fields
from tui.tables.filter import ALL, Filter
from tui.tables.listing import Listing, gpu_mark, highest_first


class GpuSource:
    """The data of the cells of the GPU table."""

    def __init__(self, state: DashboardState) -> None:
        self.state = state
        self.gpus = state.gpus
        self.status = state.gpu_status

    def tone(self, row: int) -> str:
        """Return the tone of its numbers: dimmed for a silent GPU."""
        return "" if self.gpus.reporting[row] else "dim"


def _gpu_state(source: GpuSource, row: int, width: int) -> Piece:
    return gpu_mark(source.state, row)


def _gpu_power(source: GpuSource, row: int, width: int) -> Piece:
    power, limit = source.gpus.value(POWER, row), source.gpus.value(LIMIT, row)
    of = "" if limit is None else f"/{number(limit)}"
    return f"{number(power)}{of}", source.tone(row)


def _gpu_power_bar(source: GpuSource, row: int, width: int) -> Piece:
    power, limit = source.gpus.value(POWER, row), source.gpus.value(LIMIT, row)
    return bar(power / limit if power is not None and limit else None, width), "bar"


def _gpu_memory(source: GpuSource, row: int, width: int) -> Piece:
    used, total = source.gpus.value(MEMORY_USED, row), source.gpus.value(MEMORY_TOTAL, row)
    of = "" if total is None else f"/{in_gibibytes(total)}"
    return f"{in_gibibytes(used)}{of}", source.tone(row)


def _gpu_clock(source: GpuSource, row: int, width: int) -> Piece:
    return in_megahertz(source.gpus.value(CLOCK, row)), source.tone(row)


def _gpu_clock_limit(source: GpuSource, row: int, width: int) -> Piece:
    its = clock_limit_row(lambda metric: source.gpus.value(metric, row))
    return its.short, its.tone or source.tone(row)


GPU_COLUMNS: tuple[TableColumn[GpuSource], ...] = (
    TableColumn("GPUS", 9, _gpu_state),
    TableColumn("node", 9, lambda s, row, _: (clean(s.gpus.who.node[row]), s.tone(row)), tail=True, grow=2, most=28),
    TableColumn("#", 2, lambda s, row, _: (str(s.gpus.who.gpu[row]), s.tone(row)), right=True),
    TableColumn("name", 22, lambda s, row, _: (short_model(s.gpus.who.name[row]), "dim"), grow=1, most=30, need=112),
    TableColumn("W/limit", 9, _gpu_power, right=True),
    TableColumn("", 5, _gpu_power_bar, grow=3, most=24),
    TableColumn("°C", 3, lambda s, row, _: (number(s.gpus.value(TEMPERATURE, row)), s.tone(row)), right=True),
    TableColumn("util", 5, lambda s, row, _: (percent(s.gpus.value(UTILIZATION, row)), s.tone(row)), right=True),
    TableColumn("", 4, lambda s, row, width: (bar(s.gpus.value(UTILIZATION, row), width), "bar"), grow=3, most=24),
    TableColumn("GiB", 8, _gpu_memory, right=True),
    TableColumn("MHz", 5, _gpu_clock, right=True),
    TableColumn("clock limit", 11, _gpu_clock_limit),
    TableColumn("uuid", 12, lambda s, row, _: (clean(s.gpus.who.uuid[row]), "dim"), grow=1, most=40, need=140),
)

GPU_SORTS: dict[str, Callable[[GpuSource], Floats] | None] = {
    "": lambda s: s.status.astype(np.float64),
    "node": None,
    "W/limit": lambda s: s.gpus.column(POWER),
    "°C": lambda s: s.gpus.column(TEMPERATURE),
    "util": lambda s: s.gpus.column(UTILIZATION),
    "GiB": lambda s: s.gpus.column(MEMORY_USED),
}
"""Sort orders of the GPU table, in the order of the key `s`: the first is the worst first, the second by node and index."""


def gpu_listing(
    state: DashboardState,
    sort: str,
    wanted: Filter = ALL,
    *,
    node: str | None = None,
    reverse: bool = False,
    faults: bool = False,
) -> Listing[GpuSource]:
    """List the GPUs of one node or of all that fit a filter. `faults`: only those with a fault."""
    source, who = GpuSource(state), state.gpus.who
    mask = wanted.mask(gpu_fields(state, state.gpus), len(state.gpus))
    if node is not None:
        mask &= np.array([name == node for name in who.node], bool).reshape(len(mask))
    if faults:
        mask &= state.gpu_status > RowStatus.OK
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(state.gpu_order[rows], kind="stable")]
    key = GPU_SORTS[sort]
    if key is not None:
        rows = highest_first(rows, key(source), reverse=reverse)
    elif reverse:
        rows = rows[::-1]
    nothing = state.gpus_unknown or "no GPU yet"
    return Listing(source, GPU_COLUMNS, rows, who.uuid, len(state.gpus), sort, nothing)
