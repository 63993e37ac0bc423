"""The list of circuits, second losses, and the bill."""

from __future__ import annotations

import msgspec
import pytest

from api.power import CircuitRows, CircuitsReply, CircuitState, LoadState, LossPlan, PlanResult, SurvivorPlan
from tests.tui.test_lines import HOT, line_text, state
from tui.screens.circuits import COLUMNS, CircuitSource, uncomputed_lines, what_if_lines
from tui.state.circuit_columns import QUERY, whole
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS, Doc


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


def test_what_alone_can_not_be_computed_is_drawn_below_the_list() -> None:
    """The first and how many more, on a terminal that cuts nothing; from columns, too."""
    names = CircuitRows(id=["lab"], kind=["circuit"], parent=[None], nodes=[[]])
    parts = {"meter/plug": "IndexError: index 1 is out of bounds", "budget/home": "KeyError"}
    reply = whole(CircuitsReply(at=1, rows=names, columns={}, set_aside=parts))
    shown = DashboardState(docs={CIRCUITS: Doc(reply, 0.0)})
    lines = uncomputed_lines(shown, 80)
    text = " ".join(line_text(line) for line in lines)
    assert (
        text
        == "meter plug can't be computed, and the others go on: IndexError: index 1 is out of bounds (and 1 more part)"
    )
    assert max(len(line_text(line)) for line in lines) <= 80
    assert uncomputed_lines(DashboardState(), 80) == []


def test_a_what_if_lists_second_losses_those_that_leave_nodes_dark_first() -> None:
    over = SurvivorPlan(
        id="B1", watts=9e3, amps=131.7, rated_amps=125.0, continuous_amps=100.0, limit_ratio=None, over="rating"
    )
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
