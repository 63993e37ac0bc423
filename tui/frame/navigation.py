"""The path of open views, and its place at the right end of the header's first line.

Where both do not fit, the path loses its beginning, then the header what precedes the counts of alerts:
those always stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tui.kit.text import STEP, fit
from tui.kit.theme import Line, Piece

SHORTEST = 20
"""Columns that the last part of a path has at least."""
DEEPEST = 9
"""Views in the path at most: the first and the newest."""


class Navigation:
    """The open views as (name, subject); the one on the screen is the last."""

    def __init__(self, view: str) -> None:
        self.path: list[tuple[str, str]] = [(view, "")]

    @property
    def current(self) -> tuple[str, str]:
        """The view on the screen and its subject."""
        return self.path[-1]

    def open(self, name: str, subject: str) -> None:
        """Add a view to the path."""
        if self.current != (name, subject):
            self.path.append((name, subject))
            if len(self.path) > DEEPEST:
                del self.path[1]

    def go(self, name: str) -> None:
        """Begin a new path."""
        self.path = [(name, "")]

    def replace(self, subject: str) -> None:
        """Show another subject in the view on the screen."""
        self.path[-1] = (self.current[0], subject)

    def back(self) -> bool:
        """Leave the view on the screen; False where it is the only one."""
        if len(self.path) > 1:
            self.path.pop()
            return True
        return False


def joined(first: Sequence[Piece], kept: int, chips: Sequence[Piece], path: Sequence[str], width: int) -> Line:
    """Return the header's first line with the path at its end. `kept`: pieces at the end of `first` that
    stay; `chips`: pieces before the path."""
    cut = len(first) - kept
    left, stay = list(first[:cut]), list(first[cut:])
    room = width - 1 - _length(stay) - _length(chips)
    least = min(SHORTEST, cell_len(path[-1])) if path else 0
    while len(left) > 1 and _length(left) + least > room:
        left.pop()
    words = _path(path, room - _length(left))
    right: list[Piece] = [*chips, *([(f" {words}", "strong")] if words else [])]
    blank = max(0, width - _length([*left, *stay, *right]))
    return [*left, *stay, (" " * blank, ""), *right]


def _path(parts: Sequence[str], room: int) -> str:
    """Return as many of the last parts as fit; of one that does not, its end."""
    for start in range(len(parts)):
        words = f" {STEP} ".join(parts[start:])
        if cell_len(words) <= room:
            return words
    return fit(parts[-1], room, tail=True) if parts and room > 1 else ""


def _length(pieces: Sequence[Piece]) -> int:
    return sum(cell_len(text) for text, _ in pieces)
