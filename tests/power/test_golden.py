"""The published examples: loads, alerts, caps, and two clusters side by side."""

from __future__ import annotations

import tomllib

import msgspec
import numpy as np
import pytest

from power.devices.supply import Tier, dc_watts, points_of, wall_watts
from power.devices.wall_power import WallSource
from power.forecast import seconds_until, trends
from power.live.calibration import WallCalibrator
from power.plan.plan import Suppose
from power.report.cluster_parts import parts_of
from power.report.energy import between, cost
from power.report.report import describe, times_cheaper
from power.site.decode import decode
from power.wiring import Wiring, amps_per_watt, imbalance, neutral_amps
from tests.power.sites import DGX_FEED, PAIR, RIG, circuit, planned
from tests.power.stage import Stage, meter


def test_line_to_line_branches_combine_on_a_pole() -> None:
    """62.5 A and 50 A make 97.6 A, by formula and by phasors. Each branch is P / (V_LL * PF): dividing
    by sqrt(3) first would understate the line by 1.73."""
    assert pytest.approx(97.6, rel=0.001) == (62.5**2 + 50**2 + 62.5 * 50) ** 0.5
    between = {(0, 1): 62.5, (0, 2): 50.0}
    volts = 208 / 3**0.5
    total = np.zeros(3, dtype=complex)
    for poles, amps in between.items():
        total += amps * 208 * amps_per_watt(poles, volts, 1.0, Wiring.WYE)
    assert abs(total[0]) == pytest.approx(97.6, rel=0.001)
    assert neutral_amps(total) == pytest.approx(0, abs=1e-9)


def test_split_phase_neutral_carries_the_difference() -> None:
    """12 A and 5 A to neutral leave 7 A; a 240 V load adds to both poles."""
    legs = [amps_per_watt((p,), 120, 1.0, Wiring.SPLIT) * 120 * a for p, a in ((0, 12), (1, 5))]
    both = amps_per_watt((0, 1), 120, 1.0, Wiring.SPLIT) * 240 * 3
    total = legs[0] + legs[1] + both
    assert np.abs(total[:2]) == pytest.approx([15, 8])
    assert neutral_amps(total) == pytest.approx(7)
    assert imbalance(np.abs(total[None, :2]))[0] == pytest.approx(3.5 / 11.5)


@pytest.mark.parametrize(
    ("power_factor", "watts", "amps", "alerts"),
    [(1.0, 17000, 47.2, ["E01"]), (0.97, 17000, 48.6, ["E02"]), (1.0, 20400, 56.6, ["E02"])],
)
def test_two_dgx_h100_on_one_feed(power_factor: float, watts: float, amps: float, alerts: list[str]) -> None:
    """208 V, 60 A, three-phase: 48 A continuously."""
    each = {"dgx-01": watts / 2, "dgx-02": watts / 2}
    found = circuit(planned(DGX_FEED.format(pf=power_factor), Suppose(watts=each)), "feed")
    assert found.continuous_amps == 48
    assert list(found.amps.values()) == pytest.approx([amps] * 3, rel=0.002)
    assert found.alerts == alerts


@pytest.mark.parametrize(
    ("gpus", "breaker", "volts", "amps"),
    [("4x RTX 5090", 20, 120, 24.1), ("4x RTX 4090", 20, 120, 19.4), ("4x RTX 5090", 20, 240, 11.8)],
)
def test_worked_examples(gpus: str, breaker: float, volts: float, amps: float) -> None:
    """250 W host, gold supply."""
    text = RIG.format(gpus=gpus, amps=breaker, volts=volts)
    assert circuit(planned(text), "office").amps["L1"] == pytest.approx(amps, rel=0.02)


def test_four_5090_on_15_amps_and_on_20() -> None:
    """The band, the rules, and the cap that no such card takes."""
    fifteen = circuit(planned(RIG.format(gpus="4x RTX 5090", amps=15, volts=120)), "office")
    assert fifteen.alerts == ["E02", "E03", "E04", "E07"]
    assert fifteen.trip_seconds["earliest"] == pytest.approx(22, rel=0.02)
    assert fifteen.trip_seconds["nominal"] == pytest.approx(75, rel=0.02)
    assert fifteen.cap is not None
    assert fifteen.cap.watts_per_gpu == 255
    assert fifteen.cap.floor_watts == 400
    assert not fifteen.cap.reachable
    assert any("-lgc" in way for way in fifteen.cap.instead)
    twenty = circuit(planned(RIG.format(gpus="4x RTX 5090", amps=20, volts=120)), "office")
    assert twenty.trip_seconds["earliest"] == pytest.approx(91, rel=0.02)
    assert twenty.trip_seconds["nominal"] == pytest.approx(33 * 60, rel=0.02)
    assert twenty.trip_seconds["latest"] is None


def test_what_stands_in_for_a_cap_clears_it_too() -> None:
    """Fewer cards at their floor; the rest of the ways at the limits that are in force."""
    rig = RIG.replace("pf = 0.98", "pf = 0.98\nother_w = {other}")
    for other, size in ((0, 35), (600, 40)):
        found = circuit(planned(rig.format(gpus="4x RTX 5090", amps=20, volts=120, other=other)), "office")
        assert found.cap is not None
        ways = "; ".join(found.cap.instead)
        assert f"a circuit of {size} A" in ways
        larger = planned(rig.format(gpus="4x RTX 5090", amps=size, volts=120, other=other))
        assert set(circuit(larger, "office").alerts) <= {"E01"}
        keep = int(ways.partition("run ")[2][0])
        assert f"run {keep} of the 4 GPUs here, each capped at 400 W" in ways
        fewer = rig.format(gpus=f"{keep}x RTX 5090", amps=20, volts=120, other=other)
        assert set(circuit(planned(fewer, Suppose(cap=400)), "office").alerts) <= {"E01"}
        assert "move it to 240 V, where 12 A do" in ways


@pytest.mark.parametrize(
    ("other", "way"),
    [(800, "stop all work on the GPUs here"), (1500, "stop all work on the GPUs here and shut machines down")],
)
def test_where_no_gpu_has_room_work_stops_before_an_electrician_comes(other: int, way: str) -> None:
    rig = RIG.replace("pf = 0.98", "pf = 0.98\nother_w = {other}")
    found = circuit(planned(rig.format(gpus="4x RTX 5090", amps=15, volts=120, other=other)), "office")
    assert found.cap is not None
    ways = [each for each in found.cap.instead if "clocks" not in each]
    assert ways[0] == way
    assert ways[-1].endswith("by an electrician")


def test_the_cap_clears_what_it_says_it_clears() -> None:
    """With cards that take it, the plan under that cap is quiet."""
    text = RIG.format(gpus="4x RTX 3090", amps=15, volts=120)
    cap = circuit(planned(text), "office").cap
    assert cap is not None
    assert cap.reachable
    quiet = circuit(planned(text, Suppose(cap=cap.watts_per_gpu)), "office")
    assert not {"E02", "E03", "E04", "E07"} & set(quiet.alerts)
    loud = circuit(planned(text, Suppose(cap=cap.watts_per_gpu + 2)), "office")
    assert "E02" in loud.alerts


def test_a_pair_at_45_percent_fails_over_too_high() -> None:
    """E08 speaks, E01 is silent; after the loss the survivor carries all."""
    both = planned(PAIR)
    assert [c.alerts for c in both.circuits] == [["E08"], ["E08"]]
    assert circuit(both, "b").survivor_amps == pytest.approx(18)
    lost = planned(PAIR, Suppose(lose=["a"]))
    assert circuit(lost, "a").alerts == ["E09"]
    assert circuit(lost, "b").amps["L1"] == pytest.approx(18)
    assert {"E02", "E08"} <= set(circuit(lost, "b").alerts)


def test_a_silent_node_keeps_its_committed_watts() -> None:
    """Never 0, so that a failover forecast does not fall with a dead collector."""
    stage = Stage(PAIR)
    stage.play(5)
    stage.hush("n")
    stage.play(95)
    assert stage.value("supply_wall_watts", "n") == 4320
    heard = circuit(planned(PAIR, Suppose(watts={"n": stage.value("supply_wall_watts", "n")})), "a")
    assert heard.survivor_amps == pytest.approx(18)
    assert stage.value("circuit_survivor_amps", "a") == pytest.approx(18)


def test_an_imported_rating_is_not_derated_twice() -> None:
    """120 V x 15 A x 80 % is 1,440 W, once."""
    text = "[circuits.x]\nrated_amps = 12\nrating_is_derated = true\nvolts = 120\npf = 1.0\nnodes = ['n']"
    found = circuit(planned(text, Suppose(watts={"n": 1440})), "x")
    assert found.continuous_amps == 12
    assert found.alerts == ["E01"]
    assert set(found.trip_seconds.values()) == {None}


SUPERCHIP = """
[circuits.a]
breaker = 20
volts = 230
[nodes.n]
host_watts = 100
supply = { tier = "titanium" }
cords = [{ circuit = "a" }]
"""


def test_module_scope_is_not_counted_twice() -> None:
    """GH200: CPU and GPU are one reading, and half of the host's 100 W is that CPU."""
    stage = Stage(SUPERCHIP, limits={"n": 900.0}, gpus=1)
    stage.play(5, gpu={"n": 900.0}, host_watts=np.array([300.0]), module_scope=np.array([True]))
    assert stage.value("supply_wall_watts", "n") == pytest.approx(950 / 0.96)
    assert stage.value("supply_wall_sigma_watts", "n") > 0


def test_the_best_fresh_source_wins_and_a_stale_one_shows() -> None:
    """A reversed clamp reads its magnitude."""
    stage = Stage(SUPERCHIP)
    plug = msgspec.structs.replace(meter("n"), kind="node", source=WallSource.PLUG, watts=-500.0, period=10.0)
    stage.play(20, wall={"n": 520.0}, meters=[plug])
    assert stage.value("supply_wall_watts", "n") == 500
    assert stage.facts("a")["source"] == WallSource.PLUG
    stage.play(80, wall={"n": 520.0})
    assert stage.value("supply_wall_watts", "n") == 520
    assert stage.facts("a")["source"] == WallSource.BMC
    assert stage.value("supply_wall_sigma_watts", "n") == pytest.approx(0.19 * 520)
    stage.play(60)
    assert stage.facts("a")["source"] == WallSource.COMMITTED  # no source is left


def test_supplies_and_calibration() -> None:
    """Half load is the best point; the inverse is an inverse; a meter teaches a line."""
    gold = points_of(Tier.GOLD, 120)
    assert wall_watts(800, gold, 1600) == pytest.approx(800 / 0.90)
    assert dc_watts(wall_watts(123, gold, 1600), gold, 1600) == pytest.approx(123)
    known, fit = np.array([False]), WallCalibrator(2)
    for lesson in range(40):
        own = np.array([100.0 * (lesson % 12), 500.0])
        fit.learn(10.0 * lesson, own, np.repeat(known, 2), np.array([150 + 1.1 * own[0], 600.0]))
    offset, slope, _, valid = fit.fits()
    assert (offset[0], slope[0]) == pytest.approx((150, 1.1))
    assert valid.tolist() == [True, False]


def test_trend_and_energy() -> None:
    """A ramp meets a limit when it must; noise without slope says nothing."""
    seconds = np.arange(0.0, 100.0, 5.0)
    noise = 1000 + (-1.0) ** np.arange(len(seconds))
    level, slope = trends(seconds, np.stack([1000 + 5 * seconds, noise], axis=1))
    ahead = seconds_until(level, slope, np.array([1975.0, 1975.0]))
    assert ahead[0] == pytest.approx(100)
    assert np.isnan(slope[1])
    assert ahead[1] == np.inf
    assert cost(between(1000, 1000, 3600, 3600).kwh, 0.2, pue=1.5) == pytest.approx(0.3)


def test_two_published_clusters_side_by_side() -> None:
    """Verdict by links: the same cards unlinked are a pile."""
    dgx = '[nodes.{}]\nprofile = "dgx-h100"\nlinked_gpus = 8\n'
    rig = '[nodes.rig]\ngpus = "4x RTX 5090"\nhost_price_usd = 4000\n'
    both = dgx.format("a") + dgx.format("b")
    one, other = (describe(parts_of("s", decode("s", tomllib.loads(text)))) for text in (both, rig))
    assert (one.memory_gb, one.price_usd, one.sustained_watts) == (1280, 700_000, 17_000)
    assert (round(one.homes or 0, 2), round(one.ev_hours or 0, 2)) == (14.17, 5.29)
    assert (one.pools, one.verdict) == (((8, 640), (8, 640)), "cluster")
    assert (other.memory_gb, other.price_usd, other.sustained_watts) == (128, 11_996, 2550)
    assert (other.homes, round(other.ev_hours or 0, 2)) == (2.125, 35.29)
    assert (other.pools, other.verdict) == (((1, 32),) * 4, "pile")
    assert round(times_cheaper(one, other) or 0) == 58
    alone = describe(parts_of("s", decode("s", tomllib.loads(both.replace("= 8", "= 1")))))
    assert alone.verdict == "pile"
