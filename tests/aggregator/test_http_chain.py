"""`/api/v1/power/chain`: what the pages draw of the power chain, with the same figures, and no number for what is not
known."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aggregator.electrical.service import ElectricalService
from api.chain import ChainKind, ChainLoad, ChainPiece, ChainReply, ChainState
from api.decoding import decode
from api.power import CircuitState, LoadState, TripSeconds
from collector.simulated.scenario import scenario
from power.site.decode import decode as decode_site
from power.site.layout import lay_out
from power.snapshot.power_chain import branch, circuit_pieces
from present.units import percent, watts
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import Door, door
from tests.aggregator.test_http_circuits import lab
from tests.alerts.scenes import Scene
from tests.present.circuits import COOL
from tests.web.test_pages import Page


async def asked(client: Door, query: str = "") -> dict[str, ChainPiece]:
    """Return the pieces by id."""
    status, body, _ = await client.text(f"/api/v1/power/chain{query}")
    assert status == 200
    reply = decode(body.encode(), ChainReply)
    assert len({one.id for one in reply.pieces}) == len(reply.pieces)
    return {one.id: one for one in reply.pieces}


async def racks(tmp_path: Path) -> FakeView:
    """Return the demo's racks of two feeds each, on panels of two utilities, after 20 s."""
    scene = Scene.of(scenario("fleet", nodes=6, gpus=8), tmp_path)
    await scene.play(20)
    view = FakeView()
    view.fleet, view.electrical, view.pipeline = scene.fleet, scene.electrical, scene.pipeline
    view.monotonic = scene.now
    for node in view.fleet.nodes.values():
        node.online = True
    return view


def diagram(page: str) -> tuple[str, set[str]]:
    """Return the diagram of a page, and the pieces that it leads to."""
    drawn = page[page.index('<svg class="chain"') :]
    drawn = drawn[: drawn.index("</section>")]
    words = {"circuits/": "circuit/", "nodes/": "node/", "gpus/": "gpu/"}
    links = set()
    for link in Page(drawn).links:
        kind, slash, name = link.partition("/")
        links.add(words[kind + slash] + name)
    return drawn, links


async def test_the_chain_of_the_demo_goes_from_utilities_to_gpus_and_is_what_the_page_draws(tmp_path: Path) -> None:
    async with door(await racks(tmp_path)) as client:
        whole = await asked(client)
        pieces = await asked(client, "?circuit=rack-001-A")
        _, overview, _ = await client.text("/")
        _, page, _ = await client.text("/circuits/rack-001-A")
    kinds = [one.kind for one in pieces.values()]
    assert [kinds.count(kind) for kind in (ChainKind.SOURCE, ChainKind.PANEL)] == [2, 2]
    assert kinds.count(ChainKind.GPU) == 8 * kinds.count(ChainKind.NODE) > 0
    for one in pieces.values():
        assert all(parent in pieces for parent in one.parents), one.id
        order = list(pieces)
        assert all(order.index(parent) < order.index(one.id) for parent in one.parents)
        if one.kind is ChainKind.NODE:
            assert {pieces[above].group for above in one.parents} == {pieces[one.parents[0]].group}
            assert len(one.parents) == 2, "both feeds"
    drawn, links = diagram(page)
    shown = Page(drawn)
    assert links == {one.id for one in pieces.values() if one.kind is not ChainKind.SOURCE}
    assert len(pieces) < len(whole)
    assert 0 < len(diagram(overview)[1] & whole.keys()) == len(diagram(overview)[1]), "as much as has room"
    for one in pieces.values():
        if one.kind in {ChainKind.CIRCUIT, ChainKind.PANEL}:
            assert one.load_ratio is not None
            about = "~" if one.state is ChainState.ASSUMED else ""
            assert f"{about}{percent(one.load_ratio)} of" in shown.text
        if one.kind is ChainKind.CIRCUIT:
            assert watts(one.watts) in shown.text
    states = [one.state for one in pieces.values() if one.kind is ChainKind.CIRCUIT]
    for state in set(states):
        assert f'class="wire {state}"' in drawn


async def test_what_is_not_known_is_null_and_says_so() -> None:
    """A silent node, a GPU whose power was not read, a source without a meter."""
    view = await lab()
    view.monotonic += 3600.0
    async with door(view) as client:
        pieces = await asked(client)
    gpus = [one for one in pieces.values() if one.kind is ChainKind.GPU]
    assert len(gpus) == 4
    for one in gpus:
        assert (one.watts, one.load, one.state) == (None, ChainLoad.UNKNOWN, ChainState.UNKNOWN)
    for one in pieces.values():
        assert (one.watts is None) == (one.load is ChainLoad.UNKNOWN)


async def test_a_circuit_has_load_limits_alerts_and_its_time_to_trip() -> None:
    async with door(await lab()) as client:
        pieces = await asked(client)
        _, whole = await client.json("/api/v1/circuits/lab%2F2")
        main = pieces["circuit/main"]
        two = pieces["circuit/lab/2"]
    assert main.parents == [], "nothing says what feeds it"
    assert two.parents == ["circuit/main"]
    assert (two.rated_amps, two.continuous_amps, two.severity) == (20, 16, "page")
    assert two.state is ChainState.OVER
    assert two.load is ChainLoad.MEASURED
    assert two.watts == pytest.approx(5123.5, rel=0.01)
    assert two.amps == pytest.approx(5123.5 / 240, rel=0.01)
    assert two.trip_known
    assert two.trip_seconds == TripSeconds(**whole["circuit"]["trip_seconds"])
    assert pieces["node/n2"].parents == ["circuit/lab/2"]
    assert pieces["node/n2"].watts == pytest.approx(5123.5, rel=0.01)
    gpu = pieces["gpu/GPU-n2-0"]
    assert (gpu.parents, gpu.label, gpu.limit_watts) == (["node/n2"], "GPU 0", 700.0)
    assert gpu.watts == 300.25 + 5


async def test_a_branch_is_of_the_circuit_that_is_asked_for() -> None:
    async with door(await lab()) as client:
        pieces = await asked(client, "?circuit=lab%2F1")
        status, _ = await client.json("/api/v1/power/chain?circuit=lab%2F9")
    assert {one.name for one in pieces.values() if one.kind is ChainKind.CIRCUIT} == {"lab/1"}
    assert {one.name for one in pieces.values() if one.kind is ChainKind.NODE} == {"n1"}
    assert status == 404


async def test_without_circuits_there_is_no_piece() -> None:
    view = await lab()
    view.electrical = ElectricalService({}, Path("/nowhere"))
    async with door(view) as client:
        assert await asked(client) == {}


CHAIN: dict[str, Any] = {
    "region": "US",
    "sources": {"utility": {}, "diesel": {"generator": True}},
    "panels": {"main": {"volts": 208, "source": "utility"}, "spare": {"volts": 208, "source": "diesel"}},
    "transfers": {"ats": {"preferred": "main", "alternate": "spare"}},
    "ups": {"u1": {"watts": 60_000, "parent": "ats"}},
    "circuits": {"A": {"panel": "u1", "breaker": 30, "phase": "L1", "nodes": ["n1"]}},
    "nodes": {"n1": {"gpus": "2x H100 SXM"}},
}


def laid(found: CircuitState, **above: CircuitState) -> dict[str, ChainPiece]:
    """Return the pieces of a chain with a transfer switch and a UPS; `above`: what is known of its elements."""
    layout = lay_out("power", decode_site("power", copy.deepcopy(CHAIN)))
    circuits = [found, *(replace(COOL, id=name, parent=layout.circuits[name].parent, nodes=[]) if name not in above else above[name]
                         for name in ("u1", "ats", "main", "spare"))]  # fmt: skip
    chosen = branch(circuits)
    return {one.id: one for one in circuit_pieces(chosen, circuits, layout, {})}


LEAF = replace(COOL, id="A", parent="u1", nodes=["n1"])


def test_all_inputs_are_parents_the_one_in_use_first() -> None:
    pieces = laid(LEAF)
    assert [one.kind for one in pieces.values()] == [
        ChainKind.SOURCE, ChainKind.SOURCE, ChainKind.PANEL, ChainKind.PANEL, ChainKind.TRANSFER, ChainKind.UPS, ChainKind.CIRCUIT,
    ]  # fmt: skip
    assert pieces["circuit/ats"].parents == ["circuit/main", "circuit/spare"]
    assert pieces["circuit/main"].parents == ["source/utility"]
    assert pieces["source/utility"].state is ChainState.FLOWS


@pytest.mark.parametrize(
    ("circuit", "state", "load", "number"),
    [
        (LEAF, ChainState.FLOWS, ChainLoad.MEASURED, True),
        (replace(LEAF, load_state=LoadState.UNKNOWN, watts=None, load_ratio=None, sustained_ratio=None), ChainState.UNKNOWN, ChainLoad.UNKNOWN, False),
        (replace(LEAF, load_state=LoadState.UNKNOWN, assumed_watts=0.0), ChainState.FLOWS, ChainLoad.PARTIAL, True),
        (replace(LEAF, load_state=LoadState.ASSUMED, assumed_watts=100.0), ChainState.ASSUMED, ChainLoad.ASSUMED, True),
        (replace(LEAF, more={"trip_suspected": 1.0}), ChainState.OPEN, ChainLoad.MEASURED, True),
    ],
)  # fmt: skip
def test_how_a_load_is_known_is_a_state_of_each_piece(
    circuit: CircuitState, state: ChainState, load: ChainLoad, number: bool
) -> None:
    found = laid(circuit)["circuit/A"]
    assert (found.state, found.load, found.watts is not None) == (state, load, number)


def test_below_an_open_breaker_what_is_not_read_is_lost_and_what_flows_is_not() -> None:
    opened = replace(COOL, id="u1", parent="ats", nodes=[], more={"trip_suspected": 1.0})
    dark = replace(LEAF, load_state=LoadState.ASSUMED, assumed_watts=LEAF.watts)
    assert laid(dark, u1=opened)["circuit/A"].state is ChainState.LOST
    assert laid(LEAF, u1=opened)["circuit/A"].state is ChainState.FLOWS
    assert laid(dark)["circuit/A"].state is ChainState.ASSUMED


def test_one_that_can_not_be_computed_is_a_piece_of_unknown_load() -> None:
    layout = lay_out("power", decode_site("power", copy.deepcopy(CHAIN)))
    pieces = list(circuit_pieces(branch([LEAF]), [LEAF], layout, {}))
    lost = next(one for one in pieces if one.name == "ats")
    assert (lost.state, lost.load, lost.watts) == (ChainState.UNKNOWN, ChainLoad.UNKNOWN, None)
