"""The dashboard: one screen on a running aggregator.

A worker keeps the feed; whenever it says that something changed, the screen is drawn once from the
newest board. Widgets are thin: what they show is made by `tui.lines` and `tui.listing`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from tui import lines
from tui.board import Board
from tui.client import Feed
from tui.columns import Piece
from tui.help import HelpScreen
from tui.listing import GPU_SORTS, NODE_SORTS, gpu_listing, node_listing
from tui.palette import BACKGROUND, PANEL, palette
from tui.table import VirtualTable
from tui.text import clean, number

SMALLEST = (60, 16)
"""Below this the tables make no sense; counts and alerts are shown instead."""
KEYS = (
    ("q", "Quit"), ("?", "Help"), ("/", "Filter"), ("⏎", "Node"), ("s", "Sort"), ("p", "Pause"),
    ("tab", "Table"), ("esc", "Back"),
)  # fmt: skip


class Changed(Message):
    """The feed has something new."""


class Top(App[None]):
    """`kilowatch top`."""

    TITLE = "kilowatch"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    Screen {{ background: {BACKGROUND}; }}
    Static {{ height: 1; }}
    #header {{ height: 2; }}
    #band, #tiny, #message, #filter {{ display: none; }}
    #message {{ height: 1fr; content-align: center middle; text-align: center; }}
    #tiny {{ height: 1fr; }}
    #alerts {{ height: auto; }}
    #footer {{ background: {PANEL}; }}
    #filter {{ height: 1; border: none; padding: 0; background: {PANEL}; }}
    VirtualTable {{ background: {BACKGROUND}; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", priority=False),
        Binding("question_mark,f1", "help"),
        Binding("slash", "filter"),
        Binding("s", "sort"),
        Binding("p", "pause"),
        Binding("escape", "leave"),
        Binding("tab", "app.focus_next", show=False),
        Binding("shift+tab", "app.focus_previous", show=False),
    ]

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        every: float = 1.0,
        colour: bool | None = None,
    ) -> None:
        super().__init__()
        self.url = url
        self._clock = clock
        plain = "NO_COLOR" in os.environ if colour is None else not colour
        self._tones = palette(colour=not plain)
        self.feed = Feed(url, token, self._tell, clock, every)
        self.shown = Board()
        """What the screen shows; while paused, not what the feed has."""
        self._paused: float | None = None
        self._told = False
        self._laid_out = False
        self._text = ""
        self._node: str | None = None
        self._node_sort = self._gpu_sort = ""

    def compose(self) -> ComposeResult:
        """The lines and tables of the screen, top to bottom."""
        yield Static(id="header")
        yield Static(id="band")
        yield Static(id="message")
        yield Static(id="tiny")
        with Vertical(id="tables"):
            yield VirtualTable(self._tones, id="nodes")
            yield VirtualTable(self._tones, id="gpus")
        yield Static(id="alerts")
        yield Input(id="filter", placeholder="part of a node's name, a UUID or a model")
        yield Static(id="footer")

    def on_mount(self) -> None:
        """Start the feed, and a slow beat: freshness changes even when nothing comes."""
        self._laid_out = True
        self.query_one("#gpus").focus()
        self.run_worker(self.feed.run(), name="feed", group="feed", exclusive=True)
        self.set_interval(1.0, self._beat)
        self._draw()

    def _tell(self) -> None:
        """Called by the feed; several changes before the next turn of the loop are one."""
        if not self._told and self.is_running:
            self._told = self.post_message(Changed())

    @on(Changed)
    def _data_came(self) -> None:
        self._told = False
        if self._paused is None:
            self.shown = self.feed.board
        self._draw()

    def _beat(self) -> None:
        """Lines only: no table changes without data."""
        self._draw_lines()

    @on(VirtualTable.Moved)
    def _cursor_moved(self) -> None:
        self._draw_footer()

    @on(VirtualTable.Chosen)
    def _row_chosen(self, message: VirtualTable.Chosen) -> None:
        """Enter on a node shows its GPUs alone; on a GPU, those of its node."""
        if message.table.id == "nodes":
            self._node = message.key
            self.query_one("#gpus").focus()
        else:
            row = self.shown.gpus.row_of.get(message.key)
            self._node = None if row is None else self.shown.gpus.who.node[row]
        self._draw()

    def on_resize(self) -> None:
        """Lay out anew, once the new size is known."""
        self.call_after_refresh(self._draw)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpScreen(self._tones))

    def action_filter(self) -> None:
        """Ask for a text; both tables show what matches, while it is typed."""
        entry = self.query_one("#filter", Input)
        entry.display = True
        self.query_one("#footer").display = False
        entry.focus()

    @on(Input.Changed, "#filter")
    def _filter_typed(self, event: Input.Changed) -> None:
        self._text = event.value.strip()
        self._draw()

    @on(Input.Submitted, "#filter")
    def _filter_kept(self) -> None:
        self._close_filter()

    def action_leave(self) -> None:
        """Close what is open, then undo the filter, then the choice of a node. Never quits."""
        if self.query_one("#filter").display:
            self.query_one("#filter", Input).value = ""
            self._close_filter()
        elif self._text:
            self.query_one("#filter", Input).value = ""
        elif self._node is not None:
            self._node = None
            self.query_one("#nodes").focus()
        self._draw()

    def action_sort(self) -> None:
        """Sort the table under the cursor by its next column."""
        if self.query_one("#nodes").has_focus:
            self._node_sort = _next(list(NODE_SORTS), self._node_sort)
        else:
            self._gpu_sort = _next(list(GPU_SORTS), self._gpu_sort)
        self._draw()

    def action_pause(self) -> None:
        """Freeze the screen, not the data."""
        self._paused = None if self._paused is not None else self._clock()
        if self._paused is None:
            self.shown = self.feed.board
        self._draw()

    def _close_filter(self) -> None:
        self.query_one("#filter").display = False
        self.query_one("#footer").display = True
        self.query_one("#gpus").focus()

    def _draw(self) -> None:
        """Draw everything once from the board."""
        if not self._laid_out:
            return
        with self.batch_update():
            self._draw_tables()
            self._draw_lines()

    def _draw_tables(self) -> None:
        width, height = self.size
        root = self.screen_stack[0]
        small = width < SMALLEST[0] or height < SMALLEST[1]
        instead = lines.nothing_yet(self.shown, self.feed.line, self.url, self._clock())
        tables, message = root.query_one("#tables"), root.query_one("#message", Static)
        tables.display = not small and instead is None
        message.display = not small and instead is not None
        root.query_one("#tiny").display = small
        for name in ("#header", "#alerts", "#footer"):
            root.query_one(name).display = not small
        if root.query_one("#filter").display:
            root.query_one("#footer").display = False
        if not tables.display:
            return
        nodes, gpus = root.query_one("#nodes", VirtualTable), root.query_one("#gpus", VirtualTable)
        node_rows = node_listing(self.shown, self._node_sort, self._text)
        most = max(3, (height - 8) // 3)
        nodes.styles.height = 1 + min(max(1, len(node_rows.order)), most)
        nodes.show(node_rows)
        gpus.show(gpu_listing(self.shown, self._gpu_sort, self._text, self._node))

    def _draw_lines(self) -> None:
        if not self._laid_out:
            return
        root, now, line = self.screen_stack[0], self._clock(), self.feed.line
        width, height = self.size
        said = lines.header(self.shown, line, now, self._paused)
        root.query_one("#header", Static).update(self._texts(said, width))
        warning = lines.band(line, now, self.shown.age(now))
        strip = root.query_one("#band", Static)
        strip.display = bool(warning)
        strip.update(self._texts([warning], width))
        instead = lines.nothing_yet(self.shown, line, self.url, now)
        if instead is not None:
            root.query_one("#message", Static).update(self._texts(instead, width))
        alerts = lines.alert_lines(self.shown, max(3, height // 8))
        root.query_one("#alerts", Static).update(self._texts(alerts, width))
        small = lines.tiny(self.shown, line, now, height)
        root.query_one("#tiny", Static).update(self._texts(small, width))
        self._draw_footer()

    def _draw_footer(self) -> None:
        root = self.screen_stack[0]
        tables = list(root.query(VirtualTable))
        table = next((one for one in tables if one.has_focus), tables[-1])
        what = "node" if table.id == "nodes" else "GPU"
        place = f"{what} {number(table.cursor + 1)} of {number(table.count)}"
        if not table.count:
            place = f"no {what}"
        chips = [f"node {clean(self._node)}" if self._node else "",
                 f"filter '{clean(self._text)}'" if self._text else ""]  # fmt: skip
        right = "  ".join([*filter(None, chips), place]) + " "
        pieces = lines.footer(KEYS, right, self.size.width)
        root.query_one("#footer", Static).update(self._texts([pieces], self.size.width))

    def _texts(self, said: list[list[Piece]], width: int) -> Text:
        """Join lines of pieces; what is too long is cut, never wrapped."""
        joined = Text(no_wrap=True, overflow="ellipsis", end="")
        for number_, pieces in enumerate(said):
            text = Text(no_wrap=True)
            for piece, tone in pieces:
                text.append(piece, self._tones[tone])
            text.truncate(width, overflow="ellipsis")
            joined.append_text(text)
            if number_ < len(said) - 1:
                joined.append("\n")
        return joined


def _next(names: list[str], now: str) -> str:
    return names[(names.index(now) + 1) % len(names)]
