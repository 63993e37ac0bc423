"""The colours: what each tone of voice looks like, with and without colour.

Colour is never the only channel: every state has a glyph and a word too. Red is for "act now"
alone, and a busy GPU is not red. The values were checked for contrast on #121212 and for distance
under simulated colour blindness.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style

BACKGROUND = "#121212"
PANEL = "#1c232b"

_COLOURED: dict[str, str] = {
    "": "#d6dbe0",
    "strong": "bold #f5f5f5",
    "dim": "#8a94a0",
    "head": "bold #8a94a0",
    "ok": "#8a94a0",
    "warn": "#f2b705",
    "crit": "bold #ff5c3d",
    "down": "bold #f5f5f5",
    "stale": "#4ea6e6",
    "good": "#00b389",
    "bar": "#4a8fb0",
    "chip": "bold #121212 on #f2b705",
    "band": "bold #ffffff on #b02a00",
    "cursor": "on #22384a",
    "cursor_idle": "on #1c232b",
    "key": "bold #4ea6e6",
}

_PLAIN: dict[str, str] = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "head": "bold underline",
    "ok": "",
    "warn": "bold",
    "crit": "bold reverse",
    "down": "bold",
    "stale": "dim",
    "good": "",
    "bar": "",
    "chip": "bold reverse",
    "band": "bold reverse",
    "cursor": "reverse",
    "cursor_idle": "underline",
    "key": "bold",
}

TONES = tuple(_COLOURED)


def palette(*, colour: bool) -> Mapping[str, Style]:
    """Return the style of each tone; without colour only bold, dim, underline and reverse."""
    return {tone: Style.parse(text) for tone, text in (_COLOURED if colour else _PLAIN).items()}
