"""The dashboard: a frame around views, on a running aggregator.

A worker keeps the feed; whenever it says that something changed, what is on the screen is drawn
once from the newest board. Views (`tui.screens`) draw; the frame (`tui.frame`) has the header, the
filter, time and what is taken along; here are its widgets, its beat and the keys that are no view's.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from tui.frame import startup as lean
from tui.frame.filtering import Filtering
from tui.frame.palette_search import find
from tui.frame.state import Changed, theme_name
from tui.frame.taking import Taking
from tui.frame.times import Times
from tui.keys import KEYS, READ_ONLY, help_lines
from tui.kit.surface import Surface
from tui.kit.text import CROSS, DASH
from tui.screens import VIEWS
from tui.screens.forms import HelpDialog, Palette
from tui.tables.filter import ALL
from tui.theme import THEMES, Line, Theme, Tones

LEGEND: tuple[Line, ...] = (
    [("what stands before a name", "strong")],
    [("  · ok  ", "ok"), ("! WARN a ticket  ", "warn"), ("▲ CRIT a page", "crit")],
    [(f"  {CROSS} LOST, HUNG, OFFLINE  ", "down"), ("▒ STALE nothing new, NO DATA  ", "stale"),
     (f"{DASH} not read", "dim")],
)  # fmt: skip
TURN = 0.2
"""Seconds between two looks at whether what is played has gone on."""
TOGETHER = 0.04
"""Seconds within which what comes is drawn together."""


class Top(Filtering, Times, Taking):
    """`kilowatch top`."""

    TITLE = "kilowatch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    #header { height: 2; }
    #band, #bar, #tiny, #message, #filter, #fault { display: none; height: 1; }
    #message, #tiny { height: 1fr; }
    #footer { height: 1; }
    #filter { border: none; padding: 0; background: $panel; }
    Toast { background: $panel; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # First of all: over a slow line several keys come at once, and what is typed behind `/` must
        # not be taken for keys of the screen because the filter's turn comes a moment later.
        *(Binding(key.keys, f"do('{key.action}')", show=False, priority=True) for key in KEYS),
        Binding("tab", "app.focus_next", show=False),
        Binding("shift+tab", "app.focus_previous", show=False),
    ]

    def compose(self) -> ComposeResult:
        """The lines around the views, and all views."""
        yield Surface(self.tones, id="header")
        yield Surface(self.tones, id="band")
        yield Surface(self.tones, id="bar")
        yield Surface(self.tones, id="message")
        yield Surface(self.tones, id="tiny")
        with Vertical(id="body"):
            for kind in VIEWS.values():
                yield kind(self)
        yield Surface(self.tones, id="fault")
        yield Input(
            id="filter",
            placeholder="part of a name, or power>600 & rack=R16 | sev>=warn",
            select_on_focus=False,
        )
        yield Surface(self.tones, id="footer", under="panel")

    def on_mount(self) -> None:
        """Start the feed, and a slow beat: freshness and countdowns move even when nothing comes."""
        self._laid_out = True
        self._root = self.screen
        names = ("#header", "#band", "#bar", "#message", "#tiny", "#fault", "#footer")
        self._surfaces = {name: self._root.query_one(name, Surface) for name in names}
        self._show_view()
        self.run_worker(self.feed.run(), name="feed", group="feed", exclusive=True)
        if self.clock.past is not None:
            self.run_worker(self.clock.past.run(), name="past", group="past", exclusive=True)
        self.set_interval(1.0, self._beat)
        self.set_interval(TURN, self._turn)
        if self._settled is not None:
            self.set_timer(lean.AFTER, self._settled)
        self.redraw()

    @on(Changed)
    def _data_came(self) -> None:
        # Readings and alerts of one tick are two messages: one picture for both; but the first at once.
        if self._live_drawn:
            self.set_timer(TOGETHER, self._draw_frame)
        else:
            self._live_drawn = self.feed.board.ready
            self._draw_frame()

    def _draw_frame(self) -> None:
        self._told = False
        board = self.feed.board
        self.clock.trail.add(board)
        self._loads.add(board)
        self.redraw_news()

    def _beat(self) -> None:
        """Lines only: no picture changes without data, but for the countdowns on it."""
        idle = self._clock() - self._drawn > 1.5
        if idle and self._standing and self.shown.circuits and not self.clock.replaying:
            self.redraw()
        elif self.clock.replaying:  # its header and its picture are of one time, always
            self.redraw_news()
        else:
            self._draw_lines()

    # Keys.

    def action_do(self, name: str) -> None:
        """Do what a key says, or leave it to whatever has the focus."""
        if isinstance(self.focused, Input) and name not in {"back", "interrupt"}:
            if name != "open" or not self.keep_filter():
                raise SkipAction
        elif not self.do(name):
            raise SkipAction

    def do(self, name: str) -> bool:
        """Do what a key says: the view first, then the frame. False for what is no key here."""
        if self.screen is not self._root:
            return False
        if name.startswith("view_"):
            self.go([kind.NAME for kind in VIEWS.values()][int(name.removeprefix("view_")) - 1])
            return True
        if name == "mark" and self.clock.open:  # the same key
            name = "play"
        key = next(each for each in KEYS if each.action == name)
        method = getattr(self.view, f"do_{name}", None) or getattr(self, f"do_{name}", None)
        if method is None:
            return False
        if key.writes and not self.write:
            self.notify(READ_ONLY, timeout=3)
        elif name == "back":
            self.do_back()
        else:
            method()
        return True

    def do_quit(self) -> None:
        """End."""
        self.exit()

    def do_interrupt(self) -> None:
        """Copy what is selected with the mouse, else end."""
        selected = self.screen.get_selected_text()
        if selected:
            self.copy(selected)
        else:
            self.exit()

    def do_help(self) -> None:
        """Show the keys."""
        keys = self.view.legal()
        self.push_screen(
            HelpDialog(self.tones, f"Help: {self.view.TITLE}   (/ filter: {', '.join(self._filter_keys())[:60]})",
                       lambda width: [*help_lines(keys, width, write=self.write), *LEGEND])
        )  # fmt: skip

    def do_back(self) -> None:
        """Close what is open, then go back, then undo the filter. Never quits."""
        asking = self._root.query_one("#filter", Input)
        inner = getattr(self.view, "do_back", None)
        if asking.display:
            asking.value = ""
            self._close_filter()
        elif inner is not None and inner():
            self.redraw()
        elif self.clock.away:
            self.clock.close()
            self.redraw()
        elif len(self._stack) > 1:  # the filter is the list's: it is there when one comes back
            self._stack.pop()
            self._show_view()
        elif self._filter is not ALL or self.faults:
            self._filter, self.faults = ALL, False
            asking.value = ""
            self.redraw()
        elif self._stack[-1][0] != "overview":
            self.go("overview")

    def do_reconnect(self) -> None:
        """Do not wait for the next try."""
        self.run_worker(self.feed.run(), name="feed", group="feed", exclusive=True)

    def do_palette(self) -> None:
        """Go to anything by a few letters."""

        def answered(choice: tuple[str, str, str] | None) -> None:
            if choice is not None:
                self.follow(choice[0], choice[2])

        self.push_screen(Palette(self.tones, lambda text: find(self.shown, text)), answered)

    def follow(self, kind: str, what: str) -> None:
        """Do what was chosen in the palette."""
        if kind == "view":
            self.go(what)
        elif kind == "theme":
            self.retone(THEMES[what])
        elif kind == "key":
            self.do(what)
        else:
            self.open(kind, what)

    def retone(self, theme: Theme) -> None:
        """Show all in other colours."""
        self.tones = Tones(theme, ascii_only=self.ascii_only)
        self.theme = theme_name(theme)
        for widget in self._root.query("Surface, VirtualTable, FleetMap, Scroll"):
            widget.retone(self.tones)  # type: ignore[attr-defined]  # all of them have it
        self.redraw()
