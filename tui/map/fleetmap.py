"""The widget of the map, with its zoom, layout and cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from api.fleet import NodeReply
from present.units import celsius, percent, watts_of
from telemetry.text import counted
from tui.kit.surface import Surface
from tui.kit.text import clean
from tui.kit.theme import Line, Tones
from tui.map.cards import MOST, TALL, TALLEST, TRACED, WIDE_CARDS, cards, columns_of
from tui.map.grid import MOST_DIGITS, Grid, Zoom, lay_out
from tui.map.heatmap import Bytes, HeatmapCells, draw, quantise
from tui.state import readings
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats, natural
from tui.state.metrics import METRICS, STATE, group_names
from tui.tables.listing import gpu_mark


def placed(state: DashboardState, group: str, metric: str, zoom: Zoom | None, width: int, height: int) -> Grid:
    """Place the GPUs of a state. `metric`: by which they are sorted where the group is `value`."""
    order = state.gpus.order
    names = group_names(state, group)
    known = list(dict.fromkeys(names[row] for row in order.tolist()))
    if group not in {"value", "node"}:
        known.sort(key=lambda name: (name.startswith("no "), natural(name)))
    number = {name: n for n, name in enumerate(known)}
    groups = np.array([number[names[row]] for row in order.tolist()], np.intp)
    if group == "value":
        values = METRICS[metric if metric in METRICS else "power"].values(state)[order]
        place = np.argsort(np.where(np.isnan(values), np.inf, -values), kind="stable")
    else:
        place = np.argsort(groups, kind="stable")
    order, groups = order[place], groups[place]
    homes = {node: n for n, node in enumerate(dict.fromkeys(state.gpus.who.node))}
    node = np.array([homes[state.gpus.who.node[row]] for row in order.tolist()], np.intp)
    return lay_out(order, node, groups, known, width, height, zoom)


CARDS = "cards"
_PAST = 240
"""Frames of power that a card's trace shows."""


class FleetMap(Surface, can_focus=True):
    """A map with every GPU of the fleet."""

    DEFAULT_CSS = "FleetMap { height: 1fr; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(0, -1)", show=False), Binding("down,j", "step(0, 1)", show=False),
        Binding("left,h", "step(-1, 0)", show=False), Binding("right,l", "step(1, 0)", show=False),
        Binding("home,g", "end(-1)", show=False), Binding("end,G", "end(1)", show=False),
    ]  # fmt: skip

    class GpuHighlighted(Message):
        """The cursor is on another GPU."""

    class GpuSelected(Message):
        """A GPU was clicked twice."""

    def __init__(self, tones: Tones, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(tones, id)
        self.zoom: str | None = None
        """None: the finest that fits."""
        self.group = "rack"
        self.metric: str | None = None
        """None: power, or the status where a cell is a whole node."""
        self.state = DashboardState()
        self.dimmed: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
        self.cursor: str | None = None
        """UUID; None before the first key."""
        self._grid: Grid | None = None
        self._laid: object = None
        self._seen_nodes: tuple[NodeReply, ...] = ()
        self._racks = 0
        """Racks and jobs of those nodes, as one number."""
        self._level: tuple[str, Bytes] | None = None
        self._past: deque[Floats] = deque(maxlen=_PAST)
        self._past_key: object = None
        self._past_at = 0

    @property
    def shown_metric(self) -> str:
        """The metric of the cells now."""
        if self.metric is not None:
            return self.metric
        zoom = self._grid.zoom if self._grid is not None else None
        return STATE if zoom in {Zoom.DOTS, Zoom.RACKS} else "power"

    @property
    def shown_zoom(self) -> str:
        """The zoom now."""
        if self.across:
            return CARDS
        return "" if self._grid is None else self._grid.zoom.value

    @property
    def across(self) -> int:
        """Cards beside each other; 0 when cells are shown."""
        if self.zoom not in {None, CARDS}:
            return 0
        return columns_of(len(self.state.gpus), *self._room)

    @property
    def fits_cards(self) -> bool:
        """Whether there is room for a card of each GPU."""
        return columns_of(len(self.state.gpus), *self._room) > 0

    @property
    def _room(self) -> tuple[int, int]:
        return self._most if self._most[0] else (self.size.width, self.size.height)

    _most: tuple[int, int] = (0, 0)
    _tall = TALL
    """Lines of a card."""

    def need(self, state: DashboardState, width: int, most: int) -> int:
        """Return the lines that the map needs, at most `most`; decides the zoom."""
        self.state, self._most = state, (width, most)
        if (across := self.across) > 0:
            rows = -(-len(state.gpus) // across)
            tallest = max(TALLEST, most // 2)
            self._tall = TALL if width < WIDE_CARDS else max(TALL, min(tallest, most // rows))
            return rows * self._tall
        return min(most, max(1, self._layout(width, most).height))

    def present(
        self, state: DashboardState, dimmed: np.ndarray[tuple[int], np.dtype[np.bool_]] | None, *, faded: bool
    ) -> None:
        """Show a state; `dimmed`: GPUs that a filter leaves out."""
        self.state, self.dimmed = state, dimmed
        self._remember(state)
        self.show(self._draw_map, faded=faded)

    def _remember(self, state: DashboardState) -> None:
        """Add to the recent power of a few GPUs, for their cards."""
        if len(state.gpus) > MOST or state.at == self._past_at:
            return
        if self._past_key != (state.gpus.version, len(state.gpus)):
            self._past.clear()
            self._past_key = (state.gpus.version, len(state.gpus))
        self._past_at = state.at
        self._past.append(np.stack([state.gpus.column(metric) for metric in TRACED]))

    def _draw_map(self, width: int, height: int) -> list[Line]:
        state = self.state
        if not len(state.gpus) or width < 4 or height < 1:
            return [[(state.gpus_unknown, "dim")]]
        row = None if self.cursor is None else state.gpus.row_of.get(self.cursor)
        if (across := self.across) > 0:
            past = np.stack(self._past) if self._past else None
            return cards(state, state.gpus.order.tolist(), width, across, past, row, self._tall)
        grid = self._layout(width, max(height, self._most[1]))
        return draw(grid, self._cells(grid), shaded=self._shaded, cursor=row)

    @property
    def _shaded(self) -> bool:
        return self.tones.theme.shaded and not self.tones.ascii_only

    def _cells(self, grid: Grid) -> HeatmapCells:
        state, word = self.state, self.shown_metric
        if word == STATE:
            return HeatmapCells(None, [""] * len(state.gpus), state.gpu_status, self.dimmed)
        metric = METRICS[word]
        values = metric.values(state)
        before = self._level[1] if self._level is not None and self._level[0] == word else None
        level = quantise(values, metric.span(state), before)
        self._level = (word, level)
        digits: list[str] = []
        if grid.zoom is Zoom.DIGITS:
            digits = ["—" if np.isnan(v) else metric.digits(v) for v in values.tolist()]
        return HeatmapCells(level, digits, state.gpu_status, self.dimmed)

    def _layout(self, width: int, height: int) -> Grid:
        state = self.state
        who = state.gpus.who
        group = self.group
        if self.zoom in {None, Zoom.DIGITS} and group == "rack" and len(who.uuid) <= MOST_DIGITS:
            group = "node"
        zoom = Zoom(self.zoom) if self.zoom and self.zoom != CARDS else None
        if zoom is Zoom.HALVES and not self._shaded:
            zoom = Zoom.DOTS
        if state.nodes is not self._seen_nodes:
            self._seen_nodes = state.nodes
            self._racks = hash(tuple((n.rack, n.job) for n in state.nodes))
        slow = state.at // 5_000_000_000 if group in {"value", "circuit"} else 0
        key = (state.gpus.version, len(state.gpus), width, height, zoom, group, self._racks, slow,
               self.shown_metric if group == "value" else "", self._shaded)  # fmt: skip
        if key != self._laid or self._grid is None:
            self._grid = placed(state, group, self.metric or "", zoom, width, height)
            self._laid = key
        return self._grid

    def action_step(self, x: int, y: int) -> None:
        """Move the cursor by cells."""
        state = self.state
        row = None if self.cursor is None else state.gpus.row_of.get(self.cursor)
        if row is None:
            self._go(int(state.gpus.order[0]) if len(state.gpus) else None)
        elif (across := self.across) > 0:
            places = state.gpus.order.tolist()
            place = places.index(row) + x + y * across
            if 0 <= place < len(places):
                self._go(places[place])
        elif self._grid is not None and (here := self._grid.place(row)) is not None:
            slots = self._grid.slots[:, :, 0]
            line, column = here[0] + y, here[1] + x
            if column < 0 or column >= slots.shape[1]:
                line, column = line + x, 0 if column >= 0 else slots.shape[1] - 1
            if 0 <= line < len(slots):
                filled = np.flatnonzero(slots[line] >= 0)
                if x and line == here[0]:  # over the names between groups
                    filled = filled[(filled - here[1]) * x > 0]
                if filled.size:
                    self._go(int(slots[line, filled[np.abs(filled - column).argmin()]]))

    def action_end(self, side: int) -> None:
        """Move the cursor to the first or last GPU."""
        order = self.state.gpus.order
        if len(order):
            self._go(int(order[0 if side < 0 else -1]))

    def to_fault(self, by: int) -> None:
        """Move the cursor to the next or previous GPU with a fault."""
        state = self.state
        order = state.gpus.order
        if not len(order):
            return
        faulty = np.flatnonzero(state.gpu_status[order] > 0)
        row = None if self.cursor is None else state.gpus.row_of.get(self.cursor)
        here = -1 if row is None else int(np.flatnonzero(order == row)[0])
        if faulty.size:
            after = faulty[faulty > here] if by > 0 else faulty[faulty < here][::-1]
            self._go(int(order[after[0] if after.size else faulty[0 if by > 0 else -1]]))

    def _go(self, row: int | None) -> None:
        if row is not None:
            self.cursor = self.state.gpus.who.uuid[row]
            self.show(self._draw_map, faded=self.faded)
            self.post_message(self.GpuHighlighted())

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click opens the GPU."""
        if (across := self.across) > 0:
            place = event.y // self._tall * across + min(across - 1, event.x // (self.size.width // across))
            order = self.state.gpus.order
            row = int(order[place]) if place < len(order) else None
        else:
            row = None if self._grid is None else self._grid.at(event.x, event.y)
        self._go(row)
        if row is not None and event.chain > 1:
            self.post_message(self.GpuSelected())

    def legend(self) -> str:
        """Return what the map shows, as text."""
        many = self.state.gpus_unknown or counted(len(self.state.gpus), "GPU")
        word = self.shown_metric
        if word == STATE:
            what = "state"
        else:
            metric = METRICS[word]
            low, high = metric.span(self.state)
            what = f"{word}  {metric.as_text(low)} ▁▂▃▄▅▆▇█ {metric.as_text(high)}"
        each = {CARDS: "", Zoom.DIGITS: "", Zoom.HALVES: "▀ = 1 GPU", Zoom.DOTS: "1 sign = 8 GPUs",
                Zoom.RACKS: f"1 cell = 1 {self.group}"}.get(self.shown_zoom, "")  # fmt: skip
        return "  ".join(filter(None, [many, what, each, f"by {self.group}"]))


def cursor_words(state: DashboardState, uuid: str | None, metric: str) -> str:
    """Return the GPU under the cursor and its value as text."""
    row = None if uuid is None else state.gpus.row_of.get(uuid)
    if row is None:
        return ""
    who = state.gpus.who
    value = ""
    if metric in METRICS:
        reading = METRICS[metric].values(state)[row]
        value = f" {METRICS[metric].as_text(None if np.isnan(reading) else float(reading))}"
    return f"{clean(who.node[row])}/{who.gpu[row]}{value}"


def cursor_legend(state: DashboardState, uuid: str | None) -> str:
    """Return what is known of the GPU under the cursor, for the frame of the map."""
    row = None if uuid is None else state.gpus.row_of.get(uuid)
    if row is None:
        return ""
    who, gpus = state.gpus.who, state.gpus
    at = state.node_row.get(who.node[row])
    node = None if at is None else state.nodes[at]
    circuits = ", ".join(map(clean, state.feeds.get(who.node[row], [])[:2]))
    watts_, limit = gpus.value(readings.POWER, row), gpus.value(readings.LIMIT, row)
    parts = [
        f"{clean(who.node[row])}/gpu{who.gpu[row]}",
        clean(node.rack) if node is not None and node.rack else "",
        gpu_mark(state, row)[0],
        "" if watts_ is None else watts_of(watts_, limit),
        _known(gpus.value(readings.TEMPERATURE, row), celsius),
        _known(gpus.value(readings.UTILIZATION, row), percent),
        f"on {circuits}" if circuits else "",
        clean(who.name[row]),
    ]
    return "  ".join(filter(None, parts))


def _known(value: float | None, as_text: Callable[[float], str]) -> str:
    return "" if value is None else as_text(value)
