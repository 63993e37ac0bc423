"""Time: the screen stands still, shows what was, or more of it in charts."""

from __future__ import annotations

from telemetry.text import duration
from tui.frame.drawing import Drawing
from tui.screens.history import SPANS
from tui.screens.page import PageView
from tui.screens.time_form import TimeForm
from tui.state.circuit_loads import Past, joined


class Times(Drawing):
    """The keys of time; `tui.time.timebar` knows what is shown."""

    def circuit_past(self, name: str) -> Past:
        """Watts of a circuit up to the time that is shown: times in ns, and values."""
        shown = self.shown.at
        own = self._loads.of(name, shown or 2**63)
        if self.clock.past is None or not shown:
            return own
        return joined(own, self.clock.past.load(name, shown, self.span), shown, self.span)

    def do_pause(self) -> None:
        """Freeze the screen, not the data."""
        self.clock.pause(self.feed.board, self._clock())
        self.redraw()

    def do_time(self) -> None:
        """Open or close the time bar."""
        self.clock.toggle()
        self.redraw()

    def do_live(self) -> None:
        """Back to now."""
        self.clock.live()
        self.redraw()

    def _walk_or_step(self, by: int) -> None:
        view = self.view
        if not self.clock.open and isinstance(view, PageView) and view.walk(by):
            self._stack[-1] = (view.NAME, view.subject)
            self.redraw()
            return
        self.clock.step(by, self.feed.board)
        self.redraw()

    def do_step_back(self) -> None:
        """The frame before; on a page, the thing before."""
        self._walk_or_step(-1)

    def do_step_on(self) -> None:
        """The next."""
        self._walk_or_step(1)

    def do_jump_back(self) -> None:
        """A minute back."""
        self.clock.jump(-60, self.feed.board)
        self.redraw()

    def do_jump_on(self) -> None:
        """A minute on."""
        self.clock.jump(60, self.feed.board)
        self.redraw()

    def do_moment(self) -> None:
        """To a time that is written down."""

        def answered(at: int | None) -> None:
            if at is not None:
                self.clock.to_moment(at, self.feed.board)
                self.redraw()

        self.push_screen(TimeForm(self.tones, self.feed.board.at, utc=self.utc), answered)

    def do_play(self) -> None:
        """Let the past go by, or stand still; in the time bar."""
        if self.clock.open:
            self.clock.play(self._clock(), self.feed.board)
            self.redraw()

    def _turn(self) -> None:
        """Go on where the past is played."""
        if self.clock.turn(self._clock(), self.feed.board):
            self.redraw()

    def do_longer(self) -> None:
        """More of the past on the bar, where a view has no charts."""
        self.change_span(1)

    def do_shorter(self) -> None:
        """Less."""
        self.change_span(-1)

    def do_alert_back(self) -> None:
        """To the alert before."""
        self.clock.to_alert(self.feed.board, -1)
        self.redraw()

    def do_alert_on(self) -> None:
        """To the next alert."""
        self.clock.to_alert(self.feed.board, 1)
        self.redraw()

    def change_span(self, by: int) -> None:
        """Show more or less history: on the bar while it is open, else in charts."""
        if self.clock.open:
            self.notify(self.clock.widen(by), timeout=2)
            self.redraw()
            return
        self._span = max(0, min(self._span + by, len(SPANS) - 1))
        self.notify(f"history of {duration(self.span)}", timeout=2)
        self.rewant()

    def do_utc(self) -> None:
        """UTC or local time."""
        self.utc = not self.utc
        self.redraw()
