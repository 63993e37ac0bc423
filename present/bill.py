"""The bill of a month: what it says as rows, and its charges, prices and idle GPUs as tables of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from api.bill import MonthBill
from api.report import Upkeep
from present.row import FactRow, Tone
from present.units import exact_money, kilograms, kilowatt_hours, money, number, percent, watts
from telemetry.text import duration, short_duration

UNKNOWN = "not known"
Cells = tuple[str, ...]


def hours_row(bill: MonthBill) -> FactRow:
    """Return of how many hours of the month anything is known."""
    whole = "" if bill.finished else f", of {number(bill.hours)} in the month"
    return FactRow("hours known", f"{number(bill.hours_known, 1)} of {number(bill.hours_elapsed, 1)}{whole}")


def energy_rows(bill: MonthBill) -> Iterator[FactRow]:
    """Yield the energy that was measured, and what takes its place where it was not."""
    yield FactRow("measured", kilowatt_hours(bill.kwh_measured, exact=True))
    if bill.kwh_recovered:
        yield FactRow("recovered by meters", kilowatt_hours(bill.kwh_recovered, exact=True))
    yield FactRow("filled", _energy(bill.kwh_filled))
    if not bill.finished:
        yield FactRow("forecast for the rest", _energy(bill.kwh_forecast))


def demand_row(bill: MonthBill) -> FactRow:
    """Return the highest demand of an interval."""
    when = f" in {duration(60 * bill.demand_minutes)} from {bill.peak_at}" if bill.peak_at else ""
    peak = UNKNOWN if bill.peak_kw is None else watts(1000 * bill.peak_kw)
    return FactRow("highest demand" if bill.finished else "highest demand so far", f"{peak}{when}")


def summary_rows(bill: MonthBill) -> Iterator[FactRow]:
    """Yield what was measured of the month, and its highest demand."""
    yield from energy_rows(bill)
    yield demand_row(bill)
    if bill.intervals_unknown:
        yield FactRow("intervals without one", f"{number(bill.intervals_unknown)}: the highest may have been in them")
    if bill.power_factor is not None:
        yield FactRow("power factor", number(bill.power_factor, 3))
    if bill.pue != 1.0:
        yield FactRow("PUE", f"{bill.pue:g}: charges and demand are the building's")


def total_rows(bill: MonthBill) -> Iterator[FactRow]:
    """Yield the sum of the charges, and what it will be at the end of the month."""
    missing = [line.name for line in bill.lines if line.amount is None]
    without = f"without {', '.join(missing)}" if missing else ""
    yield FactRow("total", _money(bill.total, bill.currency), note=without)
    if bill.finished:
        return
    too_little = bill.kwh_forecast is None
    note = "too little is measured for a forecast" if too_little else f"{range_words(bill)}if no higher demand comes"
    yield FactRow("by the month's end", _money(None if too_little else bill.total_forecast, bill.currency), note=note)


def range_words(bill: MonthBill) -> str:
    """Return between what a month will end, ready to go on; "" where it is not known, or all days were alike."""
    ends = [_money(each, bill.currency) for each in (bill.total_least, bill.total_most)]
    if bill.total_least is None or ends[0] == ends[1]:
        return ""
    return f"{ends[0]} to {ends[1]} by the quietest and the busiest of the last days; "


def charge_table(bill: MonthBill) -> tuple[Cells, Sequence[Cells]]:
    """Return head and rows: each charge with its quantity, price, amount and note."""
    rows = [
        (line.name, UNKNOWN if line.quantity is None else f"{number(line.quantity, 1)} {line.unit}",
         "by the hour" if line.price is None else f"{line.price:,.4g}", _money(line.amount), line.note)
        for line in bill.lines
    ]  # fmt: skip
    return ("charge", "quantity", "price", bill.currency or "amount", "note"), rows


def price_table(bill: MonthBill) -> tuple[Cells, Sequence[Cells]]:
    """Return head and rows: energy by its price, the dearest first."""
    rows = [(f"{each.price:g}", number(each.kwh, 1), _money(each.amount)) for each in bill.bands]
    return ("price", "kWh", bill.currency or "amount"), rows


def idle_table(bill: MonthBill) -> tuple[Cells, Sequence[Cells]]:
    """Return head and rows: idle GPUs by node, below 5% of use, the most energy first."""
    rows = [
        (each.node, number(each.idle_gpu_hours, 1), percent(each.ratio), number(each.kwh, 1), _money(each.cost))
        for each in bill.idle
    ]
    return ("node", "idle GPU hours", "of all", "kWh", bill.currency or "cost"), rows


def upkeep_rows(found: Upkeep, currency: str, *, exact: bool = False) -> Iterator[FactRow]:
    """Yield the energy of some time, its cost, and what is known of it. `exact`: money to the cent."""
    yield FactRow("energy", kilowatt_hours(found.kwh), Tone.STRONG)
    yield FactRow(
        "cost", "" if found.cost is None else (exact_money if exact else money)(found.cost, currency), Tone.STRONG
    )
    yield FactRow("CO2", f"{kilograms(found.co2_kg)} CO2", Tone.DIM)
    ratio = found.gpu_kwh / found.kwh if found.gpu_kwh is not None and found.kwh else None
    yield FactRow("GPUs", "" if ratio is None else f"GPUs {percent(ratio)} of it", Tone.DIM)
    yield FactRow("time", f"over {short_duration(3600 * found.hours)}", Tone.DIM)
    missing = short_duration(3600 * found.unknown_hours) if found.unknown_hours > 0.01 else ""
    yield FactRow("missing", f"{missing} not known" if missing else "", Tone.WARN)
    bridged = percent(found.estimated_ratio) if found.estimated_ratio > 0.005 else ""
    yield FactRow("estimated", f"{bridged} estimated" if bridged else "", Tone.DIM)


def _energy(kwh: float | None) -> str:
    return UNKNOWN if kwh is None else kilowatt_hours(kwh, exact=True)


def _money(value: float | None, currency: str = "") -> str:
    return UNKNOWN if value is None else exact_money(value, currency)
