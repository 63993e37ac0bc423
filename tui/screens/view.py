"""The base of all screens below the header.

A view declares what it `wants` from the aggregator, and draws itself once per frame (`draw`) from
`self.context.shown`. A key calls its method `do_<action>` (see `tui.keys`), or the frame's where
`FRAME_KEYS` names the action. A view holds a cursor and a sort order, never data.

Views are widgets that are shown one at a time, not Textual screens: `switch_mode` took 150 to 450 ms
(8.2, a map or a table of 200 rows) where showing another widget takes one refresh; and a dialog or a
burst of keys then has one screen below it whatever the view.
"""

from __future__ import annotations

from typing import Any, ClassVar

from textual.containers import Vertical
from textual.widget import Widget

from tui.feed.wants import Wants
from tui.keys import KEYS, Key
from tui.screens.context import ViewContext
from tui.tables.fields import GPU_KEYS
from tui.tables.filter import Filter

COMPARE_KEYS = frozenset({"compare", "then"})
COPY_KEYS = frozenset({"copy", "copy_json"})
FILTER_KEYS = frozenset({"filter", "faults"})


class View(Vertical):
    """A screen below the header."""

    NAME: ClassVar[str] = ""
    TITLE: ClassVar[str] = ""
    FRAME_KEYS: ClassVar[frozenset[str]] = frozenset()
    """Actions of the frame that make sense in this view: copy, compare, filter."""
    FILTERED_BY: ClassVar[tuple[str, ...]] = GPU_KEYS
    """Keys that a filter may name here."""
    DEFAULT_CSS = "View { height: 1fr; display: none; }"

    def __init__(self, context: ViewContext) -> None:
        super().__init__(id=f"view-{self.NAME}")
        self.context = context
        self.subject = ""
        """A node's name, a UUID; empty for a list."""

    @property
    def wanted(self) -> Filter:
        """The filter, as far as this view understands its keys."""
        return self.context.filter_for(self.FILTERED_BY)

    @property
    def faded(self) -> bool:
        """Whether the view shows data that is outdated."""
        return self.context.faded(self.wants())

    def wants(self) -> Wants:
        """Return what to request from the aggregator while this view is shown."""
        return Wants(nodes=())

    def draw(self) -> None:
        """Show the state once."""

    def first(self) -> Widget | None:
        """Return the widget that has the keys when the view is opened."""
        return None

    def place(self) -> str:
        """Return the place of the cursor, for the footer."""
        return ""

    def title(self) -> str:
        """Return the name in the path of the header."""
        return self.subject or self.TITLE

    def chosen(self) -> tuple[str, str] | None:
        """Return the thing under the cursor: (`gpu`, UUID), (`node`, name), (`circuit`, name)."""
        return None

    def record(self) -> Any:
        """Return the thing under the cursor, to be copied as JSON."""
        return None

    def table(self) -> list[dict[str, Any]]:
        """Return all rows that are listed, for export."""
        return []

    def legal(self) -> list[Key]:
        """Return the keys that do something here."""
        return [key for key in KEYS if self.allows(key) or hasattr(self, f"do_{key.action}")]

    def allows(self, key: Key) -> bool:
        """Return whether a key of the frame works here."""
        return key.everywhere or key.action in self.FRAME_KEYS
