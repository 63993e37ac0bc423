"""The compare tray: up to four GPUs or nodes beside each other on one scale, with their differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from api.device import GpuPageReply, NodePageReply
from present.units import celsius, gibibytes, megahertz, number, percent, percent_change, watts
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.text import clean, fit
from tui.kit.theme import Line, Piece
from tui.screens import gpu as gpus
from tui.screens import node as nodes
from tui.screens.compare_times import Comparison, comparison_lines
from tui.screens.history import (
    Plot,
    beside,
    history_request,
    plot_lines,
    scale_number,
    scale_percent,
    scale_watts,
    share_room,
)
from tui.screens.page import PageView
from tui.screens.view import COPY_KEYS
from tui.state import readings
from tui.state.dashboard_state import DashboardState

AsText = Callable[[float | None], str]
_GPU_ROWS: tuple[tuple[str, str, AsText], ...] = (
    ("power", readings.POWER, watts), ("limit", readings.LIMIT, watts), ("temperature", readings.TEMPERATURE, celsius),
    ("memory temp.", "gpu_memory_temperature_celsius", celsius), ("utilisation", readings.UTILIZATION, percent),
    ("memory", readings.MEMORY_USED, gibibytes),
    ("SM clock", readings.CLOCK, megahertz),
    ("PCIe width", "gpu_pcie_link_width", number),
    ("ECC corrected", "gpu_ecc_volatile_corrected_total", number),
    ("ECC uncorr.", "gpu_ecc_volatile_uncorrected_total", number),
)  # fmt: skip
_NODE_ROWS: tuple[tuple[str, str, AsText], ...] = (
    ("wall power", readings.WALL, watts),
    ("CPU", nodes.CPU, percent),
    ("load", "node_load_1m", number),
    ("RAM free", "node_memory_available_bytes", gibibytes),
    ("GPUs answer", "node_gpus_answering", number),
)
_ODD = 0.1
"""Share by which a value differs from the first before it is marked."""


def tray_documents(tray: Sequence[tuple[str, str]], span: int) -> tuple[DocumentRequest, ...]:
    """Return the documents of the tray."""
    documents: list[DocumentRequest] = []
    for kind, name in tray:
        path, page, metrics = (
            (gpus.page_of(name), GpuPageReply, (readings.POWER, readings.TEMPERATURE, readings.UTILIZATION))
            if kind == "gpu"
            else (nodes.page_of(name), NodePageReply, (readings.WALL, nodes.CPU))
        )
        documents += [
            DocumentRequest(path, page, 1.0),
            *(history_request(kind, name, metric, span) for metric in metrics),
        ]
    return tuple(documents)


def tray_lines(
    state: DashboardState, tray: Sequence[tuple[str, str]], span: int, width: int, height: int, *, utc: bool
) -> list[Line]:
    """Draw the tray."""
    if not tray:
        return [[("nothing to compare: c on a GPU or node puts it here", "dim")]]
    kind = tray[0][0]
    pages = [
        state.doc(
            gpus.page_of(n) if kind == "gpu" else nodes.page_of(n), GpuPageReply if kind == "gpu" else NodePageReply
        )
        for _, n in tray
    ]
    column = max(14, (width - 15) // len(tray))
    titles = [_title(page, name) for page, (_, name) in zip(pages, tray, strict=True)]
    lines: list[Line] = [[(fit("", 15), ""), *((fit(title, column), "head") for title in titles)]]
    for word, metric, as_text in _GPU_ROWS if kind == "gpu" else _NODE_ROWS:
        values = [_readings(page).get(metric) for page in pages]
        lines.append([(fit(word, 15), "dim"), *_row(values, as_text, column)])
    plots, room = share_room(_plots(kind), height - len(lines))
    if room >= 3:
        wide = (width - 2 * (len(tray) - 1)) // len(tray)
        for title, metric, scale, say_ in plots:
            drawn: list[Line] = []
            for number_, (_, name) in enumerate(tray):
                plot = Plot(title, metric, scale, say_, "")
                one = plot_lines(state, kind, name, plot, span, wide, room, utc=utc)
                drawn = list(one) if number_ == 0 else beside(drawn, one, wide * number_ + 2 * (number_ - 1))
            lines += [[], *drawn]
    return lines


def _plots(kind: str) -> list[tuple[str, str, tuple[float, float], Callable[[float], str]]]:
    if kind == "node":
        return [
            ("Wall power W", readings.WALL, (0.0, 12_000.0), scale_watts),
            ("CPU", nodes.CPU, (0.0, 1.0), scale_percent),
        ]
    return [("Power W", readings.POWER, (0.0, 800.0), scale_watts), ("Temperature °C", readings.TEMPERATURE, (20.0, 95.0), scale_number),
            ("Utilisation", readings.UTILIZATION, (0.0, 1.0), scale_percent)]  # fmt: skip


def _readings(page: object) -> dict[str, float]:
    return page.readings if isinstance(page, GpuPageReply | NodePageReply) else {}


def _title(page: object, name: str) -> str:
    if isinstance(page, GpuPageReply):
        return f"{clean(page.node.node)}/gpu{page.gpu.index}"
    return clean(name)


def _row(values: Sequence[float | None], as_text: AsText, column: int) -> list[Piece]:
    first = values[0]
    pieces: list[Piece] = []
    for number_, value in enumerate(values):
        text, tone = as_text(value), ""
        if number_ and value is not None and first:
            off = value / first - 1
            if abs(off) >= 0.005:
                text += f" {percent_change(off)}"
            tone = "warn" if abs(off) >= _ODD else ""
        pieces.append((fit(text, column), tone))
    return pieces


class CompareView(PageView):
    """The compare tray, or one GPU or node now and at another time."""

    NAME: ClassVar[str] = "compare"
    TITLE: ClassVar[str] = "Compare"
    FRAME_KEYS = COPY_KEYS | {"then"}

    @property
    def then(self) -> Comparison | None:
        """The comparison with another time; None while the tray is compared."""
        return Comparison.read(self.subject)

    def wants(self) -> Wants:
        """Return page and history of each."""
        then = self.then
        if then is not None:
            metrics = [metric for _, metric, _, _ in _plots(then.kind)]
            return Wants(nodes=(), documents=then.documents(metrics, self.context.span))
        return Wants(nodes=(), documents=tray_documents(self.context.tray, self.context.span))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the tray or the comparison."""
        context, then = self.context, self.then
        if then is not None:  # with the newest state, whatever the time bar shows
            rows = _GPU_ROWS if then.kind == "gpu" else _NODE_ROWS
            plots = [Plot(*each, "") for each in _plots(then.kind)]
            state = context.newest
            return comparison_lines(state, then, rows, plots, context.span, width, height, utc=context.utc)
        return tray_lines(context.shown, context.tray, context.span, width, height, utc=context.utc)

    def title(self) -> str:
        """Return the title."""
        then = self.then
        if then is None:
            return "Compare"
        page = self.context.newest.doc(then.page(then=False), GpuPageReply if then.kind == "gpu" else NodePageReply)
        return f"{_title(page, then.name)} now and then"

    def record(self) -> Any:
        """Return the names that are compared."""
        then = self.then
        return [name for _, name in self.context.tray] if then is None else {"name": then.name, "at": then.at}

    def chosen(self) -> tuple[str, str] | None:
        """Return the GPU or node that is compared with another time, or the first of the tray."""
        then = self.then
        if then is not None:
            return then.kind, then.name
        return self.context.tray[0] if self.context.tray else None
