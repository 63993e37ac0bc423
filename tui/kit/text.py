"""Numbers, bars and names as text. Pure: values in, text out.

A missing value is a dash, never a zero. Every function with a width returns exactly that many
terminal cells.
"""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from telemetry.printable import printable
from telemetry.text import ABSENT, day_of_month, time_of_day

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


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separated."""
    return DASH if value is None else f"{value:,.{digits}f}"


def watts(value: float | None) -> str:
    """Return power with the unit that keeps it short: `412 W`, `11.2 kW`, `6.93 MW`."""
    return DASH if value is None else f"{_scaled(value)[0]} {_scaled(value)[1]}"


def watts_of(value: float | None, limit: float | None) -> str:
    """Return power and its limit in one unit: `11.2/22.4 kW`."""
    if limit is None or value is None:
        return watts(value)
    unit = _scaled(max(limit, value))[1]
    factor = {"W": 1.0, "kW": 1e3, "MW": 1e6}[unit]
    digits = {"W": 0, "kW": 1, "MW": 2}[unit]
    return f"{value / factor:.{digits}f}/{limit / factor:.{digits}f} {unit}"


def _scaled(value: float) -> tuple[str, str]:
    if abs(value) < 999.5:
        return f"{value:.0f}", "W"
    if abs(value) < 999_500:
        return f"{value / 1e3:.1f}", "kW"
    return f"{value / 1e6:.2f}", "MW"


def percent(ratio: float | None) -> str:
    """Return a ratio as percent."""
    return DASH if ratio is None else f"{100 * ratio:.0f}%"


def celsius(value: float | None) -> str:
    """Return a temperature with its unit."""
    return DASH if value is None else f"{value:.0f} °C"


def gibibytes(value: float | None) -> str:
    """Return bytes as GiB, without the unit."""
    return DASH if value is None else f"{value / 2**30:.0f}"


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


def kilowatt_hours(value: float | None) -> str:
    """Return energy with the unit that keeps it short."""
    if value is None:
        return DASH
    if value < 9.995:
        return f"{value:.2f} kWh"
    return f"{value:,.0f} kWh" if value < 9999.5 else f"{value / 1e3:,.1f} MWh"


def money(value: float | None, currency: str | None) -> str:
    """Return an amount of money: `$7,578`, `0.03 EUR`."""
    if value is None:
        return DASH
    text = f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"${text}" if currency == "USD" else f"{text} {currency or ''}".rstrip()
