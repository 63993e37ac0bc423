"""The overview begins with the headline of the cluster, in the words of the web page, and never well by ignorance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from api.alerts import Alert
from api.errors import ErrorDetail
from api.fleet import ClusterTrends, ModelSummary, Trend
from api.power import CircuitsReply
from present.fleet.headline import IN_THE_KNOWN, WELL
from tests.tui.test_lines import CALM, FIRING, HOT, incidents, line_text, state
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS, INCIDENTS
from tui.state.verdict import trend_lines, verdict_lines

WHOLE: dict[str, Any] = {
    "nodes": {"online": 1250},
    "models": [ModelSummary(gpus={"reporting": 10_000}, power_known=10_000)],
}
LEAD = Alert("k", "r", "firing", "page", "", description="It fell off the bus.", act="Reset it.")


def lines(shown: DashboardState, width: int = 160) -> list[str]:
    """The headline as text."""
    found = verdict_lines(shown, width)
    assert all(cell_len(line_text(line)) <= width for line in found)
    return [line_text(line).rstrip() for line in found]


def test_the_gravest_incident_comes_first_with_what_helps() -> None:
    worst = msgspec.structs.replace(incidents(1)[0], alerts=[LEAD])
    first, second = lines(state([worst, *incidents(2, "ticket")], [CALM], **WHOLE))
    assert first == "▲ 1 page, 2 tickets: what? 0"
    assert second == "  It fell off the bus. What helps: Reset it."
    assert lines(state([worst], [CALM], **WHOLE), 30)[1] == "  What helps: Reset it.", "cut last"


def test_a_circuit_that_trips_is_said_before_its_alert() -> None:
    first, second = lines(state([], [CALM, HOT], **WHOLE))
    assert first.startswith("! PDU-17B may trip")
    assert "What helps: cap each GPU at 540 W" in second
    assert lines(state([], [HOT], (FIRING,), **WHOLE))[0].startswith("! PDU-17B")


def test_the_gentlest_way_alone_is_said_where_all_would_cut_when_a_breaker_trips() -> None:
    ways = "cap each GPU at 540 W; or run 6 of the 8 GPUs here"
    hot = msgspec.structs.replace(HOT, facts={**HOT.facts, "remedy": ways})
    assert f"What helps: {ways}." in lines(state([], [CALM, hot], **WHOLE), 300)[1]
    short = lines(state([], [CALM, hot], **WHOLE), 140)[1]
    assert "typically 6 min 40 s, perhaps never" in short
    assert short.endswith("What helps: cap each GPU at 540 W.")


def test_all_is_well_only_where_all_is_known() -> None:
    assert lines(state([], [CALM], **WHOLE))[0] == f"● {WELL}"
    first, second = lines(state([], [CALM]))
    assert first == f"▒ {IN_THE_KNOWN}"
    assert "1 of 1,250 nodes is not heard" in second
    assert "of 10,000 GPUs is not known" in second


@pytest.mark.parametrize("path", [INCIDENTS, CIRCUITS])
def test_nothing_is_said_before_it_has_come_and_no_refusal_is_good_news(path: str) -> None:
    whole = state([], [CALM], **WHOLE)
    assert lines(replace(whole, docs={name: doc for name, doc in whole.docs.items() if name != path})) == []
    refused = lines(whole.with_doc(path, ErrorDetail("forbidden", "not with this token", ""), 100.0))
    assert refused[0].startswith("▒")
    assert "not with this token" in refused[1]


def test_circuits_that_are_not_monitored_are_said() -> None:
    shown = state([], [], **WHOLE).with_doc(CIRCUITS, CircuitsReply(at=1, failure="panel P: no volts"), 98.0)
    assert lines(shown) == [f"▒ {IN_THE_KNOWN}", "  no circuit is monitored: panel P: no volts"]


def test_whether_it_is_better_or_worse_is_said_only_where_the_aggregator_does() -> None:
    power = Trend(now=6.9e6, before=6.1e6, seconds=3600.0)
    near = Trend(now=0.5, before=0.62, seconds=3600.0)
    whole = state([], [CALM], **WHOLE)
    assert trend_lines(whole, 80) == []
    assert whole.status is not None
    trends = ClusterTrends(wall_watts=power, nearest_ratio=near)
    told = replace(whole, status=msgspec.structs.replace(whole.status, trends=trends))
    words = "  At the wall 800.0 kW more than an hour ago; fullest circuit 12 points down"
    assert [line_text(line) for line in trend_lines(told, 80)] == [words]
    assert [cell_len(line_text(line)) for line in trend_lines(told, 40)] == [40]
    assert lines(told) == lines(whole)
