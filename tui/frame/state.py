"""What the frame knows: the feed, when and what the screen shows, where the user is."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.message import Message
from textual.screen import Screen
from textual.theme import Theme as TextualTheme

from tui.feed.feed import DashboardFeed
from tui.feed.line import ConnectionState
from tui.kit.surface import Surface
from tui.past.reader import Past
from tui.screens.history import SPANS
from tui.screens.view import View
from tui.state.circuit_loads import Loads
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.tables.filter import ALL
from tui.theme import MONO, THEMES, Theme, Tones
from tui.time.screen_time import FRESH, ScreenTime, countdown_now
from tui.time.timebar import TimeControls


class Changed(Message):
    """The feed has something new."""


class State(App[None]):
    """What all parts of the frame share."""

    _root: Screen[Any]
    """The one under all dialogs."""
    _surfaces: dict[str, Surface]
    """The lines around the views, by selector."""

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
    ) -> None:
        super().__init__()
        self.url, self.write = url, write
        self._settled = settled
        """Called once all is loaded."""
        self.who = who or _user()
        plain = "NO_COLOR" in os.environ if colour is None else not colour
        self._clock, self._every = clock, every
        self.feed = DashboardFeed(url, token, self._tell, clock, every)
        self.ascii_only = ascii_only
        for each in THEMES.values():
            if each.background:
                self.register_theme(_textual(each))
        self.tones = Tones(MONO if plain else THEMES[theme], ascii_only=ascii_only)
        self.theme = theme_name(self.tones.theme)
        self.clock = TimeControls(past=Past(self.feed, self._tell, clock), recorded=recorded)
        self.utc, self.faults = True, False
        self._filter = ALL
        self._fault = ""
        self._span = SPANS.index(900)
        self._told = self._laid_out = self._live_drawn = False
        self._drawn = 0.0
        self._pictured: tuple[DashboardState, int] = (DashboardState(), -1)
        """What was drawn last, but for the lines around it."""
        self._stack: list[tuple[str, str]] = [(view, "")]
        self.tray: list[tuple[str, str]] = []
        self._loads = Loads()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of our style sheets in a terminal's own theme."""
        return {"frame": "ansi_default", "dim": "ansi_default", "crit": "ansi_default"}

    def get_default_screen(self) -> Screen[None]:
        """The one screen under all dialogs."""
        return Screen(id="_default")

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self._root.query_one(f"#view-{self._stack[-1][0]}", View)

    @property
    def shown(self) -> DashboardState:
        """What the screen shows: the newest, or what was."""
        return self.clock.board(self.feed.board)

    @property
    def faded(self) -> bool:
        """Whether what is shown is no longer true, or not what was asked for."""
        if self.clock.replaying:
            return self.clock.loading
        return self._behind or self.feed.line.state in {
            ConnectionState.LOST,
            ConnectionState.REFUSED,
        }

    @property
    def _behind(self) -> bool:
        """Whether the view shows all GPUs, and those that are here are from when another last did."""
        board = self.feed.board
        age = (board.at - board.gpus_at) / 1e9
        old = len(board.gpus) > 0 and age > max(FRESH, 2.5 * self._every)
        return old and self.view.wants().nodes is None

    @property
    def moment(self) -> ScreenTime:
        """When the screen is."""
        board = self.feed.board
        return ScreenTime(
            self._clock(), self.clock.paused, self.clock.words(board.at, utc=self.utc), self.utc,
            self.clock.loading, self._every,
        )  # fmt: skip

    @property
    def since(self) -> Now:
        """From when countdowns count."""
        return countdown_now(self.shown, self.feed.line, self.moment)

    @property
    def span(self) -> int:
        """Seconds of history in charts."""
        return SPANS[self._span]

    @property
    def _standing(self) -> bool:
        """Whether there is a screen to draw on: not before the first, not after the last."""
        return self._laid_out and self.is_running and self._surfaces["#footer"].is_attached

    def _tell(self) -> None:
        """Called by the feed; several changes before the next turn of the loop are one."""
        if not self._told and self.is_running:
            self._told = self.post_message(Changed())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def theme_name(theme: Theme) -> str:
    """What Textual calls a theme of ours."""
    return f"kilowatch-{theme.name}" if theme.background else "ansi-dark"


def _textual(theme: Theme) -> TextualTheme:
    """Our theme for Textual's own widgets: inputs, toasts, frames."""
    foreground = theme.tones[""]
    return TextualTheme(
        name=f"kilowatch-{theme.name}", primary=theme.tones["bar"], background=theme.background,
        surface=theme.background, panel=theme.panel, foreground=foreground, dark=theme.dark,
        variables={"frame": theme.tones["frame"], "dim": theme.tones["dim"],
                   "crit": theme.tones["bar_crit"]},
    )  # fmt: skip
