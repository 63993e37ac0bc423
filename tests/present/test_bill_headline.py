"""The headline of a bill says what the month will cost, and is calm only where the month is known."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from api.bill import BillLine, IdleNode, MonthBill
from api.report import Upkeep
from api.use import UseReply, UseRow
from present.device.figures import UNKNOWN
from present.fleet.bill_headline import (
    NOBODY,
    UNREPORTED,
    DayEnergy,
    bill_figures,
    bill_headline,
    days_words,
    user_lines,
)
from present.fleet.headline import Urgency
from present.row import Tone

WHOLE = MonthBill(
    month="2026-10",
    currency="USD",
    hours=744,
    hours_elapsed=500,
    hours_known=499,
    kwh_measured=8614.0,
    kwh_filled=0.0,
    kwh_forecast=3000.0,
    peak_kw=22.4,
    peak_at="2026-10-14T14:30+02:00",
    lines=[BillLine(name="energy, measured", quantity=8614.0, unit="kWh", price=0.1, amount=861.4)],
    total=861.4,
    total_forecast=1161.4,
    idle=[IdleNode(node="n1", gpu_hours=100, idle_gpu_hours=19, ratio=0.19, kwh=12, cost=2.4)],
)
FILLED = replace(WHOLE, hours_known=400, kwh_filled=301.0)
DARK = replace(
    WHOLE,
    hours_known=5,
    kwh_filled=None,
    kwh_forecast=None,
    peak_kw=None,
    peak_at="",
    intervals_unknown=1900,
    idle=[],
    lines=[*WHOLE.lines, BillLine(name="energy, filled")],
)
FREE = replace(
    WHOLE, lines=[BillLine(name="energy, measured", quantity=8614.0, unit="kWh")], total=None, total_forecast=None
)


@pytest.mark.parametrize(
    ("bill", "urgency", "text", "why"),
    [
        (WHOLE, Urgency.WELL, "2026-10 will cost ~$1,161.40", "$861.40 so far; if no higher demand comes"),
        (replace(WHOLE, total_least=1061.4, total_most=1261.4), Urgency.WELL, "2026-10 will cost ~$1,161.40",
         "$861.40 so far; $1,061.40 to $1,261.40 by the quietest and the busiest of the last days; if no higher demand comes"),
        (replace(WHOLE, total_least=1161.4, total_most=1161.4), Urgency.WELL, "2026-10 will cost ~$1,161.40", "$861.40 so far; if no higher demand comes"),
        (replace(WHOLE, finished=True), Urgency.WELL, "2026-10 cost $861.40", ""),
        (FILLED, Urgency.UNKNOWN, "2026-10 will cost ~$1,161.40", "$861.40 so far; if no higher demand comes; 80% of its hours are measured"),
        (DARK, Urgency.UNKNOWN, "2026-10 has cost ≥$861.40 so far", "Too little is measured for a forecast; without energy, filled; 1% of its hours are measured"),
        (replace(DARK, lines=WHOLE.lines), Urgency.UNKNOWN, "2026-10 has cost ≥$861.40 so far", "Too little is measured for a forecast; 1% of its hours are measured"),
        (replace(WHOLE, unknown=["R14"]), Urgency.UNKNOWN, "2026-10 will cost ~$1,161.40", "$861.40 so far; if no higher demand comes; nothing is known of 1 circuit"),
        (FREE, Urgency.UNKNOWN, "2026-10: 8,614 kWh measured", "No price is set, so that its cost is not known"),
    ],
    ids=["known", "with a range", "all days alike", "finished", "filled", "too little", "too little of the time", "a circuit", "no price"],
)  # fmt: skip
def test_a_month_has_its_sentence(bill: MonthBill, urgency: Urgency, text: str, why: str) -> None:
    found = bill_headline(bill)
    assert (found.urgency, found.text, found.why) == (urgency, text, why)


def test_the_figures_mark_what_is_filled_missing_and_not_known() -> None:
    today = Upkeep(kwh=213.0, cost=28.1, hours=14.0)
    shown = {one.row.label: one for one in bill_figures(WHOLE, today)}
    assert {label: one.row.value for label, one in shown.items()} == {
        "today": "213 kWh", "the month so far": "8,614 kWh", "highest demand so far": "22.4 kW", "idle GPUs": "19.0 GPU hours",
        "by the month's end": "~$1,161.40",
    }  # fmt: skip
    assert shown["highest demand so far"].row.note == "in 15 min from 2026-10-14T14:30+02:00"
    assert shown["idle GPUs"].part == pytest.approx(0.19)
    filled = {one.row.label: one.row for one in bill_figures(FILLED, replace(today, unknown_hours=2.0))}
    assert filled["the month so far"].value == "~8,915 kWh"
    assert filled["today"].value == "≥213 kWh"
    dark = {one.row.label: one.row for one in bill_figures(DARK)}
    assert dark["the month so far"].value == "≥8,614 kWh"
    for label in ("today", "highest demand so far", "idle GPUs", "by the month's end"):
        assert (dark[label].value, dark[label].tone) == (UNKNOWN, Tone.STALE), label
    over = [one.row.label for one in bill_figures(replace(WHOLE, finished=True))]
    assert over == ["the month", "highest demand", "idle GPUs"]


def test_users_stand_by_their_energy_and_what_no_job_held_last() -> None:
    def row(user: str, kwh: float | None, **more: Any) -> UseRow:
        joules = None if kwh is None else kwh * 3.6e6
        return UseRow(
            user=user, jobs=1, gpu_hours=2.0, hours_coverage=1.0, wall_joules=joules, wall_coverage=1.0, **more
        )

    reply = UseReply(
        at=1, by="user", month="2026-10", timezone="UTC", currency="USD",
        rows=[
            row("ada", 1.0), row("linus", 3.0, cost=1.5, cost_coverage=0.5), row("", None),
            row("grace", None, energy_joules=1.8e6, energy_coverage=0.5),
        ], unheld=row("", 9.0), unreported=row("", 5.0),
    )  # fmt: skip
    found = list(user_lines(reply))
    assert [one.name for one in found] == ["linus", "ada", "grace", "not known", NOBODY, UNREPORTED]
    assert [one.person for one in found] == [True, True, True, False, False, False]
    assert [one.cost for one in found[:2]] == ["~$1.50", "not known"]
    assert [one.energy for one in found[:4]] == ["3.00 kWh", "1.00 kWh", "~0.50 kWh at the GPUs", "not known"]


def test_a_chart_of_days_says_how_many_are_not_known() -> None:
    assert (
        days_words([None, DayEnergy(213.0, 0.0), None])
        == "energy of each day at the wall, up to 213 kWh, 2 days not known"
    )
    assert days_words([None]) == "nothing is stored of these days"
