"""The line of an aggregator that our own command has started: what it waits for, and its address. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.cells import cell_len

from tui.kit.text import clean, fit
from tui.kit.theme import Line, Piece


class OwnAggregator(Protocol):
    """An aggregator that ends with the dashboard, and whose end is that of the dashboard."""

    address: str
    """URL of its pages."""

    @property
    def waits(self) -> str:
        """Unfinished part of its start; "" when it is complete."""

    @property
    def serving(self) -> bool:
        """Whether it can be connected to."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""


def start_line(own: OwnAggregator, width: int) -> Line:
    """Draw what a start waits for, and the address at the right end."""
    right = f" web pages {own.address} "
    room = max(0, width - cell_len(right) - 1)
    return [(f" {fit(clean(own.waits), room)}", "chip"), (right, "chip")]


def with_address(drawn: Sequence[Sequence[Piece]], own: OwnAggregator | None, width: int) -> list[Line]:
    """Put the address at the right end of the first line of the header that has room."""
    lines: list[Line] = [list(line) for line in drawn]
    if own is None or own.waits:
        return lines
    length = cell_len(own.address) + 1
    for number, line in enumerate(lines):
        if (room := width - sum(cell_len(text) for text, _ in line)) > length:
            lines[number] = [*line, (" " * (room - length), ""), (f"{own.address} ", "dim")]
            break
    return lines
