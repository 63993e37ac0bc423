"""What a view is: one screen below the header.

A view says what it wants from the aggregator (`wants`), and draws itself once per frame (`draw`)
from `self.top.shown`, the board that the screen shows. A key calls `do_<action>` of the view, see
`tui.keys`. Views keep a cursor and a sort, never data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Vertical
from textual.widget import Widget

from tui.feed.wants import Wants
from tui.keys import KEYS, Key

if TYPE_CHECKING:
    from tui.app import Top


class View(Vertical):
    """One screen."""

    NAME: ClassVar[str] = ""
    TITLE: ClassVar[str] = ""
    DEFAULT_CSS = "View { height: 1fr; display: none; }"

    def __init__(self, top: Top) -> None:
        super().__init__(id=f"view-{self.NAME}")
        self.top = top
        self.subject = ""
        """What it is about: a node's name, a UUID; empty for a list."""

    def wants(self) -> Wants:
        """What to ask the aggregator for while this is shown."""
        return Wants(nodes=())

    def draw(self) -> None:
        """Show the board, once."""

    def first(self) -> Widget | None:
        """What has the keys when the view is opened."""
        return None

    def place(self) -> str:
        """Where the cursor is, for the footer."""
        return ""

    def title(self) -> str:
        """What stands in the path of the header."""
        return self.subject or self.TITLE

    def chosen(self) -> tuple[str, str] | None:
        """What is under the cursor: (`gpu`, UUID), (`node`, name), (`circuit`, name)."""
        return None

    def record(self) -> Any:
        """What is under the cursor, for copying as JSON."""
        return None

    def table(self) -> list[dict[str, Any]]:
        """All rows that are listed, for export."""
        return []

    def legal(self) -> list[Key]:
        """The keys that do something here."""
        return [key for key in KEYS if key.everywhere or hasattr(self, f"do_{key.action}")]
