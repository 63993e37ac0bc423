"""Text and parts that go on in the next line where one is full. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tui.kit.theme import Line, Piece


def flow(parts: Sequence[Sequence[Piece]], width: int) -> list[Line]:
    """Put parts behind each other, and begin a line where one does not fit any more."""
    lines: list[list[Piece]] = [[]]
    used = 0
    for part in parts:
        length = sum(cell_len(text) for text, _ in part)
        if used and used + length > width:
            lines.append([])
            used = 0
        lines[-1] += part
        used += length
    return list(lines)


def wrapped(text: str, width: int) -> list[str]:
    """Break a text between words."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line else lines
