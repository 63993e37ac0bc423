"""The live state: which source counts, what a silent node draws, and what a meter teaches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from power.devices.wall_power import WallSource
from power.live.metering import Metering
from power.meters.reading import MeterReading
from power.snapshot.quantities import QUANTITIES
from tests.power.sites import PAIR, RIG
from tests.power.stage import Stage, meter

TWO = """
[circuits.a]
breaker = 20
volts = 120
pf = 1.0
other_w = 100
[circuits.b]
breaker = 20
volts = 120
pf = 1.0
[nodes.n1]
gpus = "2x RTX 4090"
cords = [{ circuit = "a" }]
[nodes.n2]
gpus = "2x RTX 4090"
cords = [{ circuit = "b" }]
"""
LIMITS = {"n1": 900.0, "n2": 900.0}
SOURCES = dict(enumerate(WallSource))


def test_every_quantity_of_the_boards_is_computed_and_none_is_unnamed() -> None:
    """The table of quantities is the power snapshots' columns, no more and no less."""
    stage = Stage(
        TWO + "[ups.u]\nwatts = 3000\ncircuits = ['a']\n[budgets.x]\ncircuits = ['a']\nkw = 2\n", limits=LIMITS
    )
    snapshots = stage.play(3, gpu={"n1": 500.0, "n2": 500.0})
    found = {name for snapshot in snapshots.all() for name in snapshot.columns}
    assert found == {quantity.name for quantity in QUANTITIES}
    for snapshot in snapshots.all():
        assert all(column.shape == (len(snapshot.names),) for column in snapshot.columns.values())
        assert len(snapshot.facts) == len(snapshot.names)


def test_a_meter_whose_reading_raises_costs_itself_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its circuit has the load that is computed from its node; the other circuits have their meters'."""
    stage, absorb = Stage(TWO, limits=LIMITS, gpus=2), Metering._absorb
    gpu = {"n1": 500.0, "n2": 500.0}
    meters = [meter("a", watts=1500.0), meter("b", watts=1600.0)]

    def raising(self: Metering, reading: MeterReading) -> None:
        if reading.meter == "m-a":
            raise ValueError("put in by the test")
        absorb(self, reading)

    with monkeypatch.context() as patch:
        patch.setattr(Metering, "_absorb", raising)
        stage.play(3, gpu=gpu, meters=meters)
        assert list(stage.live.aside.reasons()) == ["meter/m-a"]
        assert 600 < stage.value("circuit_watts", "a") < 1400
        assert stage.value("circuit_watts", "b") == 1600
    stage.play(3, gpu=gpu, meters=meters)
    assert not stage.live.aside.reasons()
    assert stage.value("circuit_watts", "a") == 1500


def test_the_load_that_a_trip_is_told_for_is_told_too() -> None:
    """After a sudden drop the time to trip is still that of the last ten seconds, and so is this
    load; after a sudden rise both follow within three."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    wall = {"n2": 120.0 * 20 * 1.5}
    stage.play(20, wall=wall)
    assert stage.value("circuit_sustained_ratio", "b") == pytest.approx(1.5, rel=0.01)
    stage.play(3, wall={"n2": 120.0 * 20 * 0.5})
    assert stage.value("circuit_load_ratio", "b") == pytest.approx(0.5)
    assert np.isfinite(stage.value("circuit_trip_earliest_seconds", "b"))
    assert stage.value("circuit_sustained_ratio", "b") > 1.2
    stage.play(10, wall={"n2": 120.0 * 20 * 0.5})
    assert np.isinf(stage.value("circuit_trip_earliest_seconds", "b"))
    assert stage.value("circuit_sustained_ratio", "b") == pytest.approx(0.5)
    stage.play(4, wall=wall)
    assert stage.value("circuit_sustained_ratio", "b") == pytest.approx(1.5)
    assert np.isfinite(stage.value("circuit_trip_earliest_seconds", "b"))


@pytest.mark.parametrize("low", [2, 3, 4, 6])
def test_a_load_that_swings_has_one_figure_and_one_countdown(low: int) -> None:
    """A step of training every ten seconds: what each stretch of it would do alone is told of none."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    ratios, trips = [], []
    for second in range(40):
        ratio = 1.6 if second % 10 < 10 - low else 0.7
        stage.play(1, wall={"n2": 120.0 * 20 * ratio})
        if second >= 10:
            ratios.append(stage.value("circuit_sustained_ratio", "b"))
            trips.append(stage.value("circuit_trip_earliest_seconds", "b"))
    mean = ((10 - low) * 1.6**2 + low * 0.7**2) / 10
    assert ratios == pytest.approx([mean**0.5] * 30)
    # What each second does to the heat moves it; by a stretch that counts alone it leaps 36 s and back.
    assert max(abs(later - sooner) for sooner, later in pairwise(trips)) < 12


def test_a_swing_that_rests_for_long_counts_as_a_rise_each_time() -> None:
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    for _ in range(3):
        stage.play(12, wall={"n2": 120.0 * 20 * 0.7})
        stage.play(4, wall={"n2": 120.0 * 20 * 1.6})
        assert stage.value("circuit_sustained_ratio", "b") == pytest.approx(1.6)


def test_a_rise_above_a_swing_counts_after_three_seconds() -> None:
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    for second in range(20):
        stage.play(1, wall={"n2": 120.0 * 20 * (0.8 if second % 4 else 0.7)})
    stage.play(4, wall={"n2": 120.0 * 20 * 1.6})
    assert stage.value("circuit_sustained_ratio", "b") == pytest.approx(1.6)


def test_the_model_follows_the_load_and_meets_the_commitment_at_the_limit() -> None:
    """Idle a host draws half of what it draws at full; at the limit it is what was planned with."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    stage.play(1, gpu={"n1": 0.0, "n2": 900.0})
    assert stage.value("supply_wall_watts", "n1") == pytest.approx(0.48 * 250 / 0.9)
    assert stage.value("supply_wall_watts", "n2") == pytest.approx((900 + 250) / 0.9)
    assert stage.value("circuit_committed_watts", "b") == pytest.approx((900 + 250) / 0.9)
    assert SOURCES[int(stage.value("circuit_source", "b"))] is WallSource.MODEL
    assert stage.value("circuit_sigma_watts", "b") == pytest.approx(0.12 * (900 + 250) / 0.9)


def test_a_gpu_that_is_not_read_counts_with_its_limit() -> None:
    """Lost is not off: of two GPUs one reads 100 W, the other may draw 450."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    stage.play(1, gpu={"n1": 200.0, "n2": 200.0})
    both = stage.value("circuit_watts", "b")
    stage.play(1, gpu={"n1": 200.0, "n2": 100.0}, gpus_unread=np.array([0.0, 1.0]))
    assert stage.value("circuit_watts", "b") > both + 350
    stage.play(1, gpu={"n1": 200.0}, gpus_unread=np.array([0.0, 2.0]))
    assert stage.value("circuit_watts", "b") == pytest.approx((900 + 250) / 0.9)


def test_module_watts_are_not_counted_twice() -> None:
    """GH200: with RAPL's 200 W beside them nothing is added, and no CPU is assumed."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    host = np.array([200.0, 200.0])
    stage.play(1, gpu={"n1": 900.0, "n2": 900.0}, host_watts=host, module_scope=np.array([True, False]))
    apart, joined = stage.value("supply_wall_watts", "n2"), stage.value("supply_wall_watts", "n1")
    assert apart == pytest.approx((900 + 200 + 125) / 0.9)
    assert joined == pytest.approx((900 + 125) / 0.9)


def test_the_best_fresh_source_counts_and_a_stale_one_shows() -> None:
    """Plug before BMC before model; stale after three periods, 30 s at least, with 15 % added."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    plug = meter("n1", kind="node", source=WallSource.PLUG, watts=-700.0, period=10.0)
    draws = {"n1": 300.0, "n2": 300.0}
    stage.play(1, gpu=draws, wall={"n1": 650.0}, meters=[plug])
    assert stage.value("supply_wall_watts", "n1") == 700  # a reversed clamp reads its magnitude
    assert stage.value("circuit_watts", "a") == 800  # and 100 W are declared
    assert stage.value("supply_wall_sigma_watts", "n1") == pytest.approx(14)
    stage.play(29, gpu=draws, wall={"n1": 650.0})
    assert stage.value("circuit_meter_stale", "a") == 0
    stage.play(2, gpu=draws, wall={"n1": 650.0})
    assert stage.value("supply_wall_watts", "n1") == 650
    assert stage.value("supply_wall_sigma_watts", "n1") == pytest.approx(0.19 * 650)
    assert stage.value("circuit_meter_stale", "a") == 1
    stage.play(330, gpu=draws, wall={"n1": 650.0}, every=10)
    assert "E19" in stage.ids("a")
    assert stage.value("circuit_meter_stale", "b") == 0


def test_a_meter_that_never_spoke_is_missed() -> None:
    """Configured is expected."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    stage.play(40, gpu={"n1": 1.0, "n2": 1.0}, metered=frozenset({("circuit", "a"), ("node", "n2")}))
    assert stage.value("circuit_meter_stale", "a") == 1
    assert stage.value("circuit_meter_stale", "b") == 1


def test_one_outlet_of_two_is_no_sum() -> None:
    """Two outlets of a node add up; while one of them is stale the model is used."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    one, two = (
        meter("n1", kind="node", meter=f"pdu.{outlet}", source=WallSource.PDU, watts=watts)
        for outlet, watts in ((1, 300.0), (2, 310.0))
    )
    stage.play(1, gpu={"n1": 100.0}, meters=[one, two])
    assert stage.value("supply_wall_watts", "n1") == 610
    stage.play(40, gpu={"n1": 100.0}, meters=[one])
    assert stage.value("supply_wall_watts", "n1") != 300


def test_a_silent_node_keeps_its_commitment_then_its_last_watts() -> None:
    """Never 0: five minutes of what it may draw, then what it drew."""
    stage = Stage(TWO, limits=LIMITS, gpus=2)
    draws = {"n1": 500.0, "n2": 500.0}
    stage.play(20, gpu=draws)
    drew = stage.value("supply_wall_watts", "n1")
    stage.hush("n1")
    stage.play(15, gpu=draws)
    assert stage.value("supply_wall_watts", "n1") == pytest.approx((900 + 250) / 0.9)
    assert stage.value("circuit_silent_nodes", "a") == 1
    assert stage.facts("a")["silent"] == "n1"
    assert SOURCES[int(stage.value("circuit_source", "a"))] is WallSource.COMMITTED
    stage.play(300, gpu=draws, every=10)
    assert stage.value("supply_wall_watts", "n1") == pytest.approx(drew)


def test_a_dead_node_does_not_lower_what_a_failover_would_bring() -> None:
    """Its meters live and read less; it will draw again."""
    text = PAIR.replace("watts = 4320", 'gpus = "8x RTX 4090"')
    stage = Stage(text, limits={"n": 3600.0})
    full = [meter(name, watts=2160.0, amps=9.0) for name in "ab"]
    stage.play(130, gpu={"n": 3600.0}, meters=full)
    before = stage.value("circuit_survivor_amps", "b")
    assert "E08" in stage.ids("b")
    stage.hush("n")
    less = [meter(name, watts=50.0, amps=0.2) for name in "ab"]
    stage.play(130, meters=less)
    assert stage.value("circuit_amps", "b") == pytest.approx(0.2)
    assert stage.value("circuit_survivor_amps", "b") >= before * 0.99
    assert "E08" in stage.ids("b")
    stage.play(400, meters=less, every=10)
    assert stage.value("circuit_survivor_amps", "b") >= before * 0.99


def test_nothing_known_is_no_number() -> None:
    """A node of which only the name is known, and which was never heard."""
    stage = Stage("[circuits.a]\nbreaker = 15\nvolts = 120\nnodes = ['x']\n")
    stage.hush("x")
    stage.silent["x"] = -np.inf
    stage.play(2)
    assert np.isnan(stage.value("circuit_watts", "a"))
    assert np.isnan(stage.value("circuit_heat_ratio", "a"))
    assert stage.value("circuit_unknown_nodes", "a") == 1
    assert stage.ids("a") == []
    assert stage.facts("a")["unknown_nodes"] == "x"
    assert stage.facts("a")["band"] == "not known, as its load is not"


def test_an_undeclared_load_is_told_and_carried_by_the_feeder() -> None:
    """A heater on b: E18 there, and the panel's amps include it."""
    text = "[panels.p]\nvolts = 240\nwiring = 'split'\nbreaker = 100\n" + TWO.replace(
        "volts = 120", "volts = 120\npanel = 'p'\nphase = 'L1'"
    )
    stage = Stage(text, limits=LIMITS, gpus=2)
    draws = {"n1": 300.0, "n2": 300.0}
    stage.play(2, gpu=draws)
    usual, own = stage.value("circuit_l1_amps", "p"), stage.value("circuit_watts", "b")
    heater = meter("b", watts=own + 1200, amps=(own + 1200) / 120)
    stage.play(700, gpu=draws, meters=[heater], every=5)
    assert stage.value("circuit_l1_amps", "p") == pytest.approx(usual + 10, rel=0.01)
    assert stage.value("circuit_unknown_watts", "b") == pytest.approx(1200, rel=0.01)
    assert "E18" in stage.ids("b")
    assert stage.ids("p") == []


def test_a_meter_teaches_the_model() -> None:
    """After it has seen idle and full load the model says what the meter said, and how well."""
    stage = Stage(RIG.format(gpus="4x RTX 5090", amps=30, volts=240), limits={"rig1": 2300.0}, gpus=4)
    for number in range(40):
        gpu = 100.0 + 50.0 * number
        plug = meter("office", source=WallSource.PLUG, watts=90 + 1.2 * gpu, period=10.0)
        stage.play(10, gpu={"rig1": gpu}, meters=[plug], every=10)
    stage.play(60, gpu={"rig1": 1000.0}, every=10)
    assert stage.value("supply_wall_watts", "rig1") == pytest.approx(90 + 1200, rel=0.002)
    assert SOURCES[int(stage.value("circuit_source", "office"))] is WallSource.MODEL
    heater = meter("office", source=WallSource.PLUG, watts=90 + 1200 + 800, period=10.0)
    stage.play(1000, gpu={"rig1": 1000.0}, meters=[heater], every=10)
    assert "E18" in stage.ids("office")  # configured, not learnt
    stage.play(60, gpu={"rig1": 1000.0}, every=10)
    assert stage.value("supply_wall_watts", "rig1") == pytest.approx(1290, rel=0.002)


def test_measured_poles_and_volts_beat_what_is_worked_out() -> None:
    """One clamp of three moves its own pole; less voltage is more current."""
    text = "[circuits.f]\nbreaker = 60\nvolts = 208\npoles = 3\nwiring = '3ph-wye'\npf = 1.0\nnodes = ['n']\n[nodes.n]\nwatts = 7205\n"
    stage = Stage(text)
    stage.play(1)
    assert stage.value("circuit_l2_amps", "f") == pytest.approx(20, rel=0.001)
    clamp = meter("f", pole="L2", amps=31.0)
    stage.play(1, meters=[clamp])
    assert stage.value("circuit_l2_amps", "f") == pytest.approx(31)
    assert stage.value("circuit_l1_amps", "f") == pytest.approx(20, rel=0.001)
    assert stage.value("circuit_amps", "f") == pytest.approx(31)
    sagging = Stage(text)
    sagging.play(1, meters=[meter("f", volts=208 * 0.95)])
    assert sagging.value("circuit_voltage_ratio", "f") == pytest.approx(0.95)
    assert sagging.value("circuit_l1_amps", "f") == pytest.approx(20 / 0.95, rel=0.001)
    sagging.play(60, meters=[meter("f", volts=208 * 0.89)])
    assert "E13" in sagging.ids("f")


def test_a_neutral_that_is_measured_counts() -> None:
    """Harmonics add up in it: even poles with 55 A in the neutral are E12, whatever the poles say."""
    text = "[circuits.f]\nbreaker = 60\nvolts = 208\npoles = 3\nwiring = '3ph-wye'\npf = 1.0\nrack = 'R7'\nnodes = ['n']\n[nodes.n]\nwatts = 7205\n"
    stage = Stage(text)
    stage.play(1)
    assert stage.value("circuit_neutral_amps", "f") == pytest.approx(0, abs=1e-9)
    stage.play(70, meters=[meter("f", neutral_amps=55.0)])
    assert stage.value("circuit_neutral_amps", "f") == 55
    assert stage.value("circuit_neutral_ratio", "f") == pytest.approx(55 / 60)
    assert "E12" in stage.ids("f")
    assert stage.facts("f")["rack"] == "R7"
    (alert,) = [a for a in stage.engine.alerts() if a.rule == "circuit_neutral"]
    assert alert.labels["rack"] == "R7"
    stage.play(40)  # its meter falls silent: worked out again
    assert stage.value("circuit_neutral_amps", "f") == pytest.approx(0, abs=1e-9)


def test_what_meters_say_beyond_a_model_goes_where_the_nodes_go() -> None:
    """Both feeds measured 10 % above the model: the survivor carries what both meters said. A heater
    is beyond what a model errs by, and goes dark with its feed."""
    text = PAIR.replace("watts = 4320", 'gpus = "8x RTX 4090"')
    stage = Stage(text, limits={"n": 3600.0})
    stage.play(1, gpu={"n": 3600.0})
    modelled = stage.value("circuit_watts", "a")
    both = [meter(name, watts=1.1 * modelled) for name in "ab"]
    stage.play(1, gpu={"n": 3600.0}, meters=both)
    assert stage.value("circuit_survivor_amps", "b") == pytest.approx(2.2 * modelled / 240)
    heater = [meter("a", watts=modelled + 2000), meter("b", watts=modelled)]
    stage.play(60, gpu={"n": 3600.0}, meters=heater)
    assert stage.value("circuit_survivor_amps", "b") == pytest.approx(2.15 * modelled / 240)
    assert stage.value("circuit_unknown_watts", "a") == pytest.approx(2000)


def test_what_flows_does_not_depend_on_how_often_it_is_looked_at() -> None:
    """Heat, minute mean and energy of irregular ticks are those of regular ones."""
    text = RIG.format(gpus="4x RTX 5090", amps=20, volts=120)
    stages = [Stage(text, limits={"rig1": 2300.0}, gpus=4) for _ in range(2)]
    random = np.random.default_rng(7)
    for stage, gaps in zip(stages, ([1.0] * 60, _gaps(random, 60.0)), strict=True):
        stage.play(1, gpu={"rig1": 200.0})
        for watts in (200.0, 1900.0, 900.0):
            for gap in gaps:
                stage.play(gap, gpu={"rig1": watts}, every=gap)
    one, other = stages
    for quantity in ("circuit_heat_ratio", "circuit_continuous_ratio", "circuit_overload_ratio"):
        assert one.value(quantity, "office") == pytest.approx(other.value(quantity, "office"), rel=1e-6)
    joules = [stage.value("circuit_energy_joules", "office") for stage in stages]
    assert joules[0] == pytest.approx(joules[1], rel=0.02)


def _gaps(random: np.random.Generator, total: float) -> list[float]:
    parts = random.uniform(0.3, 4.0, 100)
    kept = parts[: int(np.searchsorted(np.cumsum(parts), total))]
    return [*kept.tolist(), total - float(kept.sum())]
