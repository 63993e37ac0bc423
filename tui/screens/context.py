"""The state of the dashboard that views read, and the requests that they make of the frame.

A view has one `ViewContext` and nothing else of the application: no view imports `tui.app`, and a test
of a view needs no application.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tui.feed.connection import ConnectionState
from tui.feed.feed import DashboardFeed
from tui.feed.wants import Wants
from tui.kit.theme import Tones
from tui.state.circuit_loads import Loads, Past, joined
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.tables.filter import ALL, Filter, FilterError, parse
from tui.time.screen_time import FRESH, ScreenTime, countdown_now
from tui.time.timebar import TimeControls

SPANS = (60, 300, 900, 3600, 21_600, 86_400)
"""Seconds of history that charts can show."""


class DashboardFrame(Protocol):
    """Requests of a view to the application around it."""

    def redraw(self) -> None:
        """Draw the view and the lines around it once."""

    def request_data(self) -> None:
        """Request what the view needs now, and redraw."""

    def open(self, kind: str, subject: str) -> None:
        """Open the page of a thing."""

    def go(self, name: str, filter_text: str = "") -> None:
        """Go to a view; with a text, filter it."""

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard, and show it."""


class ViewContext:
    """State that all views share: readings, time, filter, compare tray and settings."""

    def __init__(
        self,
        frame: DashboardFrame,
        feed: DashboardFeed,
        time: TimeControls,
        tones: Tones,
        *,
        clock: Callable[[], float],
        every: float,
        who: str,
        write: bool,
    ) -> None:
        self.frame, self.feed, self.time, self.tones = frame, feed, time, tones
        self.who, self.write = who, write
        self.utc, self.faults = True, False
        self.filter = ALL
        self.tray: list[tuple[str, str]] = []
        """GPUs or nodes to compare, as (kind, name)."""
        self.span_index = SPANS.index(900)
        self.clock = clock
        """Monotonic seconds."""
        self._every = every
        self._loads = Loads()

    @property
    def newest(self) -> DashboardState:
        """The newest state that the feed has."""
        return self.feed.state

    @property
    def shown(self) -> DashboardState:
        """The state on the screen: the newest, a paused or a past one."""
        return self.time.state(self.feed.state)

    def faded(self, wants: Wants) -> bool:
        """Whether a view that wants this shows data that is outdated, or not yet what was requested."""
        if self.time.replaying:
            return self.time.loading
        if self.feed.connection.state in {ConnectionState.LOST, ConnectionState.REFUSED}:
            return True
        newest = self.feed.state  # all GPUs may be from when another view last wanted them
        age = (newest.at - newest.gpus_at) / 1e9
        return wants.nodes is None and len(newest.gpus) > 0 and age > max(FRESH, 2.5 * self._every)

    @property
    def moment(self) -> ScreenTime:
        """The time that the screen shows."""
        return ScreenTime(
            self.clock(),
            self.time.paused,
            self.time.words(self.feed.state.at, utc=self.utc),
            self.utc,
            self.time.loading,
            self._every,
        )

    @property
    def since(self) -> Now:
        """The time from which countdowns count."""
        return countdown_now(self.shown, self.feed.connection, self.moment)

    @property
    def span(self) -> int:
        """Seconds of history in charts."""
        return SPANS[self.span_index]

    def filter_for(self, keys: Sequence[str]) -> Filter:
        """Return the filter for a table with these keys; `ALL` where it names others."""
        try:
            return parse(self.filter.text, keys)
        except FilterError:
            return ALL

    def remember(self) -> None:
        """Add the newest state to the recent frames and to the loads of circuits."""
        self.time.recent.add(self.feed.state)
        self._loads.add(self.feed.state)

    def circuit_load(self, name: str) -> Past:
        """Return the load of a circuit up to the time that is shown: ns since 1970, and watts."""
        shown = self.shown.at
        own = self._loads.of(name, shown or 2**63)
        if self.time.past is None or not shown:
            return own
        return joined(own, self.time.past.load(name, shown, self.span), shown, self.span)
