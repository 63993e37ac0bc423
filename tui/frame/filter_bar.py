"""The line in which a filter is typed, with what is wrong with it above."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from tui.kit.surface import Surface
from tui.kit.text import clean
from tui.screens.context import ViewContext
from tui.screens.view import View
from tui.tables.filter import ALL, FilterError, parse

BURST = 3.0
"""Seconds within which keys that came together are handled: enter may overtake the last letters."""


class FilterBar(Vertical):
    """An input for the filter of all views, applied while it is typed."""

    STYLE = """
    #filters { height: auto; }
    #filter, #fault { display: none; height: 1; }
    #filter { border: none; padding: 0; background: $panel; }
    """
    """For the application's style sheet: that of a widget yields to the one of `Input`."""

    def __init__(self, context: ViewContext, view: Callable[[], View], closed: Callable[[], None]) -> None:
        """`view`: the one on the screen; `closed`: called when the line was closed."""
        super().__init__(id="filters")
        self.context, self._view, self._after = context, view, closed
        self._fault = ""
        self._kept = float("-inf")
        """When the filter was confirmed, monotonic seconds."""
        self._before = ALL
        """The filter before typing began; in force while the text has a fault."""

    def compose(self) -> ComposeResult:
        """Yield the fault and the input."""
        yield Surface(self.context.tones, id="fault")
        yield Input(
            id="filter", placeholder="part of a name, or power>600 & rack=R16 | sev>=warn", select_on_focus=False
        )

    @property
    def _entry(self) -> Input:
        return self.query_one("#filter", Input)

    @property
    def asking(self) -> bool:
        """Whether the line is open."""
        return self._entry.display

    def ask(self) -> None:
        """Open the line."""
        self._kept, self._before = float("-inf"), self.context.filter
        self._show()
        self.context.frame.redraw()

    def _show(self) -> None:
        self._entry.display = True
        self.screen.set_focus(self._entry)  # at once: what is typed behind `/` is the filter

    def fill(self, text: str) -> None:
        """Filter as if a text had been typed."""
        self._entry.value = text

    @on(Input.Changed, "#filter")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        try:
            self.context.filter = parse(event.value, self._view().FILTERED_BY)
            self._fault = ""
            if self.asking and self.context.clock() - self._kept < BURST:
                self.close()  # the last letters of a text that was confirmed already
        except FilterError as error:
            self.context.filter = self._before
            stays = "all is shown" if self._before is ALL else f"/{self._before.text} stays"
            self._fault = f"{' ' * min(error.column, 40)}^ {error.problem} ({stays})"
            self._show()  # it may have been closed before the last letter came
        fault = self.query_one("#fault", Surface)
        fault.display = bool(self._fault)
        fault.show(lambda _w, _h: [[(clean(self._fault), "crit")]])
        self.context.frame.redraw()

    def confirm(self) -> bool:
        """Close the line, unless its text has a fault; False where it is not open."""
        if not self.asking:
            return False
        self._kept = self.context.clock()
        if not self._fault:
            self.close()
        return True

    def clear(self) -> None:
        """Remove the text, and close the line."""
        self.fill("")
        if self.asking:
            self.close()

    def close(self) -> None:
        """Close the line; the filter stays."""
        self._entry.display = False
        self._fault = ""
        self.query_one("#fault", Surface).display = False
        self._after()
