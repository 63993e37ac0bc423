"""A month's bill is worded once: golden texts, and the two faces that lay it out."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace

from aggregator.web.energy_page import energy_body
from api.bill import BillLine, IdleNode, MonthBill, PriceBand
from kilowatch.text.bill import bill_html, bill_lines
from present.bill import charge_table, hours_row, idle_table, price_table, summary_rows, total_rows
from tests.present import golden

RUNNING = MonthBill(
    month="2026-10", timezone="Europe/Berlin", currency="EUR", pue=1.3, hours=745, hours_elapsed=500, hours_known=260.5,
    kwh_measured=1234.5, kwh_recovered=10, kwh_filled=None, kwh_forecast=300, peak_kw=12.34,
    peak_at="2026-10-14T14:00+02:00", intervals_unknown=958, power_factor=0.912,
    lines=[
        BillLine(name="energy, measured", quantity=1234.5, unit="kWh", amount=246.9),
        BillLine(name="reactive energy", unit="kvarh", price=0.02, note="not known"),
    ],
    total=246.9, total_forecast=300.0,
    bands=[PriceBand(price=0.3, kwh=1000, amount=300), PriceBand(price=-0.05, kwh=234.5, amount=-11.73)],
    idle=[IdleNode(node="n1", gpu_hours=100, idle_gpu_hours=40, ratio=0.4, kwh=12, cost=2.4)],
)  # fmt: skip
BILLS = {
    "running": RUNNING,
    "running, too little measured": replace(RUNNING, kwh_forecast=None, peak_kw=None, peak_at="", intervals_unknown=0),
    "finished": replace(RUNNING, finished=True, hours_elapsed=745, hours_known=745, kwh_filled=55.25, pue=1.0, lines=RUNNING.lines[:1]),
}  # fmt: skip


def test_every_line_of_a_bill_reads_as_kept() -> None:
    """Rows, charges, prices and idle GPUs."""
    golden.check(
        "bill",
        {
            name: [
                *golden.told([hours_row(bill), *summary_rows(bill), *total_rows(bill)]),
                *(
                    " | ".join(cells)
                    for head, rows in (charge_table(bill), price_table(bill), idle_table(bill))
                    for cells in (head, *rows)
                ),
            ]
            for name, bill in BILLS.items()
        },
    )


@pytest.mark.parametrize("name", BILLS)
def test_a_bill_says_the_same_in_a_terminal_as_a_file_and_on_its_page(name: str) -> None:
    bill = BILLS[name]
    faces = {
        "terminal": "\n".join(bill_lines(bill)),
        "file": re.sub(r"<[^>]*>", " ", html.unescape(bill_html(bill))),
        "page": re.sub(r"<[^>]*>", " ", html.unescape(energy_body(bill, []))),
    }
    tables = [cell for _, rows in (charge_table(bill), price_table(bill), idle_table(bill)) for row in rows for cell in row]  # fmt: skip
    facts = [text for row in (*summary_rows(bill), *total_rows(bill)) for text in (row.label, row.value, row.note)]  # fmt: skip
    for face, text in faces.items():
        said = " ".join(text.split())
        for words in (*facts, *tables):
            assert words in said, face
