"""One situation for each electrical rule, through live state and shipped rules: it speaks, no other
does that should not, and it ends."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from power.devices.wall_power import WallSource
from power.meters.reading import MeterReading
from tests.power.sites import RIG
from tests.power.stage import EPOCH, Stage, live_of, meter

OFFICE = """
[circuits.office]
breaker = 20
volts = 120
pf = 1.0
[nodes.rig]
watts = 100
cords = [{ circuit = "office" }]
"""
RACK = """
[panels.p]
volts = 208
wiring = "3ph-wye"
breaker = 100
[circuits.r1]
panel = "p"
breaker = 30
poles = 3
pf = 1.0
nodes = ["n1", "n2", "n3"]
[circuits.r2]
panel = "p"
breaker = 30
poles = 3
pf = 1.0
nodes = ["n4", "n5"]
"""
NODES = [f"n{number}" for number in range(1, 6)]


def of(circuit: str, amps: float, volts: float = 120.0, **told: object) -> MeterReading:
    """Return what a meter of a 120 V circuit says at these amps."""
    return meter(circuit, watts=amps * volts, amps=amps, **told)


def test_e01_has_a_hold_and_a_band() -> None:
    """0.90 of 16 A for two minutes; between 0.85 and 0.90 it goes on; two minutes below end it."""
    stage = Stage(OFFICE)
    stage.play(170, meters=[of("office", 14.6)], every=5)
    assert stage.ids("office") == ["E01"]
    stage.play(300, meters=[of("office", 14.0)], every=5)
    assert stage.ids("office") == ["E01"]
    stage.play(240, meters=[of("office", 13.0)], every=5)
    assert "E01" not in stage.ids("office")


def test_e02_counts_the_time_above_and_does_not_mind_a_dip() -> None:
    """At 16.5 A of 16; a dip of half a minute does not begin the count anew; three hours are worse."""
    stage = Stage(OFFICE.replace("watts = 100", "watts = 1950"))
    stage.play(200, meters=[of("office", 16.5)], every=5)
    assert stage.ids("office") == ["E02"]
    stage.play(30, meters=[of("office", 12.0)])
    stage.play(60, meters=[of("office", 16.5)])
    assert stage.value("circuit_above_continuous_seconds", "office") > 280
    stage.play(10_800, meters=[of("office", 16.5)], every=30)
    assert ("circuit_continuous_hours", "office") in stage.firing()
    assert stage.ids("office") == ["E02"]
    stage.play(300, meters=[of("office", 8.0)], every=5)
    assert stage.ids("office") == []


def test_e03_and_e04_speak_while_there_is_time() -> None:
    """1.5 of the rating: 27 s at the earliest from cold; 10 s of it are warning enough."""
    stage = Stage(OFFICE)
    stage.play(60, meters=[of("office", 0.5)])
    stage.play(10, meters=[of("office", 30.0)])
    assert "E04" in stage.ids("office")
    assert stage.value("circuit_trip_earliest_seconds", "office") > 10
    stage.play(12, meters=[of("office", 30.0)])
    assert {"E03", "E04"} <= set(stage.ids("office"))
    assert "estimate" in stage.facts("office")["band"]


def test_e05_a_restart_of_all_nodes_at_once_is_too_much() -> None:
    """After a trip the inrush of twelve supplies is more than what trips at once."""
    text = "[circuits.r1]\nbreaker = 20\nvolts = 120\nnodes = ['a', 'b']\n[circuits.r2]\nbreaker = 15\nnodes = ['c']\n"
    text += "".join(f"[nodes.{n}]\ngpus = '1x RTX 4090'\nsupply = {{ count = 6, watts = 500 }}\n" for n in "abc")
    stage = Stage(text, limits=dict.fromkeys("abc", 450.0), gpus=1)
    stage.play(70, gpu=dict.fromkeys("abc", 450.0))
    stage.hush("a", "b")
    stage.play(40, gpu={"c": 450.0})
    assert stage.value("circuit_magnetic_ratio", "r1") == pytest.approx(12 * 30 / (5 * 20))
    assert stage.ids("r1") == ["E05", "E17"]
    assert "10 s apart" in stage.facts("r1")["restart"]


def test_e06_a_ramp_is_foreseen_and_noise_is_not() -> None:
    """From 6 A, 1 A in 30 s: the limit of 16 A is five minutes off."""
    stage = Stage(OFFICE)
    for second in range(100):
        stage.play(1, meters=[of("office", 6.0 + second / 30)])
    ahead = stage.value("circuit_forecast_continuous_seconds", "office")
    assert ahead == pytest.approx((16 - 6 - 100 / 30) * 30, rel=0.05)
    assert stage.ids("office") == ["E06"]
    random = np.random.default_rng(3)
    noisy = Stage(OFFICE)
    for _ in range(300):
        noisy.play(1, meters=[of("office", 12.0 + float(random.normal()))])
    assert noisy.ids("office") == []


def test_e10_two_cords_by_their_meters() -> None:
    """9 and 5 A of one node with two cords, for ten minutes."""
    text = "".join(
        f"[circuits.{n}]\nbreaker = 20\nvolts = 240\nredundancy = {{ group = 'g', role = '{n}' }}\n" for n in "ab"
    )
    text += "[nodes.n]\nwatts = 3000\ncords = [{ circuit = 'a' }, { circuit = 'b' }]\n"
    stage = Stage(text)
    stage.play(700, meters=[of("a", 9.0, 240), of("b", 5.0, 240)], every=5)
    assert "E10" in stage.ids("a")
    assert "E10" not in stage.ids("b")
    assert stage.value("circuit_cord_imbalance_ratio", "a") == pytest.approx(4 / 14)


def test_e11_and_e12_uneven_poles() -> None:
    """All on L1: the mean is what counts for E11, the neutral carries all of it."""
    text = "[circuits.f]\nbreaker = 30\nvolts = 208\npoles = 3\nwiring = '3ph-wye'\npf = 1.0\nneutral_amps = 20\n[nodes.n]\nwatts = 3300\ncords = [{ circuit = 'f', phase = 'L1' }]\n"
    stage = Stage(text)
    stage.play(700, every=5)
    amps = 3300 / (208 / 3**0.5)
    assert stage.value("circuit_neutral_amps", "f") == pytest.approx(amps)
    assert "E12" in stage.ids("f")
    assert {r for r, _ in stage.firing()} >= {"circuit_neutral_full", "circuit_phases_critical"}


def test_e14_a_ups_says_it_runs_on_its_battery_and_for_how_long() -> None:
    """Loaded to 0.83; then the line goes; then ten and five minutes are left."""
    text = OFFICE + "[ups.u]\nwatts = 1800\nvolt_amps = 2000\ncircuits = ['office']\n"
    stage = Stage(text)

    def says(flags: tuple[str, ...], runtime: float) -> list[MeterReading]:
        return [
            meter(
                "u",
                kind="ups",
                source=WallSource.UPS,
                watts=1500.0,
                volt_amps=1550.0,
                runtime_seconds=runtime,
                flags=flags,
            )
        ]

    stage.play(30, meters=says(("OL",), 1200))
    assert stage.ids("u") == ["E14"]
    assert {r for r, _ in stage.firing()} == {"ups_load"}
    assert stage.value("ups_load_ratio", "u") == pytest.approx(1500 / 1800)
    stage.play(30, meters=says(("OB",), 700))
    assert ("ups_on_battery", "u") in stage.firing()
    stage.play(30, meters=says(("OB",), 500))
    assert ("ups_battery_low", "u") in stage.firing()
    stage.play(30, meters=says(("OB", "LB"), 200))
    assert ("ups_battery_ends", "u") in stage.firing()
    stage.play(100, meters=says(("OL",), 1200))
    assert {r for r, _ in stage.firing()} == {"ups_load"}
    stage.play(60)  # it is heard no more: what it measured is held, which ends no alert
    assert stage.value("circuit_watts", "office") == pytest.approx(1500)
    assert np.isnan(stage.value("ups_load_ratio", "u"))
    assert ("ups_load", "u") in stage.firing()
    assert np.isnan(stage.value("ups_on_battery", "u"))


def test_e15_supplies_that_must_carry_all() -> None:
    """Two of 1,600 W, both needed: 2,940 W inside are 0.92 of them."""
    text = RIG.format(gpus="4x RTX 5090", amps=30, volts=240)
    text = text.replace("cords", "supply = { watts = 1600, count = 2 }\ncords")
    stage = Stage(text, limits={"rig1": 2300.0}, gpus=4)
    stage.play(30, gpu={"rig1": 1800.0})
    assert stage.ids("rig1") == []
    stage.play(30, wall={"rig1": 3250.0}, gpu={"rig1": 2300.0})
    assert stage.ids("rig1") == ["E15"]
    assert 0.85 < stage.value("supply_load_ratio", "rig1") < 1.0


def test_e15_spikes_are_too_much_for_old_supplies_only() -> None:
    """Four times 901 W and the host on an ATX 2.4 supply of 2,000 W; ATX 3.1 bears it."""
    text = RIG.format(gpus="4x RTX 5090", amps=30, volts=240)
    for atx, ids in ((2.4, ["E15"]), (3.1, [])):
        supply = f"supply = {{ watts = 2000, count = 1, atx = {atx} }}\ncords"
        stage = Stage(text.replace("cords", supply), limits={"rig1": 2300.0}, gpus=4)
        stage.play(5, gpu={"rig1": 200.0})
        assert stage.ids("rig1") == ids


def test_e16_the_plug_cuts_before_the_breaker_does() -> None:
    """A plug of 12 A in a circuit of 20 A: 11 A are 0.92 of it, and little for the breaker."""
    stage = Stage(OFFICE)
    stage.play(20, meters=[of("office", 11.0, limit_amps=12.0)])
    assert stage.ids("office") == ["E16"]
    assert stage.value("circuit_plug_ratio", "office") == pytest.approx(11 / 12)


def test_e17_nodes_that_go_together_are_one_alert_of_their_breaker() -> None:
    """Three nodes within 5 s, others report: r1, once. One node alone is none; a minute apart neither."""
    limits = dict.fromkeys(NODES, 2400.0)
    draws = dict.fromkeys(NODES, 2400.0)
    stage = Stage(RACK, limits=limits)
    stage.play(90, gpu=draws)
    stage.hush("n1")
    stage.play(2, gpu=draws)
    stage.hush("n2", "n3")
    stage.play(40, gpu=draws)
    told = [a for a in stage.engine.alerts() if a.rule == "circuit_trip_suspected"]
    assert [a.name for a in told] == ["r1"]
    assert stage.facts("r1")["silent"] == "n1, n2, n3"
    assert stage.value("circuit_watts", "r1") > 3 * 2400  # what they may draw, and never 0
    apart = Stage(RACK, limits=limits)
    apart.play(90, gpu=draws)
    for node in ("n1", "n2", "n3"):
        apart.hush(node)
        apart.play(60, gpu=draws)
    assert apart.value("circuit_trip_suspected", "r1") == 0


PANEL = """
region = "US"
[panels.p]
volts = 208
wiring = "3ph-wye"
breaker = 32
[circuits.a]
panel = "p"
phase = "L1"
breaker = 20
nodes = ["n1"]
[circuits.b]
panel = "p"
phase = "L2"
breaker = 20
nodes = ["n2"]
other_w = 100
[circuits.other]
breaker = 20
nodes = ["n3"]
[nodes]
n1 = { gpus = "4x RTX 5090" }
n2 = { gpus = "4x RTX 5090" }
n3 = { gpus = "4x RTX 5090" }
"""


@pytest.mark.parametrize("alive", [True, False], ids=["its meter goes on", "its meter dies too"])
def test_e17_no_breaker_has_tripped_above_a_meter_that_reads_a_load(*, alive: bool) -> None:
    """All nodes of a panel fall silent, and the meter of one of its circuits still reads 8 A: it is not the panel's."""
    draws = dict.fromkeys(("n1", "n2", "n3"), 1900.0)
    stage = Stage(PANEL, limits=dict.fromkeys(draws, 2300.0), gpus=4)
    load = [meter("b", watts=2200.0, amps=18.9)]
    stage.play(90, gpu=draws, meters=load, every=5)
    stage.hush("n1", "n2")
    stage.play(60, gpu=draws, meters=[meter("b", watts=1000.0, amps=8.6)] if alive else [], every=5)
    found = {name for name in ("p", "a", "b") if stage.value("circuit_trip_suspected", name)}
    assert found == ({"a"} if alive else {"p"})


def test_e17_is_not_said_when_it_is_we_who_are_deaf() -> None:
    """No node reports, or the bus is gone: no breaker."""
    draws = dict.fromkeys(NODES, 2400.0)
    stage = Stage(RACK, limits=draws)
    stage.play(90, gpu=draws)
    stage.hush(*NODES)
    stage.play(60)
    assert stage.value("circuit_trip_suspected", "r1") == 0
    deaf = Stage(RACK, limits=draws)
    deaf.play(90, gpu=draws)
    deaf.hush("n1", "n2", "n3")
    deaf.play(60, gpu=draws, listening=False)
    assert deaf.value("circuit_trip_suspected", "r1") == 0
    assert deaf.value("circuit_silent_nodes", "r1") == 0


def test_e20_a_cap_that_is_forgotten() -> None:
    """The node is planned at 400 W a GPU; after a reload of its driver the limit is 575 W again."""
    text = RIG.format(gpus="4x RTX 5090", amps=30, volts=240).replace("cords", "cap_watts = 400\ncords")
    stage = Stage(text, limits={"rig1": 1600.0}, gpus=4)
    stage.play(5, gpu={"rig1": 200.0})
    assert stage.ids("rig1") == []
    stage.limits["rig1"] = 2300.0
    stage.play(1, gpu={"rig1": 200.0})
    assert stage.ids("rig1") == ["E20"]
    assert stage.value("supply_cap_excess_watts", "rig1") == pytest.approx(700)
    (told,) = [a for a in stage.engine.alerts() if a.rule == "supply_cap"]
    assert "700 W more" in told.summary
    assert "400 W per GPU" in told.description


def test_e21_a_load_that_swings() -> None:
    """5 and 13 A by turns, every three seconds: 0.4 of the rating, ten times a minute."""
    stage = Stage(OFFICE)
    for turn in range(50):
        stage.play(3, meters=[of("office", 5.0 if turn % 2 else 13.0)])
    assert stage.value("circuit_swing_ratio", "office") == pytest.approx(0.4)
    assert "E21" in stage.ids("office")
    steady = Stage(OFFICE)
    steady.play(30, meters=[of("office", 5.0)])
    steady.play(30, meters=[of("office", 13.0)])
    assert steady.value("circuit_swing_ratio", "office") == 0


def test_e22_a_budget_in_kilowatts_and_by_the_month() -> None:
    """1.9 of 2 kW is its warning; what is left of a month at 1.9 kW is 700 kWh of 500."""
    text = (
        "[site]\ntariff = 0.2\n"
        + OFFICE
        + "[budgets.b]\ncircuits = ['office']\nkw = 2\nkwh_month = 500\ncost_month = 100\n"
    )
    stage = Stage(text)
    reading = [of("office", 1900 / 120)]
    stage.play(120, meters=reading, every=5)
    assert ("budget_power", "b") in stage.firing()
    assert np.isnan(stage.value("budget_energy_ratio", "b"))  # too early to say
    stage.play(9000, meters=reading, every=60)
    hours = (datetime(2025, 7, 1, tzinfo=UTC).timestamp() - EPOCH / 1e9) / 3600  # since it was installed
    assert stage.value("budget_energy_ratio", "b") == pytest.approx(1.9 * hours / 500, rel=0.01)
    assert stage.value("budget_cost_ratio", "b") == pytest.approx(1.9 * hours * 0.2 / 100, rel=0.01)
    assert ("budget_month_full", "b") in stage.firing()


def test_e24_a_pair_on_one_panel_is_told_where_it_stands() -> None:
    """On the feed that the note is about, and on no other; a node with one cord on its feed."""
    pair = "[circuits.{0}]\npanel = 'p'\npoles = 3\nbreaker = 30\nredundancy = {{ group = 'g', role = '{0}' }}\n"
    text = "[panels.p]\nvolts = 208\nwiring = '3ph-wye'\nbreaker = 100\n" + pair.format("a") + pair.format("b")
    stage = Stage(text + "[nodes.n]\nwatts = 900\ncords = [{ circuit = 'b' }]\n")
    stage.play(2)
    assert (stage.ids("a"), stage.ids("b"), stage.ids("p")) == (["E24"], ["E24"], [])
    assert "not independent" in stage.facts("a")["notices"]
    assert stage.facts("b")["notices"].startswith("nodes.n: one cord in redundant group g")


def test_heat_energy_and_the_time_above_survive_a_restart() -> None:
    """A minute's gap at the same load warms on; a gap without load cools; nothing is made up."""
    text = OFFICE.replace("watts = 100", "watts = 2160")  # 18 A of 20
    stage = Stage(text)
    stage.play(1200, every=5)
    memory = stage.live.checkpoint()
    warm = stage.value("circuit_heat_ratio", "office")
    above = stage.value("circuit_above_continuous_seconds", "office")
    joules = stage.value("circuit_energy_joules", "office")
    assert warm == pytest.approx(0.81 / 1.05**2, rel=0.03)

    def restarted(watts: float, gap: float) -> Stage:
        other = Stage(OFFICE.replace("watts = 100", f"watts = {watts:g}"))
        other.now = 5000.0  # another process, another monotonic clock
        wall = stage.wall() + int(gap * 1e9)
        other.live.restore(memory, other.now, wall)
        other.play(1)
        return other

    same = restarted(2160, 60)
    assert same.value("circuit_heat_ratio", "office") == pytest.approx(warm, rel=0.01)
    assert same.value("circuit_heat_assumed", "office") == 1  # still, as before
    assert same.value("circuit_above_continuous_seconds", "office") == pytest.approx(above + 61, abs=2)
    assert same.value("circuit_energy_joules", "office") >= joules
    cooled = [restarted(0, gap).value("circuit_heat_ratio", "office") for gap in (60, 600, 6000)]
    assert warm > cooled[0] > cooled[1] > cooled[2]
    assert cooled[2] < 0.01
    lost = live_of(text)
    lost.restore({"version": 1, "wall_ns": EPOCH, "lines": {"office": {"fast": "x"}}}, 1.0, EPOCH)
    assert not lost.restored.any()


def test_a_counter_of_energy_counts_through_gaps_and_resets() -> None:
    """Between its readings the watts count, after them the counter does; it never falls. Its first step may
    have begun before anybody looked."""
    stage = Stage(OFFICE)
    seen = []
    for kwh in (9.5, 10.0, 10.5, 10.5, 0.005, 0.2):
        stage.play(10, meters=[of("office", 10.0, energy_joules=kwh * 3.6e6)])
        seen.append(stage.value("circuit_energy_joules", "office"))
    assert np.all(np.diff(seen) >= 0)
    assert seen[-1] - seen[1] == pytest.approx((0.5 + 0.005 + 0.195) * 3.6e6, rel=0.02)
