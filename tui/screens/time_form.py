"""A small window for a time to go to."""

from __future__ import annotations

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Label

from tui.screens.forms import Dialog
from tui.screens.then import then_of
from tui.theme import Tones

EXAMPLES = "18:02, 18:02:10, -10m or 2026-11-20 18:02"


class TimeForm(Dialog):
    """Gives ns since 1970."""

    def __init__(self, tones: Tones, newest: int, *, utc: bool) -> None:
        super().__init__(tones, f"To a time ({'UTC' if utc else 'local'})")
        self._newest, self._utc = newest, utc

    def compose(self) -> ComposeResult:
        """One line to write in."""
        with self.window():
            yield Input(placeholder=EXAMPLES, id="when")
            yield Label("", id="wrong", classes="fault")
            yield Label("⏎ go   esc cancel")

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        at = then_of(event.value, self._newest, utc=self._utc)
        if at is None:
            said = f"{event.value[:40]!r} is no time that has been. Write {EXAMPLES}."
            self.query_one("#wrong", Label).update(Text(said))
        else:
            self.dismiss(at)
