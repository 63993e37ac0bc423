"""`kilowatch fit`: agreement with brute force by the whole plan code, legal places, and the command."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from api.power import FitPlace, FitRequest, PlanResult, SnapshotKind
from kilowatch.__main__ import main
from power.plan.fit import fit, parse_watts
from power.plan.plan import Suppose, make
from power.site.config import (
    BudgetConfig,
    CircuitConfig,
    CordConfig,
    NodeConfig,
    PanelConfig,
    PowerConfig,
    RedundancyConfig,
    UpsConfig,
)
from power.site.decode import decode
from power.site.layout import lay_out
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Wiring
from telemetry.errors import ConfigError
from tests.kit.night import size

# Small halls, and the room of a place as the whole plan code answers it.


def no_rules(_: Sequence[PowerSnapshot]) -> Mapping[SnapshotKind, Mapping[str, Sequence[str]]]:
    """No alerts: the brute force reads amps and watts alone."""
    return {kind: {} for kind in SnapshotKind}


@st.composite
def halls(draw: st.DrawFn) -> PowerConfig:
    """A hall of two to four panels, pairs and single feeds, with loads of every kind."""
    volts = draw(st.sampled_from([208.0, 400.0, 415.0]))
    main_breaker = st.sampled_from([None, 80.0, 125.0, 250.0])
    panels = {
        f"P{n}": PanelConfig(
            volts=volts,
            wiring=Wiring.WYE,
            breaker=draw(main_breaker),
            source=draw(st.sampled_from([None, "grid", f"utility-{n % 2}"])),
        )
        for n in range(draw(st.integers(2, 4)))
    }
    circuits: dict[str, CircuitConfig] = {}
    phases = st.sampled_from(["L1", "L2", "L1-L2", "L2-L3", "L1-L2-L3"])

    def feed(panel: str, phase: str, group: str | None, role: str) -> CircuitConfig:
        return CircuitConfig(
            panel=panel,
            phase=phase,
            breaker=draw(st.sampled_from([20.0, 32.0, 63.0])),
            grouping=draw(st.sampled_from([1.0, 0.7])),
            pf=draw(st.sampled_from([0.97, 1.0])),
            plug_amps=draw(st.sampled_from([None, None, 16.0])),
            other_w=draw(st.sampled_from([0.0, 0.0, 700.0])),
            redundancy=None if group is None else RedundancyConfig(group=group, role=role),
        )

    names = list(panels)
    for number in range(draw(st.integers(1, 4))):
        phase = draw(phases)
        for role, panel in zip("AB", draw(st.permutations(names)), strict=False):
            circuits[f"G{number}{role}"] = feed(panel, phase, f"G{number}", role)
    for number in range(draw(st.integers(0, 3))):
        circuits[f"S{number}"] = feed(draw(st.sampled_from(names)), draw(phases), None, "")
    nodes: dict[str, NodeConfig] = {}
    for number in range(draw(st.integers(0, 6))):
        shares = draw(st.sampled_from([(1.0,), (0.5, 0.5), (0.7, 0.3), (1.0, 0.0)]))
        places = draw(st.permutations(list(circuits)))[: len(shares)]
        cords = tuple(CordConfig(circuit=c, share=s) for c, s in zip(places, shares, strict=True))
        nodes[f"n{number}"] = NodeConfig(watts=draw(st.integers(200, 9000)) * 1.0, cords=cords)
    ups, budgets = {}, {}
    if draw(st.booleans()):
        behind = draw(st.permutations(list(circuits)))[: draw(st.integers(1, 2))]
        ups["u"] = UpsConfig(watts=draw(st.sampled_from([5e3, 2e4])), circuits=tuple(behind))
    if draw(st.booleans()):
        counted = draw(st.permutations(list(circuits)))[: draw(st.integers(1, 3))]
        budgets["b"] = BudgetConfig(circuits=tuple(counted), kw=draw(st.sampled_from([6.0, 25.0])))
    return PowerConfig(region="EU", panels=panels, circuits=circuits, nodes=nodes, ups=ups, budgets=budgets)


def losses(site: PowerConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every single element with what goes off with it."""
    for name in (*site.circuits, *site.panels):
        yield name, (name,)
    for source in {panel.source for panel in site.panels.values()} - {None}:
        assert source is not None
        yield source, (source,)
    for name, ups in site.ups.items():
        yield name, ups.circuits


def above(site: PowerConfig, feeds: Sequence[str]) -> set[str]:
    """Circuits and panels that the feeds hang on."""
    return {*feeds, *(str(site.circuits[name].panel) for name in feeds)}


def excess(site: PowerConfig, answer: PlanResult, chain: set[str], *, budgets: bool) -> float:
    """Most that anything above the feeds is over its limit in a plan, as a ratio of the limit."""
    layout = lay_out("hall", site)
    over = [-1.0]
    for one in [*answer.circuits, *answer.panels]:
        if one.id not in chain or one.lost:
            continue
        circuit = layout.circuits[one.id]
        limit = min(circuit.continuous_amps, circuit.effective_amps, circuit.plug_amps or math.inf)
        if math.isfinite(limit):
            over.append(max(one.amps.values()) / limit - 1)
        if one.neutral_amps is not None and math.isfinite(circuit.neutral_amps):
            over.append(one.neutral_amps / circuit.neutral_amps - 1)
    watts = {one.id: one.watts for one in answer.circuits}
    for ups in site.ups.values():
        if chain & set(ups.circuits):
            limit = min(ups.watts, ups.watts / 0.9 * min(site.circuits[c].pf for c in ups.circuits))
            over.append(sum(watts[c] for c in ups.circuits) / limit - 1)
    over += [
        plan.kw / plan.limit_kw - 1
        for plan in answer.budgets
        if budgets
        if plan.limit_kw is not None and chain & set(site.budgets[plan.id].circuits)
    ]
    return max(over)


def with_load(site: PowerConfig, feeds: Sequence[str], watts: float) -> PowerConfig:
    """The hall with a machine of these watts, a cord into each feed."""
    cords = tuple(CordConfig(circuit=name) for name in feeds)
    return msgspec.structs.replace(site, nodes={**site.nodes, "new": NodeConfig(watts=watts, cords=cords)})


def worst(site: PowerConfig, feeds: Sequence[str], watts: float, *, lost: bool) -> float:
    """The excess with such a machine: in normal state, or after the worst loss that leaves it power."""
    loaded = with_load(site, feeds, watts)
    chain = above(site, feeds)
    if not lost:
        return excess(loaded, make("hall", loaded, Suppose(), no_rules), chain, budgets=True)
    found = [-1.0]
    for _, off in losses(site):
        answer = make("hall", loaded, Suppose(lose=off), no_rules)
        if not next(node for node in answer.nodes if node.id == "new").dark:
            found.append(excess(loaded, answer, chain, budgets=False))
    return max(found)


def legal_pairs(site: PowerConfig) -> set[frozenset[str]]:
    """Pairs of a redundancy group, and of circuits without one that share neither panel nor source."""
    layout = lay_out("hall", site)
    found = set()
    for one, two in combinations(site.circuits, 2):
        a, b = layout.circuits[one], layout.circuits[two]
        same = len(a.poles) == len(b.poles) and math.isclose(a.nominal_volts, b.nominal_volts)
        shared = a.parent == b.parent or (a.source is not None and a.source == b.source)
        ups = any({one, two} <= set(each.circuits) for each in site.ups.values())
        apart = a.group is None and b.group is None and not shared and not ups
        if same and (apart or (a.group is not None and a.group == b.group)):
            found.add(frozenset((one, two)))
    return found


def check_place(site: PowerConfig, place: FitPlace, drawn: float) -> None:
    """With exactly as much as is left, the place is exactly at its limit."""
    for room, lost in ((place.normal, False), (place.after_loss, True)):
        if room.watts is None:
            assert worst(site, place.feeds, drawn, lost=lost) <= 1e-6
            continue
        total = drawn + room.watts
        if total > 1:
            assert worst(site, place.feeds, total, lost=lost) == pytest.approx(0, abs=2e-3)
        else:  # what hangs there already is at or over the limit
            assert worst(site, place.feeds, 1.0, lost=lost) >= -2e-3
    fits = max(worst(site, place.feeds, drawn, lost=lost) for lost in (False, True)) <= 1e-6
    assert place.fits == fits or min(abs(r.watts or 1.0) for r in (place.normal, place.after_loss)) < 0.2


def check_hall(site: PowerConfig, feeds: int, watts: int, count: int) -> None:
    """All legal places, none else, each with the room that the whole plan code finds under every single
    loss; the best first."""
    answer = fit("hall", site, FitRequest(what=f"{watts}W", count=count, feeds=feeds, top=1000))
    found = {frozenset(place.feeds) for place in answer.places}
    wanted = {frozenset((name,)) for name in site.circuits} if feeds == 1 else legal_pairs(site)
    assert found == wanted
    for place in answer.places:
        check_place(site, place, float(watts * count))
    ranks = [place.fits is True for place in answer.places]
    assert ranks == sorted(ranks, reverse=True)


MACHINES = {"feeds": st.sampled_from([1, 2]), "watts": st.integers(300, 6000), "count": st.integers(1, 3)}
WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)
"""A hall shrinks for minutes, and says as much before."""


@pytest.mark.nightly
@pytest.mark.timeout(size(300, 3600))  # the brute force plans every loss at every place
@settings(max_examples=size(10, 300), phases=WITHOUT_SHRINKING)
@given(site=halls(), **MACHINES)
def test_places_agree_with_brute_force(site: PowerConfig, feeds: int, watts: int, count: int) -> None:
    """Over small halls."""
    check_hall(site, feeds, watts, count)


# Single places, with figures that are worked out by hand.

PAIR = """
region = "EU"
[panels.PA]
volts = 400
breaker = 125
[panels.PB]
volts = 400
breaker = 125
"""
FEED = """
[circuits.{name}]
panel = "P{side}"
poles = 3
breaker = {amps}
pf = 1.0
{more}
"""


def feed(group: str, side: str, amps: int = 63, more: str = "") -> str:
    """A feed of a pair."""
    redundancy = f'redundancy = {{ group = "{group}", role = "{side}" }}'
    return FEED.format(name=f"{group}-{side}", side=side, amps=amps, more=f"{redundancy}\n{more}")


def found(text: str, **asked: object) -> list[FitPlace]:
    """The places of a site that is written as TOML."""
    site = decode("hall.toml", tomllib.loads(text))
    return fit("hall.toml", site, msgspec.convert(asked, FitRequest)).places


def test_what_is_left_is_worked_out_for_both_states() -> None:
    """400 V, 63 A: 50.4 A continuously is 34,918 W. Half of 10.2 kW each, and all of it on one when the
    other is lost; half of the supplies then work at another efficiency."""
    hall = PAIR + "".join(feed("R1", side, more="continuous = 0.8") for side in "AB")
    (place,) = found(hall, what="dgx-h100", count=3)
    limit = 0.8 * 63 * 400 * 3**0.5
    assert place.fits
    assert place.takes == 3
    assert place.normal.watts == pytest.approx(2 * limit - 30_600, abs=1)
    assert place.normal.amps == pytest.approx(50.4 - 15_300 / 400 / 3**0.5, abs=0.01)
    assert place.after_loss.watts == pytest.approx(limit - 30_600, rel=0.02)
    assert (place.after_loss.limit, place.after_loss.lost in {"R1-A", "R1-B", "PA", "PB"}) == ("continuous limit", True)
    (place,) = found(hall, what="dgx-h100", count=4)
    assert (place.fits, place.takes) == (False, 3)
    assert place.after_loss.watts == pytest.approx(limit - 40_800, rel=0.02)


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ("", "continuous limit"),
        ("grouping = 0.5", "breaker"),
        ("plug_amps = 20", "connector"),
        ("connector = 'CEE 32'", "connector"),
    ],
)
def test_the_limit_that_binds_is_named(more: str, limit: str) -> None:
    """On a circuit of its own."""
    (place,) = found(PAIR + feed("R1", "A", more=more), what="3kW")
    assert place.normal.limit == limit
    assert place.normal.where == "R1-A"


def test_panels_upss_and_budgets_bind_too() -> None:
    """Each is the narrowest in turn."""
    hall = PAIR.replace("breaker = 125", "breaker = 63") + feed("R1", "A") + feed("R1", "B")
    base = "[circuits.other]\npanel = 'PB'\npoles = 3\nbreaker = 32\nother_w = 9000\n"
    place = next(p for p in found(hall + base, what="dgx-h100") if len(p.feeds) == 2)
    assert (place.after_loss.limit, place.after_loss.where) == ("panel", "PB")
    ups = "[ups.U]\nwatts = 8000\nvolt_amps = 9000\ncircuits = ['R1-B']\n"
    (place,) = found(hall + ups, what="dgx-h100")
    assert (place.after_loss.limit, place.after_loss.where, place.fits) == ("UPS", "U", False)
    budget = "[budgets.row]\nkw = 9\ncircuits = ['R1-A', 'R1-B']\n"
    (place,) = found(hall + budget, what="dgx-h100")
    assert (place.normal.limit, place.normal.where, place.fits) == ("budget", "row", False)
    assert place.after_loss.watts is not None
    assert place.after_loss.watts > 0


def test_supplies_that_can_t_bear_the_loss_of_a_feed_bind() -> None:
    """Five of six supplies of a DGX B200 must work; a lost feed leaves three."""
    (place,) = found(PAIR + feed("R1", "A") + feed("R1", "B"), what="dgx-b200")
    assert (place.after_loss.limit, place.fits, place.takes) == ("supply", False, 0)
    assert place.after_loss.watts is not None
    assert place.after_loss.watts < 0


def test_a_rack_takes_two_feeds_a_side() -> None:
    """The four feeds of two groups in one rack, or of one group with two feeds a side."""
    rack = "rack = 'R1'"
    hall = PAIR.replace("125", "400") + "".join(feed(group, side, 125, rack) for group in ("g1", "g2") for side in "AB")
    (place,) = found(hall, what="gb200-nvl72")
    assert sorted(place.feeds) == ["g1-A", "g1-B", "g2-A", "g2-B"]
    assert place.fits
    assert found(hall.replace("rack = 'R1'", ""), what="gb200-nvl72") == []


def test_a_place_with_a_node_of_unknown_draw_is_neither_a_yes_nor_a_no() -> None:
    """It comes after the places that are known to fit."""
    hall = PAIR + "".join(feed(g, side) for g in ("R1", "R2") for side in "AB")
    hall += "[nodes.blind]\ncords = [{ circuit = 'R1-A' }, { circuit = 'R1-B' }]\n"
    # Both pairs are below panels that the blind node loads, too.
    assert [place.fits for place in found(hall, what="dgx-h100")] == [None, None]
    open_panels = hall.replace("breaker = 125", "")
    known, blind = found(open_panels, what="dgx-h100")
    assert (known.feeds, known.fits) == (["R2-A", "R2-B"], True)
    assert (blind.feeds, blind.fits) == (["R1-A", "R1-B"], None)


def test_a_pair_on_one_panel_is_not_independent_and_comes_last() -> None:
    """Whatever is left there."""
    hall = PAIR + feed("R1", "A", 32) + feed("R1", "B", 32)
    hall += feed("R2", "A") + feed("R2", "B").replace('panel = "PB"', 'panel = "PA"')
    first, last = found(hall, what="dgx-h100")
    assert (first.feeds, first.lost_with) == (["R1-A", "R1-B"], None)
    assert (last.feeds, last.lost_with) == (["R2-A", "R2-B"], "PA")


def of_four_panels(*, circuit_in_group: bool) -> str:
    """Four feeds, each of a panel and source of its own, with the roles A1, A2, B1 and B2 of one group."""
    hall = ""
    for role in ("a1", "a2", "b1", "b2"):
        group = f'redundancy = {{ group = "R1", role = "{role.upper()}" }}\n'
        hall += f'[panels.P{role}]\nvolts = 400\nwiring = "3ph-wye"\nbreaker = 125\nsource = "utility-{role}"\n'
        hall += "" if circuit_in_group else group
        hall += f'[circuits.{role}]\npanel = "P{role}"\nphase = "L1-L2-L3"\nbreaker = 63\nrack = "R1"\n'
        hall += group if circuit_in_group else ""
    return hall


def test_two_feeds_of_one_side_are_no_pair() -> None:
    """A1 and A2 are one side, whose loss is both cords'."""
    places = found(of_four_panels(circuit_in_group=True), what="10kW", feeds=2, top=10)
    assert sorted(place.feeds for place in places) == [["a1", "b1"], ["a1", "b2"], ["a2", "b1"], ["a2", "b2"]]
    assert {place.lost_with for place in places} == {None}


def test_a_pair_that_the_loss_of_a_side_takes_is_not_independent_and_comes_last() -> None:
    """The panels have sides, the circuits no group: a pair on both panels of a side goes with it."""
    places = found(of_four_panels(circuit_in_group=False), what="10kW", feeds=2, top=10)
    lost = {tuple(sorted(place.feeds)): place.lost_with for place in places}
    assert (lost["a1", "a2"], lost["b1", "b2"]) == ("Pa1 + Pa2", "Pb1 + Pb2")
    assert [place.lost_with for place in places[:-2]] == [None] * 4


def test_the_best_of_many_undeclared_pairs_are_the_same_as_of_all() -> None:
    """Pairs that can't be among the best are left out, and counted."""
    hall = PAIR + "".join(
        FEED.format(name=f"{side}{n}", side=side, amps=(16, 20, 32, 40)[n % 4], more=f"other_w = {100 * n}")
        for n in range(20)
        for side in "AB"
    )
    site = decode("hall.toml", tomllib.loads(hall))
    everything = fit("hall", site, FitRequest(what="4kW", feeds=2, top=10_000))
    few = fit("hall", site, FitRequest(what="4kW", feeds=2, top=5))
    assert everything.compared == 400
    assert few.compared < 300
    assert any("left out" in notice for notice in few.notices)

    def left(place: FitPlace) -> float:
        return min(part.watts for part in (place.normal, place.after_loss) if part.watts is not None)

    assert [left(p) for p in few.places] == [left(p) for p in everything.places[:5]]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"what": "dgx-h101"}, "Did you mean"),
        ({"what": "dgx-h100:2"}, "--count 2"),
        ({"what": "1kW", "feeds": 3}, "Write 1, 2 or 4"),
        ({"what": "1kW", "count": 0}, "out of range"),
        ({"what": "rtx-4090:4", "host_watts": -1.0}, "no power"),
        ({"what": "rtx-4090:4", "host_watts": 0.25}, "--host-watts 250"),
        ({"what": "0W"}, "3.5kW"),
        ({"what": "3500kW"}, "from 5 to 1,000,000"),
    ],
)
def test_what_can_t_be_placed_is_refused_with_the_cure(asked: dict[str, object], words: str) -> None:
    """As a settings error."""
    with pytest.raises(ConfigError, match=words):
        found(PAIR + feed("R1", "A"), **asked)


# The whole chain: transfers, conversion, sides and supplies, against the plan of every loss.

CHAIN = """
region = "US"
[sources.grid]
kw = {grid}
[sources.gen]
generator = true
[panels.MSB]
volts = 480
breaker = {msb}
source = "grid"
[panels.GEN]
volts = 480
breaker = {gen}
source = "gen"
[transfers.ATS]
preferred = "MSB"
alternate = "GEN"
breaker = 400
[ups.UA]
watts = {ups}
parent = "ATS"
bypass = true
modules = {modules}
[transformers.TA]
kva = 150
parent = "UA"
secondary = {{ volts = 208, breaker = 400 }}
[transformers.TB]
kva = 150
parent = "MSB"
secondary = {{ volts = 208, breaker = 400 }}
[circuits.A1]
parent = "TA"
poles = 3
breaker = {feed}
redundancy = {{ group = "R", role = "A" }}
[circuits.B1]
parent = "TB"
poles = 3
breaker = {feed}
redundancy = {{ group = "R", role = "B" }}
[circuits.A2]
parent = "TA"
poles = 3
breaker = {feed}
redundancy = {{ group = "S", role = "A" }}
[circuits.B2]
parent = "TB"
poles = 3
breaker = {feed}
redundancy = {{ group = "S", role = "B" }}
[circuits.office]
panel = "GEN"
poles = 3
breaker = 20
other_w = {office}
[nodes.old]
profile = "dgx-h100"
cords = [{{ circuit = "A1" }}, {{ circuit = "B1" }}]
"""


@settings(max_examples=12, phases=WITHOUT_SHRINKING)
@given(
    sizes=st.fixed_dictionaries({
        "grid": st.sampled_from([30, 60, 500]), "msb": st.sampled_from([60, 80, 400]), "gen": st.sampled_from([30, 60, 400]),
        "ups": st.sampled_from([30e3, 60e3, 200e3]), "modules": st.sampled_from([1, 4]),
        "feed": st.sampled_from([60, 125]), "office": st.sampled_from([0, 9000]),
    }),
    count=st.integers(1, 3),
)  # fmt: skip
def test_places_in_a_whole_chain_agree_with_the_plan_of_every_loss(sizes: dict[str, float], count: int) -> None:
    """Transfer switch, UPS with modules, transformers and supplies: amps and limits are those of `plan`."""
    site = decode("chain.toml", tomllib.loads(CHAIN.format(**sizes)))
    answer = fit("chain.toml", site, FitRequest(what="dgx-h100", count=count))
    assert {frozenset(place.feeds) for place in answer.places} == {frozenset(("A1", "B1")), frozenset(("A2", "B2"))}
    lost = [None, *site.sources, *site.panels, *site.transfers, *site.ups, *site.transformers, *site.circuits]
    for place in answer.places:
        loaded = msgspec.structs.replace(
            site,
            nodes={
                **site.nodes,
                **{
                    f"n{number}": NodeConfig(
                        profile="dgx-h100", cords=tuple(CordConfig(circuit=c) for c in place.feeds)
                    )
                    for number in range(count)
                },
            },
        )
        least = math.inf
        for one in lost:
            off = Suppose(lose=() if one is None else (one,))
            least = min(least, amps_left(site, loaded, off))
        in_watts = {"UPS", "transformer", "source", "supply"}
        bound = {part.limit for part in (place.normal, place.after_loss)}
        assert least > 0 or not place.fits
        assert place.fits or least <= 0 or bound & in_watts
        layout = lay_out("chain.toml", loaded)
        for part in (place.normal, place.after_loss):
            if part.amps is None:
                continue
            off = Suppose(lose=() if part.lost is None else tuple(part.lost.split(" + ")))
            plan = make("chain.toml", loaded, off, no_rules)
            row = next(each for each in [*plan.circuits, *plan.panels] if each.id == part.where)
            limit, most = layout.circuits[row.id].continuous_amps, max(row.amps.values())
            assert part.amps == pytest.approx(limit - most, abs=0.02 * most)


def amps_left(site: PowerConfig, loaded: PowerConfig, off: Suppose) -> float:
    """Amps that are left on what the new machines load, in the plan of a loss."""
    layout = lay_out("chain.toml", loaded)
    plans = [make("chain.toml", each, off, no_rules) for each in (site, loaded)]
    before = {one.id: max(one.amps.values()) for one in [*plans[0].circuits, *plans[0].panels]}
    left = [math.inf]
    for one in [*plans[1].circuits, *plans[1].panels]:
        most = max(one.amps.values())
        limit = min(layout.circuits[one.id].continuous_amps, layout.circuits[one.id].effective_amps)
        if most > before[one.id] + 1e-3 and math.isfinite(limit) and not one.lost:
            left.append(limit - most)
    return min(left)


def test_the_load_that_a_transfer_switch_moves_counts_on_its_other_input() -> None:
    """A generator's panel of 30 A bears nothing of it: that is what binds, and the main panel is lost."""
    text = CHAIN.format(grid=500, msb=400, gen=30, ups=200e3, modules=1, feed=125, office=9000)
    place = found(text, what="dgx-h100")[0]
    assert (place.after_loss.limit, place.after_loss.where) == ("panel", "GEN")
    assert place.after_loss.lost in {"MSB", "grid"}
    assert place.fits is False
    assert place.normal.watts is not None
    assert place.normal.watts > 0


def test_one_module_less_of_a_ups_binds() -> None:
    """Three quarters of 45 kW."""
    text = CHAIN.format(grid=500, msb=400, gen=400, ups=36e3, modules=4, feed=125, office=0)
    place = found(text, what="dgx-h100", count=2)[0]
    assert (place.after_loss.limit, place.after_loss.where) == ("UPS", "UA")


def test_a_source_has_a_limit_in_watts() -> None:
    """It is named."""
    text = CHAIN.format(grid=15, msb=400, gen=400, ups=200e3, modules=1, feed=125, office=0)
    place = found(text, what="dgx-h100")[0]
    assert (place.normal.limit, place.normal.where, place.normal.amps) == ("source", "grid", None)


# The command.


def run(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `kilowatch fit` over a file."""
    path = tmp_path / "hall.toml"
    path.write_text(text)
    result = CliRunner().invoke(main, ["fit", *arguments, "--config", str(path)])
    return result.exit_code, result.output


def test_the_command_says_what_binds_and_ends_with_the_code_of_its_answer(tmp_path: Path) -> None:
    """0 where a place takes all, 1 where none does, 3 where that is not known, 64 for a wrong name."""
    more = "continuous = 0.8"
    hall = PAIR + "".join(feed(g, side, more=more) for g in ("R1", "R2") for side in "AB")
    code, text = run(tmp_path, hall, "dgx-h100", "--count", "3")
    assert code == 0
    assert "3 x dgx-h100, 10,200 W each, 2 cords each: 2 places compared" in text
    assert "R1-A + R1-B: fits; it takes 3 in all" in text
    assert "W, 6.2 A left by the continuous limit of R1-" in text
    assert max(map(len, text.splitlines())) <= 80
    code, text = run(tmp_path, hall, "dgx-h100", "--count", "9")
    assert (code, "too much by the" in text) == (1, True)
    code, text = run(tmp_path, hall + "[nodes.x]\ncords = [{ circuit = 'R1-A' }]\n", "dgx-h100")
    assert (code, "unknown draw" in text) == (3, True)
    code, text = run(tmp_path, hall, "dgx-h100", "--json")
    assert json.loads(text)["places"][0]["plug"] == "--add 'dgx-h100@R1-A+R1-B'"
    assert run(tmp_path, hall, "dgx-h1000")[0] == 64
    code, text = run(tmp_path, "[circuits.office]\nbreaker = 15\n", "dgx-h100")
    assert (code, "--feeds 1" in text) == (1, True)


@pytest.mark.parametrize(
    ("text", "watts"), [("3500W", 3500.0), ("3.5 kw", 3500.0), ("1.2MW", 1.2e6), ("5mW", None), ("3.5", None)]
)
def test_a_power_has_its_unit(text: str, watts: float | None) -> None:
    assert parse_watts(text) == watts


RACKS = (
    'region = "US"\npanels.A = { volts = 415, breaker = MAIN, source = "ua" }\npanels.B = { volts = 415, breaker = MAIN, source = "ub" }\n'
    + "".join(
        f'circuits.{side}{rack} = {{ panel = "{panel}", breaker = 60, poles = 3, redundancy = {{ group = "r{rack}", role = "{panel}" }} }}\n'
        for rack in range(3)
        for side, panel in (("a", "A"), ("b", "B"))
    )
    + "".join(
        f'[nodes.d{rack}-{n}]\nprofile = "dgx-h100"\ncords = [{{ circuit = "a{rack}" }}, {{ circuit = "b{rack}" }}]\n'
        for rack in range(3)
        for n in range(2)
    )
)
"""Three racks with two machines each, and room for a third: 48 A of 415 V are 33.4 kW after a loss."""


@pytest.mark.parametrize(
    ("main", "count", "expected"),
    [
        (400, 1, {}),  # a place takes it
        (400, 3, {"a0": 1, "a1": 1, "a2": 1}),
        (400, 5, {"a0": 1, "a1": 1, "a2": 1}),  # all that there is
        (100, 3, {}),  # 55.8 kW after a loss, 61.2 used: the panels hold none more
    ],
)
def test_machines_that_no_place_takes_together_are_spread(main: int, count: int, expected: dict[str, int]) -> None:
    """One after the other, with what they share holding those before."""
    site = decode("site", tomllib.loads(RACKS.replace("MAIN", str(main))))
    found = fit("site", site, FitRequest(what="dgx-h100", count=count, feeds=None, host_watts=None, top=3))
    assert {one.feeds[0]: one.count for one in found.spread} == expected


BEHIND_UPSS = RACKS.replace("MAIN", "400")
for _side in "AB":
    BEHIND_UPSS = BEHIND_UPSS.replace(f'source = "u{_side.lower()}"', f'parent = "U{_side}"')
    BEHIND_UPSS += f'[ups.U{_side}]\nwatts = 83_000\nvolts = 415\nwiring = "3ph-wye"\nsource = "u{_side.lower()}"\n'


@pytest.mark.parametrize("site_text", [RACKS.replace("MAIN", "150"), BEHIND_UPSS], ids=["panels", "UPSs"])
def test_what_racks_share_holds_all_of_the_spread(site_text: str) -> None:
    """Panels of 150 A bear 83.7 kW after a loss, UPSs their 83; 61.2 are used: two machines more, though each rack has room for one."""
    site = decode("site", tomllib.loads(site_text))
    found = fit("site", site, FitRequest(what="dgx-h100", count=3, feeds=None, host_watts=None, top=3))
    assert sum(one.count for one in found.spread) == 2
