"""The lists: a table on the left; on a wide terminal the detail of its row beside it, and on a very
wide one a third column with what is wrong and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget

from api.pages import Events
from tui.feed.wants import DocumentRequest, Wants
from tui.frame.header import WIDE
from tui.kit.surface import Drawing, Surface
from tui.screens.side_column import EVENTS, EVENTS_ASK, VERY_WIDE, beyond_lines
from tui.screens.view import View
from tui.state.readings import COLUMNS
from tui.tables.filter import Filter
from tui.tables.gpu_table import GPU_SORTS, gpu_listing
from tui.tables.listing import Listing
from tui.tables.node_table import NODE_SORTS, node_listing
from tui.tables.table import VirtualTable
from tui.theme import Line

THIRD = 52
"""Columns of the third column."""


class ListView(View):
    """A table with a detail beside it. A view of it says what is listed and what the detail is."""

    KIND: ClassVar[str] = ""
    """What a row is: `gpu`, `node`, `circuit`, `incident`."""
    SORTS: ClassVar[tuple[str, ...]] = ("",)
    SHARE: ClassVar[str] = "1fr"
    DEFAULT_CSS = """
    ListView > Horizontal { height: 1fr; }
    ListView .side { width: 1fr; border-left: solid $frame; padding: 0 1; }
    ListView .side.-ascii { border-left: ascii $frame; }
    ListView VirtualTable { width: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """The table and what stands beside it."""
        with Horizontal():
            yield from self.columns()

    def columns(self) -> Iterator[Widget]:
        """The table, its side, and the third column."""
        yield VirtualTable(self.top.tones, id=f"{self.NAME}-table")
        yield Surface(self.top.tones, id=f"{self.NAME}-side")
        yield Surface(self.top.tones, id=f"{self.NAME}-third")

    def on_mount(self) -> None:
        """Keep hold of all."""
        self.rows = self.query_one(VirtualTable)
        self.side = self.query_one(f"#{self.NAME}-side", Surface)
        self.third = self.query_one(f"#{self.NAME}-third", Surface)
        for beside in (self.side, self.third):
            beside.add_class("side")
            beside.set_class(self.top.tones.ascii_only, "-ascii")
        self.third.styles.width = THIRD
        self.sort = self.SORTS[0]
        self.reverse = False
        self._side_key: str | None = None

    def listing(self, wanted: Filter) -> Listing[Any]:
        """What is listed."""
        raise NotImplementedError

    def detail(self, key: str) -> Drawing:
        """What stands beside the table."""
        raise NotImplementedError

    def third_lines(self, width: int, height: int) -> list[Line]:
        """What stands in the third column."""
        top, docs = self.top, self.top.feed.board
        return beyond_lines(
            top.shown, docs.doc(EVENTS, Events), docs.fault(EVENTS), width, height,
            utc=top.utc, alerts=self.NAME != "alerts",
        )  # fmt: skip

    def also(self) -> tuple[DocumentRequest, ...]:
        """What the third column asks for, where there is one."""
        return (EVENTS_ASK,) if self.size.width >= VERY_WIDE else ()

    def first(self) -> Widget:
        """The table."""
        return self.rows

    def chosen(self) -> tuple[str, str] | None:
        """The row under the cursor."""
        return None if self.rows.key is None else (self.KIND, self.rows.key)

    def place(self) -> str:
        """Which row of how many."""
        return f"{self.rows.cursor + 1:,} of {self.rows.count:,}" if self.rows.count else "none"

    def draw(self) -> None:
        """Show the board."""
        self.rows.show(self.listing(self.top.wanted(self)), faded=self.top.faded)
        self._draw_side()

    def _draw_side(self) -> None:
        wide = self.size.width >= WIDE
        self.side.display = wide
        self.third.display = self.size.width >= VERY_WIDE
        if self.third.display:
            self.third.show(self.third_lines, faded=self.top.faded)
        self.rows.styles.width = self._table_width(self.size.width) if wide else "1fr"
        if wide:
            key = self.rows.key
            self.side.show(
                self.detail(key) if key is not None else lambda _w, _h: (), faded=self.top.faded
            )
        if self.rows.key != self._side_key:
            self._side_key = self.rows.key
            self.top.rewant()

    def _table_width(self, width: int) -> int:
        return max(84, width * (42 if width >= VERY_WIDE else 55) // 100)

    @property
    def beside(self) -> str | None:
        """The row that is shown beside the table, if there is room."""
        return self.rows.key if self.size.width >= WIDE else None

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._draw_side()
        self.top.draw_footer()

    @on(VirtualTable.Chosen)
    def _row_chosen(self) -> None:
        self.do_open()

    def do_open(self) -> None:
        """Open the row under the cursor."""
        chosen = self.chosen()
        if chosen is not None:
            self.top.open(*chosen)

    def do_filter(self) -> None:
        """List only what fits."""
        self.top.ask_filter()

    def do_faults(self) -> None:
        """List only what is ill."""
        self.top.toggle_faults()

    def do_sort(self) -> None:
        """Sort by the next column."""
        self.sort = self.SORTS[(self.SORTS.index(self.sort) + 1) % len(self.SORTS)]
        self.top.redraw()

    def do_reverse(self) -> None:
        """Lowest first."""
        self.reverse = not self.reverse
        self.top.redraw()

    def do_copy(self) -> None:
        """Copy the name of the row."""
        self.top.copy_chosen()

    def do_copy_json(self) -> None:
        """Copy the row as JSON."""
        self.top.copy_record()

    def record(self) -> Any:
        """The row under the cursor."""
        listing = self.listing(self.top.wanted(self))
        table = self.table()
        return (
            table[self.rows.cursor]
            if len(listing.order) and self.rows.cursor < len(table)
            else None
        )

    def table(self) -> list[dict[str, Any]]:
        """All rows that are listed, as they are drawn."""
        listing = self.listing(self.top.wanted(self))
        return [listing.record(place) for place in range(len(listing.order))]


class GpusView(ListView):
    """View 3: every GPU."""

    NAME, TITLE, KIND = "gpus", "GPUs", "gpu"
    SORTS = tuple(GPU_SORTS)

    def wants(self) -> Wants:
        """All columns of the table, and the page of the GPU beside it."""
        from tui.screens.gpu import gpu_asks  # noqa: PLC0415 - the two files name each other

        page = gpu_asks(self.beside, self.top.span) if self.beside else ()
        return Wants(COLUMNS, asks=(*page, *self.also()))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """GPUs."""
        return gpu_listing(
            self.top.shown, self.sort, wanted, reverse=self.reverse, faults=self.top.faults
        )

    def detail(self, key: str) -> Drawing:
        """The GPU's page."""
        from tui.screens.gpu import gpu_lines  # noqa: PLC0415

        top = self.top
        return lambda width, height: gpu_lines(top.shown, key, top.span, width, height, utc=top.utc)

    def do_compare(self) -> None:
        """Put the GPU into the compare tray."""
        self.top.compare_chosen()

    def do_then(self) -> None:
        """Compare it with what it was."""
        self.top.compare_then()

    def do_longer(self) -> None:
        """More history beside it."""
        self.top.change_span(1)

    def do_shorter(self) -> None:
        """Less."""
        self.top.change_span(-1)


class NodesView(ListView):
    """View 2: every node."""

    NAME, TITLE, KIND = "nodes", "Nodes", "node"
    SORTS = tuple(NODE_SORTS)

    def wants(self) -> Wants:
        """All columns of the table, and the page of the node beside it."""
        from tui.screens.node import node_asks  # noqa: PLC0415

        page = node_asks(self.beside, self.top.span) if self.beside else ()
        return Wants(COLUMNS, asks=(*page, *self.also()))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Nodes."""
        return node_listing(
            self.top.shown, self.sort, wanted, reverse=self.reverse, faults=self.top.faults
        )

    def detail(self, key: str) -> Drawing:
        """The node's page."""
        from tui.screens.node import node_lines  # noqa: PLC0415

        top = self.top
        return lambda width, height: node_lines(
            top.shown, key, top.span, width, height, top.since, utc=top.utc
        )

    def do_compare(self) -> None:
        """Put the node into the compare tray."""
        self.top.compare_chosen()

    def do_then(self) -> None:
        """Compare it with what it was."""
        self.top.compare_then()
