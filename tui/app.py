"""The dashboard application: a frame around views, on a running aggregator.

`Top` joins objects that each do one thing: `feed` (newest state), `context.time` (which state is shown),
`navigation` (which views are open), `filter_bar`, `layout` (the lines around the view), `item_keys` and `time_keys`.
A worker runs the feed; each of its changes draws the screen once. Keys are dispatched here.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

from textual import on
from textual.actions import SkipAction
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.screen import Screen
from textual.theme import Theme as TextualTheme
from textual.widgets import Input

from tui.feed.feed import DashboardFeed
from tui.frame.filter_bar import FilterBar
from tui.frame.item_keys import ItemKeys
from tui.frame.layout import FrameLayout
from tui.frame.navigation import Navigation
from tui.frame.palette_search import find
from tui.frame.start_line import OwnAggregator
from tui.frame.terminal_input import TerminalDriver
from tui.frame.time_keys import TimeKeys
from tui.keys import KEYS, READ_ONLY, Key, help_lines
from tui.kit.text import CROSS, DASH, time_of
from tui.kit.theme import MONO, THEMES, Line, Theme, Tones
from tui.map.fleetmap import FleetMap
from tui.past.reader import Past
from tui.screens import VIEWS
from tui.screens.context import ViewContext
from tui.screens.forms import HelpDialog, Palette
from tui.screens.page import PageView
from tui.screens.view import View
from tui.state.dashboard_state import DashboardState
from tui.tables.filter import ALL
from tui.tables.table import VirtualTable
from tui.time.timebar import ACTIONS, TimeControls

LEGEND: tuple[Line, ...] = (
    [("marks before a name", "strong")],
    [("  · ok  ", "ok"), ("! WARN a ticket  ", "warn"), ("▲ CRIT a page", "crit")],
    [
        (f"  {CROSS} LOST, HUNG, OFFLINE  ", "down"),
        ("▒ STALE nothing new, NO DATA  ", "stale"),
        (f"{DASH} not read", "dim"),
    ],
)
PLAY_EVERY = 0.2
"""Seconds between two steps of playback."""
FOLLOW_EVERY = 0.1
"""Seconds between two looks at the start of our own aggregator."""
TOGETHER = 0.04
"""Seconds within which changes of the feed are drawn together."""
SETTLED_AFTER = 3.0
"""Seconds after the first picture at which all modules are loaded."""


class FeedChanged(Message):
    """The feed has a newer state."""


class Top(App[None]):
    """The application of `kilowatch top`."""

    TITLE = "kilowatch"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    Toast {{ background: $panel; color: $foreground; }}
    {FrameLayout.STYLE}
    {FilterBar.STYLE}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: over a slow line several keys come at once, and those typed behind `/` must not
        # reach the view because the filter handles its own key a moment later.
        *(Binding(key.keys, f"do('{key.action}')", show=False, priority=True) for key in KEYS),
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
        theme: str = "dark",
        ascii_only: bool = False,
        write: bool = False,
        who: str = "",
        view: str = "overview",
        settled: Callable[[], None] | None = None,
        recorded: bool = False,
        own: OwnAggregator | None = None,
    ) -> None:
        """`own`: the aggregator where our own command has started it. `settled`: called once all modules are loaded; for others see `tui.top.run_top`."""
        super().__init__()
        for each in THEMES.values():
            if each.background:
                self.register_theme(_textual(each))
        plain = "NO_COLOR" in os.environ if colour is None else not colour
        tones = Tones(MONO if plain else THEMES[theme], ascii_only=ascii_only)
        self.theme = theme_name(tones.theme)
        self.feed = DashboardFeed(url, token, self._feed_changed, clock, every)
        self._past = Past(self.feed, self._feed_changed, clock)
        self.context = ViewContext(
            self,
            self.feed,
            TimeControls(past=self._past, recorded=recorded),
            tones,
            clock=clock,
            every=every,
            who=who or _user(),
            write=write,
        )
        self.navigation = Navigation(view)
        self.filter_bar = FilterBar(self.context, lambda: self.view, self._focus_view)
        self.item_keys = ItemKeys(self, self.context, lambda: self.view)
        self.time_keys = TimeKeys(self, self.context)
        self._settled, self._own = settled, own
        self._change_posted = self._live_drawn = False
        self._drawn_at = 0.0
        self._drawn: tuple[DashboardState, int] = (DashboardState(), -1)
        """The picture that was drawn last: the state, and how many answers of the past had come."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the colours of our style sheets in a terminal's own theme."""
        return {"frame": "ansi_default", "dim": "ansi_default", "crit": "ansi_default"}

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver, with an input that survives every byte."""
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def get_default_screen(self) -> Screen[None]:
        """Return the one screen under all dialogs."""
        return Screen(id="_default")

    def compose(self) -> ComposeResult:
        """Yield the lines around the views, and all views."""
        yield from FrameLayout.above(self.context.tones)
        with Vertical(id="body"):
            for kind in VIEWS.values():
                yield kind(self.context)
        yield self.filter_bar
        yield from FrameLayout.below(self.context.tones)

    def on_mount(self) -> None:
        """Start the feed, and a slow beat: ages and countdowns move even when nothing comes."""
        self.root = self.screen
        self.frame = FrameLayout(self.root, self.context, self.navigation, self._own)
        self.show_view()
        if self._own is None:
            self.do_reconnect()
        else:
            self.run_worker(self._follow_own(self._own), name="own aggregator")
        self.run_worker(self._past.run(), name="past", group="past", exclusive=True)
        self.set_interval(1.0, self._beat)
        self.set_interval(PLAY_EVERY, self.time_keys.play)
        if self._settled is not None:
            self.set_timer(SETTLED_AFTER, self._settled)
        self.redraw()

    async def _follow_own(self, own: OwnAggregator) -> None:
        """Connect once our own aggregator serves, show its start, and end with it."""
        waits, connected = "", False
        while not own.ended:
            if own.serving and not connected:
                connected = True
                self.do_reconnect()
            if own.waits != waits:
                waits = own.waits
                self.redraw()
            await asyncio.sleep(FOLLOW_EVERY)
        self.exit()

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self.frame.view

    # Drawing.

    def _feed_changed(self) -> None:
        """Post a message; several changes before the next turn of the loop are one."""
        if not self._change_posted and self.is_running:
            self._change_posted = self.post_message(FeedChanged())

    @on(FeedChanged)
    def _draw_soon(self) -> None:
        # Readings and alerts of one tick are two messages: one picture for both; but the first at once.
        if self._live_drawn:
            self.set_timer(TOGETHER, self._draw_changes)
        else:
            self._live_drawn = self.feed.state.ready
            self._draw_changes()

    def _draw_changes(self) -> None:
        self._change_posted = False
        self.context.remember()
        self._redraw_changed()

    def _beat(self) -> None:
        """Draw the lines only: no picture changes without data, but for the countdowns on it."""
        replaying = self.context.time.replaying
        idle = self.context.clock() - self._drawn_at > 1.5
        if idle and self._drawable and self.context.shown.circuits and not replaying:
            self.redraw()
        elif replaying:  # its header and its picture are of one time, always
            self._redraw_changed()
        elif self._drawable:
            self.frame.draw()

    @property
    def _drawable(self) -> bool:
        """Whether there is a screen to draw on: not before the first, not after the last."""
        return hasattr(self, "frame") and self.is_running and self.frame.ready

    @property
    def _picture(self) -> tuple[DashboardState, int]:
        return self.context.shown, self._past.came

    def redraw(self) -> None:
        """Draw the view and the lines around it once."""
        if not self._drawable:
            return
        self._drawn_at = self.context.clock()
        self._drawn = self._picture
        with self.batch_update():
            if self._arrange():
                self.view.draw()
            self.frame.draw()

    def _redraw_changed(self) -> None:
        """Draw after a change of the feed; of a paused past time only the lines."""
        state, came = self._picture
        if self.context.time.replaying and self._drawn[0] is state and self._drawn[1] == came:
            if self._drawable:
                self._arrange()
                self.frame.draw()
        else:
            self.redraw()

    def _arrange(self) -> bool:
        """Show the widgets that the state needs, and request what the view needs now."""
        displayed = self.frame.arrange(asking=self.filter_bar.asking)
        wants, controls = self.view.wants(), self.context.time
        self.feed.want(wants)
        controls.follow(self.feed.state, wants.documents)
        if controls.early is not None:
            controls.early = None
            first, last = controls.ends(self.feed.state)
            where = time_of(first, last, utc=self.context.utc)
            self.notify(f"nothing is stored before {where}: that is shown", timeout=5)
        return displayed

    def request_data(self) -> None:
        """Request what the view needs now, and redraw."""
        self.feed.want(self.view.wants())
        self.redraw()

    def on_resize(self) -> None:
        """Arrange the lines again, once the new size is known."""
        self.call_after_refresh(self.redraw)

    @on(VirtualTable.RowHighlighted)
    @on(FleetMap.GpuHighlighted)
    def _cursor_moved(self) -> None:
        if self._drawable:
            self.frame.draw_footer()

    # Navigation.

    def open(self, kind: str, subject: str) -> None:
        """Open the page of a thing."""
        self.navigation.open(kind, subject)
        self.show_view()

    def go(self, name: str, filter_text: str = "") -> None:
        """Go to a view; with a text, filter it."""
        self.navigation.go(name)
        self.show_view()
        if filter_text:
            self.filter_bar.fill(filter_text)

    def show_view(self) -> None:
        """Show the view that navigation names."""
        view = self.frame.show_view()
        if self.navigation.current[1] and isinstance(view, PageView):
            view.page.top = 0
        first = view.first()
        if first is not None and self.screen is self.root:
            self.root.set_focus(first)  # at once: the next key may be for it
        self.request_data()
        self.call_after_refresh(self.redraw)

    def _focus_view(self) -> None:
        first = self.view.first()
        if first is not None:
            self.root.set_focus(first)
        self.redraw()

    # Keys.

    def action_do(self, name: str) -> None:
        """Run the action of a key, or leave it to the widget that has the focus."""
        if isinstance(self.focused, Input) and name not in {"back", "interrupt"}:
            if name != "open" or self.screen is not self.root or not self.filter_bar.confirm():
                raise SkipAction
        elif not self.do(name):
            raise SkipAction

    def do(self, name: str) -> bool:
        """Run an action, of the view or of the frame; False where it is not available."""
        if self.screen is not self.root:
            return False
        if name.startswith("view_"):
            self.go([kind.NAME for kind in VIEWS.values()][int(name.removeprefix("view_")) - 1])
            return True
        if name == "mark" and self.context.time.open:  # the same key
            name = "play"
        key = next(each for each in KEYS if each.action == name)
        method = self._method(key)
        if method is None:
            return False
        if key.writes and not self.context.write:
            self.notify(READ_ONLY, timeout=3)
        else:
            method()
        return True

    def _method(self, key: Key) -> Callable[[], Any] | None:
        """Return what a key does here: `do_<action>` of the view, else of the frame; None for nothing."""
        if key.action in ACTIONS:
            return lambda: self.time_keys.act(ACTIONS[key.action])
        name, view = f"do_{key.action}", self.view
        found: Callable[[], Any] | None = getattr(view, name, None)
        if key.action == "back" or (found is None and view.allows(key)):
            owners = (self, self.time_keys, self.item_keys)
            found = next(getattr(each, name) for each in owners if hasattr(each, name))
        return found

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard, and show it."""
        self.item_keys.copy(text)

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
        title = f"Help: {self.view.TITLE}   (/ filter: {', '.join(self.view.FILTERED_BY)[:60]})"
        write = self.context.write
        self.push_screen(
            HelpDialog(self.context.tones, title, lambda width: [*help_lines(keys, width, write=write), *LEGEND])
        )

    def do_back(self) -> None:
        """Close what is open, then go back, then clear the filter. Never quits."""
        inner = getattr(self.view, "do_back", None)
        if self.filter_bar.asking:
            self.filter_bar.clear()
        elif inner is not None and inner():
            self.redraw()
        elif self.context.time.away:
            self.context.time.close()
            self.redraw()
        elif self.navigation.back():  # the filter is the list's: it is there when one comes back
            self.show_view()
        elif self.context.filter is not ALL or self.context.faults:
            self.context.filter, self.context.faults = ALL, False
            self.filter_bar.clear()
            self.redraw()
        elif self.navigation.current[0] != "overview":
            self.go("overview")

    def do_filter(self) -> None:
        """Ask for a filter."""
        self.filter_bar.ask()

    def do_faults(self) -> None:
        """Show only rows with a fault, or all."""
        self.context.faults = not self.context.faults
        self.redraw()

    def do_utc(self) -> None:
        """Show UTC or local time."""
        self.context.utc = not self.context.utc
        self.redraw()

    def do_step_back(self) -> None:
        """Show the frame before; on a page, the thing before."""
        self._step(-1)

    def do_step_on(self) -> None:
        """Show the next frame; on a page, the next thing."""
        self._step(1)

    def _step(self, by: int) -> None:
        view = self.view
        paged = isinstance(view, PageView) and not self.context.time.open
        name = view.neighbour(by) if paged else None  # type: ignore[attr-defined]  # a PageView
        if name is None:
            self.time_keys.step(by)
        elif name != view.subject:
            self.navigation.replace(name)
            self.show_view()

    def do_reconnect(self) -> None:
        """Connect, without waiting for the next try."""
        self.run_worker(self.feed.run(), name="feed", group="feed", exclusive=True)

    def do_palette(self) -> None:
        """Go to anything by a few letters."""

        def answered(choice: tuple[str, str, str] | None) -> None:
            if choice is not None:
                self._follow(choice[0], choice[2])

        self.push_screen(Palette(self.context.tones, lambda text: find(self.context.shown, text)), answered)

    def _follow(self, kind: str, subject: str) -> None:
        """Do what was chosen in the palette."""
        if kind == "view":
            self.go(subject)
        elif kind == "theme":
            self._use_theme(THEMES[subject])
        elif kind == "key":
            self.do(subject)
        else:
            self.open(kind, subject)

    def _use_theme(self, theme: Theme) -> None:
        tones = self.context.tones = Tones(theme, ascii_only=self.context.tones.ascii_only)
        self.theme = theme_name(theme)
        for widget in self.root.query("Surface, VirtualTable, FleetMap, Scroll"):
            widget.retone(tones)  # type: ignore[attr-defined]  # all of them have it
        self.redraw()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def theme_name(theme: Theme) -> str:
    """Return Textual's name for one of our themes."""
    return f"kilowatch-{theme.name}" if theme.background else "ansi-dark"


def _textual(theme: Theme) -> TextualTheme:
    """Return our theme for Textual's own widgets: inputs, toasts, frames."""
    return TextualTheme(
        name=f"kilowatch-{theme.name}",
        primary=theme.tones["bar"],
        background=theme.background,
        surface=theme.background,
        panel=theme.panel,
        foreground=theme.tones[""],
        dark=theme.dark,
        variables={"frame": theme.tones["frame"], "dim": theme.tones["dim"], "crit": theme.tones["bar_crit"]},
    )
