"""`kilowatch cap`: caps of single GPUs, what they hold, and what they cost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from api.power import CapPlan, CapRequest, ModelThroughput, ThroughputPoint
from kilowatch.__main__ import main
from power.devices.catalogue import CARDS, Card
from power.devices.supply import Tier, points_of, wall_watts
from power.plan.caps import CappableGpu, plan_caps
from power.plan.plan import Suppose
from power.plan.throughput import ThroughputLedger, clock_at
from power.report.cluster_parts import card_named
from power.site.config import NodeConfig, PowerConfig
from power.site.decode import decode
from telemetry.errors import ConfigError
from tests.power.sites import planned
from tests.power.stage import Stage

ROW = """
region = "US"
[circuits.row]
volts = 208
poles = 3
breaker = 125
nodes = ["d1", "d2"]
other_w = 500
[nodes.d1]
profile = "dgx-h100"
priority = 5
[nodes.d2]
profile = "dgx-h100"
"""
MOST = 2 * 10_200 + 500


def capped(
    text: str,
    below: float,
    by: Literal["ratio", "priority", "job"] = "ratio",
    circuit: str = "row",
    gpus: tuple[CappableGpu, ...] = (),
    measured: tuple[ModelThroughput, ...] = (),
    margin: float = 0.0,
) -> CapPlan:
    """The plan of a site that is written as TOML."""
    site = decode("site.toml", tomllib.loads(text))
    asked = CapRequest(circuit=circuit, below_watts=below, by=by, margin_watts=margin)
    return plan_caps("site.toml", site, asked, gpus=gpus, measured=measured)


def committed_with(text: str, plan: CapPlan, circuit: str = "row") -> float:
    """The circuit's power commitment by `kilowatch plan` when every node has its cap."""
    site = decode("site.toml", tomllib.loads(text))
    nodes = {
        name: msgspec.structs.replace(spec, cap_watts=next((c.to_watts for c in plan.caps if c.node == name), None))
        for name, spec in site.nodes.items()
    }
    changed: PowerConfig = msgspec.structs.replace(site, nodes=nodes)
    answer = planned(_toml(changed))
    return next(one.committed_watts for one in answer.circuits if one.id == circuit)


def _toml(site: PowerConfig) -> str:
    """A site of these tests as TOML again."""
    lines = ['region = "US"']
    for name, circuit in site.circuits.items():
        lines += [f"[circuits.{name}]", f"volts = {circuit.volts}", f"poles = {circuit.poles}",
                  f"breaker = {circuit.breaker}", f"nodes = {list(circuit.nodes)}", f"other_w = {circuit.other_w}"]  # fmt: skip
    for name, node in site.nodes.items():
        lines += [f"[nodes.{name}]", f'profile = "{node.profile}"']
        lines += [] if node.cap_watts is None else [f"cap_watts = {node.cap_watts}"]
    return "\n".join(lines)


@pytest.mark.parametrize("below", [20_000.0, 18_500.0, 14_000.0])
def test_all_gpus_are_capped_at_one_ratio_and_the_plan_of_it_is_below(below: float) -> None:
    """No further below than whole watts make it."""
    plan = capped(ROW, below)
    assert plan.from_watts == pytest.approx(MOST)
    assert plan.met
    assert len(plan.caps) == 16
    assert len({cap.to_watts for cap in plan.caps}) == 1
    assert all(200 <= cap.to_watts < 700 for cap in plan.caps)
    assert committed_with(ROW, plan) == pytest.approx(plan.to_watts, abs=1)
    assert below - 16 * 1.1 <= plan.to_watts <= below


def test_a_lower_priority_is_capped_first_and_to_its_floor_before_the_next() -> None:
    """The node of priority 5 keeps its limits while the other has something to give."""
    plan = capped(ROW, 18_500.0, "priority")
    assert {cap.node for cap in plan.caps} == {"d2"}
    assert plan.to_watts == pytest.approx(18_500, abs=10)
    deeper = capped(ROW, 14_000.0, "priority")
    assert {cap.to_watts for cap in deeper.caps if cap.node == "d2"} == {200}
    assert all(cap.to_watts > 200 for cap in deeper.caps if cap.node == "d1")
    assert deeper.met


def test_a_target_that_caps_alone_can_t_meet_says_what_is_left() -> None:
    """All GPUs are at their floors then."""
    plan = capped(ROW, 10_000.0)
    assert plan.met is False
    assert {cap.to_watts for cap in plan.caps} == {200}
    assert plan.over_watts == pytest.approx(plan.to_watts - 10_000)
    assert plan.over_watts > 0


def test_caps_follow_the_curve_of_the_supplies() -> None:
    """Of 10,200 W at the wall 9,788 W are inside. At 200 W a GPU 5,788 W are, 29.2 % of what six supplies of
    3.3 kW are rated for: they are 94.6 % efficient there, not 96 % as at half load."""
    text = (
        ROW.replace('"d1", "d2"', '"d1"').replace("other_w = 500", "").replace('[nodes.d2]\nprofile = "dgx-h100"\n', "")
    )
    plan = capped(text, 1_000.0)
    assert {cap.to_watts for cap in plan.caps} == {200}
    assert plan.to_watts == pytest.approx(24_470.225 / 4, abs=0.1)


CHAIN = ROW.replace(
    "[circuits.row]",
    "[panels.main]\nvolts = 208\nbreaker = 400\n[ups.u]\nparent = 'main'\nwatts = 40000\n"
    "efficiency = [[0.2, 0.9], [0.5, 0.94], [1.0, 0.95]]\n[circuits.row]\nparent = 'u'",
)


@pytest.mark.parametrize("limit", [700, 560, 400, 200])
def test_cap_plan_and_live_state_agree_on_what_a_limit_allows(limit: int) -> None:
    """Also through a UPS with losses of its own. `cap` and a plan with `--cap` took the efficiency at half load."""

    def planned_with(cap: float, name: str) -> float:
        """The power commitment by `kilowatch plan --cap`."""
        plan = planned(CHAIN, Suppose(cap=cap))
        return next(c.committed_watts for c in [*plan.panels, *plan.circuits] if c.id == name)

    gpus = tuple(
        CappableGpu(node, index, "H100", float(limit), 200.0, 700.0) for node in ("d1", "d2") for index in range(8)
    )
    stage = Stage(CHAIN, limits={"d1": 8.0 * limit, "d2": 8.0 * limit}, gpus=8)
    stage.play(1, gpu={"d1": 900.0, "d2": 900.0})
    for name in ("row", "main"):
        committed = planned_with(limit, name)
        assert stage.value("circuit_committed_watts", name) == pytest.approx(committed, abs=0.5)
        running = capped(CHAIN, 60_000.0, circuit=name, gpus=gpus)
        assert running.from_watts == pytest.approx(committed, abs=0.5)
        caps = capped(CHAIN, committed + 1, circuit=name).caps
        assert {cap.to_watts for cap in caps} == ({limit} if limit < 700 else set())


def test_a_node_that_is_described_by_its_watts_counts_once() -> None:
    """Its GPUs are in them: with the limits in force it draws what it says, and 200 W less with 200 W less."""
    text = "[circuits.row]\nbreaker = 40\nvolts = 240\nnodes = ['d1', 'h']\n[nodes.d1]\nwatts = 2000\n[nodes.h]\nhost_watts = 460\n"
    gpus = tuple(gpu(n, limit_watts=450.0, default_watts=450.0, floor_watts=100.0) for n in range(2))
    plan = capped(text, 2_500.0 - 200 / 0.92, gpus=gpus)
    assert plan.from_watts == pytest.approx(2_000 + 460 / 0.92)
    assert [cap.to_watts for cap in plan.caps] == [350, 350]


def test_gpus_of_a_node_that_is_not_configured_are_capped_too() -> None:
    """The present draw of such a node was taken for all that it may draw."""
    text = "[circuits.row]\nbreaker = 40\nvolts = 240\nnodes = ['d1']\n"
    site = decode("site.toml", tomllib.loads(text))
    gpus = tuple(gpu(n, watts=50.0) for n in range(2))
    plan = plan_caps("site.toml", site, CapRequest(circuit="row", below_watts=1_500.0), {"d1": 400.0}, gpus)
    assert plan.from_watts == pytest.approx(400 + 2 * 650 / 0.92, abs=1)
    assert plan.met
    assert {cap.to_watts for cap in plan.caps} == {556}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)
def test_every_card_is_capped_to_its_floor_or_the_answer_says_how_to_read_it(card: Card) -> None:
    """A floor in the catalogue names its source; where there is none nothing is guessed."""
    text = f"[circuits.row]\nbreaker = 63\nvolts = 240\nnodes = ['rig']\n[nodes.rig]\ngpus = '2x {card.id}'\n"
    plan = capped(text, 6.0)
    notes = "\n".join(plan.notices)
    if card.floor_watts is None:
        command = "amd-smi static --limit" if card.id.startswith("mi") else "nvidia-smi -q -d POWER"
        assert not plan.caps
        assert f"is not known: they are left as they are. {command} shows it" in notes
    else:
        assert [cap.to_watts for cap in plan.caps] == [card.floor_watts] * 2
        assert "lowest cap" in card.source or card.id in {"gh200", "gb200"}
        assert "floor_watts" not in notes


@pytest.mark.parametrize(
    ("name", "floor"),
    [
        ("Tesla T4", 60), ("NVIDIA A40", 100), ("NVIDIA A10G", 100), ("NVIDIA A100-SXM4-40GB", 100), ("NVIDIA A100-SXM4-80GB", 100), ("H100 SXM5 80GB", 200),
        ("NVIDIA GB200", 200), ("NVIDIA GeForce RTX 4080 SUPER", 150), ("NVIDIA GeForce RTX 3090", 100), ("Quadro RTX 6000", 100),
    ],
)  # fmt: skip
def test_floors_are_what_drivers_report(name: str, floor: float) -> None:
    """As recordings of real GPUs have them under the name that the driver gives."""
    found = card_named(name)
    assert found is not None
    assert found.floor_watts == floor


def test_no_cap_is_planned_where_none_is_needed() -> None:
    """The limits in force do already."""
    plan = capped(ROW, 25_000.0)
    assert (plan.met, plan.caps, plan.commands, plan.over_watts) == (True, [], [], 0)


def test_half_of_a_node_with_two_cords_counts_on_each_circuit() -> None:
    """A watt less in a GPU is half a watt less here."""
    pair = ROW.replace('nodes = ["d1", "d2"]', "") + (
        "cords = [{ circuit = 'row' }, { circuit = 'b' }]\n[circuits.b]\nvolts = 208\npoles = 3\nbreaker = 60\n"
    )
    plan = capped(pair, 5_000.0)
    assert plan.from_watts == pytest.approx(500 + 5_100)
    assert plan.met
    saved = sum(cap.from_watts - cap.to_watts for cap in plan.caps)
    assert plan.from_watts - plan.to_watts == pytest.approx(0.5 * saved, rel=0.1)
    assert {cap.node for cap in plan.caps} == {"d2"}


def test_a_feed_that_carries_what_another_has_lost_is_capped_for_all_of_it() -> None:
    """As a plan with the same loss; it was capped for half of its nodes, as if the other feed were there."""
    text = (
        ROW.replace('nodes = ["d1", "d2"]\nother_w = 500', 'redundancy = { group = "g", role = "A" }')
        + "cords = [{ circuit = 'row' }, { circuit = 'b' }]\n"
        "[circuits.b]\nvolts = 208\npoles = 3\nbreaker = 125\nredundancy = { group = 'g', role = 'B' }\n"
    ).replace(
        'profile = "dgx-h100"\npriority = 5', 'profile = "dgx-h100"\ncords = [{ circuit = "row" }, { circuit = "b" }]'
    )
    site = decode("site.toml", tomllib.loads(text))
    asked = CapRequest(circuit="row", below_watts=15_000.0)
    both = plan_caps("site.toml", site, asked)
    assert (both.from_watts, both.caps) == (pytest.approx(10_200, abs=1), [])
    plan = plan_caps("site.toml", site, asked, lost=("b",))
    supposed = planned(text, Suppose(lose=("b",)))
    assert plan.from_watts == pytest.approx(
        next(c.committed_watts for c in supposed.circuits if c.id == "row"), abs=0.5
    )
    assert plan.from_watts > 20_300
    assert plan.met
    assert plan.sigma_watts == pytest.approx(0.12 * plan.to_watts, rel=0.01)
    after = planned(text, Suppose(lose=("b",), cap=plan.caps[0].to_watts))
    assert next(c.committed_watts for c in after.circuits if c.id == "row") == pytest.approx(plan.to_watts, abs=0.5)


def gpu(index: int, **more: float | None) -> CappableGpu:
    """A running GPU of `d1`."""
    fields = {"limit_watts": 700.0, "floor_watts": 200.0, "default_watts": 700.0} | more
    return CappableGpu("d1", index, "NVIDIA H100 80GB HBM3", **fields)  # type: ignore[arg-type]


def test_no_cap_is_above_the_default_and_none_below_the_floor() -> None:
    """A raised limit comes down to the default at least; what has no known floor stays as it is."""
    gpus = (gpu(0, limit_watts=800.0), gpu(1, floor_watts=None), gpu(2, floor_watts=650.5), gpu(3))
    text = ROW.replace('"d1", "d2"', '"d1"').replace('[nodes.d2]\nprofile = "dgx-h100"\n', "")
    slight = {cap.index: cap.to_watts for cap in capped(text, 7_550.0, gpus=gpus).caps}
    assert slight[0] <= 700
    deep = capped(text, 1_000.0, gpus=gpus)
    assert {cap.index: cap.to_watts for cap in deep.caps} == {0: 200, 2: 651, 3: 200}
    assert any("d1 is not known" in notice for notice in deep.notices)


@given(
    limits=st.lists(
        st.tuples(st.integers(100, 800), st.integers(50, 700), st.integers(100, 800)), min_size=1, max_size=8
    ),
    below=st.integers(500, 9_000),
    by=st.sampled_from(["ratio", "priority"]),
)
def test_caps_stay_in_bounds_and_meet_what_the_floors_allow(
    limits: list[tuple[int, int, int]], below: int, by: Literal["ratio", "priority"]
) -> None:
    """Whatever the cards: the target is met exactly where all cards at their floors would."""
    gpus = tuple(
        gpu(n, limit_watts=float(limit), floor_watts=float(min(floor, default)), default_watts=float(default))
        for n, (limit, floor, default) in enumerate(limits)
    )
    text = ROW.replace('"d1", "d2"', '"d1"').replace('[nodes.d2]\nprofile = "dgx-h100"\n', "")
    plan = capped(text, float(below), by, gpus=gpus)
    least = capped(text, 1.0, gpus=gpus)
    for cap in plan.caps:
        one = gpus[cap.index]
        assert one.floor_watts is not None
        assert one.default_watts is not None
        assert cap.to_watts < one.limit_watts
        assert cap.to_watts <= one.default_watts
        assert cap.to_watts >= min(one.floor_watts, one.limit_watts)
    assert plan.met == (least.to_watts <= below)
    assert plan.met == (plan.to_watts <= below)


def test_a_node_of_unknown_draw_leaves_the_answer_open() -> None:
    """It is named."""
    plan = capped(ROW.replace('"d1", "d2"', '"d1", "d2", "x"') + "[nodes.x]\n", 18_500.0)
    assert plan.met is None
    assert any(notice.startswith("x:") for notice in plan.notices)


def test_what_a_meter_reads_beyond_the_gpus_is_not_capped_away() -> None:
    """8 kW now with GPUs at 100 W: all but the GPUs draws 7.15 kW, and stays."""
    text = ROW.replace('"d1", "d2"', '"d1"').replace('[nodes.d2]\nprofile = "dgx-h100"\n', "")
    site = decode("site.toml", tomllib.loads(text))
    gpus = tuple(gpu(n, watts=100.0) for n in range(8))
    asked = CapRequest(circuit="row", below_watts=9_000.0)
    plan = plan_caps("site.toml", site, asked, {"d1": 8_000.0}, gpus)

    def with_gpus_at(each: float) -> float:
        """Six supplies of 3.3 kW, and 7,619 W inside now."""
        inside = 7_618.6 - 8 * 100 + 8 * each
        return 500 + wall_watts(inside, points_of(Tier.TITANIUM, 230, redundant=True), 3_300, 6)

    assert with_gpus_at(100) == pytest.approx(500 + 8_000, abs=1)
    assert plan.from_watts == pytest.approx(with_gpus_at(700), abs=1)
    assert plan.met is False
    assert plan.to_watts == pytest.approx(with_gpus_at(200), abs=1)


def test_several_models_in_one_node_have_limits_of_their_own() -> None:
    """Each card keeps between its own floor and its own default."""
    text = (
        "[circuits.row]\nbreaker = 40\nvolts = 240\nnodes = ['rig']\n"
        "[nodes.rig]\ngpus = ['2x RTX 4090', '1x RTX 3090']\n"
    )
    plan = capped(text, 1_200.0)
    assert plan.met
    assert [(cap.index, cap.default_watts) for cap in plan.caps] == [(0, 450), (1, 450), (2, 350)]
    assert plan.caps[0].to_watts / 450 == pytest.approx(plan.caps[2].to_watts / 350, abs=0.01)


# Margins, and the error of what is planned.


@pytest.mark.parametrize(
    ("below", "margin", "met", "sure", "words"),
    [
        (18_500, 0, True, False, "Yes, met within the model's error only: 18,491 W ± 2,159 W, 9.1 W below 18,500 W"),
        (18_500, 925, True, False, "Yes, met within the model's error only: 17,5"),
        (18_500, 2_220, True, True, "Yes, met with margin: 16,2"),
        (24_000, 0, True, True, "Yes, met with margin: 20,900 W ± 2,448 W, 3,100 W below 24,000 W"),
        (13_000, 0, True, False, "Yes, met within the model's error only: 13,000 W ± 1,500 W, 0 W below"),
        (13_000, 1_000, False, False, "No: caps alone are not enough, 735 W are left above 13,000 W less the margin of 1,000 W"),
        (10_000, 0, False, False, "No: caps alone are not enough, 2,735 W are left above 10,000 W"),
    ],
)  # fmt: skip
def test_an_answer_says_whether_it_outlasts_the_error_of_the_model(
    below: float, margin: float, met: bool, sure: bool, words: str
) -> None:
    """The nodes' part has 12 %; a load that is declared has none. It said met, 1 W below."""
    plan = capped(ROW, below, margin=margin)
    assert (plan.met, plan.with_margin) == (met, sure)
    assert plan.verdict.startswith(words)
    assert plan.sigma_watts == pytest.approx(0.12 * (plan.to_watts - 500), abs=0.1)
    assert plan.to_watts + margin <= below or not met
    if met and margin:
        assert below - margin - plan.to_watts < 16 * 1.1, "no more than was asked for"


def test_what_is_measured_has_its_meters_error_and_what_is_added_the_models() -> None:
    """9.6 kW by a meter of 1 %; with GPUs at 560 W instead of the 600 that they draw, 320 W less inside. The
    model is not asked for more than that."""
    text = (
        ROW.replace('"d1", "d2"', '"d1"')
        .replace('[nodes.d2]\nprofile = "dgx-h100"\n', "")
        .replace("other_w = 500", "other_w = 0")
    )
    site = decode("site.toml", tomllib.loads(text))
    gpus = tuple(gpu(n, watts=600.0, limit_watts=600.0) for n in range(8))
    drawn = {"d1": 9_600.0}
    asked = CapRequest(circuit="row", below_watts=9_270.0)
    plan = plan_caps("site.toml", site, asked, drawn, gpus, sigma_watts=96.0)
    assert plan.from_watts == pytest.approx(9_600, abs=0.5)
    assert plan.to_watts == pytest.approx(9_270, abs=9)
    assert plan.sigma_watts == pytest.approx(96 + 0.12 * (9_600 - plan.to_watts), abs=0.2)
    assert plan.sigma_watts < 0.02 * plan.to_watts
    modelled = plan_caps("site.toml", site, asked, {}, gpus)
    assert modelled.sigma_watts == pytest.approx(0.12 * modelled.to_watts, abs=0.1)


def test_too_much_is_too_much_also_beside_a_node_of_unknown_draw() -> None:
    plan = capped(ROW.replace('"d1", "d2"', '"d1", "d2", "x"') + "[nodes.x]\n", 9_000.0)
    assert plan.met is False
    assert plan.verdict.endswith("; the draw of x is not known and comes on top")


@pytest.mark.parametrize("margin", [-1.0, 18_500.0, float("nan")])
def test_a_margin_that_can_t_be_is_refused(margin: float) -> None:
    with pytest.raises(ConfigError, match="--margin"):
        capped(ROW, 18_500.0, margin=margin)


# Throughput, as measured.

POINTS = [
    ThroughputPoint(watts=400.0, sm_clock_hertz=1.4e9, hertz_per_watt=3.5e6, samples=99),
    ThroughputPoint(watts=700.0, sm_clock_hertz=1.9e9, hertz_per_watt=2.7e6, samples=99),
]


def test_throughput_is_known_where_it_was_measured_and_nowhere_else() -> None:
    """Between two powers by a line; never beyond them."""
    assert clock_at(POINTS, 550) == pytest.approx(1.65e9)
    assert clock_at(POINTS, 405) == pytest.approx(1.4083e9, rel=1e-3)
    assert clock_at(POINTS, 300) is None
    assert clock_at(POINTS, 800) is None
    assert clock_at([], 500) is None


def test_a_cap_costs_the_clock_that_it_takes_from_a_gpu_that_draws_more() -> None:
    """Nothing where the GPU draws less than the cap; not known where nothing is measured there."""
    text = ROW.replace('"d1", "d2"', '"d1"').replace('[nodes.d2]\nprofile = "dgx-h100"\n', "")
    model = ModelThroughput(model="NVIDIA H100 80GB HBM3", points=POINTS)
    gpus = (gpu(0, watts=690.0, sm_clock_hertz=1.9e9), gpu(1, watts=90.0, sm_clock_hertz=1.98e9))
    plan = capped(text, 6_100.0, gpus=gpus, measured=(model,))
    first, second = plan.caps
    assert 400 < first.to_watts < 690
    clock = np.interp(first.to_watts, [400, 700], [1.4e9, 1.9e9])
    assert first.throughput_loss == pytest.approx(1 - clock / 1.9e9, abs=1e-4)
    assert second.throughput_loss == 0
    assert first.throughput_loss is not None
    assert plan.throughput_loss == pytest.approx(first.throughput_loss / 2, abs=1e-4)
    assert plan.throughput == [model]
    unknown = capped(text, 6_100.0, gpus=gpus)
    assert unknown.caps[0].throughput_loss is None
    assert unknown.throughput_loss is None
    assert any("not known" in notice for notice in unknown.notices)


def test_the_ledger_means_only_busy_gpus_that_their_limit_holds() -> None:
    """By model and power; a few samples are no mean."""
    ledger = ThroughputLedger()
    models, model_of = ["b", "a"], np.array([1, 1, 1, 0])
    watts, hertz = np.array([500.0, 510.0, 200.0, 300.0]), np.array([1.5e9, 1.6e9, 1.9e9, np.nan])
    busy, held = np.array([0.95, 1.0, 0.2, 1.0]), np.array([True, True, True, True])
    for _ in range(20):
        ledger.add(models, model_of, watts, hertz, busy, held)
    ledger.add(models, model_of, watts, np.full(4, 3e9), busy, ~held)
    (model,) = ledger.measured()
    assert model.model == "a"
    (point,) = model.points
    assert (point.watts, point.sm_clock_hertz, point.samples) == (505.0, 1.55e9, 40)
    assert point.hertz_per_watt == pytest.approx(1.55e9 / 505, rel=1e-6)


def test_a_reading_that_no_gpu_can_have_is_no_sample_of_its_model() -> None:
    """The ledger is one for the fleet: a node that invents readings must not move the plan of the others."""
    ledger, busy, held = ThroughputLedger(), np.ones(5), np.ones(5, bool)
    watts = np.array([500.0, 1e30, 1e4, -5.0, 500.0])
    hertz = np.array([1.5e9, 1.5e9, 1.5e9, 1.5e9, 1e30])
    for _ in range(40):
        ledger.add(["a"], np.zeros(5, int), watts, hertz, busy, held)
    ((point,),) = [model.points for model in ledger.measured()]
    assert (point.watts, point.sm_clock_hertz, point.samples) == (500.0, 1.5e9, 40)


# The command.


def test_the_command_prints_the_caps_and_the_commands_and_applies_nothing(tmp_path: Path) -> None:
    """0 when the caps are enough, 1 when they are not, 3 when that is not known, 64 for what can't be."""
    path = tmp_path / "row.toml"

    def run(text: str, *arguments: str) -> tuple[int, str]:
        path.write_text(text)
        result = CliRunner().invoke(main, ["cap", "--config", str(path), *arguments])
        return result.exit_code, result.output

    code, text = run(ROW, "--circuit", "row", "--below", "18.5kW")
    assert code == 0
    assert "row  may draw 20,900 W; with these caps 18,491 W" in text
    assert "nvidia-smi -i 7 -pl 551 # d2" in text
    assert "nothing was applied" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("Yes, met within the model's error only")
    assert "no margin was asked for, the default; --margin 12% is as large as the model" in text
    code, text = run(ROW, "--circuit", "row", "--below", "18.5kW", "--margin", "12%")
    assert code == 0
    assert text.startswith("Yes, met with margin")
    assert "margin asked for: 2,220 W" in text
    code, text = run(ROW, "--circuit", "row", "--below", "13kW", "--margin", "1kW")
    assert (code, text.startswith("No: ")) == (1, True)
    code, text = run(ROW, "--circuit", "row", "--below", "13kW", "--margin", "much")
    assert (code, "Write 5% or 2kW" in text) == (64, True)
    code, text = run(ROW, "--circuit", "row", "--below", "18500W", "--by", "priority", "--json")
    assert (code, {cap["node"] for cap in json.loads(text)["caps"]}) == (0, {"d2"})
    code, text = run(ROW, "--circuit", "row", "--below", "9kW")
    assert (code, "caps alone are not enough" in text) == (1, True)
    assert run(ROW.replace('"d2"]', '"d2", "x"]') + "[nodes.x]\n", "--circuit", "row", "--below", "18kW")[0] == 3
    code, text = run(ROW, "--circuit", "rows", "--below", "18kW")
    assert (code, "there is no 'rows'" in text) == (64, True)
    assert run(ROW, "--circuit", "row", "--below", "much")[0] == 64
    with pytest.raises(ConfigError, match="no power"):
        capped(ROW, -1.0)


def test_a_priority_may_be_negative() -> None:
    """Below the default of 0."""
    site = decode("site.toml", tomllib.loads(ROW.replace("priority = 5", "priority = -5")))
    assert site.nodes["d1"].priority == -5
    assert NodeConfig().priority == 0


def test_by_job_the_one_that_draws_most_is_capped_first_and_free_gpus_before() -> None:
    def gpu(number: int, job: str | None, watts: float) -> CappableGpu:
        return CappableGpu("d1" if number < 8 else "d2", number % 8, "H100", 700.0, 200.0, 700.0, watts, job=job)

    holders = ["", "slurm 7 of bob", "slurm 7 of bob", *["slurm 9 of ada"] * 4, None]
    gpus = tuple(gpu(n, holders[n % 8], 650.0 if n % 8 == 2 or n % 8 > 4 else 300.0) for n in range(16))

    def touched(below: float) -> dict[str, set[float]]:
        """Return the caps by holder."""
        found: dict[str, set[float]] = {}
        for cap in capped(ROW, below, "job", gpus=gpus).caps:
            found.setdefault(cap.job, set()).add(cap.to_watts)
        return found

    assert touched(MOST - 500).keys() == {""}
    some = touched(MOST - 3_000)
    assert some.keys() == {"", "slurm 9 of ada"}, "four GPUs of ada's draw more than two of bob's"
    assert some[""] == {200.0}, "the free ones are at their floor before"
    assert len(some["slurm 9 of ada"]) == 1, "one ratio within a job"
    more = touched(MOST - 7_000)
    assert more.keys() == {"", "slurm 9 of ada", "slurm 7 of bob"}
    assert more["slurm 9 of ada"] == {200.0}
    plan = capped(ROW, MOST - 500, "job", gpus=gpus)
    assert "who holds some of the GPUs is not known: they come last" in plan.notices
    with pytest.raises(ConfigError, match="who holds which GPU is not known"):
        capped(ROW, MOST - 500, "job")
