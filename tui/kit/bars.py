"""A list of bars: name, bar, and text at its right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tui.kit.text import bar, clean, fit
from tui.kit.theme import Line, Piece


@dataclass(frozen=True)
class Bar:
    """A line of the list."""

    name: str
    ratio: float | None
    """Full at 1; more than that ends in an arrow; None draws no bar."""
    tone: str
    """`bar`, `bar_warn` or `bar_crit`."""
    right: Sequence[Piece]


_LOW = str.maketrans("█▉▊▋▌▍▎▏", "▆▆▆▆▆   ")
"""Signs that leave a gap to the line above, so that bars do not run into each other."""


def over(ratio: float | None, width: int) -> str:
    """Draw a bar that ends in an arrow when it is over full."""
    text = bar(ratio, width).translate(_LOW)
    return f"{text[:-1]}▶" if ratio is not None and ratio > 1 and width else text


def bar_list(bars: Sequence[Bar], width: int, height: int, more: str = "") -> list[Line]:
    """Draw the first `height` bars; the last line counts those that don't fit (`more`: of what)."""
    room = height if len(bars) <= height else height - 1
    shown = bars[: max(0, room)]
    if not shown:
        return []
    name = min(max(cell_len(clean(each.name)) for each in shown), max(8, width // 4))
    right = max(sum(cell_len(text) for text, _ in each.right) for each in shown)
    space = max(4, width - name - right - 2)
    lines: list[Line] = [
        [(fit(clean(each.name), name, tail=True), "strong"), (" ", ""),
         (over(each.ratio, space), each.tone), (" ", ""), *each.right]
        for each in shown
    ]  # fmt: skip
    if len(bars) > room:
        lines.append([(f"  and {len(bars) - room:,} more {more}".rstrip(), "dim")])
    return lines
