"""What a silent or wrong meter leaves behind: a load that is last known, then unknown, and never 0."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import numpy as np
import pytest

from api.power import LoadState
from power.devices.wall_power import WallSource
from power.live.last_measured import LAST_KNOWN_SECONDS
from power.live.load_state import STATES
from power.meters.reading import MeterFault, MeterReading
from power.snapshot.documents import row_states
from tests.power.sites import PAIR
from tests.power.stage import Stage, live_of, meter

ALONE = """
[circuits.a]
breaker = 20
volts = 120
pf = 1.0
"""
BESIDE = """
[panels.p]
breaker = 60
volts = 240
wiring = "split"
[circuits.a]
panel = "p"
phase = "L1"
breaker = 20
volts = 120
pf = 1.0
nodes = ["n1"]
[nodes.n1]
gpus = "2x RTX 4090"
"""
POLES = """
[panels.p]
breaker = 20
volts = 208
wiring = "3ph-wye"
[circuits.a]
panel = "p"
phase = "L1"
breaker = 20
pf = 1.0
nodes = ["n1"]
[circuits.b]
panel = "p"
phase = "L2"
breaker = 20
pf = 1.0
nodes = ["n2"]
[nodes.n1]
gpus = "4x RTX 5090"
[nodes.n2]
gpus = "4x RTX 5090"
"""
LOAD_ALERTS = {"E02", "E03", "E04"}


def over() -> MeterReading:
    """A reading of 1.2 times the rating."""
    return meter("a", watts=120 * 20 * 1.2, amps=20 * 1.2)


def state(stage: Stage, name: str = "a") -> LoadState:
    """The state of a circuit's load."""
    return STATES[int(stage.value("circuit_load_state", name))]


def test_a_silent_meter_resolves_nothing_and_cools_no_breaker() -> None:
    """A metered circuit without nodes: the meter is killed."""
    stage = Stage(ALONE)
    stage.play(150, meters=[over()], every=5)
    assert set(stage.ids("a")) >= LOAD_ALERTS
    assert state(stage) is LoadState.MEASURED
    heat, told = stage.value("circuit_heat_ratio", "a"), len(stage.told)
    for _ in range(20):
        stage.play(60, every=20)
        assert set(stage.ids("a")) >= LOAD_ALERTS
        assert stage.value("circuit_heat_ratio", "a") >= heat
    assert not [alert for alert in stage.told[told:] if alert.state == "resolved"]


@pytest.mark.parametrize(
    ("part", "seconds", "before"),
    [
        (0.76, 60, set()),
        (0.82, 30, set()),
        (1.08, 150, {"circuit_continuous", "circuit_load", "circuit_overload", "circuit_thermal_warm"}),
    ],
    ids=["near its limit", "above its limit", "above its rating"],
)
def test_a_load_that_is_held_begins_no_alert_but_that_of_blindness(part: float, seconds: int, before: set[str]) -> None:
    """Neither while it is last known, though its breaker is taken for hot enough to trip, nor once it is unknown."""
    stage = Stage(ALONE)
    stage.play(60, meters=[meter("a", watts=120 * 20 * 0.3)], every=5)
    stage.play(seconds, meters=[meter("a", watts=120 * 20 * part)], every=2)
    assert {rule for rule, _ in stage.firing()} == before
    told = len(stage.told)
    stage.play(LAST_KNOWN_SECONDS + 300, every=5, metered=frozenset({("circuit", "a")}))
    assert state(stage) is LoadState.UNKNOWN
    if before:
        assert stage.value("circuit_heat_ratio", "a") >= 1
    assert {one.rule for one in stage.told[told:]} == {"circuit_meter_blind", "circuit_meter_stale"}


def test_a_last_known_load_spreads_and_ends_as_unknown() -> None:
    stage = Stage(ALONE, rules=())
    stage.play(30, meters=[meter("a", watts=1000.0)], every=5)
    stage.play(60, every=5)
    assert state(stage) is LoadState.LAST_KNOWN
    assert stage.value("circuit_load_state_seconds", "a") == pytest.approx(60)
    assert stage.value("circuit_watts", "a") == pytest.approx(1000)
    early = stage.value("circuit_sigma_watts", "a")
    assert early > 150
    assert stage.facts("a")["load_state"] == "last known, for 60 s"
    stage.play(LAST_KNOWN_SECONDS / 2, every=15)
    assert stage.value("circuit_sigma_watts", "a") > 2 * early
    stage.play(LAST_KNOWN_SECONDS / 2, every=15)
    assert state(stage) is LoadState.UNKNOWN
    for quantity in ("watts", "amps", "headroom_amps", "continuous_ratio", "trip_earliest_seconds"):
        assert np.isnan(stage.value(f"circuit_{quantity}", "a"))
    stage.play(2, meters=[meter("a", watts=400.0)])
    assert state(stage) is LoadState.MEASURED
    assert stage.value("circuit_watts", "a") == 400


def test_what_a_meter_knew_past_the_node_is_held() -> None:
    """2,300 W by the meter, 515 of them by the node; the panel above carries them, too."""
    stage = Stage(BESIDE, limits={"n1": 900.0}, gpus=2, rules=())
    gpu = {"n1": 250.0}
    stage.play(30, gpu=gpu, meters=[meter("a", watts=2300.0)], every=2)
    stage.play(60, gpu=gpu, every=5)
    assert stage.value("circuit_watts", "a") == pytest.approx(2300, rel=0.01)
    assert stage.value("circuit_watts", "p") == pytest.approx(2300, rel=0.01)
    assert stage.value("circuit_l1_amps", "p") == pytest.approx(2300 / 120, rel=0.02)
    assert state(stage) is state(stage, "p") is LoadState.LAST_KNOWN
    more = {"n1": 450.0}
    stage.play(5, gpu=more)
    assert stage.value("circuit_watts", "a") > 2450  # the node's own load is reported
    stage.hush("n1")
    stage.play(400, every=20)
    assert stage.value("circuit_watts", "a") < 2700  # its last draw once, not twice
    stage.play(LAST_KNOWN_SECONDS, every=20)
    assert np.isnan(stage.value("circuit_watts", "p"))


def test_the_reported_part_still_fires_where_the_rest_is_unknown() -> None:
    stage = Stage(BESIDE, limits={"n1": 2000.0}, gpus=2)
    stage.play(30, gpu={"n1": 250.0}, meters=[meter("a", watts=2300.0)], every=2)
    stage.play(LAST_KNOWN_SECONDS + 60, gpu={"n1": 250.0}, every=20)
    assert "E03" not in stage.ids("a")
    stage.play(60, gpu={"n1": 2400.0}, every=2)
    assert "E03" in stage.ids("a")


def test_a_meter_that_never_reported_is_no_0_watts() -> None:
    stage = Stage(ALONE, rules=())
    stage.play(10, metered=frozenset({("circuit", "a")}))
    assert np.isnan(stage.value("circuit_watts", "a"))
    assert np.isnan(stage.value("circuit_heat_ratio", "a"))
    assert state(stage) is LoadState.UNKNOWN
    stage.play(10, metered=frozenset({("circuit", "a")}), meters=[meter("a", watts=120 * 20 * 0.9)])
    # As warm as hours of the first reading make it, which is what its label says.
    assert stage.value("circuit_heat_assumed", "a") == 1
    once = Stage(ALONE, rules=())
    once.play(10, meters=[meter("a", watts=120 * 20 * 0.9)])
    assert stage.value("circuit_heat_ratio", "a") == pytest.approx(once.value("circuit_heat_ratio", "a"), rel=0.01)
    assert stage.value("circuit_heat_ratio", "a") > 0.5


def test_an_empty_circuit_without_a_meter_is_not_measured() -> None:
    """An empty circuit carries nothing as far as is declared; a meter beside it stays a measurement, also of their panel."""
    stage = Stage(
        BESIDE
        + '[circuits.b]\npanel = "p"\nphase = "L2"\nbreaker = 20\nmeter = "tasmota:b"\n[circuits.c]\npanel = "p"\nphase = "L2"\nbreaker = 20\n',
        rules=(),
    )
    stage.play(30, wall={"n1": 500.0}, meters=[meter("b", watts=0.0), meter("a", watts=500.0)], every=2)
    assert stage.value("circuit_watts", "c") == 0.0
    assert state(stage, "c") is LoadState.MODELLED
    assert state(stage, "b") is state(stage, "p") is LoadState.MEASURED


def test_the_first_reading_warms_a_breaker_that_began_with_less() -> None:
    """Its node is read at once, its meter a while later, and says more."""
    text = BESIDE.replace("breaker = 20", "breaker = 30")
    stage = Stage(text, limits={"n1": 900.0}, gpus=2, rules=())
    stage.play(50, gpu={"n1": 250.0}, every=2)
    stage.play(2, gpu={"n1": 250.0}, meters=[meter("a", watts=3000.0)])
    once = Stage(text, limits={"n1": 900.0}, gpus=2, rules=())
    once.play(2, gpu={"n1": 250.0}, meters=[meter("a", watts=3000.0)])
    assert stage.value("circuit_heat_ratio", "a") == pytest.approx(once.value("circuit_heat_ratio", "a"), rel=0.02)


def restarted(stage: Stage, text: str, seconds: float) -> Stage:
    """The same site in a new process, so long after the old one died."""
    memory = json.loads(json.dumps(stage.live.checkpoint()))
    after = Stage(text, limits=stage.limits, gpus=stage.gpus, rules=())
    after.now = stage.now + seconds
    after.live = live_of(text)
    after.live.restore(memory, after.now, after.wall())
    return after


def test_heat_survives_a_restart_of_a_metered_circuit() -> None:
    """A kill at 1.13 of the rating, 16 s of nothing, and the meter's first reading 5 s after the start."""
    reading = meter("a", watts=120 * 20 * 1.13, amps=20 * 1.13)
    steady, stage = Stage(ALONE, rules=()), Stage(ALONE, rules=())
    for one in (steady, stage):
        one.play(240, meters=[reading], every=4)
    steady.play(30, meters=[reading])
    before = stage.value("circuit_heat_ratio", "a")
    after = restarted(stage, ALONE, 16)
    after.play(5, metered=frozenset({("circuit", "a")}))
    assert state(after) is LoadState.LAST_KNOWN
    assert after.value("circuit_watts", "a") == pytest.approx(120 * 20 * 1.13)
    assert after.value("circuit_load_state_seconds", "a") == pytest.approx(21, abs=1)
    assert after.value("circuit_heat_ratio", "a") >= before
    after.play(9, meters=[reading])
    truth = steady.value("circuit_heat_ratio", "a")
    assert after.value("circuit_heat_ratio", "a") == pytest.approx(truth, rel=0.02)
    assert state(after) is LoadState.MEASURED


def test_a_breaker_that_was_off_over_a_restart_has_cooled() -> None:
    """Its meter says so a few seconds after the start."""
    stage = Stage(ALONE, rules=())
    stage.play(240, meters=[over()], every=4)
    before = stage.value("circuit_heat_ratio", "a")
    after = restarted(stage, ALONE, 1800)
    after.play(5)
    assert after.value("circuit_heat_ratio", "a") >= before
    after.play(1, meters=[meter("a", watts=0.0, amps=0.0)])
    assert after.value("circuit_heat_ratio", "a") < 0.1 * before


def fault(stage: Stage, name: str = "a") -> MeterFault:
    """Why a meter of a circuit is not used."""
    return list(MeterFault)[int(stage.value("circuit_meter_fault", name))]


def test_a_meter_in_kilowatts_does_not_win_over_its_gpus() -> None:
    """2 W where the GPUs that it feeds measure 1,500 W."""
    stage = Stage(BESIDE, limits={"n1": 1800.0}, gpus=2)
    stage.play(1, gpu={"n1": 1500.0}, meters=[meter("a", watts=2.0)])
    assert fault(stage) is MeterFault.WRONG_UNIT
    assert stage.value("circuit_watts", "a") > 1500
    assert stage.facts("a")["meter"] == (
        "m-a reads 2 W where the GPUs behind it measure 1,500 W (kW taken for W?); it is not used"
    )
    stage.play(400, gpu={"n1": 1500.0}, meters=[meter("a", watts=2.0)], every=20)
    assert "E19" in stage.ids("a")
    assert stage.value("circuit_meter_stale", "a") == 0
    stage.play(5, gpu={"n1": 1500.0}, meters=[meter("a", watts=2000.0)])
    assert fault(stage) is MeterFault.NONE
    assert stage.value("circuit_watts", "a") == 2000


def test_a_refusal_says_for_how_long_through_silence_and_a_restart() -> None:
    """Until its witness agrees: then it begins anew."""
    stage = Stage(BESIDE, limits={"n1": 1800.0}, gpus=2, rules=())
    low, gpu = [meter("a", watts=300.0)], {"n1": 1500.0}

    def why(of: Stage) -> str:
        return of.live.meter_faults.by_meter(of.live.metering).get("m-a", "")

    stage.play(61, gpu=gpu, meters=low)
    assert why(stage).endswith("measure 1,500 W, for 60 s")
    stage.play(60, gpu=gpu)
    stage.play(1, gpu=gpu, meters=low)
    assert why(stage).endswith(", for 2 min 1 s")
    after = restarted(stage, BESIDE, 600)
    after.play(1, gpu=gpu, meters=low)
    assert why(after).endswith(", for 12 min")
    after.play(1, gpu=gpu, meters=[meter("a", watts=2000.0)])
    assert why(after) == ""
    after.play(20, gpu=gpu, meters=low)
    assert re.search(r", for [0-9.]+ s$", why(after))


def test_a_meter_below_its_gpus_is_not_used() -> None:
    stage = Stage(BESIDE, limits={"n1": 1800.0}, gpus=2, rules=())
    stage.play(1, gpu={"n1": 1500.0}, meters=[meter("a", watts=300.0)])
    assert fault(stage) is MeterFault.TOO_LOW
    assert stage.value("circuit_watts", "a") > 1500


def test_a_node_that_lost_its_power_is_no_fault_of_its_meter() -> None:
    """Its meter falls at once; its GPUs' last frame is older after ten seconds, and it is silent."""
    stage = Stage(BESIDE, limits={"n1": 1800.0}, gpus=2, rules=())
    stage.play(20, gpu={"n1": 1500.0}, meters=[meter("a", watts=2000.0)])
    stage.hush("n1")
    for _ in range(60):
        stage.play(1, gpu={"n1": 1500.0}, meters=[meter("a", watts=0.0)])
        assert fault(stage) is MeterFault.NONE
    assert stage.value("circuit_watts", "a") == 0


@pytest.mark.parametrize("counter", [None, 5e6])
def test_a_frozen_meter_is_not_used(counter: float | None) -> None:
    """The same value and the same counter while the load of its nodes moves by a kilowatt."""
    stage = Stage(BESIDE, limits={"n1": 1800.0}, gpus=2, rules=())
    frozen = meter("a", watts=900.0, energy_joules=counter)
    stage.play(60, gpu={"n1": 500.0}, meters=[frozen], every=2)
    stage.play(300, gpu={"n1": 1500.0}, meters=[frozen], every=5)
    assert fault(stage) is MeterFault.FROZEN
    assert stage.value("circuit_watts", "a") > 1500
    assert "without any change" in stage.facts("a")["meter"]
    moved = meter("a", watts=1901.0, energy_joules=counter)
    stage.play(2, gpu={"n1": 1500.0}, meters=[moved])
    assert fault(stage) is MeterFault.NONE


def test_a_constant_meter_on_a_constant_load_is_not_frozen() -> None:
    stage = Stage(BESIDE, limits={"n1": 1800.0}, gpus=2, rules=())
    stage.play(900, gpu={"n1": 1500.0}, meters=[meter("a", watts=1900.0)], every=20)
    assert fault(stage) is MeterFault.NONE


@pytest.mark.parametrize("known", [{"watts": 1590.0, "power_factor": 0.7229}, {"watts": 1590.0, "volt_amps": 2199.6}])
def test_a_meters_power_factor_gives_the_current(known: dict[str, float]) -> None:
    """18.33 A, and not the 13.66 of a factor that the configuration supposes."""
    stage = Stage(ALONE.replace("pf = 1.0", "pf = 0.97"), rules=())
    stage.play(1, meters=[meter("a", **known)])
    assert stage.value("circuit_amps", "a") == pytest.approx(18.33, rel=0.001)
    assert stage.value("circuit_watts", "a") == pytest.approx(1590)


def test_what_is_assumed_on_one_pole_of_a_panel_says_nothing_of_another() -> None:
    """A silent node on L1 may draw 3 kW; the 24 A that are measured on L2 page and heat the panel all the same."""
    load, heat = {"n1": 400.0, "n2": 400.0}, []
    for silent in ((), ("n1",)):
        stage = Stage(POLES, limits={"n1": 2300, "n2": 2300}, gpus=4)
        stage.play(60, gpu=load, every=5)
        stage.hush(*silent)
        stage.play(30, gpu=load, every=5)
        part = stage.value("circuit_assumed_watts", "p") / stage.value("circuit_watts", "p")
        assert (part > 0.5) is bool(silent)
        stage.play(180, gpu=load, meters=[meter("b", watts=120 * 20 * 1.2, amps=24.0)], every=5)
        assert set(stage.ids("p")) >= LOAD_ALERTS
        heat.append(stage.value("circuit_heat_ratio", "p"))
    assert heat[1] == pytest.approx(heat[0], abs=0.01)


def test_what_a_silent_node_may_draw_moves_no_load_to_its_pole() -> None:
    """The last draws say on which poles of a panel its watts are: the 3 kW that n1 may draw are no part of what is measured."""
    stage = Stage(POLES, limits={"n1": 2300, "n2": 2300}, gpus=4)
    load, whole = {"n1": 400.0, "n2": 1600.0}, [meter("p", watts=2600.0)]
    stage.play(60, gpu=load, meters=whole, every=5)
    before = stage.value("circuit_l2_amps", "p")
    stage.hush("n1")
    stage.play(60, gpu=load, meters=whole, every=5)
    assert stage.value("circuit_l2_amps", "p") == pytest.approx(before, rel=1e-3)


def test_a_model_that_grows_moves_no_measured_load_from_its_pole() -> None:
    """A panel's meter of watts alone: where the model of n2 says more than there is, n2 has less and not the metered circuit a."""
    stage = Stage(POLES, limits={"n1": 2300, "n2": 2300}, gpus=4)
    told = [meter("p", watts=2600.0), meter("a", watts=2160.0)]
    amps, volts = [], 208 / 3**0.5
    for draw in (400.0, 800.0):
        stage.play(60, gpu={"n1": 1600.0, "n2": draw}, meters=told, every=5)
        amps.append(stage.value("circuit_l1_amps", "p"))
    assert amps == pytest.approx([2160 / volts] * 2)
    assert stage.value("circuit_l2_amps", "p") == pytest.approx((2600 - 2160) / volts)
    # Meters that contradict each other: what is measured above holds.
    stage.play(
        60, gpu={"n1": 1600.0, "n2": 400.0}, meters=[meter("p", watts=2000.0), meter("a", watts=2160.0)], every=5
    )
    assert stage.value("circuit_l1_amps", "p") == pytest.approx(2000 / volts)


@pytest.mark.parametrize("whole", [2000.0, 4000.0])
@pytest.mark.parametrize("kind", ["circuit", "node", "both"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_meter_that_falls_silent_moves_no_load_of_its_panel_to_another_pole(
    kind: str, whole: float, *, restart: bool
) -> None:
    """A panel's meter of watts alone, above less or more than the sum below: on L1 a meter of 1,400 W is silent whose node's
    model says more, and what is modelled on L2 was never measured."""
    stage = Stage(POLES, limits={"n1": 2300, "n2": 2300}, gpus=4)
    load, alive = {"n1": 1600.0, "n2": 1000.0}, [meter("p", watts=whole)]
    dying = [meter("a", watts=1400.0)] if kind != "node" else []
    if kind != "circuit":
        plug = meter("n1", kind="node", source=WallSource.PLUG, watts=1300.0, meter="plug")
        dying.append(plug)
    known: Any = {"metered": frozenset((one.kind, one.target) for one in alive + dying), "gpu": load}
    stage.play(60, meters=alive + dying, every=5, **known)
    before = [stage.value(f"circuit_l{pole}_amps", "p") for pole in (1, 2)]
    if restart:
        stage = restarted(stage, POLES, 20)
    stage.play(60, meters=alive, every=5, **known)
    assert stage.value("circuit_watts", "a") > 1500, "the model counts where nothing is above it"
    after = [stage.value(f"circuit_l{pole}_amps", "p") for pole in (1, 2)]
    assert after == pytest.approx(before, rel=0.01)


def test_what_is_read_now_goes_before_what_was_read_last() -> None:
    """The meter of L2 reads 2 kW of the panel's 3: 1 kW is left for L1, where a silent meter read more."""
    stage = Stage(POLES, limits={"n1": 2300, "n2": 2300}, gpus=4)
    load, volts = {"n1": 1600.0, "n2": 400.0}, 208 / 3**0.5
    first = [meter("p", watts=2660.0), meter("a", watts=2160.0), meter("b", watts=500.0)]
    stage.play(60, gpu=load, meters=first, every=5)
    stage.play(60, gpu=load, meters=[meter("p", watts=3000.0), meter("b", watts=2000.0)], every=5)
    assert stage.value("circuit_l2_amps", "p") == pytest.approx(2000 / volts)
    assert stage.value("circuit_l1_amps", "p") == pytest.approx(1000 / volts)


def test_what_a_circuits_meter_knew_beyond_a_nodes_is_in_the_last_draw_when_all_fall_silent() -> None:
    """The node's plug read 1,200 W of 1,860: the last draw of both is nearly full, so that blindness pages."""
    stage = Stage(BESIDE, limits={"n1": 2600.0}, gpus=2)
    told = [
        meter("a", watts=1860.0),
        msgspec.structs.replace(meter("a", watts=1200.0), kind="node", target="n1", meter="m-n1"),
    ]
    stage.play(60, gpu={"n1": 900.0}, meters=told, every=5)
    heat = stage.value("circuit_heat_ratio", "a")
    assert stage.value("supply_wall_watts", "n1") == 1200, "two meters of one sort are not two outlets"
    stage.hush("n1")
    stage.play(60, every=5)
    assert stage.value("circuit_meter_blind", "a") == 1
    assert stage.value("circuit_heat_ratio", "a") >= heat - 0.005


def blind(stage: Stage) -> list[str]:
    """Severities of E19 on a circuit that no other rule hides."""
    hidden = any(rule == "circuit_meter_blind" for rule, name in stage.firing() if name == "a")
    return ["page"] if hidden else ["ticket"] if "E19" in stage.ids("a") else []


def test_blindness_pages_where_an_alert_depends_on_the_meter() -> None:
    stage = Stage(ALONE)
    stage.play(120, meters=[meter("a", watts=120 * 16 * 0.9)], every=5)
    stage.play(150, every=5)
    assert blind(stage) == ["page"]
    assert stage.ids("a").count("E19") == 1
    easy = Stage(ALONE)
    easy.play(120, meters=[meter("a", watts=120 * 16 * 0.3)], every=5)
    easy.play(150, every=5)
    assert blind(easy) == []
    easy.play(300, every=10)
    assert blind(easy) == ["ticket"]


def test_a_lost_feed_is_not_back_because_its_meter_falls_silent() -> None:
    stage = Stage(PAIR, rules=())
    gone: Any = [meter("a", watts=0.0, amps=0.0), meter("b", watts=4320.0, amps=18.0)]
    stage.play(60, meters=gone, every=2)
    assert stage.value("circuit_feed_lost", "a") == 1
    stage.play(60, meters=gone[1:], every=2)
    assert stage.value("circuit_feed_lost", "a") == 1
    after = restarted(stage, PAIR, 20)
    after.play(1)
    assert after.value("circuit_feed_lost", "a") == 1
    stage.play(60, meters=[meter(name, watts=2160.0, amps=9.0) for name in "ab"], every=2)
    assert stage.value("circuit_feed_lost", "a") == 0


LIGHT_FEED = """
[panels.p]
breaker = 60
volts = 240
wiring = "split"
[circuits.a]
breaker = 32
volts = 240
redundancy = { group = "g", role = "A" }
[circuits.b]
panel = "p"
breaker = 32
poles = 2
redundancy = { group = "g", role = "B" }
[nodes.n]
gpus = "2x RTX 4090"
cords = [{ circuit = "a" }, { circuit = "b" }]
"""


@pytest.mark.parametrize("unread", [False, True])
def test_a_feed_that_carries_little_is_not_lost_by_what_silence_lets_a_node_draw(*, unread: bool) -> None:
    """The meters of both feeds go on: b is measured at 60 W as before, though 1 kW could flow there. Neither a silent node
    nor its unread GPUs take that from the panel."""
    stage = Stage(LIGHT_FEED, limits={"n": 900.0}, gpus=2, rules=())
    told = [meter("a", watts=1500.0), meter("b", watts=60.0)]
    stage.play(60, gpu={"n": 20.0}, meters=told, every=5)
    assert stage.value("circuit_feed_lost", "b") == 0
    if unread:
        stage.play(60, gpu={"n": 0.0}, meters=told, every=5, gpus_unread=np.array([2.0]))
    else:
        stage.hush("n")
        stage.play(60, gpu={"n": 20.0}, meters=told, every=5)
    assert stage.value("circuit_feed_lost", "b") == 0
    assert stage.value("circuit_watts", "p") == pytest.approx(60)


def test_nodes_budgets_and_upss_have_the_states_of_their_loads() -> None:
    """The worst of what hangs on them; since the node's last report, or since it became so."""
    text = """
[circuits.a]
breaker = 20
volts = 120
[circuits.b]
breaker = 20
volts = 120
nodes = ["n1"]
[nodes.n1]
gpus = "2x RTX 4090"
[budgets.both]
kw = 4
circuits = ["a", "b"]
[ups.u]
watts = 3000
circuits = ["a"]
"""
    stage = Stage(text, limits={"n1": 900.0}, gpus=2)

    def states() -> list[str]:
        assert stage.snapshots is not None
        rows = [row for one in stage.snapshots.all()[1:] for row in row_states(one, {})]
        return [f"{row.id} {row.load_state}, {row.load_state_seconds:.0f} s" for row in rows]

    def said() -> list[str]:
        return [one.partition(",")[0] for one in states()]

    load = meter("a", watts=500.0)
    stage.play(10, gpu={"n1": 500.0}, meters=[load])
    assert states() == ["both modelled, 9 s", "u measured, 9 s", "n1 modelled, 9 s"]
    stage.play(60, gpu={"n1": 500.0})
    assert said() == ["both last known", "u last known", "n1 modelled"]
    stage.play(2, wall={"n1": 700.0}, meters=[load])
    assert said() == ["both measured", "u measured", "n1 measured"]
    stage.hush("n1")
    stage.play(30, gpu={"n1": 500.0}, meters=[load])
    assert said() == ["both assumed", "u measured", "n1 assumed"]
    never = Stage(text)
    never.play(5, metered=frozenset({("circuit", "a")}))
    stage = never
    assert said()[1] == "u unknown"
    assert {row.partition(" ")[2].partition(",")[0] for row in states()} <= {"unknown", "assumed"}


DECLARED = """
region = "US"
[circuits.lab]
breaker = 20
nodes = ["a", "b"]
[nodes.a]
watts = 500
[nodes.b]
watts = 500
"""
RIGS = DECLARED.replace("watts = 500", 'gpus = "2x RTX 5090"')
PLUGS = [
    meter(name, meter=f"plug-{name}", kind="node", source=WallSource.PLUG, watts=1300.0, period=10.0) for name in "ab"
]


def metered_nodes(text: str) -> tuple[Stage, dict[str, float]]:
    """Two nodes whose plugs read 1,300 W each for ten minutes, and what their GPUs draw."""
    gpu = {} if text is DECLARED else {"a": 800.0, "b": 800.0}
    stage = Stage(text, limits=dict.fromkeys(gpu, 1150.0), gpus=2)
    stage.play(600, gpu=gpu, meters=PLUGS, every=4)
    assert set(stage.ids("lab")) >= LOAD_ALERTS
    return stage, gpu


@pytest.mark.parametrize("text", [DECLARED, RIGS], ids=["declared", "modelled"])
def test_what_a_plug_measured_last_is_not_replaced_by_a_lower_model(text: str) -> None:
    """Neither alerts nor heat follow the 1,000 or 2,245 W that nobody measured; that it is blind pages."""
    stage, gpu = metered_nodes(text)
    heat, told = stage.value("circuit_heat_ratio", "lab"), len(stage.told)
    stage.play(400, gpu=gpu, every=4)
    assert state(stage, "lab") is LoadState.LAST_KNOWN
    assert stage.value("circuit_load_state_seconds", "lab") == pytest.approx(400)
    assert stage.value("circuit_watts", "lab") == pytest.approx(2600)
    assert stage.value("supply_load_state", "a") == STATES.index(LoadState.LAST_KNOWN)
    early = stage.value("circuit_sigma_watts", "lab")
    assert "silent meters of a, b measured last" in stage.facts("lab")["assumed"]
    assert ("circuit_meter_blind", "lab") in stage.firing()
    stage.play(LAST_KNOWN_SECONDS / 2, gpu=gpu, every=10)
    assert stage.value("circuit_sigma_watts", "lab") > early
    stage.play(LAST_KNOWN_SECONDS / 2, gpu=gpu, every=10)
    assert state(stage, "lab") is LoadState.UNKNOWN
    for quantity in ("circuit_watts", "circuit_headroom_amps", "supply_wall_watts"):
        assert np.isnan(stage.value(quantity, "lab" if "circuit" in quantity else "a"))
    assert stage.value("circuit_heat_ratio", "lab") >= heat
    assert set(stage.ids("lab")) >= LOAD_ALERTS
    assert not [alert for alert in stage.told[told:] if alert.state == "resolved"]


@pytest.mark.parametrize("watts", [None, 0.0, 1.3], ids=["silence", "0 W", "kW as W"])
def test_a_plug_that_fails_to_a_low_reading_erases_no_more_than_silence(watts: float | None) -> None:
    """A reading below the GPUs counts neither before it is refused nor after: no load, heat or alert falls."""
    stage, gpu = metered_nodes(RIGS)
    heat, told = stage.value("circuit_heat_ratio", "lab"), len(stage.told)
    low = [] if watts is None else [msgspec.structs.replace(one, watts=watts) for one in PLUGS]
    if watts is None:
        stage.play(40, gpu=gpu)  # until they are stale
    for _ in range(200):
        stage.play(2, gpu=gpu, meters=low)
        assert stage.value("circuit_watts", "lab") == pytest.approx(2600)
        assert stage.value("circuit_heat_ratio", "lab") >= heat
        assert set(stage.ids("lab")) >= LOAD_ALERTS
    assert state(stage, "lab") is LoadState.LAST_KNOWN
    assert not [alert for alert in stage.told[told:] if alert.state == "resolved"]
    after = restarted(stage, RIGS, 20)
    after.play(5, gpu=gpu, meters=low, metered=frozenset({("node", "a"), ("node", "b")}))
    assert after.value("circuit_watts", "lab") == pytest.approx(2600)


@pytest.mark.parametrize("watts", [0.0, 2.3], ids=["0 W", "kW as W"])
def test_a_circuits_meter_that_fails_to_a_low_reading_erases_nothing(watts: float) -> None:
    """2,300 W by the meter, 515 of them by the node."""
    stage = Stage(BESIDE, limits={"n1": 900.0}, gpus=2, rules=())
    gpu = {"n1": 250.0}
    stage.play(300, gpu=gpu, meters=[meter("a", watts=2300.0)], every=2)
    heat = stage.value("circuit_heat_ratio", "a")
    for _ in range(60):
        stage.play(1, gpu=gpu, meters=[meter("a", watts=watts)])
        assert stage.value("circuit_watts", "a") == pytest.approx(2300, rel=0.01)
        assert stage.value("circuit_heat_ratio", "a") >= heat
    assert fault(stage) is not MeterFault.NONE
    assert state(stage) is LoadState.LAST_KNOWN


def test_a_meter_that_reports_a_trip_is_believed_at_once() -> None:
    """Its nodes' last frames are a few seconds old."""
    stage = Stage(BESIDE, limits={"n1": 900.0}, gpus=2, rules=())
    gpu = {"n1": 250.0}
    stage.play(60, gpu=gpu, meters=[meter("a", watts=2300.0)], every=2)
    stage.play(1, gpu=gpu, meters=[meter("a", watts=0.0, flags=("tripped",))])
    assert stage.value("circuit_watts", "a") == 0


def test_a_plug_whose_node_lost_its_power_is_believed_once_its_gpus_are_silent() -> None:
    stage, gpu = metered_nodes(RIGS)
    stage.hush("a", "b")
    off = [msgspec.structs.replace(one, watts=0.0) for one in PLUGS]
    stage.play(12, gpu=gpu, meters=off)
    assert stage.value("circuit_watts", "lab") == 0
    assert state(stage, "lab") is LoadState.MEASURED
    stage.play(300, meters=off, every=2)
    assert not LOAD_ALERTS & set(stage.ids("lab"))


def test_another_meter_that_reads_less_ends_what_is_held() -> None:
    """So do the nodes' GPUs, by as much as they draw less."""
    stage, gpu = metered_nodes(RIGS)
    stage.play(60, gpu=gpu, every=4)
    idle = {"a": 100.0, "b": 100.0}
    stage.play(4, gpu=idle)
    assert stage.value("circuit_watts", "lab") < 1500
    assert state(stage, "lab") is LoadState.LAST_KNOWN
    stage.play(4, gpu=idle, wall={"a": 300.0, "b": 310.0})
    assert stage.value("circuit_watts", "lab") == pytest.approx(610)
    assert state(stage, "lab") is LoadState.MEASURED
    stage.play(4, gpu=idle, meters=[meter("lab", watts=600.0)])
    assert stage.value("circuit_watts", "lab") == pytest.approx(600)


def test_what_a_plug_measured_last_survives_a_restart_and_not_its_removal() -> None:
    stage, gpu = metered_nodes(DECLARED)
    stage.play(60, gpu=gpu, every=4)
    memory = json.loads(json.dumps(stage.live.checkpoint()))
    for configured, watts in (({("node", "a"), ("node", "b")}, 2600), (set(), 1000)):
        again = Stage(DECLARED, rules=())
        again.now = stage.now + 20
        again.live.restore(memory, again.now, again.wall())
        again.play(2, metered=frozenset(configured))
        assert again.value("circuit_watts", "lab") == pytest.approx(watts)


RIG = """
[circuits.a]
breaker = 20
volts = 240
nodes = ["n1"]
[nodes.n1]
gpus = "4x RTX 4090"
"""
LOW_PLUG = meter("n1", meter="plug", kind="node", source=WallSource.PLUG, watts=400.0)
DRAWS: dict[str, Any] = {"gpu": {"n1": 2300.0}, "wall": {"n1": 2900.0}}


def refused() -> Stage:
    """A plug that reads 400 W where the GPUs behind it draw 2,300 W, and the BMC 2,900 W."""
    stage = Stage(RIG, limits={"n1": 2400.0}, gpus=4)
    stage.play(120, **DRAWS, meters=[LOW_PLUG], every=2)
    assert stage.value("circuit_watts", "a") == pytest.approx(2900)
    return stage


def test_a_refused_meter_is_not_believed_once_its_witness_is_dead() -> None:
    """Neither when the collector is killed, nor after the plug was away, nor after a restart."""
    stage = refused()
    stage.hush("n1")
    stage.play(30, meters=[LOW_PLUG])
    assert fault(stage) is MeterFault.TOO_LOW
    assert stage.value("circuit_watts", "a") > 2400
    assert state(stage) is not LoadState.MEASURED
    assert "plug reads 400 W, and read less than half" in stage.facts("a")["meter"]
    stage.play(90, every=5)
    stage.play(20, meters=[LOW_PLUG])
    assert stage.value("circuit_watts", "a") > 2400
    after = restarted(stage, RIG, 20)
    after.hush("n1")
    after.play(20, meters=[LOW_PLUG])
    assert fault(after) is MeterFault.TOO_LOW
    assert after.value("circuit_watts", "a") > 2400


def test_a_refused_meter_is_used_again_when_its_witness_agrees() -> None:
    """Idle GPUs say nothing."""
    stage = refused()
    stage.play(20, gpu={"n1": 60.0}, wall={"n1": 250.0}, meters=[LOW_PLUG])
    assert stage.value("circuit_watts", "a") == pytest.approx(250)
    right = meter("n1", meter="plug", kind="node", source=WallSource.PLUG, watts=2910.0)
    stage.play(2, **DRAWS, meters=[right])
    assert fault(stage) is MeterFault.NONE
    assert stage.value("circuit_watts", "a") == pytest.approx(2910)


def test_fewer_witnesses_than_before_are_no_agreement() -> None:
    """1,150 of 2,300 W: with one node of two gone the meter seems to read enough."""
    text = RIG.replace('nodes = ["n1"]', 'nodes = ["n1", "n2"]') + '[nodes.n2]\ngpus = "4x RTX 4090"\n'
    stage = Stage(text, limits={"n1": 1200.0, "n2": 1200.0}, gpus=4)
    low = meter("a", watts=700.0)
    stage.play(60, gpu={"n1": 1150.0, "n2": 1150.0}, meters=[low], every=2)
    stage.hush("n2")
    stage.play(60, gpu={"n1": 1150.0, "n2": 1150.0}, meters=[low], every=2)
    assert fault(stage) is MeterFault.TOO_LOW
    assert stage.value("circuit_watts", "a") > 2300


BACKED = ALONE + '[ups.u]\nwatts = 3000\ncircuits = ["a"]\n'
IDLE_UPS = MeterReading(
    meter="nut", kind="ups", target="u", source=WallSource.UPS, at=0.0, period=5.0, watts=0.0, flags=("OL",)
)


def test_a_ups_of_0_watts_is_not_believed_over_what_is_measured_behind_it() -> None:
    """Its status is; the load is what hangs on it, also while that is last known, and over a restart."""
    stage = Stage(BACKED, rules=())
    stage.play(40, meters=[IDLE_UPS, meter("a", watts=1800.0)])
    assert stage.value("ups_load_ratio", "u") == pytest.approx(0.6, abs=0.02)
    assert stage.value("ups_on_battery", "u") == 0
    assert stage.snapshots is not None
    assert "less than half" in stage.snapshots.ups.facts[0]["meter"]
    assert stage.snapshots.ups.facts[0]["source"] == "the sum of what hangs on it"
    stage.play(60, meters=[IDLE_UPS], every=2)
    assert STATES[int(stage.value("ups_load_state", "u"))] is LoadState.LAST_KNOWN
    after = restarted(stage, BACKED, 20)
    after.play(5, meters=[IDLE_UPS])
    assert STATES[int(after.value("ups_load_state", "u"))] is LoadState.LAST_KNOWN
    right = msgspec.structs.replace(IDLE_UPS, watts=1900.0)
    after.play(3, meters=[right, meter("a", watts=1800.0)])
    assert STATES[int(after.value("ups_load_state", "u"))] is LoadState.MEASURED


def test_a_ups_that_went_off_is_believed() -> None:
    """What was measured behind it before says nothing."""
    stage = Stage(BACKED, rules=())
    stage.play(40, meters=[msgspec.structs.replace(IDLE_UPS, watts=1900.0), meter("a", watts=1800.0)])
    stage.play(100, meters=[IDLE_UPS])
    assert stage.value("ups_load_ratio", "u") == 0


@pytest.mark.parametrize(
    ("spec", "flags"), [("on_bypass = true\n", ("OL",)), ("", ("OL", "BYPASS"))], ids=["configured", "reported"]
)
def test_a_ups_in_bypass_is_believed_that_it_carries_nothing(spec: str, flags: tuple[str, ...]) -> None:
    """And what hangs on it does not draw its 0 W."""
    past = msgspec.structs.replace(IDLE_UPS, flags=flags)
    stage = Stage(BACKED + spec, rules=())
    stage.play(40, meters=[past, meter("a", watts=1800.0)])
    assert stage.value("ups_load_ratio", "u") == 0
    rig = RIG + f'[ups.u]\nwatts = 5000\ncircuits = ["a"]\n{spec}'
    stage = Stage(rig, limits={"n1": 2400.0}, gpus=4, rules=())
    stage.play(40, gpu={"n1": 2300.0}, meters=[past])
    assert stage.value("circuit_watts", "a") > 2300
    assert stage.value("ups_load_ratio", "u") == 0
    static = msgspec.structs.replace(past, watts=2900.0)
    stage.play(4, gpu={"n1": 2300.0}, meters=[static])
    assert stage.value("circuit_watts", "a") == pytest.approx(2900)


@pytest.mark.parametrize("tripped", [False, True], ids=["the meter is wrong", "the breaker opened"])
def test_meters_that_go_on_contradict_the_meter_of_their_circuit(*, tripped: bool) -> None:
    """A breaker that opens silences the plugs behind it, whose last readings say nothing against 0 W."""
    stage, whole = Stage(DECLARED), meter("lab", watts=2600.0)
    stage.play(60, meters=[*PLUGS, whole], every=5)
    off = msgspec.structs.replace(whole, watts=0.0)
    stage.play(90, meters=[off] if tripped else [*PLUGS, off], every=5)
    assert fault(stage, "lab") is (MeterFault.NONE if tripped else MeterFault.TOO_LOW)
    assert stage.value("circuit_watts", "lab") == pytest.approx(0 if tripped else 2600)
    if not tripped:
        stage.play(20, meters=[off], every=5)
        assert fault(stage, "lab") is MeterFault.TOO_LOW
        assert "the meters behind it measure 2,600 W" in stage.facts("lab")["meter"]
        stage.play(20, meters=[*PLUGS, whole], every=5)
        assert fault(stage, "lab") is MeterFault.NONE
