"""`kilowatch report --month` as people type it: table, JSON, and a page that needs nothing else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from api.bill import BillLine, IdleNode, MonthBill, PriceBand
from kilowatch.exit_codes import ExitCode
from kilowatch.text.bill import bill_html
from tests.kilowatch.test_power_commands import kilowatch, served

EVIL = "<script src=//x.example>&\x1b[2J"
BILL = MonthBill(
    month="2026-10",
    timezone="Europe/Berlin",
    currency="EUR",
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
        BillLine(name="reactive energy", unit="kvarh", price=0.02, note=f"not known {EVIL}"),
    ],
    total=246.9,
    total_forecast=300.0,
    bands=[PriceBand(price=0.3, kwh=1000, amount=300), PriceBand(price=-0.05, kwh=234.5, amount=-11.73)],
    idle=[IdleNode(node=EVIL, gpu_hours=100, idle_gpu_hours=40, ratio=0.4, kwh=12, cost=2.4)],
    unknown=[EVIL],
    rules=["A gap is filled."],
)


class Page(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, str] = {}
        self.depth = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name: value or "" for name, value in attrs}
        self.depth += tag != "meta"

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1


def test_the_page_has_no_scripts_and_asks_nobody() -> None:
    """Names of nodes are escaped; no address, no handler, and a policy that forbids both."""
    text = bill_html(BILL)
    page = Page(text)
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "td", "th"}
    assert set(page.attributes) <= {"lang", "charset", "http-equiv", "content", "class"}
    assert page.depth == 0
    assert not re.search(r"https?:|url\(|@import|javascript:", text)
    assert "&lt;script" in text
    assert "\x1b" not in text


def test_a_running_cluster_has_a_bill_in_three_forms(tmp_path: Path) -> None:
    """Of the present month, and an error that says what is stored."""
    page = tmp_path / "bill.html"
    with served() as url:
        table = kilowatch("report", url, "--month", "now")
        as_json = kilowatch("report", url, "--month", "now", "--json")
        as_page = kilowatch("report", url, "--month", "now", "--html", str(page))
        missing = kilowatch("report", url, "--month", "2025-01")
        wrong = kilowatch("report", url, "--month", "october")
    assert table.exit_code == 0, table.output
    assert "energy, measured" in table.output
    bill = json.loads(as_json.stdout)
    assert bill["kwh_measured"] > 0
    assert as_page.exit_code == 0, as_page.output
    assert bill["month"] in page.read_text()
    assert missing.exit_code != 0
    assert "nothing is stored of it" in missing.output
    assert "Write 2026-10" in wrong.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "--config", "a.toml", "--month", "2026-10"), "--month is of a running cluster"),
        (("report", "--html", "x.html"), "give --month"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: tuple[str, ...], words: str) -> None:
    """With what to give instead."""
    result = kilowatch(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in " ".join(result.output.split())
