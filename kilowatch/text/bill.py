"""A month's bill as a table and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.message.text import clean
from api.bill import MonthBill
from kilowatch.text.page import html_page, html_table, note, text
from present.bill import Cells, charge_table, hours_row, idle_table, price_table, summary_rows, total_rows

_MOST_NODES = 10
Row = Sequence[str]


def bill_lines(bill: MonthBill) -> list[str]:
    """Return the bill as lines of a terminal."""
    lines = [f"{bill.month}, {_state(bill)}", f"time zone: {clean(bill.timezone)}", ""]
    lines += _aligned(_summary(bill))
    lines += ["", *_aligned(_charges(bill))]
    if len(bill.bands) > 1:
        lines += ["", *_aligned(_table(price_table(bill)))]
    if bill.idle:
        lines += ["", *_aligned(_table(idle_table(bill))[: _MOST_NODES + 1])]
        if len(bill.idle) > _MOST_NODES:
            lines.append(f"and {len(bill.idle) - _MOST_NODES} more nodes: --json has them")
    if bill.unknown:
        lines += ["", f"not in these numbers, for nothing is known of them: {clean(', '.join(bill.unknown))}"]
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
        parts += ["<h2>Energy by price</h2>", html_table(_table(price_table(bill)))]
    if bill.idle:
        parts += ["<h2>Idle GPUs by node</h2>", html_table(_table(idle_table(bill)))]
    if bill.unknown:
        parts.append(f"<p>Not in these numbers, for nothing is known of them: {text(', '.join(bill.unknown))}.</p>")
    parts += [note(rule) for rule in bill.rules]
    return html_page(f"Energy bill {bill.month}", parts)


def _state(bill: MonthBill) -> str:
    hours = hours_row(bill)
    return f"{'finished' if bill.finished else 'up to now'}, {hours.label}: {hours.value}"


def _summary(bill: MonthBill) -> list[Row]:
    return [[row.label, clean(row.value)] for row in summary_rows(bill)]


def _charges(bill: MonthBill) -> list[Row]:
    totals = [[row.label, "", "", row.value, clean(row.note)] for row in total_rows(bill)]
    return [*_table(charge_table(bill)), *totals]


def _table(table: tuple[Cells, Sequence[Cells]]) -> list[Row]:
    return [[clean(cell) for cell in row] for row in (table[0], *table[1])]


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
