"""A node's page: host, GPUs, circuits, alerts and history."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from textual import on

from api.device import GpuReply, NodePageReply
from present.circuit.rows import share_row
from present.device.gpu import clock_limit_row, state_row
from present.device.listed import listed_tables
from present.device.node import driver_row, frame_row, now_rows
from present.units import in_gibibytes, in_megahertz, number, percent, percent_change, watts
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.flow import flow
from tui.kit.text import clean, fit
from tui.kit.theme import Line, Piece
from tui.screens.history import Plot, history_request, plot_lines, scale_percent, scale_watts
from tui.screens.job_text import node_job_lines
from tui.screens.page import PageView, Scroll
from tui.screens.port_text import node_port_lines
from tui.screens.view import COMPARE_KEYS, COPY_KEYS
from tui.state import readings
from tui.state.circuits import Now, countdown
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import firing_lines
from tui.state.row_status import RowStatus
from tui.tables.listing import unread_mark

CPU = "node_cpu_utilization_ratio"


def page_of(name: str) -> str:
    """Return the path of a node's page."""
    return f"api/v1/nodes/{quote(name, safe='')}"


def node_documents(name: str, span: int) -> tuple[DocumentRequest, ...]:
    """Return the documents of its page."""
    return (
        DocumentRequest(page_of(name), NodePageReply, 1.0),
        history_request("node", name, readings.WALL, span),
        history_request("node", name, CPU, span),
    )


def node_lines(
    state: DashboardState,
    name: str,
    span: int,
    width: int,
    height: int,
    since: Now,
    *,
    utc: bool,
    cursor: int | None = None,
) -> list[Line]:
    """Draw the page."""
    path = page_of(name)
    page = state.doc(path, NodePageReply)
    if page is None:
        return [[(state.fault(path) or "loading …", "dim")]]
    lines = [*_head(page, width), *firing_lines(state, page.alerts, width), *_gpus(page, width, cursor),
             *node_port_lines(page.ports, [part.gpu for part in page.gpus], page.alerts, width),
             *_listed(page, width),
             *node_job_lines((part.gpu.index, part.holders) for part in page.gpus), *_circuits(state, page, since)]  # fmt: skip
    room = height - len(lines)
    if room >= 6:
        top = max((page.readings.get(readings.WALL) or 0.0) * 1.25, 1000.0)
        plots = [
            Plot("Wall power W", readings.WALL, (0.0, top), scale_watts, watts(page.readings.get(readings.WALL))),
            Plot("CPU", CPU, (0.0, 1.0), scale_percent, percent(page.readings.get(CPU))),
        ]
        for plot in plots[: 2 if room >= 13 else 1]:
            tall = min(11, room // (2 if room >= 13 else 1) - 1)
            lines += [[], *plot_lines(state, "node", name, plot, span, width, tall, utc=utc)]
    return lines


def _head(page: NodePageReply, width: int) -> list[Line]:
    node, read = page.node, page.readings.get
    state = {"online": "good", "stale": "stale"}.get(node.state, "down")
    driver = driver_row(node.driver_version, node.driver_state, node.driver_message)
    facts = "  ".join(clean(page.host[key]) for key in ("product", "cpu", "os") if page.host.get(key))
    who: list[list[Piece]] = [
        [(clean(node.node), "strong"), ("  ", ""), (node.state, state)],
        [(f"  {frame_row(node.age_seconds).short}", "dim")],
        [(f"  rack {clean(node.rack)}", "dim")] if node.rack else [],
        [("  job ", "dim"), (clean(node.job), "")]
        if node.job and all(part.holders is None for part in page.gpus)
        else [],
        [(f"  {driver.label} {clean(driver.whole)}", driver.tone or "dim")],
        [(f"  kilowatch {clean(node.release)}", "dim")] if node.release else [],
    ]
    now: list[list[Piece]] = [
        [
            (f"{'  ' if n else ''}{row.label} ", "dim"),
            (row.column, row.tone or "strong"),
            *([(f" {row.note}", row.tone)] if row.note else []),
        ]
        for n, row in enumerate(now_rows(read, page.power))
    ]
    return [*flow(who, width), *flow(now, width), [(fit(facts, width).rstrip(), "dim")]]


def _gpus(page: NodePageReply, width: int, cursor: int | None) -> list[Line]:
    lines: list[Line] = [
        [(fit("  gpu   util  power/limit   °C  mem°C     GiB    MHz   ECC  clock limit", width), "head")]
    ]
    peers = [p.readings[readings.UTILIZATION] for p in page.gpus if readings.UTILIZATION in p.readings]
    usual = sorted(peers)[len(peers) // 2] if peers else None
    for number_, part in enumerate(page.gpus):
        lines.append(_gpu(part, usual, here=number_ == cursor))
    return lines


def _gpu(part: GpuReply, usual: float | None, *, here: bool) -> Line:
    read = part.readings.get
    mark = "▶" if here else " "
    state = state_row(part.gpu, part.readings, part.gaps)
    if state.value:
        return [(f"{mark} {part.gpu.index:>3}   ", "strong" if here else ""), unread_mark(state)]
    util, clock = read(readings.UTILIZATION), read(readings.CLOCK)
    limit = clock_limit_row(read)
    pieces: list[Piece] = [(f"{mark} {part.gpu.index:>3}  ", "strong" if here else "")]
    slow = util is not None and usual is not None and usual - util > 0.25
    used, total = read(readings.MEMORY_USED), read(readings.MEMORY_TOTAL)
    ecc = read("gpu_ecc_volatile_uncorrected_total")
    pieces += [
        (f"{percent(util):>5}", "warn" if slow else ""),
        (f"  {number(read(readings.POWER)) + '/' + number(read(readings.LIMIT)):>11}", ""),
        (f"  {number(read(readings.TEMPERATURE)):>3}", ""),
        (f"  {number(read('gpu_memory_temperature_celsius')):>5}", ""),
        (f"  {in_gibibytes(used) + '/' + in_gibibytes(total):>7}", ""),
        (f"  {in_megahertz(clock):>4}", ""),
        (f"  {number(ecc):>4}", "crit" if ecc else ""),
        (f"  {limit.short}", limit.tone or "dim"),
    ]
    if slow and usual is not None and util is not None:
        pieces.append((f"  {percent_change(util - usual)} to its peers", "warn"))
    return pieces


def _listed(page: NodePageReply, width: int) -> list[Line]:
    """Draw the devices that have no page of their own: a table for each kind."""
    lines: list[Line] = []
    for one in listed_tables(page.devices):
        rooms = [max(map(len, column)) + 2 for column in zip(one.heads, *one.rows, strict=True)]
        for number_, row in enumerate((one.heads, *one.rows)):
            words = "".join(fit(clean(cell), room) for cell, room in zip(row, rooms, strict=True))
            lines.append([(fit(words, width).rstrip(), "" if number_ else "head")])
    return lines


def _circuits(state: DashboardState, page: NodePageReply, since: Now) -> list[Line]:
    names = state.feeds.get(page.node.node, [])
    if not names:
        unknown = clean(state.circuits_unknown)
        words = f"circuits: {unknown}" if unknown else "on no circuit of the configuration"
        return [[(words, "dim")]]
    by_name = {circuit.id: circuit for circuit in state.circuits}
    lines: list[Line] = []
    for name in names[:4]:
        circuit = by_name[name]
        status = state.circuit_status.get(name, RowStatus.OK)
        lines.append([("circuit ", "dim"), (clean(name), "strong"), (f" {share_row(circuit).short}  ", ""),
                      countdown(circuit, status, since)])  # fmt: skip
    return lines


class NodeView(PageView):
    """The page of a node; the cursor moves over its GPUs."""

    NAME: ClassVar[str] = "node"
    TITLE: ClassVar[str] = "Node"
    FRAME_KEYS = COPY_KEYS | COMPARE_KEYS
    cursor = 0

    def wants(self) -> Wants:
        """Return its page and history; of the stream its GPUs."""
        return Wants(nodes=(self.subject,), documents=node_documents(self.subject, self.context.span))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        context = self.context
        return node_lines(
            context.shown, self.subject, context.span, width, height, context.since, utc=context.utc, cursor=self.cursor
        )

    def neighbours(self) -> list[str]:
        """Return all nodes."""
        return [node.node for node in self.context.shown.nodes]

    def do_open(self) -> None:
        """Open the GPU under the cursor."""
        page = self.record()
        if page is not None and page.gpus:
            self.context.frame.open("gpu", page.gpus[min(self.cursor, len(page.gpus) - 1)].gpu.uuid)

    @on(Scroll.Stepped)
    def _stepped(self, message: Scroll.Stepped) -> None:
        page = self.record()
        if page is not None and abs(message.by) == 1:
            self.cursor = max(0, min(self.cursor + message.by, len(page.gpus) - 1))
            self.draw()

    def record(self) -> Any:
        """Return its page."""
        return self.context.shown.doc(page_of(self.subject), NodePageReply)
