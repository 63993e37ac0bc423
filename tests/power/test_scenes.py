"""The published situations through live state and rules: exactly the alerts that are predicted."""

from __future__ import annotations

import pytest

from tests.power.sites import DGX_FEED, PAIR, RIG
from tests.power.stage import Stage, meter


def dgx(power_factor: float, watts: float) -> Stage:
    """Two DGX H100 on one feed, ten minutes of idling, then four at `watts` together."""
    limits = {"dgx-01": 5600.0, "dgx-02": 5600.0}
    stage = Stage(DGX_FEED.format(pf=power_factor), limits=limits)
    stage.play(600, wall=dict.fromkeys(limits, 2500.0), every=10)
    stage.play(250, wall=dict.fromkeys(limits, watts / 2), every=5)
    return stage


@pytest.mark.parametrize(
    ("power_factor", "watts", "amps", "ids"),
    [(1.0, 17000, 47.2, ["E01"]), (0.97, 17000, 48.6, ["E02"]), (1.0, 20400, 56.6, ["E02"])],
)
def test_two_dgx_h100_on_one_feed(power_factor: float, watts: float, amps: float, ids: list[str]) -> None:
    """E01 just below 48 A, E02 above; and E07 always, for their limits allow 20.4 kW."""
    stage = dgx(power_factor, watts)
    assert stage.value("circuit_amps", "feed") == pytest.approx(amps, rel=0.002)
    assert stage.ids("feed") == [*ids, "E07"]
    assert stage.value("circuit_trip_earliest_seconds", "feed") == float("inf")


def test_four_5090_on_15_amps() -> None:
    """The band of 22 s to 75 s from cold, then everything fires, and the cap is said to be too low."""
    stage = Stage(RIG.format(gpus="4x RTX 5090", amps=15, volts=120), limits={"rig1": 2300.0}, gpus=4)
    stage.play(130, gpu={"rig1": 60.0}, every=5)
    assert stage.ids("office") == ["E07"]
    stage.play(4, gpu={"rig1": 2300.0})
    # Three of its 22 and 75 seconds have passed, and the breaker was a little warm.
    assert stage.value("circuit_trip_earliest_seconds", "office") == pytest.approx(22 - 4, abs=0.7)
    assert stage.value("circuit_trip_nominal_seconds", "office") == pytest.approx(75 - 4, abs=1.5)
    assert "E04" in stage.ids("office")
    stage.play(20, gpu={"rig1": 2300.0})
    assert stage.ids("office") == ["E03", "E04", "E07"]
    stage.play(120, gpu={"rig1": 2300.0}, every=5)
    assert stage.ids("office") == ["E02", "E03", "E04", "E07"]
    remedy = stage.facts("office")["remedy"]
    assert "255 W" in remedy
    assert "400 W" in remedy
    assert "-lgc" in remedy


def test_four_5090_on_20_amps() -> None:
    """24.1 A are 1.2 times the rating: 91 s at the earliest, 33 min as a rule, or never."""
    stage = Stage(RIG.format(gpus="4x RTX 5090", amps=20, volts=120), limits={"rig1": 2300.0}, gpus=4)
    stage.play(130, gpu={"rig1": 60.0}, every=5)
    stage.play(4, gpu={"rig1": 2300.0})
    assert stage.value("circuit_trip_earliest_seconds", "office") == pytest.approx(91 - 4, rel=0.03)
    assert stage.value("circuit_trip_nominal_seconds", "office") == pytest.approx(33 * 60, rel=0.03)
    assert stage.value("circuit_trip_latest_seconds", "office") == float("inf")
    assert "perhaps never" in stage.facts("office")["band"]
    stage.play(180, gpu={"rig1": 2300.0}, every=5)
    assert stage.ids("office") == ["E02", "E03", "E04", "E07"]


def test_a_pair_at_45_percent_and_the_loss_of_a() -> None:
    """E08 alone; then E09 on the feed that is lost, and on the other E02 beside E08."""
    stage = Stage(PAIR)
    both = [meter(name, watts=2160.0, volts=240.0, amps=9.0) for name in "ab"]
    stage.play(200, meters=both, every=5)
    assert (stage.ids("a"), stage.ids("b")) == (["E08"], ["E08"])
    assert stage.value("circuit_survivor_amps", "b") == pytest.approx(18)
    lost = [meter("a", watts=0.0, volts=0.0, amps=0.0), meter("b", watts=4320.0, volts=240.0, amps=18.0)]
    stage.play(200, meters=lost, every=5)
    assert stage.ids("a") == ["E09"]
    assert stage.ids("b") == ["E02", "E08"]
    assert stage.value("circuit_trip_earliest_seconds", "b") == float("inf")
    stage.play(200, meters=both, every=5)
    assert (stage.ids("a"), stage.ids("b")) == (["E08"], ["E08"])
