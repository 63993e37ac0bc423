"""Pools of GPUs of one model, their state, and the link matrix of a node."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from api.device import GpuPageReply, NodePageReply
from present.device.gpu import state_row
from present.units import number, percent, watts, watts_of
from telemetry.text import counted
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.surface import WIDE, Drawing
from tui.kit.text import CROSS, DASH, bar, clean, fit
from tui.kit.theme import Line, Piece
from tui.screens.gpu import page_of as gpu_page_of
from tui.screens.lists import ListView
from tui.screens.node import page_of
from tui.state import readings
from tui.state.dashboard_state import DashboardState
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn
from tui.tables.fields import gpu_fields
from tui.tables.filter import Filter
from tui.tables.listing import Listing, highest_first, unread_mark


def matrix_lines(state: DashboardState, node: str, width: int) -> list[Line]:
    """Draw the links of a node's GPUs as `nvidia-smi topo -m` does: NV<links> to a peer, SW<links> over a
    switch, PHB over the bus."""
    page = state.doc(page_of(node), NodePageReply)
    if page is None:
        return [[(state.fault(page_of(node)) or "loading …", "dim")]]
    pages = [state.doc(gpu_page_of(part.gpu.uuid), GpuPageReply) for part in page.gpus]
    over = {uuid: pool.over for pool in page.pools if len(pool.gpus) > 1 for uuid in pool.gpus}
    lines: list[Line] = [
        [(f"matrix of {clean(node)}", "strong"), ("   NV links to a peer · SW over a switch · PHB over PCIe", "dim")]
    ]
    states = ((part.gpu.uuid, state_row(part.gpu, part.readings, part.gaps)) for part in page.gpus)
    gone = {uuid: unread_mark(state) for uuid, state in states if state.value}
    heads = "".join(f"{f'gpu{part.gpu.index}':>6}" for part in page.gpus)
    lines.append([(fit("", 6), ""), (fit(heads, max(1, width - 6)).rstrip(), "head")])
    for row, mine in enumerate(page.gpus):
        pieces: list[Piece] = [(f"gpu{mine.gpu.index:<3}", "strong")]
        for column, other in enumerate(page.gpus):
            if row == column:
                pieces.append(("     X", "dim"))
            elif mine.gpu.uuid in gone or other.gpu.uuid in gone:
                pieces.append((f"{DASH:>6}", "dim"))
            else:
                pieces.append(_between(pages[row], mine.gpu.uuid, other.gpu.uuid, over))
        if mine.gpu.uuid in gone:
            word, tone = gone[mine.gpu.uuid]
            pieces.append((f"  {word}", tone))
        lines.append(pieces)
    for part in pages:
        if part is None or part.gpu.uuid in gone:
            continue
        down = [link.link.number for link in part.links if link.readings.get("link_state", 1.0) != 1.0]
        if down:
            lines.append([(f"{CROSS} gpu{part.gpu.index}: links {', '.join(map(str, down[:12]))} are down", "crit")])
    lines.append([("wall ", "dim"), (watts(page.readings.get(readings.WALL)), "")])
    return lines


def _between(page: GpuPageReply | None, mine: str, other: str, over: dict[str, str]) -> Piece:
    if page is None:
        return "     …", "dim"
    direct = [link for link in page.links if link.link.peer == other]
    switch = [link for link in page.links if link.link.peer_kind == "switch"]
    for links, word in ((direct, "NV"), (switch if over.get(mine) and over.get(other) else [], "SW")):
        if links:
            states = [link.readings.get("link_state") for link in links]
            up, known = states.count(1.0), len(states) - states.count(None)
            if not known:  # their states are not known
                return f"{f'{word}{len(links)}?':>6}", "dim"
            return f"{f'{word}{up}':>6}", "" if up == known else "crit"
    return ("   SW?" if over.get(mine) and over.get(other) else "   PHB"), "dim"


_IDLE = 0.05
"""Utilisation below which a GPU counts as free."""
_DRAWN = {RowStatus.CRIT: ("▲", "crit_chip"), RowStatus.WARN: ("!", "warn_chip"),
          RowStatus.DOWN: (CROSS, "down"), RowStatus.STALE: ("▒", "stale_chip")}  # fmt: skip


class PoolSource:
    """The data of the cells. A pool: all GPUs of one model in nodes of the same size, of those that fit."""

    def __init__(self, state: DashboardState, fits: np.ndarray[Any, np.dtype[np.bool_]] | None = None) -> None:
        who = state.gpus.who
        sizes = {line.node: line.gpus for line in state.nodes}
        names = [
            f"{m.removeprefix('NVIDIA ')}  {sizes.get(n, 0)} a node" for m, n in zip(who.name, who.node, strict=True)
        ]
        self.names = list(dict.fromkeys(names))
        self.state = state
        at = {name: number_ for number_, name in enumerate(self.names)}
        self.group = np.array([at[name] for name in names], np.intp)
        if fits is not None:
            self.group[~fits] = -1

    def of(self, row: int) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the rows of a pool's GPUs."""
        return np.flatnonzero(self.group == row)

    def sum(self, metric: str, row: int) -> float | None:
        """Return the sum of the known readings."""
        values = self.state.gpus.column(metric)[self.of(row)]
        return float(np.nansum(values)) if np.isfinite(values).any() else None

    def mean(self, metric: str, row: int) -> float | None:
        """Return the mean of the known readings."""
        values = self.state.gpus.column(metric)[self.of(row)]
        return float(np.nanmean(values)) if np.isfinite(values).any() else None


def _free(source: PoolSource, row: int, width: int) -> Piece:
    values = source.state.gpus.column(readings.UTILIZATION)[source.of(row)]
    return (DASH if not np.isfinite(values).any() else number(float((values < _IDLE).sum()))), ""


def _worst(source: PoolSource, row: int, width: int) -> Piece:
    status = source.state.gpu_status[source.of(row)]
    counts = [
        (state, int((status == state).sum()))
        for state in (RowStatus.CRIT, RowStatus.WARN, RowStatus.DOWN, RowStatus.STALE)
    ]
    words = " ".join(f"{_DRAWN[state][0]}{count}" for state, count in counts if count)
    tone = next(
        (
            t
            for s, t in (
                (RowStatus.CRIT, "crit"),
                (RowStatus.WARN, "warn"),
                (RowStatus.DOWN, "down"),
                (RowStatus.STALE, "stale"),
            )
            if dict(counts)[s]
        ),
        "dim",
    )
    return words or "· ok", tone


COLUMNS: tuple[TableColumn[PoolSource], ...] = (
    TableColumn("pool", 24, lambda s, row, _: (clean(s.names[row]), "strong"), grow=2, most=44),
    TableColumn("GPUs", 6, lambda s, row, _: (number(len(s.of(row))), ""), right=True),
    TableColumn("free", 6, _free, right=True),
    TableColumn("util", 5, lambda s, row, _: (percent(s.mean(readings.UTILIZATION, row)), ""), right=True),
    TableColumn("", 7, lambda s, row, width: (bar(s.mean(readings.UTILIZATION, row), width), "bar"), grow=1, most=24),
    TableColumn("power/limit", 14, lambda s, row, _: (watts_of(s.sum(readings.POWER, row), s.sum(readings.LIMIT, row)), ""), right=True),
    TableColumn("faults", 12, _worst, grow=2),
)  # fmt: skip


class PoolsView(ListView):
    """View 6: pools."""

    NAME: ClassVar[str] = "pools"
    TITLE: ClassVar[str] = "Pools"
    KIND: ClassVar[str] = "pool"
    SORTS = ("", "util", "power/limit")
    node = ""
    """The node whose matrix is shown, or ``."""

    def wants(self) -> Wants:
        """Return power, limits and utilisation, and the pages of the matrix."""
        documents = self.also()
        if self.node:
            documents += (DocumentRequest(page_of(self.node), NodePageReply, 5.0),)
            page = self.context.shown.doc(page_of(self.node), NodePageReply)
            documents += tuple(
                DocumentRequest(gpu_page_of(p.gpu.uuid), GpuPageReply, 10.0) for p in (page.gpus if page else ())[:16]
            )
        return Wants((readings.POWER, readings.LIMIT, readings.UTILIZATION, readings.TEMPERATURE), documents=documents)

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return the pools of the GPUs that fit, largest first."""
        state = self.context.shown
        fits = wanted.mask(gpu_fields(state, state.gpus), len(state.gpus))
        if self.context.faults:
            fits = fits & (state.gpu_status > RowStatus.OK)
        source = PoolSource(state, fits)
        there = np.flatnonzero([len(source.of(row)) > 0 for row in range(len(source.names))])
        key = np.array([self._weight(source, row) for row in range(len(source.names))], np.float64)
        order = highest_first(there, key, reverse=self.reverse)
        nothing = state.gpus_unknown or "no GPU yet"
        return Listing(source, COLUMNS, order, source.names, len(source.names), self.sort, nothing)

    def _weight(self, source: PoolSource, row: int) -> float | None:
        """Return the value that a pool is sorted by."""
        if self.sort == "util":
            return source.mean(readings.UTILIZATION, row)
        if self.sort == "power/limit":
            return source.sum(readings.POWER, row)
        return float(len(source.of(row)))

    def draw(self) -> None:
        """Draw the table, and the islands or the matrix below or beside it."""
        super().draw()
        self.side.display = True
        self.side.set_class(self.size.width >= WIDE, "side")
        wide = self.size.width >= WIDE
        self.query_one("Horizontal").styles.layout = "horizontal" if wide else "vertical"
        self.rows.styles.height = "1fr" if wide else min(1 + max(1, self.rows.count), 6)
        self.rows.styles.width = self._table_width(self.size.width) if wide else "100%"
        self.side.styles.width = "1fr" if wide else "100%"
        key = self.rows.key
        if key is not None:
            self.side.show(self.detail(key), faded=self.faded)

    def detail(self, key: str) -> Drawing:
        """Return the islands of the pool, or the matrix of a node."""
        state = self.context.shown
        if self.node:
            return lambda width, height: matrix_lines(state, self.node, width)
        return lambda width, height: island_lines(state, key, width, height)

    def do_open(self) -> None:
        """Open the list of GPUs, filtered by the model of the pool."""
        source = PoolSource(self.context.shown)
        if self.rows.key in source.names:
            first = int(source.of(source.names.index(self.rows.key))[0])
            model = self.context.shown.gpus.who.name[first].replace('"', "?")
            self.context.frame.go("gpus", f'model="{model}"')

    def do_matrix(self) -> None:
        """Show or hide the matrix of the first node of the pool with a fault, else of its first node."""
        source = PoolSource(self.context.shown)
        state = self.context.shown
        if self.node or self.rows.key not in source.names:
            self.node = ""
        else:
            rows = source.of(source.names.index(self.rows.key))
            faulty = rows[state.gpu_status[rows] > 0]
            self.node = state.gpus.who.node[int((faulty if len(faulty) else rows)[0])]
        self.context.frame.request_data()

    def do_back(self) -> bool:
        """Hide the matrix, if it is shown."""
        had, self.node = bool(self.node), ""
        return had


def island_lines(state: DashboardState, pool: str, width: int, height: int) -> list[Line]:
    """Draw every node of a pool as one cell: its utilisation, or its status if it has a fault."""
    source = PoolSource(state)
    if pool not in source.names:
        return []
    rows = source.of(source.names.index(pool))
    who, use = state.gpus.who, state.gpus.column(readings.UTILIZATION)
    islands: dict[str, list[int]] = {}
    for row in rows.tolist():
        islands.setdefault(who.node[row], []).append(row)
    lines: list[Line] = [
        [(counted(len(islands), "island"), "head"), ("  1 sign = 1 node, fill = busy;  [M] matrix of one", "dim")]
    ]
    pieces: list[Piece] = []
    for its in islands.values():
        worst = RowStatus(int(state.gpu_status[its].max()))
        if worst is RowStatus.OK:
            values = use[its]
            pieces.append(
                (" ▁▂▃▄▅▆▇█"[round(8 * float(np.nanmean(values)))] if np.isfinite(values).any() else "·", "bar")
            )
        else:
            pieces.append(_DRAWN[worst])
    lines += [pieces[start : start + width] for start in range(0, len(pieces), width)][: height - 1]
    return lines
