"""A table that renders only its visible rows: ten thousand cost as much as thirty."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.kit.painted import painted
from tui.kit.theme import Line, Tones
from tui.tables.listing import Listing


class VirtualTable(Widget, can_focus=True):
    """Shows a `Listing` by the Line API: a line of titles, then rows."""

    DEFAULT_CSS = "VirtualTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "end(-1)", show=False),
        Binding("end,G", "end(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class RowSelected(Message):
        """A row was opened."""

    class RowHighlighted(Message):
        """The cursor is on another row."""

    def __init__(self, tones: Tones, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.tones = tones
        self.faded = False
        """Whether the data is outdated, and drawn faded."""
        self._listing: Listing[Any] | None = None
        self._top = 0
        self.cursor = 0
        self._cursor_key: str | None = None

    @property
    def count(self) -> int:
        """Rows that are listed."""
        return 0 if self._listing is None else len(self._listing.order)

    @property
    def key(self) -> str | None:
        """Name of the row under the cursor."""
        return self._listing.key(self.cursor) if self._listing and self.count else None

    def show(self, listing: Listing[Any], *, faded: bool = False) -> None:
        """Show another listing; the cursor stays on its row, if that is listed."""
        self._listing, self.faded = listing, faded
        if self._cursor_key is not None:
            self.cursor = listing.places.get(self._cursor_key, self.cursor)
        self._settle()

    def retone(self, tones: Tones) -> None:
        """Show the same in another theme."""
        self.tones = tones
        self.refresh()

    def select(self, key: str) -> bool:
        """Put the cursor on a row; False when it is not listed."""
        place = None if self._listing is None else self._listing.places.get(key)
        if place is None:
            self._cursor_key = key
            return False
        self._go(place)
        return True

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by screens."""
        self._go(self.cursor + by * max(1, self.size.height - 2))

    def action_end(self, side: int) -> None:
        """Move the cursor to the first or last row."""
        self._go(0 if side < 0 else self.count - 1)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.key is not None:
            self.post_message(self.RowSelected())

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click opens the row."""
        place = self._top + event.y - 1
        if event.y > 0 and place < self.count:
            self._go(place)
            if event.chain > 1:
                self.action_choose()

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down."""
        self._go(self.cursor + 3)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up."""
        self._go(self.cursor - 3)

    def on_focus(self) -> None:
        """Draw the cursor as active."""
        self.refresh()
        self.post_message(self.RowHighlighted())

    def on_blur(self) -> None:
        """Draw the cursor as idle."""
        self.refresh()

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self._settle()

    def render_line(self, y: int) -> Strip:
        """Render a line: the titles, a row, or blank."""
        width, listing = self.size.width, self._listing
        place = self._top + y - 1
        if listing is None or width <= 0:
            return self.tones.strip((), width)
        if y == 0:
            return self._strip(listing.head(width), "")
        if self.count == 0 and y == 1:
            return self._strip(listing.empty(), "")
        if place >= self.count:
            return self.tones.strip((), width)
        under = ""
        if place == self.cursor:
            under = "cursor" if self.has_focus else "cursor_idle"
        return self._strip(listing.line(place, width), under)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render the visible part."""
        return painted(self, crop, super().render_lines)

    def _strip(self, line: Line, under: str) -> Strip:
        return self.tones.strip(line, self.size.width, under, faded=self.faded)

    def _go(self, place: int) -> None:
        if self.count:
            self.cursor = max(0, min(place, self.count - 1))
            self._cursor_key = self.key
            self._settle()
            self.post_message(self.RowHighlighted())

    def _settle(self) -> None:
        """Keep the cursor within the rows, and the rows around the cursor."""
        self.cursor = max(0, min(self.cursor, self.count - 1))
        room = max(1, self.size.height - 1)
        self._top = min(self._top, self.cursor, max(0, self.count - room))
        self._top = max(self._top, self.cursor - room + 1, 0)
        self.refresh()
