"""A month's bill is worded once: golden texts, and the two faces that lay it out."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace

from aggregator.web.energy_page import energy_body
from api.bill import BillLine, IdleNode, MonthBill, PriceBand
from api.report import Report, Upkeep
from kilowatch.text.bill import bill_html, bill_lines
from kilowatch.text.report import report_lines
from present.bill import (
    charge_table,
    demand_row,
    energy_rows,
    hours_row,
    idle_table,
    price_table,
    summary_rows,
    total_rows,
    upkeep_rows,
)
from tests.present import golden
from tests.tui.test_lines import line_text
from tui.screens.energy import BILL, energy_lines
from tui.state.dashboard_state import DashboardState
from tui.state.documents import TODAY

RUNNING = MonthBill(
    month="2026-10",
    timezone="Europe/Berlin",
    currency="EUR",
    pue=1.3,
    hours=745,
    hours_elapsed=500,
    hours_known=260.5,
    kwh_measured=1234.5,
    kwh_recovered=10,
    kwh_filled=None,
    kwh_forecast=300,
    peak_kw=12.34,
    peak_at="2026-10-14T14:00+02:00",
    intervals_unknown=958,
    power_factor=0.912,
    lines=[
        BillLine(name="energy, measured", quantity=1234.5, unit="kWh", amount=246.9),
        BillLine(name="reactive energy", unit="kvarh", price=0.02, note="not known"),
    ],
    total=246.9,
    total_forecast=300.0,
    bands=[PriceBand(price=0.3, kwh=1000, amount=300), PriceBand(price=-0.05, kwh=234.5, amount=-11.73)],
    idle=[IdleNode(node="n1", gpu_hours=100, idle_gpu_hours=40, ratio=0.4, kwh=12, cost=2.4)],
)
BILLS = {
    "running": RUNNING,
    "running, too little measured": replace(RUNNING, kwh_forecast=None, peak_kw=None, peak_at="", intervals_unknown=0),
    "finished": replace(
        RUNNING, finished=True, hours_elapsed=745, hours_known=745, kwh_filled=55.25, pue=1.0, lines=RUNNING.lines[:1]
    ),
}


TIMES = {
    "a day": Upkeep(
        kwh=84_200.0, cost=7578.4, co2_kg=31_990.0, gpu_kwh=70_000.0, hours=24.0, unknown_hours=2.0, estimated_ratio=0.2
    ),
    "a minute without a tariff": Upkeep(kwh=0.61, co2_kg=0.379, hours=0.0114),
}


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
        }
        | {name: golden.told(upkeep_rows(each, "USD")) for name, each in TIMES.items()},
    )


@pytest.mark.parametrize("name", BILLS)
def test_a_bill_says_the_same_in_a_terminal_as_a_file_and_on_its_page(name: str) -> None:
    bill = BILLS[name]
    faces = {
        "terminal": "\n".join(bill_lines(bill)),
        "file": re.sub(r"<[^>]*>", " ", html.unescape(bill_html(bill))),
        "page": re.sub(r"<[^>]*>", " ", html.unescape(energy_body(bill, []))),
    }
    shown = DashboardState().with_doc(TODAY, Report(), 0.0).with_doc(BILL, bill, 0.0)
    said = " ".join(" ".join(map(line_text, energy_lines(shown, 4000, 60))).split())
    assert "month forecast" not in said
    for row in (hours_row(bill), *energy_rows(bill), demand_row(bill), *total_rows(bill)):
        assert (f"{row.label} {row.value}" in said) is (row.value != "not known")
    tables = [
        cell for _, rows in (charge_table(bill), price_table(bill), idle_table(bill)) for row in rows for cell in row
    ]
    facts = [text for row in (*summary_rows(bill), *total_rows(bill)) for text in (row.label, row.value, row.note)]
    for face, text in faces.items():
        said = " ".join(text.split())
        for words in (*facts, *tables):
            assert words in said, face


@pytest.mark.parametrize("name", TIMES)
def test_the_energy_of_a_time_reads_the_same_on_the_screen_and_in_a_report(name: str) -> None:
    """But for the cents."""
    its = TIMES[name]
    shown = DashboardState().with_doc(TODAY, Report(currency="USD", measured=its), 0.0)
    screen = " ".join(" ".join(map(line_text, energy_lines(shown, 4000, 60))).split())
    report = " ".join(" ".join(report_lines({"here": Report(currency="USD", measured=its)})).split())
    for row, exact in zip(upkeep_rows(its, "USD"), upkeep_rows(its, "USD", exact=True), strict=True):
        assert row.value in screen
        assert exact.value in report
