"""The list of circuits, second losses, and the bill."""

from __future__ import annotations

import msgspec
import pytest

from api.bill import MonthBill
from api.power import (
    CircuitRows,
    CircuitsReply,
    CircuitState,
    LoadState,
    LossPlan,
    PlanResult,
    SurvivorPlan,
)
from api.report import Report
from present.units import kilowatt_hours, money
from tests.tui.test_lines import HOT, line_text, state
from tui.screens.circuits import COLUMNS, CircuitSource, what_if_lines
from tui.screens.energy import BILL, energy_lines
from tui.state.circuit_columns import QUERY, whole
from tui.state.circuits import Now
from tui.state.documents import TODAY


def cell(circuit: CircuitState, title: str) -> tuple[str, str]:
    source = CircuitSource(state(circuits=[circuit]), [(0, circuit)], Now(0.0), frozenset())
    column = next(each for each in COLUMNS if each.title == title)
    return column.draw(source, 0, 16)


@pytest.mark.parametrize(
    ("known", "seconds", "text", "tone"),
    [(LoadState.MEASURED, 5.0, "measured", "dim"), (LoadState.LAST_KNOWN, 90.0, "last known 90 s", "stale"),
     (LoadState.UNKNOWN, None, "unknown", "stale"), (None, None, "\u2014", "dim")],
)  # fmt: skip
def test_the_list_says_how_each_load_is_known(
    known: LoadState | None, seconds: float | None, text: str, tone: str
) -> None:

    circuit = msgspec.structs.replace(HOT, load_state=known, load_state_seconds=seconds)
    assert cell(circuit, "load is") == (text, tone)


def test_a_what_if_lists_second_losses_those_that_leave_nodes_dark_first() -> None:
    over = SurvivorPlan(id="B1", watts=9e3, amps=131.7, rated_amps=125.0, continuous_amps=100.0,
                        limit_ratio=None, over="rating")  # fmt: skip
    losses = [
        LossPlan(lost=("panel-C",), kind="element", overloaded=[over], unfed=[]),
        LossPlan(lost=("panel-B",), kind="element", overloaded=[], unfed=["dgx-01", "dgx-02"]),
    ]
    plan = PlanResult(circuits=[], panels=[], nodes=[], budgets=[], notices=[], losses=losses)
    lines = [line_text(line) for line in what_if_lines("panel-A", plan, state())]
    assert lines[1] == "and if another is lost as well:"
    assert "panel-B" in lines[2]
    assert "2 nodes without power" in lines[2]
    assert "panel-C" in lines[3]
    assert "B1 105% of its breaker" in lines[3]


def test_the_short_form_of_the_list_has_the_load_state() -> None:
    rows = CircuitRows(id=["A", "B"], kind=["breaker"] * 2, parent=[None, None], nodes=[[], []])
    columns = {"circuit_load_state": [2.0, None], "circuit_load_state_seconds": [90.0, None]}
    found = whole(CircuitsReply(at=1, circuits=[], rows=rows, columns=columns)).circuits
    assert [(each.load_state, each.load_state_seconds) for each in found] == [
        (LoadState.LAST_KNOWN, 90.0),
        (None, None),
    ]
    assert "circuit_load_state," in f"{QUERY},"


def test_the_energy_page_has_the_bill_so_far_and_at_the_end_of_the_month() -> None:
    bill = MonthBill(month="2026-11", currency="USD", hours_elapsed=500.0, hours_known=497.0,
                     kwh_measured=900.0, kwh_recovered=60.0, kwh_filled=40.0, kwh_forecast=440.0,
                     peak_kw=12.34, peak_at="2026-11-20 14:15", total=185.2, total_forecast=266.9)  # fmt: skip
    shown = state().with_doc(TODAY, Report(currency="USD"), 100.0).with_doc(BILL, bill, 100.0)
    lines = [line_text(line) for line in energy_lines(shown, 100, 30)]
    so_far = next(line for line in lines if line.startswith("month so far"))
    assert kilowatt_hours(1000.0) in so_far
    assert money(185.2, "USD") in so_far
    assert "peak 12.3 kW at 2026-11-20 14:15" in "\n".join(lines)
    assert "3 h not known" in "\n".join(lines)
    end = next(line for line in lines if line.startswith("at its end"))
    assert kilowatt_hours(1440.0) in end
    assert money(266.9, "USD") in end
    assert not [line for line in lines if line.startswith("month forecast")]
    unknown = msgspec.structs.replace(bill, kwh_forecast=None, total_forecast=None)
    lines = [
        line_text(line) for line in energy_lines(shown.with_doc(BILL, unknown, 101.0), 100, 30)
    ]
    assert "\u2014" in next(line for line in lines if line.startswith("at its end"))
