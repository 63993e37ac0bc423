"""Numbers, bars and names as text. Pure: values in, text out.

A missing value is a dash, never a zero. Every function with a width returns exactly that many
terminal cells.
"""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from telemetry.text import ABSENT, day_of_month, time_of_day
from telemetry.text.printable import printable

DASH = ABSENT
CROSS = "\u00d7"
"""The multiplication sign, before the status of a lost device."""
STEP = "\u203a"
"""The separator of the parts of a path."""
_BLOCKS = " ▏▎▍▌▋▊▉"


def clean(text: str) -> str:
    """Return a name that is safe for a terminal: what is not printable becomes `?`."""
    return printable(text)


def fit(text: str, width: int, *, right: bool = False, tail: bool = False) -> str:
    """Pad or cut text to `width` cells. `tail` keeps the end: node names differ there."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        if tail:
            while cell_len(text) > width - 1:
                text = text[1:]
            text = f"…{text}"
        else:
            text = f"{set_cell_size(text, width - 1).rstrip()}…"
        length = cell_len(text)
    pad = " " * (width - length)
    return f"{pad}{text}" if right else f"{text}{pad}"


def bar(ratio: float | None, width: int) -> str:
    """Return a bar of `width` cells, full at 1; blank for a missing value."""
    if ratio is None or ratio != ratio:  # noqa: PLR0124 - NaN
        return " " * width
    eighths = round(8 * width * min(max(ratio, 0.0), 1.0))
    whole, part = divmod(eighths, 8)
    return fit("█" * whole + (_BLOCKS[part] if part else ""), width)


def time_of(at: int, newest: int, *, utc: bool) -> str:
    """Return a time of day, with its day where that is another than of `newest`."""
    time = time_of_day(at, utc=utc)
    far = newest - at > 20 * 3600 * 1_000_000_000
    return f"{day_of_month(at, utc=utc)} {time}" if far else time
