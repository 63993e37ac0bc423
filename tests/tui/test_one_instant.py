"""The figures of the header are of the instant of the GPUs below it: a load that comes and goes shows one number."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from api.columns import ColumnRows
from api.fleet import FleetSummary, ModelSummary, StatusReply
from api.stream import StreamData, StreamWall
from present.units import celsius, watts_of
from tests.tui.test_lines import LIVE, NOW, line_text
from tui.frame.header import header
from tui.kit.text import CROSS
from tui.map.cards import cards
from tui.state.cluster_sums import SUMMED
from tui.state.dashboard_state import AS_NEW, DashboardState
from tui.state.gpus import GpuRows, Gpus
from tui.state.readings import LIMIT, POWER, TEMPERATURE

SECOND = 10**9
WHO = GpuRows.of(ColumnRows(["a", "a"], [0, 1], ["A0", "A1"], ["H100", "H100"], [True, True]))


def state(power: Sequence[float | None], wall: StreamWall | None = None, *, at: float = 11.0) -> DashboardState:
    """Return a status of second 10, of GPUs at 700 W and a wall of 1.8 kW; then readings of the GPUs."""
    summary = FleetSummary(
        nodes={"online": 1},
        models=[ModelSummary(gpus={"reporting": 2})],
        gpu_power_watts=1400.0,
        limited_power_watts=1400.0,
        limited_power_limit_watts=1400.0,
        temperature_max_celsius=70.0,
        utilization_mean_ratio=1.0,
        wall_power_known=1,
    )
    status = StatusReply(
        version="",
        cluster="lab",
        at=10 * SECOND,
        nodes=1,
        gpus=2,
        newest_frame_age_seconds=0.1,
        summary=summary,
        wall_watts=1800.0,
        wall_nodes=1,
    )
    columns = {name: [0.5, 0.5] for name in SUMMED} | {
        POWER: list(power),
        LIMIT: [700.0, 700.0],
        TEMPERATURE: [50.0, 76.0],
    }
    data = StreamData(version=1, at=round(at * SECOND), columns=columns, wall=wall)
    before = DashboardState(status=status, status_came=100.0, at=10 * SECOND, ready=True)
    return before.with_data(data, Gpus(1, WHO))


def shown(found: DashboardState) -> str:
    return line_text(header(found, LIVE, NOW, 160)[1])


def test_the_header_sums_the_cards_below_it() -> None:
    found = state([150.0, 170.0], StreamWall(watts=700.0, nodes=1))
    text = shown(found)
    assert f"GPU power {watts_of(320.0, 1400.0)}" in text
    assert "Wall 700 W (1/1 nodes, 1 metered)" in text
    assert f"hottest {celsius(76.0)}" in text
    drawn = "".join(line_text(line) for line in cards(found, [0, 1], 100, 2, None, None))
    assert "150/700 W" in drawn
    assert "170/700 W" in drawn


@pytest.mark.parametrize("power", [[700.0, 700.0], [150.0, 170.0], [950.0, 950.0]])
def test_a_wall_that_the_readings_do_not_bring_says_its_age(power: list[float]) -> None:
    """An older aggregator tells it in the status alone, a second before."""
    text = shown(state(power))
    assert ("1.0 s older than the GPUs" in text) == (sum(power) > 1800.0)


def test_gpus_are_counted_of_the_readings_that_are_summed() -> None:
    """A status of the second before the first frames said "0/2 reporting" beside the power of both."""
    found = state([150.0, 170.0])
    assert found.status is not None
    silent = ModelSummary(gpus={"silent": 1, "lost": 1})
    status = replace(found.status, summary=replace(found.status.summary, models=[silent]))
    assert "GPUs 2/2 reporting" in shown(dataclasses.replace(found, status=status))
    one = state([150.0, None])
    unread = dataclasses.replace(one.gpus, columns={name: np.array([0.5, np.nan]) for name in one.gpus.columns})
    assert f"GPUs 1/2 reporting  {CROSS}1 lost" in shown(dataclasses.replace(one, status=status, gpus=unread))


def test_a_wall_below_the_gpus_of_its_instant_is_contradicted() -> None:
    """The readings stay as they are."""
    text = shown(state([700.0, 690.0], StreamWall(watts=900.0, nodes=1)))
    assert "GPU power 1.4/1.4 kW" in text
    assert "Wall 900 W (1/1 nodes, 1 metered, contradicted by the GPUs)" in text


def test_readings_of_some_or_of_long_ago_do_not_stand_for_the_cluster() -> None:
    old = state([150.0, 170.0], StreamWall(watts=700.0, nodes=1), at=10.0 - AS_NEW / SECOND - 0.5)
    assert "GPU power 1.4/1.4 kW" in shown(old)
    assert "Wall 1.8 kW (1/1 nodes, 1 metered)" in shown(old)
    one = Gpus(1, GpuRows.of(ColumnRows(["a"], [0], ["A0"], ["H100"], [True])))
    data = StreamData(version=1, at=11 * SECOND, columns={name: [150.0] for name in SUMMED})
    assert "GPU power 1.4/1.4 kW" in shown(old.with_data(data, one))
