"""A value with its unit, as people write it."""

from __future__ import annotations

from collections.abc import Iterable

from telemetry.metric import Unit
from telemetry.text import duration


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
