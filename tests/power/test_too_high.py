"""Readings above what can be are not believed, are not billed, and end nothing; those that can be are."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from api.power import LoadState
from power.live.meter_faults import LOW_SECONDS
from power.meters.reading import MeterFault
from tests.power.stage import RULES, Stage, meter

LAB = 'region = "DE"\n[circuits.a]\nbreaker = 16\npf = 1.0\nother_w = 0\n'
RIG = 'region = "DE"\n[circuits.a]\nbreaker = 16\nnodes = ["n"]\n[nodes.n]\ngpus = "2x RTX 4090"\n'


def fault(stage: Stage) -> MeterFault:
    """Return why the meter of the circuit, or of the node on it, is not used."""
    return list(MeterFault)[int(stage.value("circuit_meter_fault", "a"))]


@pytest.mark.parametrize(
    ("watts", "words"),
    [(1_150_000.0, "W taken for kW?"), (13_000.0, "a digit too many?"), (115_000.0, "without its decimals?")],
)
def test_a_plug_that_reads_more_than_its_machine_may_draw_is_refused_at_once(watts: float, words: str) -> None:
    """The rig goes on with its model, nobody is woken, nothing is billed by it, and the likely unit is named."""
    stage = Stage(RIG, limits={"n": 900.0}, gpus=2)
    stage.play(5, gpu={"n": 800.0})
    before = stage.value("circuit_energy_joules", "a")
    stage.play(45, gpu={"n": 800.0}, meters=[meter("n", kind="node", watts=watts)])
    assert fault(stage) is MeterFault.TOO_HIGH
    assert 900 < stage.value("circuit_watts", "a") < 1500
    assert stage.value("circuit_energy_joules", "a") - before < 1500 * 46
    assert "E03" not in set(stage.ids("a"))
    assert words in stage.facts("a")["meter"]
    stage.play(60, gpu={"n": 800.0}, meters=[meter("n", kind="node", watts=1150.0)])
    assert fault(stage) is MeterFault.NONE
    assert stage.value("circuit_watts", "a") == pytest.approx(1150)


def test_a_breaker_is_the_witness_of_a_load_that_it_can_not_carry() -> None:
    """84 A for minutes on 16 A: it is paged while it may be true, then the meter is what is wrong, and nothing is resolved."""
    stage = Stage(LAB)
    stage.play(30, meters=[meter("a", watts=2000.0, amps=8.7)])
    overloaded = meter("a", watts=19_320.0, amps=84.0)
    stage.play(3, meters=[overloaded])
    assert fault(stage) is MeterFault.NONE
    stage.play(20, meters=[overloaded])
    assert {"E03", "E04"} & set(stage.ids("a"))
    stage.play(60, meters=[overloaded])
    assert fault(stage) is MeterFault.TOO_HIGH
    assert "a breaker of 16 A carries that for" in stage.facts("a")["meter"]
    pages = {"E03", "E04"} & set(stage.ids("a"))
    stage.play(120, meters=[overloaded])
    assert pages <= set(stage.ids("a"))
    stage.play(LOW_SECONDS + 10, meters=[meter("a", watts=2000.0, amps=8.7)])
    assert fault(stage) is MeterFault.NONE
    assert stage.value("circuit_watts", "a") == pytest.approx(2000)


def test_a_current_of_a_short_circuit_is_refused_at_once() -> None:
    """2.86 MW on a home's circuit, which its breaker would end in a hundredth of a second."""
    stage = Stage(LAB)
    stage.play(30, meters=[meter("a", watts=2860.0)])
    before = stage.value("circuit_energy_joules", "a")
    stage.play(45, meters=[meter("a", watts=2_860_000.0)])
    assert fault(stage) is MeterFault.TOO_HIGH
    assert stage.value("circuit_energy_joules", "a") - before < 2860 * 50
    assert "E03" not in set(stage.ids("a"))


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({"watts": 2_860_000.0}, "its unit is wrong (W taken for kW?), or the breaker is another one"),
        ({"amps": 8_400.0}, "its unit is wrong (mA taken for A?), or"),
        ({"watts": 286_000.0}, "its unit is wrong (without its decimals?), or"),
        ({"watts": 19_320.0, "amps": 84.0}, "its unit is wrong (a digit too many?), or"),
        ({"watts": 7_360.0, "amps": 32.0}, "its unit is wrong, or"),
        ({"watts": 1000.0, "volts": 230_000.0}, "230000 V on a circuit of 230 V (mV taken for V?)"),
        ({"watts": 1000.0, "volts": 2_310.0}, "2310 V on a circuit of 230 V (a digit too many?)"),
        ({"watts": 1000.0, "volts": 460.0}, "460 V on a circuit of 230 V (between two lines?)"),
        ({"watts": 1000.0, "volts": 23.1}, "23 V on a circuit of 230 V (a digit too few?)"),
    ],
)
def test_the_alert_names_the_likely_unit(read: dict[str, float], words: str) -> None:
    """Of a circuit's meter; of one whose load a larger breaker would carry nothing is guessed."""
    stage = Stage(LAB)
    stage.play(300, meters=[meter("a", **read)], every=10, metered=frozenset({("circuit", "a")}))
    (alert,) = [one for one in stage.engine.alerts() if one.rule == "circuit_meter_wrong"]
    assert words in alert.description


def test_volts_between_lines_name_the_meter_as_a_cause() -> None:
    """400 V where 230 are to neutral: a broken neutral, or a meter between two lines of three."""
    stage = Stage(LAB)
    stage.play(60, meters=[meter("a", watts=1000.0, volts=400.0)])
    (alert,) = [one for one in stage.engine.alerts() if one.rule == "circuit_voltage_high"]
    rule = next(one for one in RULES if one.name == alert.rule)
    assert "a meter that reads between two lines" in rule.causes


@pytest.mark.parametrize(("watts", "seconds"), [(3700.0, 3600), (4600.0, 600)])
def test_an_overload_that_a_breaker_carries_is_believed(watts: float, seconds: float) -> None:
    """1.005 times the rating for an hour, 1.25 times for ten minutes: the standard lets both last."""
    stage = Stage(LAB)
    stage.play(seconds, meters=[meter("a", watts=watts)], every=10)
    assert fault(stage) is MeterFault.NONE
    assert stage.value("circuit_watts", "a") == pytest.approx(watts)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(460.0, MeterFault.TOO_HIGH), (46.0, MeterFault.TOO_HIGH), (398.0, MeterFault.NONE), (207.0, MeterFault.NONE)],
)
def test_volts_of_no_mains_are_not_believed(measured: float, expected: MeterFault) -> None:
    """460 and 46 V on 230 V; a lost neutral, which makes 398 V, is real and pages."""
    stage = Stage(LAB)
    stage.play(5, meters=[meter("a", watts=1000.0, volts=measured)])
    assert fault(stage) is expected


def test_a_server_around_small_cards_is_no_wrong_unit() -> None:
    """A host of 3 kW around two cards of 72 W, of which only the cards are configured."""
    stage = Stage(RIG.replace("2x RTX 4090", "2x L4"), limits={"n": 144.0}, gpus=2, rules=())
    stage.play(30, gpu={"n": 60.0}, meters=[meter("n", kind="node", watts=3000.0)])
    assert fault(stage) is MeterFault.NONE


def test_no_watts_at_eight_amps_are_not_read_and_not_none() -> None:
    """A meter whose watts are 0 beside its amps: these count."""
    stage = Stage(LAB, rules=())
    stage.play(5, meters=[meter("a", watts=0.0, amps=8.3, volts=230.0)])
    assert stage.value("circuit_watts", "a") == pytest.approx(8.3 * 230, rel=0.05)
    stage.play(5, meters=[meter("a", watts=0.0, amps=0.05, volts=230.0)])
    assert stage.value("circuit_watts", "a") == 0


@pytest.mark.parametrize("fallen", [0.9, 0.2, 49.4])
def test_a_counter_that_falls_for_a_while_and_comes_back_invents_nothing(fallen: float) -> None:
    """50 kWh, then another value for 15 s, then 50 again: the watts alone count."""
    stage = Stage(LAB, rules=())
    kwh = 3.6e6
    stage.play(20, meters=[meter("a", watts=1000.0, energy_joules=50.0 * kwh)])
    stage.play(20, meters=[meter("a", watts=1000.0, energy_joules=50.01 * kwh)])
    before = stage.value("circuit_energy_joules", "a")
    stage.play(15, meters=[meter("a", watts=1000.0, energy_joules=fallen * kwh)])
    stage.play(15, meters=[meter("a", watts=1000.0, energy_joules=50.01 * kwh)])
    assert stage.value("circuit_energy_joules", "a") - before == pytest.approx(30_000, rel=0.1)


def test_a_counter_alone_is_a_mean_power() -> None:
    """1 kW by steps of a hundredth of a kWh: not known before two steps, then 1 kW; it falls as the next step is late."""
    metered = frozenset({("circuit", "a")})
    stage, joules = Stage(LAB, rules=()), 5e8

    def counting(seconds: int, watts: float) -> None:
        nonlocal joules
        for _ in range(0, seconds, 5):
            joules += 5 * watts
            step = 36_000.0 * (joules // 36_000)
            stage.play(5, meters=[meter("a", energy_joules=step)], every=5, metered=metered)

    counting(30, 1000.0)
    assert list(LoadState)[int(stage.value("circuit_load_state", "a"))] is LoadState.UNKNOWN
    counting(120, 1000.0)
    assert stage.value("circuit_watts", "a") == pytest.approx(1000, rel=0.15)
    assert list(LoadState)[int(stage.value("circuit_load_state", "a"))] is LoadState.MEASURED
    before = stage.value("circuit_energy_joules", "a")
    counting(600, 1000.0)
    assert stage.value("circuit_energy_joules", "a") - before == pytest.approx(600_000, rel=0.1)
    counting(600, 0.0)
    assert stage.value("circuit_watts", "a") < 100


def calls_of_words(circuits: int) -> int:
    """Return the calls that the facts of so many circuits cost whose meters and plugs are all at fault."""
    lines = ['region = "US"']
    for number in range(circuits):
        lines += [f"[circuits.c{number}]", "breaker = 20", f'nodes = ["n{number}"]', f"[nodes.n{number}]", "watts = 900"]  # fmt: skip
    stage = Stage("\n".join(lines), rules=())
    wrong = [meter(f"c{number}", watts=9e5) for number in range(circuits)]
    wrong += [meter(f"n{number}", kind="node", watts=9e5) for number in range(circuits)]
    stage.play(30, meters=wrong, every=10)
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    faults, metering = stage.live.meter_faults, stage.live.metering
    sys.setprofile(count)
    try:
        words = [faults.words(metering, row) for row in range(circuits)]
    finally:
        sys.setprofile(None)
    assert all(f"m-c{row}" in text and f"m-n{row}" in text for row, text in enumerate(words))
    return calls


def test_the_words_of_twice_as_many_faults_cost_twice_as_much() -> None:
    """Each circuit names its own meters, which are found once for all circuits."""
    assert calls_of_words(40) < 2.5 * calls_of_words(20)
