"""Counters of energy over restarts: resumed where they were, corrected by a meter's own counter."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from power.live import LivePower
from power.report.load_profile import LoadProfile, demands
from tests.power.stage import EPOCH, Stage, meter

LAB = "[circuits.lab]\nbreaker = 20\nvolts = 240\n"
KWH = 3.6e6


def restarted(memory: dict[str, Any], seconds_later: float, since: Stage) -> Stage:
    """Another process with another monotonic clock, that long after the checkpoint."""
    other = Stage(LAB)
    other.now = since.now + seconds_later
    other.live.restore(memory, other.now, other.wall())
    return other


def drawing(stage: Stage, seconds: float, counter: float | None, watts: float = 1000.0, every: float = 1.0) -> None:
    """Let the lab's meter report."""
    stage.play(seconds, meters=[meter("lab", watts=watts, energy_joules=counter)], every=every)


def test_a_meters_counter_covers_the_time_in_which_kilowatch_was_down() -> None:
    """An hour down at 1 kW: the counter says so, and nothing is missing any more."""
    stage = Stage(LAB)
    drawing(stage, 10, 50 * KWH)
    memory = stage.live.checkpoint()
    before = stage.value("circuit_energy_joules", "lab")
    other = restarted(memory, 3600, stage)
    drawing(other, 1, None)
    assert other.value("circuit_energy_joules", "lab") == pytest.approx(before, abs=1)
    assert other.value("circuit_energy_missing_seconds", "lab") == pytest.approx(3600, abs=2)
    drawing(other, 1, 51 * KWH)
    assert other.value("circuit_energy_joules", "lab") == pytest.approx(before + KWH, rel=0.01)
    assert other.value("circuit_energy_missing_seconds", "lab") == 0
    (found,) = other.live.energy.recovered
    assert found.joules == pytest.approx(KWH, rel=0.01)
    assert (found.start, found.end) == pytest.approx((stage.wall() / 1e9, stage.wall() / 1e9 + 3600), abs=1)


def test_a_first_step_of_more_than_the_gap_can_hold_is_not_its_energy() -> None:
    """A minute down, then the first step that was ever seen: 1 kWh, most of it drawn long before."""
    stage = Stage(LAB)
    drawing(stage, 10, 50 * KWH)
    before = stage.value("circuit_energy_joules", "lab")
    other = restarted(stage.live.checkpoint(), 60, stage)
    drawing(other, 10, 50 * KWH)
    drawing(other, 1, 51 * KWH)
    counted = other.value("circuit_energy_joules", "lab") - before
    assert 0 < counted <= 71 * 1000
    assert other.value("circuit_energy_missing_seconds", "lab") == pytest.approx(60, abs=1)
    assert other.live.energy.recovered == []
    drawing(other, 3600, 51 * KWH, every=10)
    drawing(other, 1, 52 * KWH)
    assert other.value("circuit_energy_joules", "lab") - before - counted == pytest.approx(KWH, rel=0.001)


def test_without_a_counter_the_time_is_missing_and_nothing_is_invented() -> None:
    """And it stays missing over the next restart."""
    stage = Stage(LAB)
    drawing(stage, 10, None)
    before = stage.value("circuit_energy_joules", "lab")
    other = restarted(stage.live.checkpoint(), 600, stage)
    drawing(other, 10, None)
    assert other.value("circuit_energy_joules", "lab") == pytest.approx(before + 9000, abs=1001)
    assert other.value("circuit_energy_missing_seconds", "lab") == pytest.approx(600)
    third = restarted(other.live.checkpoint(), 60, other)
    drawing(third, 1, None)
    assert third.value("circuit_energy_missing_seconds", "lab") == pytest.approx(660)


@pytest.mark.parametrize(
    ("after", "grown"),
    [
        (50_000 * KWH, 0),  # Wh read as kWh: far beyond what the breaker lets through
        (0.5 * KWH, 0.5 * KWH),  # reset while kilowatch was down: what it has counted since
    ],
    ids=["another unit", "a reset"],
)
def test_a_counter_is_believed_as_far_as_it_is_plausible(after: float, grown: float) -> None:
    """20 A at 240 V can't have carried 49,950 kWh in an hour."""
    stage = Stage(LAB)
    drawing(stage, 10, 50 * KWH)
    before = stage.value("circuit_energy_joules", "lab")
    other = restarted(stage.live.checkpoint(), 3600, stage)
    drawing(other, 1, after, watts=0)
    assert other.value("circuit_energy_joules", "lab") - before == pytest.approx(grown, abs=1)
    missing = other.value("circuit_energy_missing_seconds", "lab")
    assert missing == pytest.approx(0 if grown else 3600, abs=1)


def test_another_meters_counter_is_no_continuation() -> None:
    """A meter that was replaced while kilowatch was down counts from elsewhere."""
    stage = Stage(LAB)
    drawing(stage, 10, 50 * KWH)
    other = restarted(stage.live.checkpoint(), 3600, stage)
    before = stage.value("circuit_energy_joules", "lab")
    other.play(1, meters=[meter("lab", meter="new", watts=0.0, energy_joules=50.5 * KWH)])
    assert other.value("circuit_energy_joules", "lab") == pytest.approx(before, abs=1)
    assert other.value("circuit_energy_missing_seconds", "lab") == pytest.approx(3600, abs=1)


def test_a_checkpoint_of_2026_1_resumes_its_counter() -> None:
    """And what does not decode begins at 0, without a fault."""
    stage = Stage(LAB)
    old = {"version": 1, "wall_ns": EPOCH, "lines": {"lab": {"energy_joules": 7.0}}}
    stage.live.restore(old, 1.0, EPOCH)
    assert stage.live.counted_joules() == {"lab": 7.0}
    bad = {"energy_joules": 8.0, "energy_counter": {"meter": "m", "joules": "x"}}
    other = Stage(LAB)
    other.live.restore(old | {"lines": {"lab": bad}}, 1.0, EPOCH)
    assert other.live.counted_joules() == {"lab": 0.0}


BILLED = "[bill]\ndemand_charge = 10.0\n" + LAB


def counting(
    stage: Stage, minutes: int, drawn: float, *, watts: float = 1000.0, told: float | None = None, step: float = KWH
) -> float:
    """Let a meter report twice a minute whose counter moves in steps; return what was drawn in all."""
    for _ in range(2 * minutes):
        drawn += 30 * watts
        counter = 50 * KWH + drawn // step * step
        stage.play(30, meters=[meter("lab", watts=told or watts, energy_joules=counter)], every=30)
    return drawn


def month_of(stage: Stage) -> LoadProfile:
    """The month's profile."""
    profile = stage.live.months.ledger.profile
    assert profile is not None
    return profile


@pytest.mark.parametrize("step", [KWH, 0.1 * KWH])
def test_a_counter_in_coarse_steps_invents_no_demand(step: float) -> None:
    """1 kW all the time: the highest quarter of an hour is 1 kW, however the counter jumps."""
    stage = Stage(BILLED, rules=())
    counting(stage, 240, 0.3 * KWH, step=step)
    profile = month_of(stage)
    watts = demands(profile, ["lab"], stage.wall() / 1e9, 15)
    assert np.nanmax(watts) == pytest.approx(1000, rel=0.01)
    assert np.nanmin(watts) == pytest.approx(1000, rel=0.01)
    assert stage.value("budget_peak_watts", "bill") == pytest.approx(1000, rel=0.01)
    assert profile.energy().sum() == pytest.approx(4 * KWH, rel=0.01)
    # Between two steps the energy goes on by the watts.
    assert stage.value("circuit_energy_joules", "lab") == pytest.approx(4 * KWH, rel=0.01)


def test_a_step_corrects_the_energy_since_the_step_before() -> None:
    """A meter whose watts are a tenth too low: the counter's energy lies evenly over the time, and the demand
    stays that of the watts."""
    stage = Stage(BILLED, rules=())
    drawn = counting(stage, 75, 0.3 * KWH, told=900.0)
    stepped = stage.live.energy._counted_wall[0]
    counting(stage, 120, drawn, told=900.0)
    profile = month_of(stage)
    # The first step was after 42 minutes, the last one after 162.
    assert profile.energy().sum() == pytest.approx((42 * 0.9 + 120 + 33 * 0.9) / 60 * KWH, rel=0.01)
    corrected = profile.series("corrected")[0]
    whole = corrected[int((stepped - profile.month.start) // 900) + 1 :][:4]
    assert whole == pytest.approx([900 * 100] * 4, rel=0.02)
    assert np.nanmax(demands(profile, ["lab"], stage.wall() / 1e9, 15)) == pytest.approx(900, rel=0.01)


def test_a_restart_between_two_steps_loses_nothing_and_counts_nothing_twice() -> None:
    """Down for 100 s three times, in the middle of steps; the checkpoint has the time of the last step."""
    stage, drawn = Stage(BILLED, rules=()), 0.3 * KWH
    for _ in range(3):
        drawn = counting(stage, 70, drawn)
        at = stage.live.checkpoint()["lines"]["lab"]["energy_counter"]["at"]
        assert stage.wall() / 1e9 - at > 60
        other = Stage(BILLED, rules=())
        other.live = LivePower(other.live.layout, 1, stage.live.months.ledger)
        other.now = stage.now + 100
        other.live.restore(json.loads(json.dumps(stage.live.checkpoint())), other.now, other.wall())
        drawn, stage = drawn + 100 * 1000, other
    counting(stage, 70, drawn)
    whole = 4 * 70 * 60_000 + 300_000
    assert stage.value("circuit_energy_joules", "lab") == pytest.approx(whole, abs=0.01 * KWH)
    assert month_of(stage).series("recovered").sum() + month_of(stage).energy().sum() == pytest.approx(
        whole, abs=0.01 * KWH
    )
    assert stage.value("circuit_energy_missing_seconds", "lab") == 0


def test_a_counter_that_stood_still_tells_that_nothing_was_drawn_if_its_steps_are_fine() -> None:
    """Switched off while kilowatch is down for an hour: a counter in Wh proves it, one in kWh does not."""
    for step, missing in ((3600.0, 0), (KWH, 3600)):
        stage = Stage(LAB)
        drawn = counting(stage, 130, 0.0, step=step)
        other = restarted(stage.live.checkpoint(), 3600, stage)
        counting(other, 5, drawn, watts=0.0, step=step)
        assert other.value("circuit_energy_missing_seconds", "lab") == missing
        if not missing:
            assert other.value("circuit_energy_joules", "lab") == pytest.approx(drawn, rel=0.01)
