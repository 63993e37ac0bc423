"""The verdict of a plan, of sites of every kind: golden texts, and one exit code for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.exit_codes import ExitCode
from power.plan.plan import Suppose
from tests.power.sites import planned
from tests.present import golden

RIG = '[circuits.office]\nbreaker = {}\nvolts = 120\nnodes = ["rig"]\n[nodes.rig]\ngpus = "{}x RTX 5090"\n'
TWO = RIG.format(20, 2) + '[circuits.garage]\nbreaker = 15\nvolts = 120\nnodes = ["{}"]\n'
UNSAID = '[circuits.office]\nbreaker = 15\nnodes = ["rig1"]\n'
"""The three lines of docs/power.md: nothing is known of what hangs on it."""
PAIR = """
region = "EU"
circuits.a = { breaker = 16, poles = 1, redundancy = { group = "g", role = "A" } }
circuits.b = { breaker = 16, poles = 1, redundancy = { group = "g", role = "B" } }
nodes.n = { watts = WATTS, cords = [{ circuit = "a" }, { circuit = "b" }] }
"""
BUDGET = 'circuits.a = { breaker = 32, nodes = ["n"] }\nnodes.n.watts = 4000\nregion = "EU"\nbudgets.home = { circuits = ["a"], kw = 3.45 }\n'
UPS = """
region = "EU"
panels.p = { volts = 400, breaker = 63 }
ups.u = { watts = 3000, parent = "p" }
circuits.c = { parent = "u", poles = 3, breaker = 32, nodes = ["n"] }
nodes.n.watts = 3600
"""
PLUG = 'region = "UK"\ncircuits.ring.breaker = 32\nnodes.n = { watts = 3300, cords = [{ circuit = "ring", connector = "BS 1363" }] }\n'
SERVER = """
region = "US"
circuits.ra = { breaker = 60, poles = 3, volts = 415, redundancy = { group = "r", role = "A" } }
circuits.rb = { breaker = 60, poles = 3, volts = 415, redundancy = { group = "r", role = "B" } }
nodes.h = { profile = "PROFILE", cords = [{ psu = "1-3", circuit = "ra" }, { psu = "4-6", circuit = "rb" }] }
"""
SITES: dict[str, tuple[str, Suppose]] = {
    "one rig, with room": (RIG.format(20, 2), Suppose()),
    "one rig, near its limit": (RIG.format(20, 2), Suppose(watts={"rig": 1800})),
    "one rig, over for hours": (RIG.format(20, 3), Suppose()),
    "one rig, may trip": (RIG.format(20, 4), Suppose()),
    "one rig, trips at once": (RIG.format(20, 4), Suppose(watts={"rig": 40_000})),
    "one of two circuits is over": (TWO.format("s") + "[nodes.s]\nwatts = 1700\n", Suppose()),
    "both hold": (TWO.format("s") + "[nodes.s]\nwatts = 600\n", Suppose()),
    "nothing is known of the load": (UNSAID, Suppose()),
    "a part is not known": (TWO.format("s") + "[nodes.s]\n", Suppose()),
    "a part is not known, and the rest is too much": (TWO.format("s"), Suppose(watts={"rig": 2300})),
    "two feeds": (PAIR.replace("WATTS", "3000"), Suppose()),
    "two feeds of which one can not carry all": (PAIR.replace("WATTS", "5000"), Suppose()),
    "a feed is lost": (PAIR.replace("WATTS", "3000"), Suppose(lose=("a",))),
    "both feeds are lost": (PAIR.replace("WATTS", "3000"), Suppose(lose=("a", "b"))),
    "a contract": (BUDGET, Suppose()),
    "a UPS": (UPS, Suppose()),
    "a plug": (PLUG, Suppose()),
    "a server": (SERVER.replace("PROFILE", "dgx-a100"), Suppose()),
    "one of its supplies is dead": (SERVER.replace("PROFILE", "dgx-a100"), Suppose(lose=("h.psu-2",))),
    "a server that needs five of six supplies": (SERVER.replace("PROFILE", "dgx-b200"), Suppose()),
    "a rig's only supply is dead": (RIG.format(20, 2), Suppose(lose=("rig.psu-1",))),
}


def test_a_verdict_reads_as_kept() -> None:
    """A word, the reason with its amps, and what is not known."""
    plans = {name: planned(site, suppose) for name, (site, suppose) in SITES.items()}
    golden.check("plan", {name: [plan.verdict] for name, plan in plans.items()})
    words = {True: "Yes: ", False: "No: ", None: "Can't say: "}
    assert [name for name, plan in plans.items() if not plan.verdict.startswith(words[plan.holds])] == []


def test_a_load_that_is_not_known_is_not_shown_as_nothing(tmp_path: Path) -> None:
    """Neither on its circuit nor above it; the neighbour's is known, and its breaker holds."""
    file = tmp_path / "site.toml"
    panel = "panels.main = { volts = 240, breaker = 100, wiring = 'split' }\n"
    file.write_text(f"{panel}{TWO.format('s')}[nodes.s]\n".replace("\nvolts = 120", '\npanel = "main"\nphase = "L1"'))
    text = CliRunner().invoke(main, ["plan", "--config", str(file)]).stdout
    blocks = [" ".join(block.split()) for block in re.split(r"\n(?! )", text)]
    parts = {block.split()[0]: block for block in blocks if "continuous limit" in block}
    for name in ("main", "garage"):
        assert "≥" in parts[name]
        assert "and what s may draw" in parts[name]
        assert "when it trips is not known, as its load is not" in parts[name]
    assert "≥" not in parts["office"]
    assert "does not trip at this load" in parts["office"]


def test_what_feeds_a_load_that_is_not_known_carries_at_least_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    ups = '[ups.u]\nwatts = 3000\nbattery_wh = 500\ncircuits = ["garage", "office"]\n[budgets.all]\ncircuits = ["garage", "office"]\nkw = 5\n'
    file.write_text(f"{TWO.format('s')}[nodes.s]\n{ups}")
    text = " ".join(CliRunner().invoke(main, ["plan", "--config", str(file)]).stdout.split())
    assert re.search(r"u ≥1,[0-9]+ W, ≥[0-9]+% of its rating; new batteries carry it for at most ", text), text
    assert re.search(r"budget all ≥[0-9.]+ k?W of 5.0 kW", text), text


@pytest.mark.parametrize(
    ("site", "code"),
    [(RIG.format(20, 2), ExitCode.CLEAN), (RIG.format(20, 4), ExitCode.TICKET), (UNSAID, ExitCode.UNJUDGED)],
)
def test_the_exit_code_is_the_verdict(tmp_path: Path, site: str, code: ExitCode) -> None:
    """As JSON too."""
    file = tmp_path / "site.toml"
    file.write_text(site)
    assert CliRunner().invoke(main, ["plan", "--config", str(file)]).exit_code == code
    assert CliRunner().invoke(main, ["plan", "--config", str(file), "--json"]).exit_code == code
