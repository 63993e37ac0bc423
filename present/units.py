"""Numbers with their units as people read them, the same on every screen and page. Pure.

A missing value is a dash, never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from telemetry.metric import Unit
from telemetry.text import ABSENT, duration


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separated."""
    return ABSENT if value is None else f"{value:,.{digits}f}"


def watts(value: float | None) -> str:
    """Return power with the unit that keeps it short: `412 W`, `11.2 kW`, `6.93 MW`."""
    return ABSENT if value is None else f"{_scaled(value)[0]} {_scaled(value)[1]}"


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
    return ABSENT if ratio is None else f"{100 * ratio:.0f}%"


def celsius(value: float | None) -> str:
    """Return a temperature with its unit."""
    return ABSENT if value is None else f"{value:.0f} °C"


def gibibytes(value: float | None) -> str:
    """Return bytes as GiB, without the unit."""
    return ABSENT if value is None else f"{value / 2**30:.0f}"


def kilowatt_hours(value: float | None) -> str:
    """Return energy with the unit that keeps it short."""
    if value is None:
        return ABSENT
    if value < 9.995:
        return f"{value:.2f} kWh"
    return f"{value:,.0f} kWh" if value < 9999.5 else f"{value / 1e3:,.1f} MWh"


def money(value: float | None, currency: str | None) -> str:
    """Return an amount of money: `$7,578`, `0.03 EUR`."""
    if value is None:
        return ABSENT
    text = f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"${text}" if currency == "USD" else f"{text} {currency or ''}".rstrip()


def value_text(unit: Unit, states: Iterable[tuple[int, str]], value: float) -> str:
    """Return a value in base units as text: `91 °C`, `7.2 %`, `gpu reset`, `never`, `unknown` for NaN."""
    if value != value:  # noqa: PLR0124 - the only test of NaN that calls nothing
        return "unknown"
    if value == float("inf"):
        return "never"
    match unit:
        case Unit.STATE:
            return dict(states).get(int(value), f"state {value:g}")
        case Unit.CELSIUS:
            return f"{value:.4g} °C"
        case Unit.WATTS:
            return f"{value:.0f} W"
        case Unit.AMPERES:
            return f"{value:.1f} A"
        case Unit.RATIO:
            return f"{100 * value:.1f} %" if value >= 1e-3 or value == 0 else f"{value:.2g}"
        case Unit.SECONDS:
            return duration(value)
        case Unit.HERTZ:
            return f"{value / 1e6:.0f} MHz"
        case Unit.BYTES_PER_SECOND:
            return f"{value * 8e-9:.4g} Gb/s"
        case Unit.BYTES:
            return f"{value / 2**30:.1f} GiB"
        case Unit.JOULES:
            return f"{value / 3.6e6:.3g} kWh"
        case Unit.FLAG:
            return "yes" if value else "no"
        case _:
            return f"{value:.7g}"
