"""Numbers with their units as people read them, one function a unit, for every face and for alerts. Pure.

A missing value is a dash, never a zero. `~` stands before a figure that is not all measured, never behind it.
Durations and times are worded in `telemetry.text`, which what is below this layer needs too.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.jobs import PARTIAL_BELOW, EnergyFrom
from telemetry.metric import Unit
from telemetry.text import ABSENT, duration

JOULES_PER_KWH = 3.6e6


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separated."""
    return ABSENT if value is None else f"{value:,.{digits}f}"


ENERGY_FROM = {
    EnergyFrom.PROVISIONAL: "provisional, added up from samples so far",
    EnergyFrom.COUNTERS: "by the GPUs' counters at begin and end",
    EnergyFrom.SAMPLES: "added up from samples",
}
"""Words for the basis of a job's energy."""
WALL_FROM = ENERGY_FROM | {EnergyFrom.COUNTERS: "by the GPUs' counters, and what else their nodes drew"}
"""Words for the basis of its energy at the wall and its cost."""
NO_COST = "without a tariff, or no power at the wall was read"
"""Reason why the cost of a job is not known."""


def is_partial(coverage: float | None) -> bool:
    """Return whether a figure covers too little of a time to be whole."""
    return coverage is None or coverage < PARTIAL_BELOW


def roughly(words: str, *, partial: bool) -> str:
    """Return a figure with `~` before it where a part of it is assumed, or not read."""
    return f"~{words}" if partial and words != ABSENT else words


def at_least(words: str, *, partial: bool) -> str:
    """Return a sum with `≥` before it where something that belongs to it is not known."""
    return f"≥{words}" if partial and words != ABSENT else words


def watts(value: float | None) -> str:
    """Return power with the unit that keeps it short: `412 W`, `11.2 kW`, `6.93 MW`."""
    return ABSENT if value is None else " ".join(_scaled(value))


def exact_watts(value: float | None) -> str:
    """Return power in watts, as it is configured, planned, set and judged: `17,000 W`, `0.4 W`."""
    return ABSENT if value is None else f"{_short(value)} W"


def watts_of(value: float | None, limit: float | None, *, exact: bool = False) -> str:
    """Return power and its limit in one unit: `11.2/22.4 kW`; `exact`: `912/1,000 W`."""
    if exact:
        return exact_watts(value) if limit is None else f"{number(value)}/{number(limit)} W"
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


def watts_change(value: float) -> str:
    """Return a rise or fall of power: `+1.1 kW`."""
    return f"{'+' if value >= 0 else '-'}{watts(abs(value))}"


def amperes(value: float | None) -> str:
    """Return a current to a tenth: `16 A`, `13.8 A`."""
    return ABSENT if value is None else f"{_tenths(value)} A"


def amperes_change(value: float) -> str:
    """Return a rise or fall of a current: `+9.3 A`."""
    return f"{value:+.1f} A"


def volts(value: float | None) -> str:
    """Return a voltage."""
    return ABSENT if value is None else f"{value:.0f} V"


def quoted(value: float, unit: str) -> str:
    """Return a setting, or a figure of a datasheet, as it was written: `22.5 A`, `13,800 V`."""
    return f"{value:,g} {unit}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _short(value: float) -> str:
    """Return a number in whole units; below ten with a tenth where it has one."""
    return _tenths(value) if abs(value) < 9.95 else f"{value:,.0f}"


def percent(ratio: float | None, digits: int = 0) -> str:
    """Return a ratio as percent: `98%`."""
    return ABSENT if ratio is None else f"{100 * ratio:.{digits}f}%"


def percent_change(ratio: float) -> str:
    """Return a rise or fall as percent: `-12%`."""
    return f"{100 * ratio:+.0f}%"


def celsius(value: float | None) -> str:
    """Return a temperature with its unit."""
    return ABSENT if value is None else f"{value:.0f} °C"


def megahertz(hertz: float | None) -> str:
    """Return a clock: `1,980 MHz`."""
    return ABSENT if hertz is None else f"{hertz / 1e6:,.0f} MHz"


def gibibytes(value: float | None) -> str:
    """Return bytes as GiB: `80 GiB`, `3.5 GiB`."""
    return ABSENT if value is None else f"{in_gibibytes(value)} GiB"


def gibibytes_of(value: float | None, total: float | None) -> str:
    """Return bytes and the most of them: `40/80 GiB`."""
    return gibibytes(value) if total is None else f"{in_gibibytes(value)}/{in_gibibytes(total)} GiB"


def gigabytes(value: float) -> str:
    """Return the memory of a board as its maker names it: `80 GB`."""
    return f"{value:,g} GB"


def in_gibibytes(value: float | None) -> str:
    """Return bytes as GiB for a column whose head has the unit."""
    if value is None:
        return ABSENT
    return _short(value / 2**30)


def megahertz_per_watt(hertz: float) -> str:
    """Return the clock that a watt gives: `3.21 MHz/W`."""
    return f"{hertz / 1e6:.2f} MHz/W"


def in_megahertz(hertz: float | None) -> str:
    """Return a clock for a column whose head has the unit."""
    return ABSENT if hertz is None else f"{hertz / 1e6:.0f}"


def gigabits(bytes_per_second: float | None) -> str:
    """Return bytes a second as people name the speed of a port: `400 Gb/s`."""
    return ABSENT if bytes_per_second is None else f"{bytes_per_second * 8e-9:.4g} Gb/s"


def rate_text(name: str, value: float) -> str:
    """Return a measured rate: `182 GB/s`, of `gemm` `612 TFLOP/s`."""
    return f"{value / 1e12:.3g} TFLOP/s" if name == "gemm" else f"{value / 1e9:.3g} GB/s"


def kilowatt_hours(value: float | None, *, exact: bool = False) -> str:
    """Return energy with the unit that keeps it short: `0.61 kWh`, `1,234 kWh`, `12.3 MWh`; `exact`: to a tenth of a
    kWh, as it is billed."""
    if value is None:
        return ABSENT
    if exact:
        return f"{value:,.1f} kWh"
    if 0 < value < 0.0995:
        return f"{value:.2g} kWh"
    if value < 9.995:
        return f"{value:.2f} kWh"
    return f"{value:,.0f} kWh" if value < 9999.5 else f"{value / 1e3:,.1f} MWh"


def energy(joules: float | None) -> str:
    """Return joules as kWh."""
    return kilowatt_hours(None if joules is None else joules / JOULES_PER_KWH)


def kilograms(value: float | None) -> str:
    """Return a mass of CO2: `0.123 kg`, `12.3 kg`, `1,234 kg`."""
    if value is None:
        return ABSENT
    return f"{value:.3g} kg" if abs(value) < 999.5 else f"{value:,.0f} kg"


def money(value: float | None, currency: str | None) -> str:
    """Return an amount of money: `$7,578`, `0.03 EUR`."""
    if value is None:
        return ABSENT
    return _in_currency(f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}", currency)


def exact_money(value: float, currency: str | None = "") -> str:
    """Return an amount of money as it is billed: `$7,578.40`, `1,234.50 EUR`."""
    return _in_currency(f"{value:,.2f}", currency)


def price(value: float, currency: str | None) -> str:
    """Return the price of a kWh: `$0.085 a kWh`."""
    return f"{_in_currency(f'{value:.4g}', currency)} a kWh"


def _in_currency(amount: str, currency: str | None) -> str:
    if currency != "USD":
        return f"{amount} {currency or ''}".rstrip()
    return f"-${amount[1:]}" if amount.startswith("-") else f"${amount}"


def value_text(unit: Unit, states: Iterable[tuple[int, str]], value: float) -> str:
    """Return a value in base units as text: `91 °C`, `7.2%`, `gpu reset`, `never`, `unknown` for NaN."""
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
            return exact_watts(value)
        case Unit.AMPERES:
            return amperes(value)
        case Unit.RATIO:
            return percent(value, 1) if value >= 1e-3 or value == 0 else f"{value:.2g}"
        case Unit.SECONDS:
            return duration(value)
        case Unit.HERTZ:
            return megahertz(value)
        case Unit.BYTES_PER_SECOND:
            return gigabits(value)
        case Unit.BYTES:
            return gibibytes(value)
        case Unit.JOULES:
            return energy(value)
        case Unit.FLAG:
            return "yes" if value else "no"
        case _:
            return f"{value:.7g}"
