"""The keys, in a window over the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.palette import PANEL
from tui.text import CROSS

KEYS = (
    ("q", "quit"),
    ("? F1", "this help"),
    ("tab", "other table"),
    ("arrows j k", "move; PgUp PgDn, g G too"),
    ("enter", "only this node's GPUs"),
    ("esc", "back: filter, then node"),
    ("/", "filter by node, UUID or model"),
    ("s", "sort by the next column"),
    ("p", "pause the screen, not the data"),
)
LEGEND = (
    ("· ok", "ok"),
    ("! WARN: a ticket", "warn"),
    ("▲ CRIT: a page", "crit"),
    (f"{CROSS} lost, hung or off", "down"),
    ("▒ STALE: nothing new came", "stale"),
    ("— not read, not zero", "dim"),
)


class HelpScreen(ModalScreen[None]):
    """Lists the keys; any of escape, q and ? closes it."""

    CSS = f"""
    HelpScreen {{ align: center middle; }}
    HelpScreen Static {{ width: 46; height: auto; padding: 0 1; background: {PANEL}; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "dismiss", show=False)
    ]

    def __init__(self, tones: Mapping[str, Style]) -> None:
        super().__init__()
        self._tones = tones

    def compose(self) -> ComposeResult:
        """One text."""
        text = Text("Keys\n", self._tones["strong"])
        for key, word in KEYS:
            text.append(f"{key:>11}  ", self._tones["key"])
            text.append(f"{word}\n", self._tones[""])
        text.append("What stands before a name\n", self._tones["strong"])
        for mark, tone in LEGEND:
            text.append(f"  {mark}\n", self._tones[tone])
        yield Static(text)
