"""The circuit's page: all numbers on a line are of one load, which is named."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from api.power import (
    CircuitsReply,
    CircuitState,
    LoadState,
    PowerReply,
    RowsReply,
    RowState,
    TripSeconds,
)
from present.circuit.figures import headroom_text, load, share
from tests.tui.test_lines import LIVE, NOW, line_text, state
from tui.frame.header import header
from tui.screens.circuit import circuit_lines
from tui.screens.overview import circuit_bars
from tui.state.circuit_loads import Loads
from tui.state.circuits import Now, countdown, worst_line
from tui.state.dashboard_state import DashboardState
from tui.state.documents import BUDGETS, CIRCUITS, POWER_PAGE
from tui.state.row_status import RowStatus
from tui.status import as_json, text_lines
from tui.tables.fields import circuit_fields

FALLEN = CircuitState(
    "office", watts=1656.0, amps={"L1": 13.8}, rated_amps=20.0, continuous_amps=16.0, effective_amps=20.0,
    headroom_amps=2.2, load_ratio=0.69, sustained_ratio=1.21, continuous_ratio=1.43, above_continuous_seconds=130.0,
    heat_ratio=0.93, trip_known=True, trip_seconds=TripSeconds(11.0, 40.0, 200.0), source="node_meter",
)  # fmt: skip
"""A circuit whose load has just fallen: now it carries little, and the countdown is of before."""
AFTER = CircuitState(
    "office", watts=1656.0, amps={"L1": 13.8}, rated_amps=20.0, continuous_amps=16.0, effective_amps=20.0,
    headroom_amps=2.2, load_ratio=0.69, sustained_ratio=0.69, continuous_ratio=1.2, trip_known=True,
)  # fmt: skip
"""Ten seconds later; the mean of the minute has not followed yet."""


def page(circuit: CircuitState, width: int = 200) -> list[str]:
    """The page of a circuit as text."""
    past = (np.empty(0), np.empty(0))
    shown = state(circuits=[circuit])
    return [line_text(line) for line in circuit_lines(shown, circuit.id, past, Now(1.0), width, 40, utc=True)]  # fmt: skip


def test_every_number_on_a_line_is_of_the_load_of_the_countdown() -> None:
    assert share(FALLEN) == 1.21
    assert load(FALLEN) == 1656 * 1.21 / 0.69
    assert headroom_text(FALLEN) == "-984 W"
    shown = state(circuits=[FALLEN])
    [bar] = circuit_bars(shown, Now(0.0), 1)
    assert bar.ratio == 1.21
    assert line_text(bar.right).split() == ["121%", "TRIP", "00:11", "-984", "W"]
    assert "office 121% MAY TRIP IN 00:09" in line_text(header(shown, LIVE, NOW, 160)[2])
    assert any(
        line.split() == ["office", "121%", "2.9", "kW", "MAY", "TRIP", "IN", "00:11"]
        for line in text_lines(shown, 0.3)
    )
    assert as_json(shown, 0.3)["circuits"][0]["sustained_ratio"] == 1.21
    assert circuit_fields(shown, [FALLEN])["load"]() == [1.21]


def test_a_load_that_nobody_reports_says_how_it_is_known_and_since_when() -> None:
    held = msgspec.structs.replace(AFTER, load_state=LoadState.LAST_KNOWN, load_state_seconds=130.0)
    assert any("last known for 2 m" in line for line in page(held))
    gone = msgspec.structs.replace(held, load_state=LoadState.UNKNOWN, load_state_seconds=None)
    assert any("unknown" in line for line in page(gone))
    metered = msgspec.structs.replace(held, load_state=LoadState.MEASURED)
    assert not any("measured" in line or "known for" in line for line in page(metered))


def test_a_share_is_of_the_breaker_where_it_is_over_another_limit() -> None:
    over = msgspec.structs.replace(AFTER, sustained_ratio=0.81, above_continuous_seconds=130.0)
    assert line_text(worst_line(state(circuits=[over]), Now(0.0), 1)).strip() == (
        "office 81% of its breaker, over continuous limit for 2 m"
    )


CALM = msgspec.structs.replace(
    AFTER, continuous_ratio=0.8, facts={"remedy": "cap each GPU at 540 W (nvidia-smi -pl 540)"}
)
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
def test_relief_is_shown_where_a_limit_is_passed_or_forecast(
    more: dict[str, Any], said_: bool
) -> None:
    text = "\n".join(page(msgspec.structs.replace(CALM, **more)))
    assert ("nvidia-smi -pl 540" in text) is said_


def test_the_page_names_each_window() -> None:
    lines = page(FALLEN)
    assert lines[1].startswith("MAY TRIP IN 00:10  typically 00:39, at the latest 03:19")
    assert "if the load of the last 10 s stays" in lines[1]
    assert lines[2].startswith("last 10 s  2.9 kW  121% of 20 A  headroom -984 W")
    assert lines[3].endswith("93% of what trips it")
    assert lines[4] == "now  1.7 kW by node_meter  69%  L1 13.8 A"
    assert lines[5] == "last minute  143% of the continuous limit, over it for 2 m"


def test_a_load_that_has_fallen_is_not_called_over() -> None:
    assert countdown(AFTER, RowStatus.OK, Now(0.0)) == ("fell below its continuous limit", "dim")
    still = countdown(FALLEN, RowStatus.OK, Now(0.0))
    assert still == ("MAY TRIP IN 00:11", "strong")


def test_an_older_aggregator_reports_one_load_only() -> None:
    old = CircuitState("old", watts=1000.0, amps={"L1": 10.0}, rated_amps=20.0, continuous_amps=16.0, load_ratio=0.5, headroom_amps=6.0)  # fmt: skip
    assert share(old) == 0.5
    assert load(old) == 1000
    assert page(old)[2].startswith("load  1.0 kW  50% of 20 A  headroom +600 W")


def test_what_is_not_known_is_a_dash() -> None:
    unknown = CircuitState("u", rated_amps=20.0, continuous_amps=16.0, sustained_ratio=0.4)
    assert share(unknown) is None
    assert load(unknown) is None
    assert headroom_text(unknown) == "—"
    assert "—" in page(unknown)[2]
    assert circuit_lines(
        DashboardState(), "u", (np.empty(0), np.empty(0)), Now(0.0), 80, 24, utc=True
    ) == [[("loading …", "dim")]]


ASSUMED = CircuitState(
    "office", watts=2900.0, amps={"L1": 24.2}, rated_amps=20.0, continuous_amps=16.0, effective_amps=20.0,
    headroom_amps=-8.2, load_ratio=1.21, sustained_ratio=1.21, continuous_ratio=None, assumed_watts=2900.0,
    source="committed", facts={"assumed": "all of it is assumed: rig: silent, counted with all that may be drawn",
                               "band": "not known, as part of its load is assumed"},
)  # fmt: skip
"""Its only node is silent: all of its load is assumed."""


def test_an_assumed_load_is_never_shown_as_a_measured_one() -> None:
    shown = state(circuits=[ASSUMED])
    assert "office ~121% assumed power of silent nodes" in line_text(
        header(shown, LIVE, NOW, 160)[2]
    )
    [bar] = circuit_bars(shown, Now(0.0), 1)
    assert line_text(bar.right).split()[:2] == ["~121%", "assumed"]
    row = next(line.split() for line in text_lines(shown, 0.3) if line.startswith("office"))
    assert row[:4] == ["office", "~121%", "~2.9", "kW"]
    assert as_json(shown, 0.3)["circuits"][0]["assumed_watts"] == 2900.0
    text = "\n".join(page(ASSUMED))
    assert "last 10 s  ~2.9 kW  ~121% of 20 A" in text
    assert "now  ~2.9 kW by power commitment" in text
    assert "rig: silent, counted with all that may be drawn" in text
    assert "does not trip" not in text


COOL = CircuitState(
    "office", watts=800.0, amps={"L1": 6.7}, rated_amps=20.0, continuous_amps=16.0, effective_amps=20.0,
    headroom_amps=9.3, load_ratio=0.33, sustained_ratio=0.33, continuous_ratio=0.4, trip_known=True,
)  # fmt: skip


def test_an_unknown_time_to_trip_is_not_never() -> None:
    """Of a circuit within its limits, a part of whose load is assumed, or whose breaker is unknown."""
    known = msgspec.structs.replace(
        ASSUMED, load_ratio=0.5, sustained_ratio=0.5, continuous_ratio=0.6
    )
    assert "trip: not known, as part of its load is assumed" in "\n".join(page(known))
    assert "does not trip at this load" in "\n".join(page(COOL))


def test_a_budget_of_which_a_part_is_assumed_says_about() -> None:
    measured_watts = {"watts": 6e6, "power_ratio": 0.75}
    for assumed, word in ((0.0, "Power 6.00/8.00 MW"), (1e6, "Power ~6.00/8.00 MW")):
        row = RowState("hall", measured_watts | {"assumed_watts": assumed})
        assert word in line_text(
            header(state().with_doc(BUDGETS, RowsReply(rows=[row]), 100.0), LIVE, NOW, 160)[1]
        )


def test_the_wall_says_of_how_many_nodes_it_is() -> None:
    shown = state().with_doc(
        POWER_PAGE, PowerReply(configured=True, wall_watts=9_100.0, wall_nodes=1), 100.0
    )
    nodes = shown.status.nodes if shown.status else 0
    assert f"Wall 9.1 kW (1/{nodes:,} nodes, " in line_text(header(shown, LIVE, NOW, 160)[1])
    nobody = state().with_doc(
        POWER_PAGE, PowerReply(configured=True, wall_watts=None, wall_nodes=0), 100.0
    )
    assert "Wall" not in line_text(header(nobody, LIVE, NOW, 160)[1])


def test_a_chart_draws_measured_loads_only() -> None:
    """An answer without circuits is none; what is assumed is a gap."""
    loads, none = Loads(), CircuitsReply(at=0)
    measured_watts = msgspec.structs.replace(ASSUMED, assumed_watts=0.0)
    for second, found in enumerate(
        ([measured_watts], [measured_watts], none.circuits, [ASSUMED], [measured_watts])
    ):
        loads.add(
            state().with_doc(CIRCUITS, CircuitsReply(at=(second + 1) * 10**9, circuits=found), 98.0)
        )
    at, watts = loads.of("office", 10**10)
    assert at.tolist() == [second * 10**9 for second in (1, 2, 4, 5)]
    np.testing.assert_array_equal(watts, [2900.0, 2900.0, np.nan, 2900.0])
