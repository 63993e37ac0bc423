"""What is wrong with a configuration is said with place and cure; the command shows it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from alerts.rules.rule import load
from kilowatch.__main__ import main
from kilowatch.text.plan import WIDTH
from power.plan.plan import Suppose
from power.site.decode import decode
from power.site.layout import lay_out
from present.circuit.rules import WORDS
from telemetry.errors import ConfigError
from tests.power.sites import PAIR, RIG, circuit, planned

PAGE = (Path(__file__).parents[2] / "docs/power.md").read_text()
A = "[circuits.a]\nbreaker = 15\n"


@pytest.mark.parametrize(
    ("text", "place", "cure"),
    [
        ("[circuits.a]\nbreaker = '15 amps'\n", "circuits.a.breaker", 'Write 15 or "15A"'),
        ("[circuits.a]\nbreakr = 15\n", "circuits.a", "'breaker'"),
        ("[circuits.a]\nvolts = 120\n", "circuits.a.breaker", "Write breaker = 15"),
        (A + "wiring = 'single'\npoles = 2\n", "circuits.a.wiring", "Write split, wye or delta, or poles = 1."),
        (A + "parent = 'b'\n[circuits.b]\nbreaker = 15\nparent = 'a'\n", "circuits.a.parent", "a -> b -> a"),
        (A + "parent = 'aa'\n", "circuits.a.parent", "'a'"),
        (A + "[circuits.b]\nbreaker = 20\nparent = 'a'\n", "circuits.b.breaker", "at most 15"),
        (A + "[nodes.n]\nwatts = 10\ncords = [{circuit = 'a', share = 0.6}]\n", "nodes.n.cords", "add up to 1"),
        (A + "[nodes.n]\nwatts = 10\ncords = [{circuit = 'b'}]\n", "nodes.n.cords[0].circuit", "Known: a"),
        (A + "nodes = ['rig2']\n[nodes.rig1]\nwatts = 10\n", "circuits.a.nodes", "'rig1'"),
        (A + "nodes = ['n']\n[nodes.n]\ngpus = 'rtx-509'\n", "nodes.n.gpus", "'rtx-5090'"),
        (A + "curve = 'UL498'\n", "circuits.a.curve", "Write UL489, IEC-B, IEC-C, IEC-D, IEC-60947"),
        (A + "redundancy = {group = 'g', role = 'A', scheme = '3N'}\n", "circuits.a.redundancy.scheme", "Write 2N, N+1, N or 2(N+1)."),
        (A + "nodes = 'rig1'\n", "circuits.a.nodes", 'as in ["rig1"]'),
        (A + "pf = 'good'\n", "circuits.a.pf", "Write a number."),
        (A + "[budgets.b]\ncircuits = ['c']\n", "budgets.b.circuits", ""),
        (A + "[power.circuits.b]\nbreaker = 20\n", "site.toml: circuits", "Write power.circuits"),
        ("region = 'USA'\n" + A, "region", "two capital letters: US"),
        ("region = 'us'\n" + A, "region", "two capital letters: US"),
        (A + "[site]\nambient_c = 240\n", "site.ambient_c", "from -40 to 70"),
        (A + "[sources.a]\n", "circuits.a: a source has this name", "Rename one of them."),
        (A + "[panels.p]\nsource = 'a'\n", "panels.p.source: 'a' is a circuit", 'Write parent = "a"'),
        (A + "[ups.u]\nwatts = 3000\nvolts = 400\nsource = 'a'\n", "ups.u.source: 'a' is a circuit", 'Write parent = "a"'),
        (
            A + "[transformers.t]\nkva = 50\nsource = 'a'\nprimary.volts = 480\nsecondary.volts = 208\n",
            "transformers.t.source: 'a' is a circuit", "give the source another name",
        ),
        ("", "circuits", "[circuits.office]"),
    ],
)  # fmt: skip
def test_a_mistake_has_a_place_and_a_cure(text: str, place: str, cure: str) -> None:
    """As an operator reads it."""
    with pytest.raises(ConfigError) as caught:
        planned(text)
    assert place in str(caught.value)
    assert cure in str(caught.value)


def test_a_report_checks_its_settings_too(tmp_path: Path) -> None:
    """They divide in a report, and no circuit is needed for one."""
    path = tmp_path / "site.toml"
    path.write_text("[site]\nhome_watts = 0\n[nodes.n]\ngpus = 'rtx-5090'\n")
    result = CliRunner().invoke(main, ["report", "--config", str(path)])
    assert "site.home_watts" in result.output
    assert result.exit_code == 64


def test_three_lines_are_enough_and_15_has_two_spellings() -> None:
    """120 V, one pole, 80 %."""
    for breaker in ("15", "'15A'", "'15 A'"):
        plan = planned(f"[circuits.office]\nbreaker = {breaker}\nnodes = ['rig1']\n")
        assert circuit(plan, "office").continuous_amps == 12
        assert any("rig1" in notice for notice in plan.notices)


def test_a_pair_on_one_panel_is_not_independent() -> None:
    """Allowed, and said."""
    text = "[panels.p]\nvolts = 240\n" + PAIR.replace("volts = 240\npf", "panel = 'p'\npoles = 2\npf")
    assert any("not independent" in notice for notice in planned(text).notices)


def test_a_group_of_one_side_only_is_said() -> None:
    """A slip in a role makes both feeds one side; two of a side beside another side are right."""
    text = PAIR.replace('role = "B"', 'role = "A2"')
    assert any("all of group g are side A" in notice for notice in planned(text).notices)
    assert not any("are side" in notice for notice in planned(PAIR).notices)


def test_a_cap_below_the_floor_is_said() -> None:
    """No such card takes 250 W: the plan is made with 400 W, and says so."""
    plan = planned(RIG.format(gpus="4x RTX 5090", amps=15, volts=120), Suppose(cap=250))
    assert circuit(plan, "office").watts == pytest.approx((4 * 400 + 250) / 0.9, rel=0.01)
    assert plan.notices == ["--cap 250: the cards of rig1 take no less than 400 W, and are planned with that"]


@pytest.mark.parametrize(
    ("suppose", "place"),
    [
        (Suppose(watts={"rig1": -5.0}), "--watts rig1"),
        (Suppose(watts={"rig1": float("nan")}), "--watts rig1"),
        (Suppose(cap=0.0), "--cap"),
        (Suppose(add=[("dgx-h100:1000000", "office")]), "--add"),
        (Suppose(add=[("dgx-h100:600", "office"), ("rtx-5090:600", "office")]), "--add"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_worked_out(suppose: Suppose, place: str) -> None:
    """The same for the command and for whoever asks a running cluster."""
    with pytest.raises(ConfigError, match=place):
        planned(RIG.format(gpus="4x RTX 5090", amps=15, volts=120), suppose)


def test_a_hot_breaker_that_is_off_trips_no_more() -> None:
    """However long it has carried its rating before."""
    rig = RIG.format(gpus="4x RTX 5090", amps=15, volts=120)
    (found,) = planned(rig, Suppose(lose=["office"], preload=1.3)).circuits
    assert found.lost
    assert found.trip_seconds["earliest"] is None
    assert "E04" not in found.alerts


def test_what_is_lost_is_off_and_its_nodes_are_dark() -> None:
    """A feed of a pair takes no node with it; the only feed does."""
    pair = planned(PAIR, Suppose(lose=["a"]))
    assert [c.lost for c in pair.circuits] == [True, False]
    assert not pair.nodes[0].dark
    alone = planned(RIG.format(gpus="4x RTX 5090", amps=15, volts=120), Suppose(lose=["office"]))
    assert alone.nodes[0].dark
    assert alone.circuits[0].watts == 0


def test_what_the_page_shows_can_be_pasted() -> None:
    """docs/power.md: every example by itself, and a row for every rule."""
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        assert lay_out("page", decode("page", tomllib.loads(example))).circuits
    rules = [f"E{number:02}" for number in range(1, 25)]
    assert [rule for rule in rules if f"| {rule} |" not in PAGE] == []


def test_a_plan_for_people_fits_a_terminal(tmp_path: Path) -> None:
    """No line is wider than 80, and every rule is said in words."""
    file = tmp_path / "rig.toml"
    file.write_text(RIG.format(gpus="4x RTX 5090", amps=15, volts=120) + "[nodes.nas]\n")
    arguments = ["plan", "--config", str(file), "--add", "rtx-5090:2", "--on", "office", "--cap", "250"]
    lines = CliRunner().invoke(main, arguments).stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "    ! above its continuous limit, which holds for 3 hours and more (E02)" in lines
    assert "    may trip in" in "\n".join(lines)
    assert any("below the card's floor of 400 W" in line for line in lines)
    electrical = {rule.id for rule in load() if rule.id.startswith("E")} - {"E23"}  # of a GPU
    assert set(WORDS) == electrical
    dark = CliRunner().invoke(main, ["plan", "--config", str(file), "--lose", "office"]).stdout
    assert "office  off, as supposed" in dark
    assert "node rig1  loses power" in dark
    again = CliRunner().invoke(main, ["plan", "--config", str(file), "--lose", "office, office"])
    assert again.stdout == dark
    nothing = CliRunner().invoke(main, ["plan", "--config", str(file), "--lose", ","])
    assert nothing.exit_code == 64
    assert "it names nothing" in nothing.output


def test_plan_and_report_on_the_command_line(tmp_path: Path) -> None:
    """The JSON has the shape that is promised; a mistake is one line and exit code 64."""
    file = tmp_path / "rig.toml"
    file.write_text(RIG.format(gpus="4x RTX 5090", amps=15, volts=120))
    shown = CliRunner().invoke(main, ["plan", "--config", str(file), "--json"])
    assert shown.exit_code == 1
    office = json.loads(shown.stdout)["circuits"][0]
    promised = {"id", "watts", "amps", "rated_amps", "continuous_amps", "load_ratio", "trip_seconds", "alerts"}
    assert promised <= set(office)
    people = CliRunner().invoke(main, ["plan", "--config", str(file), "--add", "l4:2", "--on", "office"])
    assert "may trip earlier or later" in people.stdout
    assert CliRunner().invoke(main, ["report", "--config", str(file)]).exit_code == 0
    wrong = CliRunner().invoke(main, ["plan", "--config", str(file), "--watts", "rig2=5"])
    assert wrong.exit_code == 64
    assert "rig1" in wrong.stderr


def test_a_wrong_kind_of_section_is_told_by_its_name() -> None:
    """`file: circuits`, without the dot of a path that begins nowhere."""
    with pytest.raises(ConfigError, match=r"^site\.toml: circuits: expected `object`"):
        decode("site.toml", {"circuits": [{"id": "desk"}]})


@pytest.mark.parametrize(
    ("region", "volts", "curve"),
    [
        ("US", 120, "UL489"),
        ("MX", 127, "UL489"),
        ("JP", 100, "JIS"),
        ("DE", 230, "IEC-C"),
        ("BR", 220, "IEC-C"),
        ("CN", 220, "IEC-C"),
        ("KR", 220, "IEC-C"),
        ("IN", 230, "IEC-C"),
    ],
)
def test_a_region_picks_volts_and_curve(region: str, volts: float, curve: str) -> None:
    text = f"region = '{region}'\n" + A
    line = lay_out("site.toml", decode("site.toml", tomllib.loads(text))).circuits["a"]
    assert (line.volts, line.curve) == (volts, curve)
