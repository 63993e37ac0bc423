"""The keys that move in time: the time bar, a time that is typed, playback, and how much history is shown."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App

from telemetry.text import duration
from tui.screens.compare_times import TimeForm
from tui.screens.context import SPANS, ViewContext
from tui.state.dashboard_state import DashboardState
from tui.time.timebar import TimeControls


class TimeKeys:
    """Actions on the time that all views show."""

    def __init__(self, app: App[None], context: ViewContext) -> None:
        self._app, self._context = app, context

    def act(self, action: Callable[[TimeControls, DashboardState, float], object]) -> None:
        """Run an action of the time bar."""
        context = self._context
        action(context.time, context.feed.state, context.clock())
        context.frame.redraw()

    def play(self) -> None:
        """Go on where the past is played."""
        context = self._context
        if context.time.turn(context.clock(), context.feed.state):
            context.frame.redraw()

    def step(self, by: int) -> None:
        """Show another frame of the past."""
        self._context.time.step(by, self._context.feed.state)
        self._context.frame.redraw()

    def do_moment(self) -> None:
        """Ask for a time, and show it."""
        context = self._context

        def answered(at: int | None) -> None:
            if at is not None:
                context.time.to_moment(at, context.feed.state)
                context.frame.redraw()

        form = TimeForm.to_show(context.tones, lambda: context.newest.at, utc=context.utc)
        self._app.push_screen(form, answered)

    def do_longer(self) -> None:
        """Show more history."""
        self._change_span(1)

    def do_shorter(self) -> None:
        """Show less history."""
        self._change_span(-1)

    def _change_span(self, by: int) -> None:
        """Show more or less history: on the time bar while it is open, else in charts."""
        context = self._context
        if context.time.open:
            self._app.notify(context.time.widen(by), timeout=2)
            context.frame.redraw()
            return
        context.span_index = max(0, min(context.span_index + by, len(SPANS) - 1))
        self._app.notify(f"history of {duration(context.span)}", timeout=2)
        context.frame.request_data()
