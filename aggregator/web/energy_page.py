"""The page of energy and cost: the bill of a month, what is measured of it, and what idles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.web.markup import facts, link, path, section, table, text
from api.bill import BillLine, MonthBill
from present.units import kilowatt_hours, percent
from telemetry.text import duration

UNKNOWN = "not known"
MOST_NODES = 100


def energy_body(bill: MonthBill, months: Sequence[str]) -> str:
    """Return the page's content. `months`: those of which something is stored, oldest first."""
    chosen = "".join(
        f'<li><a href="{path("energy", month=name)}"{" aria-current=page" if name == bill.month else ""}>{text(name)}</a></li>'
        for name in months[-12:]
    )
    nav = f'<nav aria-label="Months"><ul class="tabs">{chosen}</ul></nav>' if chosen else ""
    rules = "".join(f"<li>{text(rule)}</li>" for rule in bill.rules)
    unknown = ", ".join(link(name, "circuits", name) for name in bill.unknown)
    missing = f"<p class=problems>Not in these numbers, for nothing is known of them: {unknown}.</p>" if unknown else ""  # fmt: skip
    return (
        f"{nav}{facts(_summary(bill))}{missing}"
        f"{section('Charges', _charges(bill), 'charges')}"
        f"{section('Energy by price', _bands(bill), 'bands')}"
        f"{section('Idle GPUs', _idle(bill), 'idle')}"
        f"{section('How these numbers are made', f'<ul>{rules}</ul>' if rules else '', 'rules')}"
    )


def _summary(bill: MonthBill) -> Iterator[tuple[str, str]]:
    yield "month", f"{text(bill.month)}, {'finished' if bill.finished else 'up to now'}"
    yield "time zone", text(bill.timezone)
    whole = "" if bill.finished else f", {bill.hours:,.0f} in the month"
    yield "hours known", f"{bill.hours_known:,.1f} of {bill.hours_elapsed:,.1f}{whole}"
    yield "measured", kilowatt_hours(bill.kwh_measured, exact=True)
    yield (
        "recovered by meters",
        kilowatt_hours(bill.kwh_recovered, exact=True) if bill.kwh_recovered else "",
    )
    yield "filled", _number(bill.kwh_filled, "kWh")
    yield "forecast for the rest", "" if bill.finished else _number(bill.kwh_forecast, "kWh")
    at = (
        f" in {duration(60 * bill.demand_minutes)} from {text(bill.peak_at)}"
        if bill.peak_at
        else ""
    )
    yield "highest demand so far", _number(bill.peak_kw, "kW") + at
    unknown = f"{bill.intervals_unknown:,}: the highest may have been in them"
    yield "intervals without one", unknown if bill.intervals_unknown else ""
    yield "power factor", "" if bill.power_factor is None else f"{bill.power_factor:.3f}"
    yield "PUE", "" if bill.pue == 1.0 else f"{bill.pue:g}: charges and demand are the building's"
    missing = ", ".join(line.name for line in bill.lines if line.amount is None)
    without = f", without {text(missing)}" if missing else ""
    yield "total so far", _money(bill.total, bill.currency) + without
    if not bill.finished and bill.kwh_forecast is None:
        yield "by the month's end", f"{UNKNOWN}: too little is measured for a forecast"
    elif not bill.finished:
        end = _money(bill.total_forecast, bill.currency)
        yield "by the month's end", f"{end}, if no higher demand comes"


def _charges(bill: MonthBill) -> str:
    heads = ("charge", "quantity", "price", bill.currency or "amount", "note")
    rows = [_charge(line) for line in bill.lines]
    missing = [line.name for line in bill.lines if line.amount is None]
    note = f"without {text(', '.join(missing))}" if missing else ""
    rows.append(("<strong>total</strong>", "", "", f"<strong>{_money(bill.total)}</strong>", note))
    return table(f"Charges of {bill.month}", heads, rows, (1, 2, 3)) if bill.lines else ""


def _charge(line: BillLine) -> tuple[str, ...]:
    price = "by the hour" if line.price is None else f"{line.price:,.4g}"
    return text(line.name), _number(line.quantity, line.unit), price, _money(line.amount), text(line.note)  # fmt: skip


def _bands(bill: MonthBill) -> str:
    if len(bill.bands) < 2:
        return ""
    rows = [(f"{one.price:g}", f"{one.kwh:,.1f}", _money(one.amount)) for one in bill.bands]
    return table("Dearest first", ("price", "kWh", bill.currency or "amount"), rows, (0, 1, 2))


def _idle(bill: MonthBill) -> str:
    rows = [
        (link(one.node, "nodes", one.node), f"{one.idle_gpu_hours:,.1f}", percent(one.ratio), f"{one.kwh:,.1f}",
         _money(one.cost))
        for one in bill.idle[:MOST_NODES]
    ]  # fmt: skip
    heads = ("node", "idle GPU hours", "of all", "kWh", bill.currency or "cost")
    return table("GPUs below 5 % utilisation, most idle energy first", heads, rows, (1, 2, 3, 4))


def _number(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:,.1f} {text(unit)}"


def _money(value: float | None, currency: str = "") -> str:
    return UNKNOWN if value is None else f"{value:,.2f} {text(currency)}".rstrip()
