"""Pools: which GPUs reach each other's memory, how their links stand, and the matrix of a node."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tui import board as b
from tui.board import Board, Standing
from tui.client import Ask, Wants
from tui.columns import Column
from tui.filter import Filter
from tui.kit.surface import Drawing
from tui.lines import WIDE
from tui.listing import Listing
from tui.messages import GpuPage, NodePage
from tui.screens.gpu import page_of as gpu_page_of
from tui.screens.lists import ListView
from tui.screens.node import page_of
from tui.text import CROSS, DASH, bar, clean, fit, number, percent, watts, watts_of
from tui.theme import Line, Piece

_IDLE = 0.05
"""Utilisation below which a GPU counts as free."""
_DRAWN = {Standing.CRIT: ("▲", "crit_chip"), Standing.WARN: ("!", "warn_chip"),
          Standing.DOWN: (CROSS, "down"), Standing.STALE: ("▒", "stale_chip")}  # fmt: skip


class Rows:
    """Columns by pool: all GPUs of one model in nodes of the same size."""

    def __init__(self, board: Board) -> None:
        who = board.gpus.who
        sizes = {line.node: line.gpus for line in board.nodes}
        names = [
            f"{m.removeprefix('NVIDIA ')}  {sizes.get(n, 0)} a node"
            for m, n in zip(who.name, who.node, strict=True)
        ]
        self.names = list(dict.fromkeys(names))
        self.board = board
        at = {name: number_ for number_, name in enumerate(self.names)}
        self.group = np.array([at[name] for name in names], np.intp)

    def of(self, row: int) -> np.ndarray[Any, np.dtype[np.intp]]:
        """GPUs of a pool."""
        return np.flatnonzero(self.group == row)

    def sum(self, metric: str, row: int) -> float | None:
        """Sum over those that tell."""
        values = self.board.gpus.column(metric)[self.of(row)]
        return float(np.nansum(values)) if np.isfinite(values).any() else None

    def mean(self, metric: str, row: int) -> float | None:
        """Mean over those that tell."""
        values = self.board.gpus.column(metric)[self.of(row)]
        return float(np.nanmean(values)) if np.isfinite(values).any() else None


def _free(source: Rows, row: int, width: int) -> Piece:
    values = source.board.gpus.column(b.UTILIZATION)[source.of(row)]
    return (DASH if not np.isfinite(values).any() else number(float((values < _IDLE).sum()))), ""


def _worst(source: Rows, row: int, width: int) -> Piece:
    standing = source.board.gpu_standing[source.of(row)]
    counts = [
        (state, int((standing == state).sum()))
        for state in (Standing.CRIT, Standing.WARN, Standing.DOWN, Standing.STALE)
    ]
    said = "  ".join(f"{_DRAWN[state][0]}{count}" for state, count in counts if count)
    tone = next(
        (
            t
            for s, t in (
                (Standing.CRIT, "crit"),
                (Standing.WARN, "warn"),
                (Standing.DOWN, "down"),
                (Standing.STALE, "stale"),
            )
            if dict(counts)[s]
        ),
        "dim",
    )
    return said or "· ok", tone


COLUMNS: tuple[Column[Rows], ...] = (
    Column("pool", 24, lambda s, row, _: (clean(s.names[row]), "strong"), grow=2, most=44),
    Column("GPUs", 6, lambda s, row, _: (number(len(s.of(row))), ""), right=True),
    Column("free", 6, _free, right=True),
    Column("util", 5, lambda s, row, _: (percent(s.mean(b.UTILIZATION, row)), ""), right=True),
    Column("", 8, lambda s, row, width: (bar(s.mean(b.UTILIZATION, row), width), "bar"), grow=1, most=24),
    Column("power/limit", 14, lambda s, row, _: (watts_of(s.sum(b.POWER, row), s.sum(b.LIMIT, row)), ""), right=True),
    Column("ill", 12, _worst, grow=1),
)  # fmt: skip


class PoolsView(ListView):
    """View 6."""

    NAME: ClassVar[str] = "pools"
    TITLE: ClassVar[str] = "Pools"
    KIND: ClassVar[str] = "pool"
    node = ""
    """Whose matrix is shown; empty: nobody's."""

    def wants(self) -> Wants:
        """Power, limits and use; the node of the matrix."""
        asks: tuple[Ask, ...] = ()
        if self.node:
            asks = (Ask(page_of(self.node), NodePage, 5.0),)
            page = self.top.shown.doc(page_of(self.node), NodePage)
            asks += tuple(
                Ask(gpu_page_of(p.gpu.uuid), GpuPage, 10.0)
                for p in (page.gpus if page else ())[:16]
            )
        return Wants((b.POWER, b.LIMIT, b.UTILIZATION, b.TEMPERATURE), asks=asks)

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Pools, the largest first."""
        source = Rows(self.top.shown)
        order = np.array(
            sorted(range(len(source.names)), key=lambda row: -len(source.of(row))), np.intp
        )
        return Listing(source, COLUMNS, order, source.names, len(source.names), "", "no GPU yet")

    def draw(self) -> None:
        """The table, and the islands or the matrix below or beside it."""
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
            self.side.show(self.detail(key), faded=self.top.faded)

    def detail(self, key: str) -> Drawing:
        """Islands of the pool, or the matrix of a node."""
        board = self.top.shown
        if self.node:
            return lambda width, height: matrix_lines(board, self.node, width)
        return lambda width, height: island_lines(board, key, width, height)

    def do_open(self) -> None:
        """The pool's GPUs: the list, filtered."""
        self.top.go("gpus")

    def do_matrix(self) -> None:
        """Who reaches whom, in the first node of the pool that is ill, or the first."""
        source = Rows(self.top.shown)
        board = self.top.shown
        if self.node or self.rows.key not in source.names:
            self.node = ""
        else:
            rows = source.of(source.names.index(self.rows.key))
            ill = rows[board.gpu_standing[rows] > 0]
            self.node = board.gpus.who.node[int((ill if len(ill) else rows)[0])]
        self.top.rewant()

    def do_back(self) -> bool:
        """Take the matrix away first."""
        had, self.node = bool(self.node), ""
        return had


def island_lines(board: Board, pool: str, width: int, height: int) -> list[Line]:
    """Every node of a pool as one bar cell: how busy it is, and whether it is ill."""
    source = Rows(board)
    if pool not in source.names:
        return []
    rows = source.of(source.names.index(pool))
    who, use = board.gpus.who, board.gpus.column(b.UTILIZATION)
    islands: dict[str, list[int]] = {}
    for row in rows.tolist():
        islands.setdefault(who.node[row], []).append(row)
    lines: list[Line] = [
        [
            (f"{number(len(islands))} islands", "head"),
            ("  1 sign = 1 node, fill = busy;  [M] matrix of one", "dim"),
        ]
    ]
    pieces: list[Piece] = []
    for its in islands.values():
        worst = Standing(int(board.gpu_standing[its].max()))
        if worst is Standing.OK:
            values = use[its]
            pieces.append(
                (
                    " ▁▂▃▄▅▆▇█"[round(8 * float(np.nanmean(values)))]
                    if np.isfinite(values).any()
                    else "·",
                    "bar",
                )
            )
        else:
            pieces.append(_DRAWN[worst])
    lines += [pieces[start : start + width] for start in range(0, len(pieces), width)][: height - 1]
    return lines


def matrix_lines(board: Board, node: str, width: int) -> list[Line]:
    """As `nvidia-smi topo -m`: NV<links> to a peer, SW<links> over a switch, PHB over the bus."""
    page = board.doc(page_of(node), NodePage)
    if page is None:
        return [[(board.fault(page_of(node)) or "loading …", "dim")]]
    pages = [board.doc(gpu_page_of(part.gpu.uuid), GpuPage) for part in page.gpus]
    over = {uuid: pool.over for pool in page.pools if len(pool.gpus) > 1 for uuid in pool.gpus}
    lines: list[Line] = [
        [
            (f"matrix of {clean(node)}", "strong"),
            ("   NV links to a peer · SW over a switch · PHB over PCIe", "dim"),
        ]
    ]
    heads = "".join(f"{f'gpu{part.gpu.index}':>6}" for part in page.gpus)
    lines.append([(fit("", 6), ""), (fit(heads, max(1, width - 6)).rstrip(), "head")])
    for row, mine in enumerate(page.gpus):
        pieces: list[Piece] = [(f"gpu{mine.gpu.index:<3}", "strong")]
        for column, other in enumerate(page.gpus):
            pieces.append(
                _between(pages[row], mine.gpu.uuid, other.gpu.uuid, over)
                if row != column
                else ("     X", "dim")
            )
        lines.append(pieces)
    for part in pages:
        down = [
            link.link.number
            for link in (part.links if part else ())
            if link.readings.get("link_state", 1.0) != 1.0
        ]
        if part is not None and down:
            lines.append(
                [
                    (
                        f"{CROSS} gpu{part.gpu.index}: links {', '.join(map(str, down[:12]))} are down",
                        "crit",
                    )
                ]
            )
    lines.append([("wall ", "dim"), (watts(page.readings.get(b.WALL)), "")])
    return lines


def _between(page: GpuPage | None, mine: str, other: str, over: dict[str, str]) -> Piece:
    if page is None:
        return "     …", "dim"
    direct = [link for link in page.links if link.link.peer == other]
    switch = [link for link in page.links if link.link.peer_kind == "switch"]
    for links, word in (
        (direct, "NV"),
        (switch if over.get(mine) and over.get(other) else [], "SW"),
    ):
        if links:
            up = sum(link.readings.get("link_state", 1.0) == 1.0 for link in links)
            return f"{f'{word}{up}':>6}", "" if up == len(links) else "crit"
    return ("   SW?" if over.get(mine) and over.get(other) else "   PHB"), "dim"
