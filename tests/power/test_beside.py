"""Settings and loads are judged beside each other, and sums are those of what really adds up."""

from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.exit_codes import ExitCode
from power.plan.plan import Suppose
from telemetry.errors import ConfigError
from tests.power.sites import circuit, planned

ROOM = 'region = "US"\ncircuits.desk = {{ breaker = {breaker}, nodes = ["pc"]{more} }}\nnodes.pc = {{ {pc} }}\n'
PC = 'gpus = "2x RTX 4090"'


@pytest.mark.parametrize(
    ("site", "place", "cure"),
    [
        (ROOM.format(breaker=20, more="", pc="watts = 1.8"), "nodes.pc.watts", "watts = 1800"),
        (ROOM.format(breaker=20, more=", other_w = 1.2", pc=PC), "circuits.desk.other_w", "other_w = 1200"),
        (ROOM.format(breaker=1600, more="", pc=PC), "circuits.desk.breaker", "breaker = 16"),
        (ROOM.format(breaker=800, more="", pc=PC), "circuits.desk.breaker", "poles = 3"),
        (ROOM.format(breaker=20, more="", pc=f"{PC}, host_watts = 90000"), "nodes.pc.host_watts", "host_watts = 250"),
        (ROOM.format(breaker=20, more="", pc="watts = 400") + 'ups.box = { watts = 800, nodes = ["pc"], efficiency = 0.93 }\n',
         "ups.box.efficiency", "Write parent"),
        (ROOM.format(breaker=20, more="", pc="watts = 400") + 'ups.box = { watts = 800, nodes = ["pc"], wiring = "single" }\n',
         "ups.box.wiring", "Write parent"),
        ('region = "US"\ncircuits.desk = { breaker = 20, volts = 240 }\nnodes.pc = { watts = 900, cords = [{ circuit = "desk", connector = "5-15" }] }\n',
         "nodes.pc.cords[0].connector", "6-20"),
    ],
)  # fmt: skip
def test_a_number_that_its_neighbours_make_impossible_is_refused(site: str, place: str, cure: str) -> None:
    """With the place and what to write."""
    with pytest.raises(ConfigError) as refused:
        planned(site)
    assert refused.value.where.endswith(place)
    assert cure in refused.value.hint


@pytest.mark.parametrize(
    "site",
    [
        ROOM.format(breaker=20, more=", other_w = 0", pc="watts = 0"),
        ROOM.format(breaker=20, more="", pc='gpus = "1x L4", host_watts = 3500'),
        'region = "DE"\ncircuits.bar = { rated_amps = 3000, rating_is_derated = true, volts = 50, nodes = ["n"] }\nnodes.n.watts = 90000\n',
        ROOM.format(breaker=20, more="", pc="watts = 400")
        + 'ups.box = { watts = 800, nodes = ["pc"], battery_wh = 400 }\n',
    ],
)
def test_what_can_be_is_not_refused(site: str) -> None:
    """Nothing at all, a big server around a small card, a busbar, a UPS with its battery."""
    assert planned(site).circuits


def test_supposed_watts_in_kilowatts_are_refused() -> None:
    """Four RTX 5090 do not draw 2.5 W."""
    with pytest.raises(ConfigError, match=r"Did you mean 2\.5 kW"):
        planned(ROOM.format(breaker=20, more="", pc='gpus = "4x RTX 5090"'), Suppose(watts={"pc": 2.5}))


def test_a_negative_power_to_fit_is_a_wrong_number_and_no_option() -> None:
    """`fit -3kW`."""
    found = CliRunner().invoke(main, ["fit", "-3kW", "--config", "/dev/null"])
    assert found.exit_code == ExitCode.USAGE
    assert "-3kW is below 0: a machine draws power. Write 3kW." in found.output


def test_loads_of_different_power_factors_add_up_as_vectors() -> None:
    """A motor of pf 0.7 and a heater, 8 kW each on 400 V: hypot of watts and vars, below the sum of amps."""
    site = """
region = "DE"
panels.p = { volts = 400, breaker = 80 }
circuits.motor = { panel = "p", breaker = 40, poles = 3, pf = 0.7, nodes = ["a"] }
circuits.heater = { panel = "p", breaker = 40, poles = 3, pf = 1.0, nodes = ["b"] }
nodes = { a = { watts = 8000 }, b = { watts = 8000 } }
"""
    plan = planned(site)
    vars_ = 8000 * math.tan(math.acos(0.7))
    both = math.hypot(16_000, vars_) / (math.sqrt(3) * 400)
    panel = plan.panels[0]
    assert panel.amps["L1"] == pytest.approx(both, rel=1e-3)
    assert panel.amps["L1"] < sum(one.amps["L1"] for one in plan.circuits)
    alike = planned(site.replace("pf = 1.0", "pf = 0.7"))
    assert alike.panels[0].amps["L1"] == pytest.approx(sum(one.amps["L1"] for one in alike.circuits), rel=1e-4)


def test_third_harmonics_of_three_poles_add_up_on_the_neutral() -> None:
    """A quarter of 30 A on each pole: 22.5 A, on the panel too; none between two poles half a turn apart."""
    watts = 30 * math.sqrt(3) * 400 * 0.97
    site = f"""
region = "DE"
panels.p = {{ volts = 400, breaker = 63 }}
circuits.c = {{ panel = "p", breaker = 32, poles = 3, third_harmonic = 0.25, nodes = ["n"] }}
nodes.n.watts = {watts}
"""
    plan = planned(site)
    assert plan.circuits[0].neutral_amps == pytest.approx(22.5, rel=1e-3)
    assert plan.panels[0].neutral_amps == pytest.approx(22.5, rel=1e-3)
    split = 'region = "US"\ncircuits.c = { breaker = 50, poles = 2, volts = 240, third_harmonic = 0.3, nodes = ["n"] }\nnodes.n.watts = 5000\n'
    assert planned(split).circuits[0].neutral_amps == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("region", "volts"), [("JP", 200), ("TW", 220), ("US", 208), ("DE", 400)])
def test_three_poles_without_volts_have_those_of_the_country(region: str, volts: int) -> None:
    """Between lines: in Japan and Taiwan that is no multiple of a home's voltage."""
    site = f'region = "{region}"\ncircuits.c = {{ breaker = 63, poles = 3, nodes = ["n"] }}\nnodes.n.watts = 12000\n'
    amps = circuit(planned(site), "c").amps["L1"]
    assert amps == pytest.approx(12_000 / volts / math.sqrt(3) / 0.97, rel=0.005)


def test_a_plan_says_how_long_a_battery_carries_the_load() -> None:
    """600 Wh, nine tenths of which reach 300 W: 108 min."""
    site = (
        ROOM.format(breaker=20, more="", pc="watts = 300")
        + 'ups.box = { watts = 1000, nodes = ["pc"], battery_wh = 600 }\n'
    )
    assert planned(site).limits[0].battery_seconds == pytest.approx(108 * 60)


SERVER = """
region = "US"
circuits.ra = { breaker = 60, poles = 3, volts = 415, redundancy = { group = "r", role = "A" } }
circuits.rb = { breaker = 60, poles = 3, volts = 415, redundancy = { group = "r", role = "B" } }
nodes.h = { profile = "dgx-a100", cords = [{ psu = "1-3", circuit = "ra" }, { psu = "4-6", circuit = "rb" }] }
"""


def test_a_bank_of_outlets_binds_before_its_distribution_unit() -> None:
    """A load of 3,500 W is 17.3 A on a bank that carries 16 A for hours, and half of what its unit carries."""
    found = planned(
        'region = "US"\ncircuits.pdu = { breaker = 30, volts = 208 }\ncircuits.bank1 = { parent = "pdu", breaker = 20 }\n'
        'circuits.bank2 = { parent = "pdu", breaker = 20 }\nnodes.a = { watts = 3500, cords = [{ circuit = "bank1" }] }\n'
    )
    assert {one.id for one in found.circuits if "E02" in one.alerts} == {"bank1"}


def test_the_others_carry_what_a_dead_supply_did() -> None:
    """Two of five on one feed, three on the other; half of 6,500 W on three that must carry it."""
    whole, one_less = planned(SERVER), planned(SERVER, Suppose(lose=("h.psu-2",)))
    assert circuit(whole, "ra").watts == pytest.approx(3250)
    assert circuit(one_less, "ra").watts == pytest.approx(2600)
    assert circuit(one_less, "rb").watts == pytest.approx(3900)
    four_less = planned(SERVER, Suppose(lose=("h.psu-1", "h.psu-2", "h.psu-3", "h.psu-4")))
    assert four_less.nodes[0].supply_load == pytest.approx(1.5 * (whole.nodes[0].supply_load or 0), rel=0.05)
    assert circuit(four_less, "ra").watts == 0


@pytest.mark.parametrize("lose", [("h.psu-2",), tuple(f"h.psu-{number}" for number in range(1, 7))])
def test_a_dead_supply_whose_cord_nobody_knows_is_said(lose: tuple[str, ...]) -> None:
    """Each cord keeps its part then; with all supplies dead there is none to keep."""
    numbered, all_dead = planned(SERVER, Suppose(lose=lose)), len(lose) == 6
    unsaid = SERVER.replace('psu = "1-3", ', "").replace('psu = "4-6", ', "")
    found = planned(unsaid, Suppose(lose=lose))
    assert circuit(found, "ra").watts == pytest.approx(0 if all_dead else 3250)
    said = ["--lose h.psu-2: its cords don't say which supplies they feed"]
    assert [text.partition(",")[0] for text in found.notices] == ([] if all_dead else said)
    assert not [text for text in numbered.notices if text.startswith("--lose")]


def test_a_supply_that_is_not_there_can_not_die() -> None:
    """With the numbers that there are."""
    with pytest.raises(ConfigError, match=r"h has 6 supplies\. Write h\.psu-1 to h\.psu-6"):
        planned(SERVER, Suppose(lose=("h.psu-7",)))
