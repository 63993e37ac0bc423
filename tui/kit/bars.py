"""A list of bars: name, bar, and text at its right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from present.circuit.figures import BAR_TOP
from tui.kit.text import bar, clean, fit
from tui.kit.theme import Line, Piece


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on the bar of a load, which then ends at `BAR_TOP` of the rating, as on the web pages."""

    marks: Sequence[tuple[str, float]]
    """`continuous` and `rating`, in shares of the rating."""
    assumed: float = 0.0
    """The part of the load that is assumed, as a share of the rating."""


@dataclass(frozen=True)
class Bar:
    """A line of the list."""

    name: str
    ratio: float | None
    """Full at 1; more than that ends in an arrow; None draws no bar."""
    tone: str
    """`bar`, `bar_warn` or `bar_crit`."""
    right: Sequence[Piece]
    limits: Limits | None = None
    """Of the load of a circuit: its bar is then a part of its breaker's rating, and hatched where it is not known."""
    lead: str = ""
    """Lines of a tree before the name."""


_LOW = str.maketrans("█▉▊▋▌▍▎▏", "▆▆▆▆▆   ")
"""Signs that leave a gap to the line above, so that bars do not run into each other."""


def over(ratio: float | None, width: int) -> str:
    """Draw a bar that ends in an arrow when it is over full."""
    text = bar(ratio, width).translate(_LOW)
    return f"{text[:-1]}▶" if ratio is not None and ratio > 1 and width else text


_MARKS = {"continuous": "┊", "rating": "│"}


def limit_bar(ratio: float | None, limits: Limits, width: int, tone: str) -> list[Piece]:
    """Draw a load from 0 to `BAR_TOP` of the rating, with marks at its limits; the assumed part of it, and all up to
    the rating where it is not known, in signs of their own."""
    signs: list[Piece] = []
    for place in range(width):
        at = BAR_TOP * (place + 0.5) / width
        if ratio is None:
            signs.append(("░", "stale") if at <= 1.0 else (" ", ""))
        elif at > ratio:
            signs.append((" ", ""))
        else:
            signs.append(("▒", "stale") if at > ratio - limits.assumed else ("▆", tone))
    for kind, at in limits.marks:
        if 0 <= (place := int(width * at / BAR_TOP)) < width:
            signs[place] = (_MARKS[kind], "strong")
    if ratio is not None and ratio > BAR_TOP and width:
        signs[-1] = ("▶", tone)
    found: list[Piece] = []
    for sign, its in signs:
        if found and found[-1][1] == its:
            found[-1] = (found[-1][0] + sign, its)
        else:
            found.append((sign, its))
    return found


def bar_list(bars: Sequence[Bar], width: int, height: int, more: str = "") -> list[Line]:
    """Draw the first `height` bars; the last line counts those that don't fit (`more`: of what)."""
    room = height if len(bars) <= height else height - 1
    shown = bars[: max(0, room)]
    if not shown:
        return []
    name = min(
        max(cell_len(each.lead) + cell_len(clean(each.name)) for each in shown),
        max(8, width // (3 if any(each.lead for each in shown) else 4)),
    )
    right = max(sum(cell_len(text) for text, _ in each.right) for each in shown)
    space = max(4, width - name - right - 2)
    lines: list[Line] = [
        [(each.lead, "dim"), (fit(clean(each.name), name - cell_len(each.lead), tail=True), "strong"), (" ", ""),
         *_drawn(each, space), (" ", ""), *each.right]
        for each in shown
    ]  # fmt: skip
    if len(bars) > room:
        lines.append([(f"  and {len(bars) - room:,} more {more}".rstrip(), "dim")])
    return lines


def _drawn(one: Bar, width: int) -> list[Piece]:
    if one.limits is None:
        return [(over(one.ratio, width), one.tone)]
    return limit_bar(one.ratio, one.limits, width, one.tone)
