"""The circuit's page: all numbers on a line are of one load, which is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from api.power import CircuitsReply, CircuitState, LoadState, PowerReply, RowsReply, RowState, TripSeconds
from present.circuit.figures import load, share
from tests.present.circuits import AFTER, ASSUMED, FALLEN
from tests.tui.test_lines import LIVE, NOW, line_text, state
from tui.frame.header import header
from tui.screens.circuit import circuit_lines
from tui.screens.overview import circuit_bars
from tui.state.circuit_loads import Loads
from tui.state.circuits import Now, worst_line
from tui.state.dashboard_state import DashboardState
from tui.state.documents import BUDGETS, CIRCUITS, POWER_PAGE
from tui.status import as_json, text_lines
from tui.tables.fields import circuit_fields


def page(circuit: CircuitState, width: int = 200) -> list[str]:
    """The page of a circuit as text."""
    past = (np.empty(0), np.empty(0))
    shown = state(circuits=[circuit])
    return [line_text(line) for line in circuit_lines(shown, circuit.id, past, Now(1.0), width, 40, utc=True)]


def test_every_number_on_a_line_is_of_the_load_of_the_countdown() -> None:
    assert share(FALLEN) == 1.21
    assert load(FALLEN) == 1656 * 1.21 / 0.69
    shown = state(circuits=[FALLEN])
    [bar] = circuit_bars(shown, Now(0.0), 1)
    assert bar.ratio == 1.21
    assert line_text(bar.right).split() == ["121%", "TRIP", "00:11", "-984", "W"]
    assert "office 121% MAY TRIP IN 00:09" in line_text(header(shown, LIVE, NOW, 160)[2])
    assert any(
        line.split() == ["office", "121%", "2.9", "kW", "MAY", "TRIP", "IN", "00:11"] for line in text_lines(shown, 0.3)
    )
    assert as_json(shown, 0.3)["circuits"][0]["sustained_ratio"] == 1.21
    assert circuit_fields(shown, [FALLEN])["load"]() == [1.21]


def test_a_share_is_of_the_breaker_where_it_is_over_another_limit() -> None:
    over = replace(AFTER, sustained_ratio=0.81, above_continuous_seconds=130.0)
    assert line_text(worst_line(state(circuits=[over]), Now(0.0), 1)).strip() == (
        "office 81% of its breaker, over its continuous limit for 2 m"
    )


CALM = replace(AFTER, continuous_ratio=0.8, facts={"remedy": "cap each GPU at 540 W (nvidia-smi -pl 540)"})
"""One that nothing presses; the aggregator says all the same what would relieve it."""


@pytest.mark.parametrize(
    ("more", "said_"),
    [
        ({}, False),
        ({"sustained_ratio": 0.9}, True),
        ({"forecast_rated_seconds": 600.0}, True),
        ({"forecast_continuous_seconds": 600.0}, True),
        ({"trip_seconds": TripSeconds(600.0)}, True),
    ],
    ids=["calm", "over its limit", "full soon", "over it soon", "trips"],
)
def test_relief_is_shown_where_a_limit_is_passed_or_forecast(more: dict[str, Any], said_: bool) -> None:
    text = "\n".join(page(replace(CALM, **more)))
    assert ("nvidia-smi -pl 540" in text) is said_


def test_an_assumed_load_is_never_shown_as_a_measured_one() -> None:
    shown = state(circuits=[ASSUMED])
    top = line_text(header(shown, LIVE, NOW, 160)[2])
    assert "office ~121% of its breaker, over by assumed power" in top
    [bar] = circuit_bars(shown, Now(0.0), 1)
    assert line_text(bar.right).split()[:2] == ["~121%", "assumed"]
    row = next(line.split() for line in text_lines(shown, 0.3) if line.startswith("office"))
    assert row[:4] == ["office", "~121%", "~2.9", "kW"]
    assert as_json(shown, 0.3)["circuits"][0]["assumed_watts"] == 2900.0


def test_how_a_load_is_known_is_said_where_it_is_not_measured() -> None:
    held = replace(AFTER, load_state=LoadState.LAST_KNOWN, load_state_seconds=130.0)
    assert any("last known for 2 m" in line for line in page(held))
    assert not any("measured" in line for line in page(AFTER))


def test_an_older_aggregator_reports_one_load_only() -> None:
    old = replace(AFTER, load_ratio=0.5, sustained_ratio=None)
    assert (share(old), load(old)) == (0.5, 1656.0)


def test_a_share_without_watts_is_no_load() -> None:
    unknown = CircuitState("u", rated_amps=20.0, continuous_amps=16.0, sustained_ratio=0.4)
    assert (share(unknown), load(unknown)) == (None, None)
    nothing = circuit_lines(DashboardState(), "u", (np.empty(0), np.empty(0)), Now(0.0), 80, 24, utc=True)
    assert nothing == [[("loading …", "dim")]]


def test_a_budget_of_which_a_part_is_assumed_says_about() -> None:
    measured_watts = {"watts": 6e6, "power_ratio": 0.75}
    for assumed, word in ((0.0, "Power 6.00/8.00 MW"), (1e6, "Power ~6.00/8.00 MW")):
        row = RowState("hall", measured_watts | {"assumed_watts": assumed})
        assert word in line_text(header(state().with_doc(BUDGETS, RowsReply(rows=[row]), 100.0), LIVE, NOW, 160)[1])


def test_the_wall_says_of_how_many_nodes_it_is() -> None:
    shown = state().with_doc(POWER_PAGE, PowerReply(configured=True, wall_watts=9_100.0, wall_nodes=1), 100.0)
    nodes = shown.status.nodes if shown.status else 0
    assert f"Wall ≥9.1 kW (1/{nodes:,} nodes, " in line_text(header(shown, LIVE, NOW, 160)[1])
    assert shown.status is not None
    now = dataclasses.replace(shown, status=replace(shown.status, wall_watts=9_900.0, wall_nodes=2))
    assert f"Wall ≥9.9 kW (2/{nodes:,} nodes, " in line_text(header(now, LIVE, NOW, 160)[1]), (
        "the status is of this second, the document is fetched now and then"
    )
    nobody = state().with_doc(POWER_PAGE, PowerReply(configured=True, wall_watts=None, wall_nodes=0), 100.0)
    assert "Wall" not in line_text(header(nobody, LIVE, NOW, 160)[1])


def test_a_chart_draws_measured_loads_only() -> None:
    """An answer without circuits is none; what is assumed is a gap."""
    loads, none = Loads(), CircuitsReply(at=0)
    measured_watts = replace(ASSUMED, assumed_watts=0.0)
    for second, found in enumerate(([measured_watts], [measured_watts], none.circuits, [ASSUMED], [measured_watts])):
        loads.add(state().with_doc(CIRCUITS, CircuitsReply(at=(second + 1) * 10**9, circuits=found), 98.0))
    at, watts = loads.of("office", 10**10)
    assert at.tolist() == [second * 10**9 for second in (1, 2, 4, 5)]
    np.testing.assert_array_equal(watts, [2900.0, 2900.0, np.nan, 2900.0])
