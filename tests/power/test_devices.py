"""The library of protective devices: every published point in its band, and unknown outside the class."""

from __future__ import annotations

import math
import tomllib

import numpy as np
import pytest

from power.devices.band import Band
from power.devices.breaker import DEVICE_CLASSES, Curve, band, continuous_ratio, default_curve
from power.devices.lsi import LsiSettings
from power.devices.mains import MAINS
from power.devices.thermal import Element, cold, seconds_to_trip
from power.network.topology import build_topology
from power.plan.plan import Suppose
from power.site.decode import decode
from power.site.layout import Circuit, lay_out
from telemetry.errors import ConfigError
from tests.power.sites import planned
from tests.power.stage import Stage

MINUTE, HOUR = 60.0, 3600.0


def times(found: Band, ratio: float) -> tuple[float, float, float]:
    """Return seconds to trip at the three edges, from cold."""
    element = Element.of([found])
    earliest, nominal, latest = seconds_to_trip(cold(1), np.array([ratio]), element)[0]
    return float(earliest), float(nominal), float(latest)


HOLDS = [  # class, rating, ratio, seconds: no device of the class trips before
    (Curve.UL489, 20, 1.00, math.inf),
    (Curve.UL489, 400, 1.00, math.inf),
    (Curve.IEC_B, 16, 1.13, HOUR),
    (Curve.IEC_C, 63, 1.13, HOUR),
    (Curve.IEC_D, 125, 1.13, 2 * HOUR),
    (Curve.IEC_C, 16, 2.55, 1.0),
    (Curve.IEC_C, 40, 2.55, 1.0),
    (Curve.IEC_60947, 63, 1.05, HOUR),
    (Curve.IEC_60947, 250, 1.05, 2 * HOUR),
    (Curve.IEC_K, 16, 1.05, HOUR),
    (Curve.IEC_Z, 16, 1.05, HOUR),
    (Curve.JIS, 20, 1.00, math.inf),
    (Curve.HYDRAULIC_MAGNETIC, 20, 1.00, math.inf),
    (Curve.BS1362, 13, 1.6, 30 * MINUTE),
    (Curve.BS1362, 3, 1.6, 30 * MINUTE),
    (Curve.BS1362, 13, 30 / 13, 1.0),
    (Curve.BS1362, 13, 50 / 13, 0.1),
    (Curve.BS1362, 3, 9 / 3, 0.02),
    (Curve.GG, 16, 1.25, HOUR),
    (Curve.GG, 100, 1.25, 2 * HOUR),
    (Curve.GG, 250, 1.25, 3 * HOUR),
    (Curve.GG, 630, 1.25, 4 * HOUR),
    (Curve.GG, 16, 33 / 16, 10.0),
    (Curve.GG, 63, 160 / 63, 10.0),
    (Curve.GG, 125, 355 / 125, 10.0),
    (Curve.GG, 16, 85 / 16, 0.1),
    (Curve.GG, 400, 4500 / 400, 0.1),
    # A reading of a catalogue: B10 from 15 s, C10 from 10 s at twice the rating.
    (Curve.IEC_C, 10, 2.0, 10.0),
]
TRIPS = [  # class, rating, ratio, seconds, tight: every device of the class has tripped by then
    *(
        (Curve.UL489, rated, 2.0, minutes * MINUTE, True)
        for rated, minutes in (
            (15, 2), (30, 2), (40, 4), (50, 4), (60, 6), (100, 6), (125, 8), (150, 8), (200, 10), (225, 10),
            (400, 12), (600, 14), (800, 16), (1000, 18), (1200, 20), (1600, 22), (2000, 24), (2500, 26),
            (4000, 28),
        )
    ),
    *((Curve.UL489, rated, 1.35, hours * HOUR, rated <= 400) for rated, hours in ((20, 1), (50, 1), (100, 2), (225, 2), (800, 2), (2000, 2))),
    *((curve, rated, 1.45, HOUR, True) for curve in (Curve.IEC_B, Curve.IEC_C, Curve.IEC_D) for rated in (6, 16, 32, 63)),
    (Curve.IEC_C, 125, 1.45, 2 * HOUR, True),
    (Curve.IEC_B, 10, 2.0, 210.0, True),
    (Curve.IEC_C, 10, 2.0, 190.0, False),
    (Curve.IEC_C, 16, 2.55, MINUTE, True),
    (Curve.IEC_C, 10, 2.55, MINUTE, False),
    (Curve.IEC_C, 40, 2.55, 2 * MINUTE, True),
    (Curve.IEC_C, 16, 1.5, 10 * MINUTE, False),
    (Curve.IEC_60947, 63, 1.30, HOUR, True),
    (Curve.IEC_60947, 100, 1.30, 2 * HOUR, True),
    (Curve.IEC_60947, 400, 1.30, 2 * HOUR, True),
    (Curve.IEC_K, 16, 1.30, HOUR, True),
    (Curve.IEC_Z, 63, 1.30, HOUR, True),
    *((Curve.JIS, rated, 1.25, hours * HOUR, rated <= 400) for rated, hours in ((15, 1), (30, 1), (50, 1), (75, 2), (225, 2), (600, 2))),
    *(
        (Curve.JIS, rated, 2.0, minutes * MINUTE, True)
        for rated, minutes in (
            (20, 2), (30, 2), (50, 4), (100, 6), (225, 8), (400, 10), (600, 12), (800, 14), (1000, 16),
            (1200, 18), (1600, 20), (2000, 22), (3000, 24),
        )
    ),
    (Curve.HYDRAULIC_MAGNETIC, 20, 1.35, HOUR, True),
    (Curve.HYDRAULIC_MAGNETIC, 20, 2.0, 2 * MINUTE, True),
    (Curve.BS1362, 13, 1.9, 30 * MINUTE, False),
    (Curve.BS1362, 3, 1.9, 30 * MINUTE, False),
    (Curve.BS1362, 13, 30 / 13, 400.0, True),
    (Curve.BS1362, 13, 50 / 13, 20.0, True),
    (Curve.BS1362, 13, 100 / 13, 0.2, True),
    (Curve.BS1362, 3, 9 / 3, 80.0, True),
    (Curve.BS1362, 3, 20 / 3, 0.1, True),
    (Curve.BS1362, 3, 10.0, 0.03, True),
    (Curve.GG, 16, 1.6, HOUR, False),
    (Curve.GG, 100, 1.6, 2 * HOUR, False),
    (Curve.GG, 250, 1.6, 3 * HOUR, False),
    (Curve.GG, 1250, 1.6, 4 * HOUR, False),
    (Curve.GG, 16, 65 / 16, 5.0, True),
    (Curve.GG, 63, 320 / 63, 5.0, True),
    (Curve.GG, 400, 2840 / 400, 5.0, True),
    (Curve.GG, 16, 150 / 16, 0.1, True),
    (Curve.GG, 1250, 35000 / 1250, 0.1, True),
]  # fmt: skip


@pytest.mark.parametrize(("curve", "rated", "ratio", "seconds"), HOLDS)
def test_what_the_class_must_bear(curve: Curve, rated: float, ratio: float, seconds: float) -> None:
    """The earliest edge does not trip before."""
    assert times(band(curve, rated), ratio)[0] >= seconds * 0.98


@pytest.mark.parametrize(("curve", "rated", "ratio", "seconds", "tight"), TRIPS)
def test_what_the_class_must_open(curve: Curve, rated: float, ratio: float, seconds: float, tight: bool) -> None:
    """A device that takes all the time that its standard allows is inside the band; and where the band's
    form can follow the standard, nothing later is."""
    earliest, nominal, latest = times(band(curve, rated), ratio)
    assert earliest <= nominal <= latest
    assert earliest <= seconds
    if tight:
        assert latest == pytest.approx(seconds, rel=0.021)
    else:
        assert latest > 0.8 * seconds


@pytest.mark.parametrize("tr", [4.0, 16.0, 24.0])
@pytest.mark.parametrize(("ratio", "latest_over_tr", "least"), [(1.5, 25.0, 0.7), (6.0, 1.0, 0.8), (7.2, 0.69, 0.8)])
def test_a_trip_unit_follows_its_dials(tr: float, ratio: float, latest_over_tr: float, least: float) -> None:
    """Long-time: the maker's times at 1.5, 6 and 7.2 Ir, and his tolerance below them."""
    found = band(Curve.LSI, 800, LsiSettings(tr=tr))
    earliest, _, latest = times(found, ratio)
    assert latest == pytest.approx(latest_over_tr * tr, rel=0.02)
    assert earliest == pytest.approx(least * latest_over_tr * tr, rel=0.02)
    assert times(found, 1.05)[0] == math.inf
    assert times(found, 1.19)[2] == math.inf


def test_short_time_and_instantaneous_parts_of_a_trip_unit() -> None:
    """By Isd over Ir and Ii over the rating, with 10 %; a delay by I2t promises no end."""
    found = band(Curve.LSI, 800, LsiSettings(ir=0.8, tr=16, isd=6, tsd=0.2, ii=10))
    assert times(found, 5.3)[0] > 1
    assert times(found, 5.5)[0] == 0
    assert times(found, 6.7)[2] == pytest.approx(0.28)
    assert times(found, 11.2)[2] == pytest.approx(0.28)
    assert times(found, 13.8)[2] == pytest.approx(0.1)
    ramp = band(Curve.LSI, 800, LsiSettings(tr=16, isd=6, tsd=0.2, i2t=True))
    assert times(ramp, 7)[2] > 1


OUTSIDE = [
    (Curve.UL489, 6000),
    (Curve.IEC_C, 160),
    (Curve.IEC_K, 125),
    (Curve.IEC_60947, 2500),
    (Curve.BS1362, 5),
    (Curve.BS1362, 20),
    (Curve.GG, 10),
    (Curve.GG, 17),
    (Curve.GG, 1600),
    (Curve.HYDRAULIC_MAGNETIC, 150),
    (Curve.LSI, 800),
    (Curve.UNKNOWN, 20),
]


@pytest.mark.parametrize(("curve", "rated"), OUTSIDE)
def test_outside_its_class_a_band_says_that_it_does_not_know(curve: Curve, rated: float) -> None:
    """Neither never nor a time, at any load, and why."""
    found = band(curve, rated)
    assert not found.known
    assert found.why_unknown
    for ratio in (0.5, 1.2, 3.0, 30.0):
        assert all(math.isnan(seconds) for seconds in times(found, ratio))


def test_every_class_names_its_source_and_its_edges_stand_in_order() -> None:
    """At every load; a higher load never trips later."""
    for curve, found in DEVICE_CLASSES.items():
        assert found.source or curve is Curve.UNKNOWN
        for row in found.rows:
            before = (math.inf,) * 3
            for ratio in np.linspace(1.0, 25, 120):
                now = times(row, float(ratio))
                assert now[0] <= now[1] <= now[2]
                assert all(a <= b for a, b in zip(now, before, strict=True))
                before = now


def circuit(text: str) -> Circuit:
    """Return the circuit `a` of a site."""
    return lay_out("site.toml", decode("site.toml", tomllib.loads(text))).circuits["a"]


@pytest.mark.parametrize(
    ("region", "more", "amps"),
    [
        ("DE", "breaker = 16\ncurve = 'IEC-C'\n", 16),
        ("DE", "breaker = 16\ncurve = 'IEC-C'\ngrouping = 0.7\n", 11.2),
        ("DE", "breaker = 16\ncurve = 'IEC-C'\ngrouping = 0.7\ncontinuous = 0.8\n", 11.2),
        ("DE", "breaker = 16\ncontinuous = 0.8\n", 12.8),
        ("UK", "breaker = 32\ncurve = 'IEC-B'\n", 32),
        ("UK", "breaker = 13\ncurve = 'BS1362'\n", 13),
        ("US", "breaker = 20\n", 16),
        ("US", "breaker = 20\ncontinuous = 1.0\n", 20),
        ("US", "breaker = 20\ngrouping = 0.7\n", 14.7),  # ten degrees cooler than its reference
        ("JP", "breaker = 20\n", 16),
        ("US", "breaker = 30\ncurve = 'hydraulic-magnetic'\n", 24),
        ("DE", "breaker = 30\ncurve = 'hydraulic-magnetic'\n", 30),
        ("DE", "breaker = 400\nvolts = 400\npoles = 3\ncurve = 'LSI'\nlsi = {ir = 0.9, tr = 8}\n", 360),
        ("US", "breaker = 400\nvolts = 480\npoles = 3\ncurve = 'LSI'\nlsi = {ir = 0.9, tr = 8}\n", 288),
        ("DE", "breaker = 16\nconnector = 'C13'\n", 10),
        ("DE", "breaker = 16\nconnector = 'Schuko'\n", 16),
        ("DE", "breaker = 32\nconnector = 'CEE 16'\n", 16),
        ("UK", "breaker = 32\nconnector = 'BS 1363'\n", 13),
        ("US", "breaker = 20\nconnector = '5-15'\n", 12),
        ("US", "breaker = 20\nconnector = 'NEMA 5-20R'\n", 16),
        ("US", "breaker = 30\nvolts = 208\npoles = 2\nconnector = 'L6-30'\n", 24),
        ("US", "breaker = 30\nvolts = 208\npoles = 2\nconnector = 'C19'\n", 16),
        ("US", "breaker = 20\nvolts = 208\npoles = 2\nconnector = 'C13'\n", 12),
    ],
)
def test_the_continuous_limit_is_that_of_the_standard(region: str, more: str, amps: float) -> None:
    """IEC: the rated current, less heat and grouping; NEC: 80 %; never more than the connector bears."""
    assert circuit(f"region = '{region}'\n[circuits.a]\n{more}").continuous_amps == pytest.approx(amps)


def test_the_advice_is_never_a_cap_above_what_the_cards_draw() -> None:
    """C16 with a grouping of 0.7: 11.2 A are the limit, and the cap keeps to it."""
    text = (
        "region = 'DE'\n[circuits.a]\nbreaker = 16\ngrouping = 0.7\nnodes = ['rig']\n"
        "[nodes.rig]\ngpus = '4x RTX 5090'\n"
    )
    (plan,) = planned(text).circuits
    assert plan.cap is not None
    assert 400 <= plan.cap.watts_per_gpu < 575
    assert {"E02", "E07"} <= set(plan.alerts)
    (capped,) = planned(text, Suppose(cap=plan.cap.watts_per_gpu)).circuits
    assert "E02" not in capped.alerts
    assert max(capped.amps.values()) == pytest.approx(11.2, rel=0.01)


def test_an_iec_circuit_is_quiet_at_its_rated_current_and_pages_above() -> None:
    """E02 is silent at 0.95 of C16, and fires at 1.05 of it."""
    text = "region = 'DE'\n[circuits.a]\nbreaker = 16\nnodes = ['rig']\n[nodes.rig]\nwatts = 5000\n"
    stage = Stage(text)
    volt_amps = 16 * 230 * 0.97
    stage.play(600, wall={"rig": 0.85 * volt_amps}, every=5)
    assert stage.ids("a") == []
    stage.play(300, wall={"rig": 1.05 * volt_amps}, every=5)
    assert "E02" in stage.ids("a")


@pytest.mark.parametrize("curve", ["unknown", "BS1362", "LSI"])
def test_without_a_band_pages_come_by_load(curve: str) -> None:
    """No time to trip, no heat, and nothing says when it must have tripped; E03 fires above the rating."""
    text = f"region = 'US'\n[circuits.a]\nbreaker = 20\ncurve = '{curve}'\nnodes = ['rig']\n[nodes.rig]\nwatts = 5000\n"
    stage = Stage(text)
    stage.play(60, wall={"rig": 1.5 * 20 * 120 * 0.97})
    assert "E03" in stage.ids("a")
    assert "E04" not in stage.ids("a")
    for quantity in ("heat_ratio", "trip_earliest_seconds", "trip_nominal_seconds", "trip_latest_seconds"):
        assert math.isnan(stage.value(f"circuit_{quantity}", "a"))
    words = stage.facts("a")["band"]
    assert words.startswith("not known: ")
    assert "must" not in words
    assert "within" not in words


@pytest.mark.parametrize(
    ("more", "cure"),
    [
        ("lsi = {ir = 0.9}\n", 'curve = "LSI"'),
        ("curve = 'LSI'\nlsi = {ir = 9}\n", "what its dials show"),
        ("connector = 'C12'\n", "C1"),
        ("connector = 'L6-31'\n", "L6-30"),
    ],
)
def test_wrong_dials_and_connectors_have_a_cure(more: str, cure: str) -> None:
    """With the place."""
    with pytest.raises(ConfigError, match=r"circuits\.a") as caught:
        circuit(f"[circuits.a]\nbreaker = 20\n{more}")
    assert cure in str(caught.value)


@pytest.mark.parametrize(
    ("region", "volts", "between", "curve"),
    [
        ("US", 120, 208, Curve.UL489), ("CA", 120, 208, Curve.UL489), ("MX", 127, 220, Curve.UL489),
        ("JP", 100, 200, Curve.JIS), ("BR", 220, 380, Curve.IEC_C), ("CN", 220, 380, Curve.IEC_C),
        ("KR", 220, 380, Curve.IEC_C), ("DE", 230, 400, Curve.IEC_C), ("UK", 230, 400, Curve.IEC_C),
        ("AU", 230, 400, Curve.IEC_C), ("IN", 230, 400, Curve.IEC_C), ("ZA", 230, 400, Curve.IEC_C),
        ("SG", 230, 400, Curve.IEC_C), ("TW", 110, 220, Curve.UL489), ("AR", 220, 380, Curve.IEC_C),
    ],
)  # fmt: skip
def test_the_mains_of_a_country(region: str, volts: float, between: float, curve: Curve) -> None:
    """Voltage of a home, between lines of a panel, and the usual breaker."""
    assert (MAINS[region].volts, MAINS[region].between) == (volts, between)
    assert circuit(f"region = '{region}'\n[circuits.a]\nbreaker = 16\n").volts == volts
    assert default_curve(volts, region) is curve
    assert continuous_ratio(curve, volts, region) == (1.0 if curve is Curve.IEC_C else 0.8)


def test_a_large_iec_breaker_is_an_industrial_one() -> None:
    """IEC 60898 ends at 125 A: a main of 400 A follows IEC 60947-2."""
    assert default_curve(400, "DE", 125) is Curve.IEC_C
    assert default_curve(400, "DE", 400) is Curve.IEC_60947
    assert band(Curve.IEC_60947, 400).known


def test_a_cord_carries_no_more_than_its_connector() -> None:
    """C13 on a server of 4 kW: over it at once; C19 only after the loss of the other feed."""
    text = (
        "region = 'DE'\n[circuits.a]\nbreaker = 32\nredundancy = {group = 'g', role = 'A'}\n"
        "[circuits.b]\nbreaker = 32\nredundancy = {group = 'g', role = 'B'}\n"
        "[nodes.n]\nwatts = 6000\ncords = [{circuit = 'a', connector = 'X'}, {circuit = 'b', connector = 'X'}]\n"
    )

    def notices(connector: str, psu: str = "") -> list[str]:
        site = text.replace("'X'", f"'{connector}'")
        if psu:
            for circuit, numbers in (("a", "1-2"), ("b", "3-4")):
                site = site.replace(f"'{circuit}', c", f"'{circuit}', psu = '{numbers}', c")
        return [n for n in planned(site).notices if "cord into" in n]

    assert len(notices("C13")) == 2
    assert "may draw 13.4 A by its cord into a, above the 10 A of C13" in notices("C13")[0]
    assert "26.9 A after the loss of another feed by its cord into a, above the 16 A of C19" in notices("C19")[0]
    assert notices("CEE 32") == []
    # Two supplies a feed have a cord each: 13.4 A after the loss.
    assert notices("C19", psu="2") == []
    assert "26.9 A after" in notices("C13", psu="2")[0]


def test_supplies_have_less_to_give_at_low_line() -> None:
    """1,600 W of 200 to 240 V are 1,000 W at 120 V."""
    text = (
        "region = 'US'\n[circuits.a]\nbreaker = 20\nVOLTS\nnodes = ['n']\n"
        "[nodes.n]\ngpus = '2x RTX 4090'\nsupply = {watts = 1600, low_line_watts = 1000}\n"
    )
    (low,) = planned(text.replace("VOLTS", "volts = 120")).nodes
    (high,) = planned(text.replace("VOLTS", "volts = 240\npoles = 2")).nodes
    assert low.supply_load == pytest.approx(1.15, abs=0.01)
    assert "E15" in low.alerts
    assert high.supply_load == pytest.approx(0.72, abs=0.01)
    assert "E15" not in high.alerts


def test_grouping_and_heat_bind_commitment_and_survivors_too() -> None:
    """Over the effective rating of 11.2 A, not over the 16 A on the handle; in a plan and live."""
    feed = "breaker = 16\ngrouping = 0.7\nredundancy = {group = 'g', role = '%s'}\n"
    text = (
        f"region = 'DE'\n[circuits.a]\n{feed % 'A'}[circuits.b]\n{feed % 'B'}"
        "[nodes.n]\ngpus = '4x RTX 4090'\ncords = [{circuit = 'a'}, {circuit = 'b'}]\n"
    )
    stage = Stage(text, limits={"n": 1800.0}, gpus=4)
    stage.play(60, wall={"n": 2200.0})
    amps = 2200 / 230 / 0.97
    assert stage.value("circuit_survivor_rated_ratio", "a") == pytest.approx(amps / 11.2, rel=0.03)
    committed = stage.value("circuit_committed_watts", "a") / 230 / 0.97
    assert stage.value("circuit_committed_rated_ratio", "a") == pytest.approx(committed / 11.2, rel=0.01)
    plan = next(one for one in planned(text, Suppose(watts={"n": 2600.0})).circuits if one.id == "a")
    assert plan.survivor_amps == pytest.approx(2600 / 230 / 0.97, rel=0.01)
    assert "E08" in plan.alerts


def test_a_blown_fuse_is_replaced_and_not_switched_on() -> None:
    """What to do after E17."""
    text = "region = 'UK'\n[circuits.a]\nbreaker = 13\ncurve = 'BS1362'\nnodes = ['x', 'y']\n[circuits.b]\nbreaker = 13\nnodes = ['z']\n"
    stage = Stage(text)
    stage.play(60, wall={"x": 1500.0, "y": 1500.0, "z": 500.0})
    stage.hush("x", "y")
    stage.play(40, wall={"z": 500.0})
    assert "E17" in stage.ids("a")
    assert "replace the fuse-link" in stage.facts("a")["reset"]


def test_a_plan_says_which_circuits_have_no_trip_time() -> None:
    """With the reason; a device that is declared as unknown needs none."""
    text = (
        "region = 'DE'\n[circuits.a]\nbreaker = 160\ncurve = 'IEC-C'\n[circuits.b]\nbreaker = 20\ncurve = 'unknown'\n"
    )
    plan = planned(text)
    assert [one.trip_known for one in plan.circuits] == [False, False]
    (notice,) = [n for n in plan.notices if "no trip time" in n]
    assert notice.startswith("a: ")
    assert "125 A" in notice


def test_the_instantaneous_limit_of_an_electronic_trip_unit_counts_from_its_setting() -> None:
    """400 A with Ir at a half and a short-time pickup of 2: from 360 A it may open at once, not from 720."""
    text = (
        'region = "EU"\n[circuits.a]\nbreaker = 400\nvolts = 400\npoles = 3\nwiring = "3ph-wye"\n'
        'curve = "LSI"\nlsi = { ir = 0.5, isd = 2, tsd = 0 }\n'
    )
    layout = lay_out("site.toml", decode("site.toml", tomllib.loads(text)))
    (amps,) = build_topology(layout).magnetic_amps
    assert amps == pytest.approx(360, rel=0.02)
