"""Hot, grouped and cold breakers: each edge of a trip band over the rating that it is promised of."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from power.devices.breaker import Curve, band, effective_amps, latest_amps
from power.devices.thermal import Element, cold, seconds_to_trip
from power.meters.reading import MeterReading
from tests.power.simulated_breaker import STANDARDS, draw
from tests.power.stage import Stage, meter

C32 = "region = 'UK'\n[circuits.a]\nbreaker = 32\ncurve = 'IEC-C'\npf = 1.0\nnodes = ['n']\n"
GROUPED = C32.replace("pf", "grouping = 0.6\npf")
PLAIN = "[circuits.a]\nbreaker = 20\nvolts = 120\npf = 1.0\n"


@pytest.mark.parametrize(
    ("curve", "ambient", "grouping", "effective", "tested"),
    [
        (Curve.IEC_C, 30, 1.0, 32, 32),
        (Curve.IEC_C, 30, 0.6, 19.2, 32),
        (Curve.IEC_C, 50, 1.0, 28.8, 32),
        (Curve.IEC_C, 10, 1.0, 32, 35.2),
        (Curve.IEC_C, 10, 0.6, 21.12, 35.2),
        (Curve.UL489, 30, 1.0, 32, 32),
        (Curve.UL489, 15, 1.0, 32, 33.6),
        (Curve.GG, 10, 1.0, 32, 33.6),
        (Curve.HYDRAULIC_MAGNETIC, -20, 0.5, 16, 32),
    ],
)
def test_the_earliest_edge_is_derated_and_the_latest_is_not(
    curve: Curve, ambient: float, grouping: float, effective: float, tested: float
) -> None:
    """Heat and neighbours make a trip earlier; they promise none. Cold makes it later."""
    assert effective_amps(32, curve, ambient, grouping) == pytest.approx(effective)
    assert latest_amps(32, curve, ambient) == pytest.approx(tested)
    own, derated = band(curve, 32), band(curve, 32).derated(effective, tested)
    for law, at in ((own.latest, tested), (own.earliest, effective), (own.nominal, effective)):
        edge = derated.latest if law is own.latest else derated.earliest if law is own.earliest else derated.nominal
        assert edge.pickup * effective == pytest.approx(law.pickup * at)
        amps = [one.from_ratio * effective for one in edge.laws]
        beside = effective if law is own.earliest else tested
        assert amps == pytest.approx([one.from_ratio * beside for one in law.laws])


@pytest.mark.parametrize("curve", [Curve.IEC_C, Curve.UL489, Curve.GG, Curve.JIS, Curve.IEC_Z])
def test_the_edges_of_a_derated_band_stand_in_order(curve: Curve) -> None:
    """At every load; a higher load never trips later."""
    element = Element.of([band(curve, 32).derated(32 * 0.6, 32 * 1.1)])
    before = [math.inf] * 3
    for ratio in np.linspace(0.9, 40, 150):
        now = seconds_to_trip(cold(1), np.array([ratio]), element)[0].tolist()
        assert now[0] <= now[1] <= now[2]
        assert all(a <= b for a, b in zip(now, before, strict=True))
        before = now


def test_a_grouped_breaker_below_its_rating_need_never_trip_live() -> None:
    """C32 grouped by 0.6 with 28 A: it may trip in minutes, and no latest time is promised, in numbers and words."""
    stage = Stage(GROUPED)
    stage.play(120, wall={"n": 28 * 230.0}, every=10)
    assert stage.value("circuit_trip_earliest_seconds", "a") < 600
    assert stage.value("circuit_trip_latest_seconds", "a") == math.inf
    assert "perhaps never" in stage.facts("a")["band"]
    hard = Stage(GROUPED)
    hard.play(1, wall={"n": 192 * 230.0})
    assert hard.value("circuit_trip_earliest_seconds", "a") == 0
    assert 1 < hard.value("circuit_trip_latest_seconds", "a") < 9


def test_an_assumed_start_promises_no_trip() -> None:
    """A breaker that was switched on just now trips as late as a cold one; it may trip as a warm one."""
    stage = Stage(C32)
    stage.play(1, wall={"n": 48 * 230.0})
    assert stage.value("circuit_heat_assumed", "a") == 1
    from_cold = seconds_to_trip(cold(1), np.array([1.5]), Element.of([band(Curve.IEC_C, 32)]))[0]
    assert stage.value("circuit_trip_latest_seconds", "a") == pytest.approx(from_cold[2], rel=0.01)
    assert stage.value("circuit_trip_earliest_seconds", "a") < 0.9 * from_cold[0]


@pytest.mark.parametrize("restarts", [False, True], ids=["a silent meter", "a restart"])
def test_no_trip_is_promised_of_a_load_that_nobody_measured(restarts: bool) -> None:
    """A breaker of 20 A at 1.4 times its rating is unseen for nine minutes: it may have been off meanwhile."""
    watts = 120 * 20 * 1.4

    def latest(unseen: list[MeterReading]) -> float:
        stage = Stage(PLAIN)
        stage.play(120, meters=[meter("a", watts=500.0)])
        stage.play(30, meters=[meter("a", watts=watts)])
        if unseen or not restarts:
            stage.play(540, meters=unseen)
        else:
            memory, now = stage.live.checkpoint(), stage.now + 540
            stage = Stage(PLAIN)
            stage.now = now
            stage.live.restore(memory, now, stage.wall())
        stage.play(10, meters=[meter("a", watts=watts)])
        return stage.value("circuit_trip_latest_seconds", "a")

    off = latest([meter("a", watts=0.0)])
    assert 1300 < off < 1340
    assert latest([]) == pytest.approx(off, abs=30)


def test_heat_over_a_restart_is_the_same_before_and_after_the_grouping_is_changed() -> None:
    """Heat is stored over the effective rating: another one converts it, an older checkpoint is of the present one."""
    stage = Stage(GROUPED)
    stage.play(600, wall={"n": 18 * 230.0}, every=20)
    memory = json.loads(json.dumps(stage.live.checkpoint()))
    before = stage.live.breaker_heat.heat.slow[0] * 19.2**2

    def after(text: str, kept: dict[str, object]) -> Stage:
        other = Stage(text)
        other.live.restore(kept, other.now, stage.wall())
        other.play(1, wall={"n": 18 * 230.0})
        return other

    for text, rating in ((GROUPED, 19.2), (C32, 32.0)):
        amps2 = after(text, memory).live.breaker_heat.heat.slow[0] * rating**2
        assert amps2 == pytest.approx(before, rel=0.01)
    for line in memory["lines"].values():
        del line["effective_amps"]
    same = after(GROUPED, memory)
    older = same.live.breaker_heat.heat.slow[0] * 19.2**2
    assert older[:2] == pytest.approx(before[:2], rel=0.01)
    assert older[2] < 0.02 * before[2], "an older release assumed its latest edge to be warm"
    assert same.value("circuit_trip_latest_seconds", "a") == math.inf


def test_simulated_breakers_between_cool_and_derated_trip_inside_their_bands() -> None:
    """However much of the derating is real, from none to all of it: at least 99 % inside, from cold."""
    random = np.random.default_rng(17)
    count = 1200
    breakers = draw(count, random)
    grouping = random.uniform(0.6, 1.0, count)
    real = random.uniform(grouping, 1.0)
    ratio = random.uniform(1.0, 4.0, count)
    element = Element.of(
        [
            band(Curve(STANDARDS[n].name), 1.0 * STANDARDS[n].rated_amps).derated(part, 1.0)
            for n, part in zip(breakers.standard, grouping, strict=True)
        ]
    )
    hours = np.full(count, 7200.0)
    breakers.magnetic = breakers.magnetic / real  # a magnet feels neither heat nor neighbours
    opens = breakers.trip_after(ratio / real, hours, 1500)
    edges = seconds_to_trip(cold(count), ratio / grouping, element)
    tripped = np.isfinite(opens)
    assert tripped.sum() > 900
    early = edges[tripped, 0] > opens[tripped] * 1.005 + 0.5
    late = edges[tripped, 2] < opens[tripped] * 0.995 - 0.5
    assert (early | late).mean() <= 0.01
    assert (edges[~tripped, 2] < 7200).mean() <= 0.01
