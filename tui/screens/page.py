"""A page about one thing, which scrolls; `[` and `]` go to the previous thing and the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from telemetry.text import counted
from tui.kit.surface import Surface
from tui.kit.text import clean
from tui.kit.theme import Line
from tui.screens.view import COPY_KEYS, View


class Scroll(Surface, can_focus=True):
    """A drawing that may be longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "by(-1)", show=False), Binding("down,j", "by(1)", show=False),
        Binding("pageup", "by(-20)", show=False), Binding("pagedown", "by(20)", show=False),
        Binding("home,g", "by(-100000)", show=False), Binding("end,G", "by(100000)", show=False),
    ]  # fmt: skip
    top = 0
    """The first line that is seen."""

    class Stepped(Message):
        """A key moved the page by lines, or would have."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def action_by(self, lines: int) -> None:
        """Scroll by lines, not beyond the end."""
        self.post_message(self.Stepped(lines))
        self.top = max(0, min(self.top + lines, len(self.lines) - self.size.height))
        self.refresh()

    def on_mouse_scroll_down(self) -> None:
        """Scroll down."""
        self.action_by(3)

    def on_mouse_scroll_up(self) -> None:
        """Scroll up."""
        self.action_by(-3)

    def render_line(self, y: int) -> Strip:
        """Paint a line of the part that is seen."""
        return super().render_line(y + max(0, min(self.top, len(self.lines) - self.size.height)))


class PageView(View):
    """A view that is one scrolling drawing about `subject`."""

    FRAME_KEYS = COPY_KEYS
    DEFAULT_CSS = "PageView Scroll { padding: 0 0; }"

    def compose(self) -> ComposeResult:
        """Yield the drawing."""
        yield Scroll(self.context.tones, id=f"{self.NAME}-page")

    def on_mount(self) -> None:
        """Find the drawing."""
        self.page = self.query_one(Scroll)

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Return the lines of the page."""
        raise NotImplementedError

    def title(self) -> str:
        """Return the subject."""
        return clean(self.subject) or self.TITLE

    def chosen(self) -> tuple[str, str] | None:
        """Return the subject and its kind; None for a page without a subject."""
        return (self.NAME, self.subject) if self.subject else None

    def neighbours(self) -> list[str]:
        """Return the subjects that `[` and `]` go through, in order."""
        return []

    def first(self) -> Widget:
        """Return the drawing."""
        return self.page

    def draw(self) -> None:
        """Draw the page."""
        self.page.show(self.lines, faded=self.faded)

    def place(self) -> str:
        """Return how much is below."""
        hidden = len(self.page.lines) - self.page.size.height
        more = hidden - self.page.top
        return f"↓ {counted(more, 'more line')}" if more > 0 else ""

    def neighbour(self, by: int) -> str | None:
        """Return the next or previous subject, this one at either end; None where it has none."""
        names = self.neighbours()
        if self.subject not in names:
            return None
        place = names.index(self.subject) + by
        return names[place] if 0 <= place < len(names) else self.subject
