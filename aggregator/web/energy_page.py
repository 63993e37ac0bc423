"""The page of energy and cost: the bill of a month, what is measured of it, and what idles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.web.markup import fact, facts, link, path, section, table, text
from api.bill import MonthBill
from present.bill import charge_table, hours_row, idle_table, price_table, summary_rows, total_rows

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
        f"{nav}{facts(_facts(bill))}{missing}"
        f"{section('Charges', _charges(bill), 'charges')}"
        f"{section('Energy by price', _bands(bill), 'bands')}"
        f"{section('Idle GPUs', _idle(bill), 'idle')}"
        f"{section('How these numbers are made', f'<ul>{rules}</ul>' if rules else '', 'rules')}"
    )


def _facts(bill: MonthBill) -> Iterator[tuple[str, str]]:
    yield "month", f"{text(bill.month)}, {'finished' if bill.finished else 'up to now'}"
    yield "time zone", text(bill.timezone)
    for row in (hours_row(bill), *summary_rows(bill), *total_rows(bill)):
        yield row.label, fact(row)


def _charges(bill: MonthBill) -> str:
    head, rows = charge_table(bill)
    cells = [tuple(map(text, row)) for row in rows]
    total, *_ = total_rows(bill)
    cells.append(
        (
            "<strong>total</strong>",
            "",
            "",
            f"<strong>{text(total.value)}</strong>",
            text(total.note),
        )
    )
    return table(f"Charges of {bill.month}", head, cells, (1, 2, 3)) if rows else ""


def _bands(bill: MonthBill) -> str:
    head, rows = price_table(bill)
    return (
        table("Dearest first", head, [tuple(map(text, row)) for row in rows], (0, 1, 2))
        if len(rows) > 1
        else ""
    )


def _idle(bill: MonthBill) -> str:
    head, rows = idle_table(bill)
    cells = [(link(node, "nodes", node), *map(text, rest)) for node, *rest in rows[:MOST_NODES]]
    return table("GPUs below 5% utilisation, most idle energy first", head, cells, (1, 2, 3, 4))
