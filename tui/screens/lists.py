"""The lists: a table; on a wide terminal the detail of its row beside it, and on a very wide one a third
column with alerts and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget

from api.fleet import EventsReply
from present.device.gpu import event_row
from telemetry.devices import Event
from telemetry.text import time_of_day
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.surface import WIDE, Drawing, Surface
from tui.kit.text import clean, fit
from tui.kit.theme import Line
from tui.screens.gpu import gpu_documents, gpu_lines
from tui.screens.node import node_documents, node_lines
from tui.screens.view import COMPARE_KEYS, COPY_KEYS, FILTER_KEYS, View
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import alert_lines
from tui.state.readings import COLUMNS
from tui.tables.fields import NODE_KEYS
from tui.tables.filter import Filter
from tui.tables.gpu_table import GPU_SORTS, gpu_listing
from tui.tables.listing import Listing
from tui.tables.node_table import NODE_SORTS, node_listing
from tui.tables.table import VirtualTable

VERY_WIDE, THIRD = 200, 52
"""Width of a terminal from which on there is a third column, and the width of that."""
EVENTS = DocumentRequest("api/v1/events?from=-24h&limit=60", EventsReply, 5.0)


def third_lines(
    state: DashboardState, found: EventsReply | None, why: str, width: int, height: int, *, utc: bool, alerts: bool
) -> list[Line]:
    """Draw the third column. `why`: the reason where no events were found; `alerts`: whether alerts
    are above the events."""
    lines: list[Line] = []
    if alerts:
        most = max(1, min(len(state.incidents) or 1, height // 2 - 2))
        lines = [[("Alerts by cause", "head")], *alert_lines(state, width, most), []]
    lines.append([("Events", "head")])
    if found is None:
        return [*lines, [(why or "loading …", "dim")]]
    known = [each.event for each in found.events if each.event.at <= state.at]
    if not known:
        return [*lines, [("none in the last day", "dim")]]
    room = max(0, height - len(lines))
    return [*lines, *(event_line(state, event, width, utc=utc) for event in known[:room])]


def event_line(state: DashboardState, event: Event, width: int, *, utc: bool) -> Line:
    """Draw an event: time, place, message."""
    row = None if event.gpu is None else state.gpus.row_of.get(event.gpu)
    place = clean(event.node) + ("" if row is None else f"/gpu{state.gpus.who.gpu[row]}")
    when = f"{time_of_day(event.at, utc=utc)} "
    where = f"{fit(place, min(18, len(place)), tail=True)} "
    room = max(8, width - len(when) - len(where))
    its = event_row(event)
    words = clean(its.value) or clean(its.label)
    return [(when, "dim"), (where, "strong"), (fit(words, room).rstrip(), "")]


class ListView(View):
    """A table with a detail beside it. A subclass defines `listing` and `detail`."""

    KIND: ClassVar[str] = ""
    """Kind of a row: `gpu`, `node`, `circuit`, `incident`."""
    FRAME_KEYS = COPY_KEYS | FILTER_KEYS
    SORTS: ClassVar[tuple[str, ...]] = ("",)
    SHARE: ClassVar[str] = "1fr"
    DEFAULT_CSS = """
    ListView > Horizontal { height: 1fr; }
    ListView .side { width: 1fr; border-left: solid $frame; padding: 0 1; }
    ListView .side.-ascii { border-left: ascii $frame; }
    ListView VirtualTable { width: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """Yield the table and the columns beside it."""
        with Horizontal():
            yield from self.columns()

    def columns(self) -> Iterator[Widget]:
        """Yield the table, the detail, and the third column."""
        yield VirtualTable(self.context.tones, id=f"{self.NAME}-table")
        yield Surface(self.context.tones, id=f"{self.NAME}-side")
        yield Surface(self.context.tones, id=f"{self.NAME}-third")

    def on_mount(self) -> None:
        """Find the parts."""
        self.rows = self.query_one(VirtualTable)
        self.side = self.query_one(f"#{self.NAME}-side", Surface)
        self.third = self.query_one(f"#{self.NAME}-third", Surface)
        for beside in (self.side, self.third):
            beside.add_class("side")
            beside.set_class(self.context.tones.ascii_only, "-ascii")
        self.third.styles.width = THIRD
        self.sort = self.SORTS[0]
        self.reverse = False
        self._side_key: str | None = None

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return the rows that fit a filter."""
        raise NotImplementedError

    def detail(self, key: str) -> Drawing:
        """Return the drawing beside the table."""
        raise NotImplementedError

    def _third(self, width: int, height: int) -> list[Line]:
        context, docs = self.context, self.context.newest
        return third_lines(
            context.shown,
            docs.doc(EVENTS.path, EventsReply),
            docs.fault(EVENTS.path),
            width,
            height,
            utc=context.utc,
            alerts=self.NAME != "alerts",
        )

    def also(self) -> tuple[DocumentRequest, ...]:
        """Return the documents of the third column, where there is one."""
        return (EVENTS,) if self.size.width >= VERY_WIDE else ()

    def first(self) -> Widget:
        """Return the table."""
        return self.rows

    def chosen(self) -> tuple[str, str] | None:
        """Return kind and key of the row under the cursor."""
        return None if self.rows.key is None else (self.KIND, self.rows.key)

    def place(self) -> str:
        """Return the row of the cursor, and how many there are."""
        return f"{self.rows.cursor + 1:,} of {self.rows.count:,}" if self.rows.count else "none"

    def draw(self) -> None:
        """Draw the table and the columns beside it."""
        self.rows.show(self.listing(self.wanted), faded=self.faded)
        self._draw_side()

    def _draw_side(self) -> None:
        wide = self.size.width >= WIDE
        self.side.display = wide
        self.third.display = self.size.width >= VERY_WIDE
        if self.third.display:
            self.third.show(self._third, faded=self.faded)
        self.rows.styles.width = self._table_width(self.size.width) if wide else "1fr"
        if wide:
            key = self.rows.key
            self.side.show(self.detail(key) if key is not None else lambda _w, _h: (), faded=self.faded)
        if self.rows.key != self._side_key:
            self._side_key = self.rows.key
            self.context.frame.request_data()

    def _table_width(self, width: int) -> int:
        return max(84, width * (42 if width >= VERY_WIDE else 55) // 100)

    @property
    def beside(self) -> str | None:
        """Key of the row that is shown beside the table, if there is room."""
        return self.rows.key if self.size.width >= WIDE else None

    @on(VirtualTable.RowHighlighted)
    def _moved(self) -> None:
        self._draw_side()

    @on(VirtualTable.RowSelected)
    def _row_selected(self) -> None:
        self.do_open()

    def do_open(self) -> None:
        """Open the row under the cursor."""
        chosen = self.chosen()
        if chosen is not None:
            self.context.frame.open(*chosen)

    def do_sort(self) -> None:
        """Sort by the next column."""
        self.sort = self.SORTS[(self.SORTS.index(self.sort) + 1) % len(self.SORTS)]
        self.context.frame.redraw()

    def do_reverse(self) -> None:
        """Reverse the order."""
        self.reverse = not self.reverse
        self.context.frame.redraw()

    def record(self) -> Any:
        """Return the row under the cursor."""
        table = self.table()
        return table[self.rows.cursor] if self.rows.cursor < len(table) else None

    def table(self) -> list[dict[str, Any]]:
        """Return all rows that are listed, as they are drawn."""
        listing = self.listing(self.wanted)
        return [listing.record(place) for place in range(len(listing.order))]


class GpusView(ListView):
    """View 3: every GPU."""

    NAME, TITLE, KIND = "gpus", "GPUs", "gpu"
    FRAME_KEYS = ListView.FRAME_KEYS | COMPARE_KEYS
    SORTS = tuple(GPU_SORTS)

    def wants(self) -> Wants:
        """Return all columns of the table, and the page of the GPU beside it."""
        page = gpu_documents(self.beside, self.context.span) if self.beside else ()
        return Wants(COLUMNS, documents=(*page, *self.also()))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return the GPUs that fit."""
        return gpu_listing(self.context.shown, self.sort, wanted, reverse=self.reverse, faults=self.context.faults)

    def detail(self, key: str) -> Drawing:
        """Return the GPU's page."""
        context = self.context
        return lambda width, height: gpu_lines(context.shown, key, context.span, width, height, utc=context.utc)


class NodesView(ListView):
    """View 2: every node."""

    NAME, TITLE, KIND = "nodes", "Nodes", "node"
    FRAME_KEYS = ListView.FRAME_KEYS | COMPARE_KEYS
    FILTERED_BY = NODE_KEYS
    SORTS = tuple(NODE_SORTS)

    def wants(self) -> Wants:
        """Return all columns of the table, and the page of the node beside it."""
        page = node_documents(self.beside, self.context.span) if self.beside else ()
        return Wants(COLUMNS, documents=(*page, *self.also()))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return the nodes that fit."""
        return node_listing(self.context.shown, self.sort, wanted, reverse=self.reverse, faults=self.context.faults)

    def detail(self, key: str) -> Drawing:
        """Return the node's page."""
        context = self.context
        return lambda width, height: node_lines(
            context.shown, key, context.span, width, height, context.since, utc=context.utc
        )
