"""A page about one thing: it scrolls, and `[` and `]` go to the one before and the next."""

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
from tui.screens.view import View
from tui.theme import Line


class Scroll(Surface, can_focus=True):
    """A drawing that is longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "by(-1)", show=False), Binding("down,j", "by(1)", show=False),
        Binding("pageup", "by(-20)", show=False), Binding("pagedown", "by(20)", show=False),
        Binding("home,g", "by(-100000)", show=False), Binding("end,G", "by(100000)", show=False),
    ]  # fmt: skip
    top = 0

    class Stepped(Message):
        """A key moved it, or would have."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def action_by(self, lines: int) -> None:
        """Move on by lines, not beyond the end."""
        self.post_message(self.Stepped(lines))
        self.top = max(0, min(self.top + lines, len(self.lines) - self.size.height))
        self.refresh()

    def on_mouse_scroll_down(self) -> None:
        """Move on."""
        self.action_by(3)

    def on_mouse_scroll_up(self) -> None:
        """Move back."""
        self.action_by(-3)

    def render_line(self, y: int) -> Strip:
        """Paint one line of the part that is seen."""
        return super().render_line(y + max(0, min(self.top, len(self.lines) - self.size.height)))


class PageView(View):
    """One thing."""

    DEFAULT_CSS = "PageView Scroll { padding: 0 0; }"

    def compose(self) -> ComposeResult:
        """One drawing."""
        yield Scroll(self.top.tones, id=f"{self.NAME}-page")

    def on_mount(self) -> None:
        """Keep hold of it."""
        self.page = self.query_one(Scroll)

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Draw it."""
        raise NotImplementedError

    def neighbours(self) -> list[str]:
        """Things of the same kind, in order."""
        return []

    def first(self) -> Widget:
        """The drawing."""
        return self.page

    def draw(self) -> None:
        """Show the board."""
        self.page.show(self.lines, faded=self.top.faded)

    def place(self) -> str:
        """How much is above and below."""
        hidden = len(self.page.lines) - self.page.size.height
        more = hidden - self.page.top
        return f"↓ {counted(more, 'more line')}" if more > 0 else ""

    def walk(self, by: int) -> bool:
        """Go to the next or the one before."""
        names = self.neighbours()
        if self.subject not in names:
            return False
        place = names.index(self.subject) + by
        if 0 <= place < len(names):
            self.subject, self.page.top = names[place], 0
            self.top.rewant()
        return True

    def do_longer(self) -> None:
        """A longer span of time."""
        self.top.change_span(1)

    def do_shorter(self) -> None:
        """A shorter one."""
        self.top.change_span(-1)

    def do_copy(self) -> None:
        """Copy its name."""
        self.top.copy_chosen()

    def do_copy_json(self) -> None:
        """Copy all that is known of it."""
        self.top.copy_record()
