"""A month's bill as a table and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.message.text import clean
from api.bill import BillLine, MonthBill
from kilowatch.text.page import html_page, html_table, note, text
from present.units import kilowatt_hours, number, percent
from telemetry.text import duration

_MOST_NODES = 10
Row = Sequence[str]


def bill_lines(bill: MonthBill) -> list[str]:
    """Return the bill as lines of a terminal."""
    lines = [f"{bill.month}, {_state(bill)}", f"time zone: {clean(bill.timezone)}", ""]
    lines += _aligned(_summary(bill))
    lines += ["", *_aligned(_charges(bill))]
    if len(bill.bands) > 1:
        lines += ["", *_aligned(_bands(bill))]
    if bill.idle:
        lines += ["", *_aligned(_idle(bill)[: _MOST_NODES + 1])]
        if len(bill.idle) > _MOST_NODES:
            lines.append(f"and {len(bill.idle) - _MOST_NODES} more nodes: --json has them")
    if bill.unknown:
        lines += ["", f"not in these numbers, for nothing is known of them: {clean(', '.join(bill.unknown))}"]  # fmt: skip
    return [*lines, "", *bill.rules]


def bill_html(bill: MonthBill) -> str:
    """Return the bill as one self-contained page."""
    parts = [
        f"<p>{text(_state(bill))}. Time zone: {text(bill.timezone)}.</p>",
        html_table(_summary(bill), heading=False),
        "<h2>Charges</h2>",
        html_table(_charges(bill), total=True),
    ]
    if len(bill.bands) > 1:
        parts += ["<h2>Energy by price</h2>", html_table(_bands(bill))]
    if bill.idle:
        parts += ["<h2>Idle GPUs by node</h2>", html_table(_idle(bill))]
    if bill.unknown:
        parts.append(f"<p>Not in these numbers, for nothing is known of them: {text(', '.join(bill.unknown))}.</p>")  # fmt: skip
    parts += [note(rule) for rule in bill.rules]
    return html_page(f"Energy bill {bill.month}", parts)


def _state(bill: MonthBill) -> str:
    known = f"hours known: {bill.hours_known:,.1f} of {bill.hours_elapsed:,.1f}"
    return f"finished, {known}" if bill.finished else f"up to now, {known}, of {bill.hours:,.0f} in the month"  # fmt: skip


def _summary(bill: MonthBill) -> list[Row]:
    rows: list[Row] = [["measured", kilowatt_hours(bill.kwh_measured, exact=True)]]
    if bill.kwh_recovered:
        rows.append(["recovered by meters", kilowatt_hours(bill.kwh_recovered, exact=True)])
    rows.append(["filled", _number(bill.kwh_filled, "kWh")])
    if not bill.finished:
        rows.append(["forecast for the rest", _number(bill.kwh_forecast, "kWh")])
    peak = _number(bill.peak_kw, "kW") + (f" in {duration(60 * bill.demand_minutes)} from {bill.peak_at}" if bill.peak_at else "")  # fmt: skip
    rows.append(["highest demand", peak])
    if bill.intervals_unknown:
        rows.append(["intervals without one", f"{bill.intervals_unknown:,}: the highest may have been in them"])  # fmt: skip
    if bill.power_factor is not None:
        rows.append(["power factor", f"{bill.power_factor:.3f}"])
    if bill.pue != 1.0:
        rows.append(["PUE", f"{bill.pue:g}: charges and demand are the building's"])
    return rows


def _charges(bill: MonthBill) -> list[Row]:
    currency = clean(bill.currency)
    rows: list[Row] = [["charge", "quantity", "price", currency, "note"]]
    rows += [_charge(line) for line in bill.lines]
    missing = [line.name for line in bill.lines if line.amount is None]
    note = f"without {', '.join(missing)}" if missing else ""
    rows.append(["total", "", "", _money(bill.total), note])
    if not bill.finished:
        rows.append(["by the month's end", "", "", _money(bill.total_forecast), "if no higher demand comes"])  # fmt: skip
    return rows


def _charge(line: BillLine) -> Row:
    price = "by the hour" if line.price is None else f"{line.price:,.4g}"
    return [line.name, _number(line.quantity, line.unit), price, _money(line.amount), line.note]


def _bands(bill: MonthBill) -> list[Row]:
    rows: list[Row] = [["price", "kWh", clean(bill.currency)]]
    return [*rows, *([f"{b.price:g}", number(b.kwh, 1), _money(b.amount)] for b in bill.bands)]


def _idle(bill: MonthBill) -> list[Row]:
    rows: list[Row] = [["node", "idle GPU hours", "of all", "kWh", clean(bill.currency)]]
    return [
        *rows,
        *([clean(n.node), f"{n.idle_gpu_hours:,.1f}", percent(n.ratio), number(n.kwh, 1), _money(n.cost)] for n in bill.idle),
    ]  # fmt: skip


def _number(value: float | None, unit: str) -> str:
    return "not known" if value is None else f"{number(value, 1)} {unit}"


def _money(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.2f}"


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]  # fmt: skip
