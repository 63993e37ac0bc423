"""An assumed load raises no alert, and an unknown one resolves none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.power.stage import Stage, meter

SMALL = """
[circuits.a]
breaker = 15
volts = 120
pf = 1.0
[nodes.n1]
gpus = "2x RTX 4090"
[nodes.n1.supply]
watts = 1200
[nodes.n2]
gpus = "2x RTX 4090"
[budgets.house]
circuits = ["a"]
kw = 1.6
[ups.u]
watts = 1600
circuits = ["a"]
"""
CORDS = 'cords = [{ circuit = "a" }]'
SITE = SMALL.replace('gpus = "2x RTX 4090"', f'gpus = "2x RTX 4090"\n{CORDS}')
LIMITS = {"n1": 900.0, "n2": 900.0}
EASY = {"n1": 300.0, "n2": 300.0}
FULL = {"n1": 890.0, "n2": 890.0}
JUDGED = ("circuit_continuous_ratio", "circuit_overload_ratio", "circuit_trip_earliest_seconds")
PAGES = {"E02", "E03", "E04", "E06", "E14", "E15", "E22"}
"""What wakes people by a load. E07 says beforehand what the limits allow, and may."""


def staged() -> Stage:
    """Two nodes that may draw more than their circuit can, and budget and UPS can."""
    stage = Stage(SITE, limits=LIMITS, gpus=2)
    stage.play(130, gpu=EASY)
    return stage


def told(stage: Stage) -> set[str]:
    """Ids that fire on anything, of those that wake people by a load."""
    return {rule for name in ("a", "house", "u", "n1", "n2") for rule in stage.ids(name)} & PAGES


def test_an_overload_that_is_assumed_wakes_nobody() -> None:
    stage = staged()
    assert told(stage) == set()
    stage.hush("n1", "n2")
    stage.play(20)
    for _ in range(28):
        stage.play(10)
        assert told(stage) == set()
    assert stage.value("circuit_load_ratio", "a") > 1.2
    assert stage.value("circuit_assumed_watts", "a") == stage.value("circuit_watts", "a")
    assert all(np.isnan(stage.value(name, "a")) for name in JUDGED)
    assert np.isnan(stage.value("budget_level_ratio", "house"))
    assert np.isnan(stage.value("ups_load_ratio", "u"))
    assert np.isnan(stage.value("supply_load_ratio", "n1"))
    assert stage.facts("a")["assumed"].endswith("n1, n2: silent, counted with all that may be drawn")
    assert stage.facts("a")["band"] == "not known, as part of its load is assumed"


def test_what_was_assumed_wakes_nobody_when_the_nodes_are_back() -> None:
    """The means of 10 and 60 s hold it for a while longer."""
    stage = staged()
    stage.hush("n1", "n2")
    stage.play(120)
    stage.silent.clear()
    for _ in range(120):
        stage.play(1, gpu=EASY)
        assert told(stage) == set()
        assert stage.value("circuit_heat_ratio", "a") < 0.6  # it heats with what was drawn last
    assert stage.value("circuit_assumed_watts", "a") == 0
    assert stage.value("circuit_continuous_ratio", "a") < 1


def test_an_overload_that_was_told_stays_while_its_nodes_are_silent() -> None:
    """Not knowing clears nothing: the breaker may be as hot as it was."""
    stage = staged()
    stage.play(130, gpu=FULL)
    fires = told(stage)
    assert {"E03", "E14", "E22"} <= fires
    stage.hush("n1", "n2")
    for _ in range(40):
        stage.play(10)
        assert told(stage) >= {"E03", "E14", "E22"}
    stage.silent.clear()
    stage.play(200, gpu=EASY)
    assert told(stage) == set()


def test_the_part_that_is_told_suffices() -> None:
    """One node alone is above the limit; what the silent one adds changes nothing."""
    stage = staged()
    stage.hush("n2")
    stage.play(15, gpu={"n1": 300.0})
    assert told(stage) == set()
    stage.play(90, wall={"n1": 15 * 120 * 1.1})
    assert "E03" in told(stage)
    assert 0 < stage.value("circuit_assumed_watts", "a") < stage.value("circuit_watts", "a")


def test_a_limit_that_even_the_assumption_does_not_reach_is_not_passed() -> None:
    stage = Stage(SITE.replace("breaker = 15", "breaker = 60"), limits=LIMITS, gpus=2)
    stage.play(70, gpu=EASY)
    stage.hush("n1", "n2")
    stage.play(60)
    assert 0 < stage.value("circuit_continuous_ratio", "a") < 0.85
    assert np.isinf(stage.value("circuit_trip_earliest_seconds", "a"))


@pytest.mark.parametrize("limits_known", [True, False])
def test_gpus_that_were_not_read_are_assumed(limits_known: bool) -> None:
    """As while a driver is being upgraded: their limits count, and raise no alert."""
    stage = staged()
    none: dict[str, Any] = {"gpus_unread": np.array([2.0, 2.0])}
    if limits_known:
        none["unread_limit_watts"] = np.array([900.0, 900.0])
    for _ in range(12):
        stage.play(10, **none)
        assert told(stage) == set()
    assert stage.value("circuit_load_ratio", "a") > 1
    assert 0.7 < stage.value("circuit_assumed_watts", "a") / stage.value("circuit_watts", "a") < 0.9
    assert stage.facts("a")["assumed"].endswith("GPUs that were not read, counted with their limits")


def test_with_a_meter_nothing_is_assumed() -> None:
    stage = staged()
    stage.hush("n1", "n2")
    stage.play(90, meters=[meter("a", watts=15 * 120 * 1.1, amps=15 * 1.1)])
    assert stage.value("circuit_assumed_watts", "a") == 0
    assert "E03" in told(stage)
    assert "assumed" not in stage.facts("a")


def test_heat_does_not_begin_from_what_nobody_told() -> None:
    """Before the first node has spoken a circuit carries all that it may: a plan, not a past."""
    stage = Stage(SITE, limits=LIMITS, gpus=2)
    for node in LIMITS:
        stage.silent[node] = -np.inf
    stage.play(30)
    assert np.isnan(stage.value("circuit_heat_ratio", "a"))
    stage.silent.clear()
    stage.play(15, gpu=EASY)
    assert 0 < stage.value("circuit_heat_ratio", "a") < 0.6


def test_no_trend_leads_from_one_assumption_to_another() -> None:
    """One node of two falls silent: the load steps up, and no forecast goes on from there."""
    stage = Stage(SITE.replace("breaker = 15", "breaker = 20"), limits=LIMITS, gpus=2)
    stage.play(130, gpu=EASY)
    stage.hush("n2")
    for _ in range(30):
        stage.play(5, gpu={"n1": 300.0})
        assert "E06" not in stage.ids("a")
    assert np.isnan(stage.value("circuit_forecast_rated_seconds", "a"))


def test_a_second_of_not_knowing_delays_nothing() -> None:
    """An aggregator starts: for a second all is assumed. Readings from then on are evaluated as usual."""
    stage = Stage(SITE, limits=LIMITS, gpus=2)
    for node in LIMITS:
        stage.silent[node] = -np.inf
    stage.play(1)
    stage.silent.clear()
    stage.play(20, gpu=FULL)
    assert "E03" in told(stage)
    assert np.isfinite(stage.value("circuit_trip_earliest_seconds", "a"))


def test_a_slight_part_changes_nothing() -> None:
    """One GPU of many is lost, and its limit counts: the model of the others is less sure than that."""
    stage = Stage(SITE, limits=LIMITS, gpus=2)
    drawn = {"n1": 870.0, "n2": 870.0}
    some: dict[str, Any] = {"gpus_unread": np.array([0.04, 0.0]), "unread_limit_watts": np.array([18.0, 0.0])}
    stage.play(90, gpu=drawn, **some)
    assert 0 < stage.value("circuit_assumed_watts", "a") < 0.05 * stage.value("circuit_watts", "a")
    assert "E03" in told(stage)
