"""Columns of text for terminals: aligned, at most 100 wide, without control characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from alerts.message.text import clean, cut

WIDTH = 100


def columns(rows: Iterable[Sequence[object]], *, gap: str = "  ", width: int = WIDTH) -> list[str]:
    """Return lines with aligned columns; the last column is cut to what is left of `width`.

    Names and messages are untrusted: control characters are shown as `?`.
    """
    table = [[clean(str(cell)) for cell in row] for row in rows]
    if not table:
        return []
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]) - 1)]
    lines = []
    for row in table:
        cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)]
        head = gap.join([*cells, ""])
        lines.append((head + cut(row[-1], max(8, width - len(head)))).rstrip())
    return lines
