"""The loss of every element: worked out at once, it is what a recomputation of each loss alone finds."""

from __future__ import annotations

import random
import tomllib

import numpy as np
import pytest

from kilowatch.text.losses import loss_lines
from power.network.contingency import contingencies_of
from power.network.graph import build_graph
from power.network.outcome import compute_outcome
from power.network.switching import state_after
from power.network.topology import build_topology
from power.plan.plan import Suppose
from power.site.decode import decode
from power.site.layout import SiteLayout, lay_out
from tests.power.sites import circuit, planned
from tests.power.stage import Stage


def nine_dgx() -> str:
    """Return nine DGX H100 in three racks on two panels of 125 A."""
    text = 'region = "EU"\n'
    for side in "AB":
        text += f'[panels.{side}]\nvolts = 415\nwiring = "3ph-wye"\nbreaker = 125\nsource = "utility-{side}"\n'
    for rack in range(3):
        for side in "AB":
            text += f'[circuits.R{rack}-{side}]\npanel = "{side}"\npoles = 3\nbreaker = 63\nredundancy = {{ group = "R{rack}", role = "{side}" }}\n'
    for node in range(9):
        rack = node // 3
        text += f'[nodes.dgx-{node}]\nprofile = "dgx-h100"\ncords = [{{ psu = "1-3", circuit = "R{rack}-A" }}, {{ psu = "4-6", circuit = "R{rack}-B" }}]\n'
    return text


def test_a_plan_says_what_the_loss_of_a_panel_puts_on_the_other() -> None:
    """65.8 A each; losing A puts 131.7 A on B, above its 125 A."""
    plan = planned(nine_dgx())
    other = next(panel for panel in plan.panels if panel.id == "B")
    assert other.amps["L1"] == pytest.approx(65.8, abs=0.1)
    assert other.survivor_amps == pytest.approx(131.7, abs=0.1)
    assert other.survivor_loss == "A"
    assert "E08" in other.alerts
    loss = next(loss for loss in plan.losses if loss.lost == ("A",))
    assert [(one.id, one.over) for one in loss.overloaded] == [("B", "rating")]
    assert loss.unfed == []


def test_a_running_site_pages_before_the_loss() -> None:
    """The page names the loss and the amps."""
    stage = Stage(nine_dgx())
    stage.play(70, wall={f"dgx-{node}": 10_200.0 for node in range(9)})
    assert stage.ids("B") == ["E08"]
    snapshots = stage.snapshots
    assert snapshots is not None
    row = snapshots.circuit.names.index("B")
    facts = snapshots.circuit.facts[row]
    assert (facts["loss"], facts["failover"]) == ("A", "131.7 A on B (125 A)")
    assert stage.ids("R0-A") == []


def random_site(seed: int) -> str:
    """Return a small site of sources, transfer switches, UPSs, transformers, circuits and nodes."""
    pick = random.Random(seed)
    text, tops = 'region = "US"\n', []
    for side in "AB":
        text += f'[sources.u{side}]\nkva = 900\n[panels.M{side}]\nvolts = 480\nbreaker = 1200\nsource = "u{side}"\n'
    for side, other in ("AB", "BA"):
        top = f"M{side}"
        if pick.random() < 0.5:
            text += f'[transfers.S{side}]\npreferred = "M{side}"\nalternate = "M{other}"\n'
            top = f"S{side}"
        if pick.random() < 0.7:
            bypass = pick.choice(["", "bypass = true\n", f'bypass = "M{other}"\n'])
            text += f'[ups.U{side}]\nwatts = 90000\nparent = "{top}"\nmodules = {pick.randint(1, 3)}\n{bypass}'
            top = f"U{side}"
        text += f'[transformers.T{side}]\nkva = 75\nparent = "{top}"\nprimary = {{ breaker = 125 }}\nsecondary = {{ volts = 208, breaker = 225 }}\n'
        top = f"T{side}"
        tops.append(top)
    names = []
    for number in range(4):
        for side, top in zip("AB", tops, strict=True):
            names.append(f"c{number}{side}")
            scheme = pick.choice(["N+1", "2N", "2(N+1)"])
            text += f'[circuits.c{number}{side}]\nparent = "{top}"\npoles = 3\nbreaker = 60\nother_w = {pick.choice([0, pick.randint(5, 900)])}\nredundancy = {{ group = "g", role = "{side}{number}", scheme = "{scheme}" }}\n'
    for number in range(6):
        cords = pick.sample(names, pick.randint(1, 3))
        listed = ", ".join(f'{{ circuit = "{name}", psu = {k + 1} }}' for k, name in enumerate(cords))
        text += f'[nodes.n{number}]\ngpus = "4x H100 PCIe"\nsupply = {{ tier = "titanium", watts = 2400, count = {len(cords)} }}\ncords = [{listed}]\n'
    return text


def laid_out(text: str) -> SiteLayout:
    """Return the layout of a site that is written as TOML."""
    return lay_out("site", decode("site", tomllib.loads(text)))


@pytest.mark.parametrize("seed", range(25))
def test_all_losses_at_once_are_each_loss_alone(seed: int) -> None:
    """Also beside an element that is out for maintenance; dark elements carry nothing."""
    layout = laid_out(random_site(seed))
    topology = build_topology(layout)
    graph = build_graph(layout, topology)
    usual = np.array([machine.committed_watts for machine in layout.machines.values()])
    local, count = topology.network.other_watts, len(topology.network.names)
    pick = random.Random(seed)
    out = [[], [pick.choice([name for name in layout.circuits if name not in layout.site.ups])]]
    for before in out:
        state = state_after(graph, before)
        all_at_once = contingencies_of(state)
        outcome = compute_outcome(all_at_once, state.present_watts(usual), local)
        assert len(all_at_once.cases) > 1
        for number, case in enumerate(all_at_once.cases):
            alone = state_after(graph, [*before, *case.lost])
            dark = alone.dead
            flow = alone.flow(alone.present_watts(usual), local)
            wanted = outcome.now.watts.copy(), outcome.now.highest.copy()
            mine = outcome.case == number
            wanted[0][outcome.row[mine]] = outcome.watts[mine]
            wanted[1][outcome.row[mine]] = outcome.amps[mine]
            fed = np.append(~dark, np.zeros(len(graph.elements) - count, dtype=bool))
            np.testing.assert_allclose(wanted[0][fed], flow.watts[fed], atol=1.0, rtol=1e-3, err_msg=case.name)
            np.testing.assert_allclose(wanted[1][fed], flow.highest[fed], atol=0.01, rtol=1e-3, err_msg=case.name)
            powered = set(topology.network.cord_machine[~dark[topology.network.cord_circuit]].tolist())
            had = set(topology.network.cord_machine[~state.dead[topology.network.cord_circuit]].tolist())
            assert set(case.unfed) == had - powered


def test_two_feeds_a_side_are_lost_together_and_efficiency_is_worked_out_again() -> None:
    """A rack of 120 kW on A1, A2, B1 and B2: 43 A each, 86.1 A after the loss of a side, not 57.4 A."""
    text = 'region = "EU"\n'
    for role in ("A1", "A2", "B1", "B2"):
        text += f'[circuits.{role}]\nvolts = 415\npoles = 3\nbreaker = 125\nredundancy = {{ group = "r", role = "{role}" }}\n'
    listed = ", ".join(f'{{ circuit = "{role}" }}' for role in ("A1", "A2", "B1", "B2"))
    plan = planned(text + f"[nodes.nvl]\nwatts = 120000\ncords = [{listed}]\n")
    assert circuit(plan, "B1").survivor_amps == pytest.approx(86.1, abs=0.1)
    assert circuit(plan, "B1").survivor_loss == "A1 + A2"


def test_the_text_of_a_loss_names_who_is_above_and_what_must_not_be_lost_next() -> None:
    """A is out: B is above its breaker now, and a rack is dark without its feed of B."""
    lines = loss_lines(["A"], planned(nine_dgx(), Suppose(lose=("A",))))
    assert lines[0] == "without A, from the present load:"
    assert any(line.startswith("  ! B  131.7 A, above its breaker of 125 A") for line in lines)
    assert "  R0-B: dgx-0, dgx-1, dgx-2 without power" in lines
    fine = planned(nine_dgx().replace("breaker = 125", "breaker = 160"), Suppose(lose=("A",)))
    assert "  nothing is above its limits" in loss_lines(["A"], fine)


def test_a_loss_that_loads_another_pole_counts_against_watts_and_volt_amperes() -> None:
    """11.2 kW on L1 stay the highest pole when 10.9 kW come onto L2: a UPS of 20 kVA carries both."""
    text = 'region = "EU"\n'
    for side in "AB":
        text += f'[panels.{side}]\nvolts = 400\nwiring = "3ph-wye"\nbreaker = 125\nsource = "utility-{side}"\n'
    for name, panel, phase in (("A1", "A", "L1"), ("A2", "A", "L2"), ("B2", "B", "L2")):
        text += f'[circuits.{name}]\npanel = "{panel}"\nphase = "{phase}"\nbreaker = 63\n'
    text += '[nodes.n1]\nwatts = 11200\ncords = [{ circuit = "A1" }]\n'
    text += '[nodes.n2]\nwatts = 10900\ncords = [{ circuit = "A2" }, { circuit = "B2" }]\n'
    text += '[ups.u]\nwatts = 20000\nvolt_amps = 20000\ncircuits = ["A1", "A2"]\n'
    plan = planned(text)
    (limit,) = [one for one in plan.limits if one.id == "u"]
    assert limit.load_ratio < 1
    assert limit.survivor_ratio == pytest.approx(22.1 / 20 / 0.97, rel=0.04)
    losses = [loss for loss in plan.losses if "B" in loss.lost]
    assert [(one.id, one.over) for one in losses[0].overloaded] == [("u", "limit")]


BESIDE = """
[circuits.a]
breaker = 16
volts = 230
pf = 1.0
[ups.u]
watts = 900
volt_amps = 1000
nodes = ["n"]
[nodes.n]
watts = 1100
cords = [{ circuit = "a" }]
[nodes.m]
watts = 500
cords = [{ circuit = "a" }]
"""


def test_a_ups_that_names_its_nodes_carries_them_and_takes_them_along() -> None:
    """1,100 W on 900 W; without the UPS its node is dark, and its neighbour on the circuit is not."""
    plan = planned(BESIDE)
    [ups] = plan.limits
    assert (ups.id, ups.alerts) == ("u", ["E14"])
    assert ups.load_ratio == pytest.approx(1100 / 900, abs=0.001)
    assert [(loss.lost, loss.unfed) for loss in plan.losses] == [(("a",), ["n", "m"]), (("u",), ["n"])]
    without = planned(BESIDE, Suppose(lose=["u"]))
    assert {node.id: (node.dark, node.watts) for node in without.nodes} == {"n": (True, 0.0), "m": (False, 500.0)}
    assert circuit(without, "a").watts == 500.0


def test_a_ups_with_a_bypass_leaves_its_nodes_on() -> None:
    """So the loss has no consequence for it."""
    passed = BESIDE.replace('nodes = ["n"]', 'nodes = ["n"]\nbypass = true')
    assert [loss.unfed for loss in planned(passed).losses] == [["n", "m"]]
    assert not any(node.dark for node in planned(passed, Suppose(lose=["u"])).nodes)


UNEVEN = """
region = "US"
circuits.A = { breaker = 60, poles = 3, volts = 208, redundancy = { group = "r", role = "A" } }
circuits.B = { breaker = 60, poles = 3, volts = 208, redundancy = { group = "r", role = "B" } }
nodes.d = { profile = "PROFILE", cords = [{ circuit = "A", psu = "1-FIRST" }, { circuit = "B", psu = "NEXT-6" }] }
"""


@pytest.mark.parametrize(
    ("profile", "first", "load"), [("dgx-h100", 4, 1.48), ("dgx-b200", 3, 1.36), ("dgx-h100", 3, None)]
)
def test_supplies_that_cant_carry_their_machine_after_a_loss_are_said(
    profile: str, first: int, load: float | None
) -> None:
    """Two supplies of 3.3 kW can't carry a DGX H100, and three no DGX B200; three carry a DGX H100."""
    text = UNEVEN.replace("PROFILE", profile).replace("FIRST", str(first))
    found = [note for note in planned(text.replace("NEXT", str(first + 1))).notices if "supplies on" in note]
    if load is None:
        assert found == []
    else:
        assert found == [f"nodes.d: after the loss of A its supplies on B would be {load:.0%} loaded, and switch off"]
