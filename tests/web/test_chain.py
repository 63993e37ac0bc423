"""The power chain is drawn from the model alone: each circuit and node once, at the same place each time, and what is
not known or open is seen to be so."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from aggregator.web.chain_diagram import chain_diagram, remarks
from aggregator.web.fleet_map import NodeCells
from aggregator.web.folded_chain import folded_chain
from api.power import CircuitState, LoadState
from power.snapshot.power_chain import MOST_CIRCUITS, MOST_NODES, branch
from tests.present.circuits import COOL
from tests.web.test_pages import EVIL, Page

NAN = float("nan")
PANEL = replace(COOL, id="panel", kind="panel", nodes=["a", "b"])
A = replace(COOL, id="A", parent="panel", nodes=["a", "b"])
B = replace(COOL, id="B", parent="panel", nodes=["a", "b"], load_ratio=1.2, sustained_ratio=1.2)
SITE = (B, A, PANEL)


def cells(*names: str, **more: object) -> dict[str, NodeCells]:
    """Nodes of two GPUs each, of which the second is not read."""
    return {name: NodeCells("", name, [412.4, NAN], [f"GPU-{name}-0", f"GPU-{name}-1"], **more) for name in names}  # type: ignore[arg-type]


def drawn(circuits: Sequence[CircuitState], around: str = "", **more: object) -> str:
    """Return the diagram of circuits."""
    found = branch(circuits, around)
    return chain_diagram(found, {}, cells(*found.nodes, **more), 700.0) + " ".join(remarks(found))


def test_each_circuit_and_node_is_drawn_once_and_fed_by_both_sides() -> None:
    body = drawn(SITE)
    page = Page(body)
    assert page.faults == []
    assert sorted(page.links) == sorted(
        ["circuits/A", "circuits/B", "circuits/panel", "nodes/a", "nodes/b",
         *(f"gpus/GPU-{name}-{place}" for name in "ab" for place in (0, 1))]
    )  # fmt: skip
    cords = re.findall(r'<path class="wire (\w+)" [^>]*d="M400 \d+L[\d ]+ 500 \d+"', body)
    assert sorted(cords) == ["flows", "flows", "over", "over"]
    assert body == drawn(SITE), "the same at each time"
    assert "412" in page.text
    assert "GPUs at least 412 W" in page.text, "a sum with a gap says so"


@pytest.mark.parametrize(
    ("circuit", "state", "words"),
    [
        (replace(A, load_state=LoadState.UNKNOWN, watts=None, load_ratio=None, sustained_ratio=None), "unknown", "load not known"),
        (replace(A, more={"trip_suspected": 1.0}), "open", "open"),
        (replace(A, assumed_watts=800.0, load_state=LoadState.ASSUMED), "assumed", "~34% of 20 A"),
        (replace(A, load_ratio=0.0, sustained_ratio=0.0), "idle", "0% of 20 A"),
    ],
)  # fmt: skip
def test_what_does_not_flow_or_is_not_known_does_not_move(circuit: CircuitState, state: str, words: str) -> None:
    body = drawn([circuit])
    assert words in Page(body).text
    lines = re.findall(r'class="wire (\w+)"', body)
    assert lines == [state] * 4, "its source, its line, and the cords of both nodes"
    assert 'class="dots' not in body


def test_of_a_large_site_the_branch_of_the_most_urgent_is_open() -> None:
    large = [
        replace(A, id=f"{side}{rack:04}", parent=f"panel-{side}", nodes=[f"n{rack:04}-{k}" for k in range(4)])
        for rack in range(1000)
        for side in "AB"
    ]
    panels = [replace(PANEL, id=f"panel-{side}", nodes=[]) for side in "AB"]
    found = branch([*large, *panels])
    assert {one.id for one in found.leaves} == {"A0000", "B0000"}, "with the other side"
    assert [one.id for one in found.feeders] == ["panel-A", "panel-B"]
    assert found.folded == 1998
    body = drawn([*large, *panels])
    assert "Of 2,000 circuits with nodes the branch of the most urgent one." in Page(body).text
    assert len(body) < 30_000
    around = branch([*large, *panels], "B0500")
    assert {one.id for one in around.leaves} == {"A0500", "B0500"}
    above = branch([*large, *panels], "panel-A")
    assert len(above.leaves) == MOST_CIRCUITS
    assert len(above.nodes) == MOST_NODES
    assert above.left_out > 0
    whole = Page(drawn([*large, *panels], "panel-A")).text
    assert "the branch of panel-A." in whole
    assert "further nodes of them not drawn" in whole


def test_a_panel_that_feeds_panels_has_its_branch() -> None:
    top, middle = replace(PANEL, id="top", nodes=[]), replace(PANEL, parent="top", nodes=[])
    assert [one.id for one in branch([top, middle, A], "top").leaves] == ["A"]


def test_nodes_that_do_not_fit_are_counted() -> None:
    body = drawn([replace(A, nodes=[f"n{place:02}" for place in range(20)])])
    assert "12 further nodes of it not drawn." in Page(body).text


def test_of_a_crowded_cluster_the_worst_branch_is_open_and_the_rest_counted() -> None:
    """In five rows, on the scale of all bars: both sides of the most urgent below what feeds them, and the next one."""
    large = [
        replace(A, id=f"{side}{rack:04}", parent=f"panel-{side}", nodes=[f"n{rack:04}-{k}" for k in range(8)])
        for rack in range(1000)
        for side in "AB"
    ]
    large[0] = replace(large[0], load_ratio=1.2, sustained_ratio=1.2)
    large[7] = replace(large[7], load_state=LoadState.UNKNOWN, watts=None, load_ratio=None, sustained_ratio=None)
    large[9] = replace(large[9], more={"trip_suspected": 1.0})
    panels = [replace(PANEL, id=f"panel-{side}", nodes=[]) for side in "AB"]
    body = folded_chain([*large, *panels], {"A0000": 2}, {"panel-A": "utility", "panel-B": ""})
    page = Page(body)
    assert page.faults == []
    names = ["panel-A", "A0000", "panel-B", "B0000", "A0001"]
    nodes = [f"nodes/n0000-{place}" for place in range(4)]
    assert page.links == ["circuits", *(f"circuits/{name}" for name in names), *nodes]
    assert "panel-A from utility" in page.text
    assert "120% of 20 A" in page.text
    assert "and 4 more." in page.text
    assert "1,998 further circuits with nodes: 1 open, 1 load not known." in page.text
    assert 'class="fill page"' in body


def test_a_folded_chain_of_a_few_circuits_has_nothing_to_count() -> None:
    calm = [A, *(replace(A, id=f"C{place}", nodes=[f"c{place}"]) for place in range(8)), PANEL]
    words = "8 further circuits with nodes: none of them over the rating, open or not known."
    assert words in Page(folded_chain(calm, {}, {})).text
    assert "further" not in Page(folded_chain([A, PANEL], {}, {})).text
    assert folded_chain([replace(A, nodes=[])], {}, {}) == ""
    evil = Page(folded_chain([replace(A, id=EVIL, parent=EVIL, nodes=[EVIL])], {}, {EVIL: EVIL}))
    assert evil.faults == []


def test_nothing_is_drawn_without_a_circuit_that_feeds_nodes() -> None:
    assert drawn([]) == ""
    assert drawn([replace(A, nodes=[])]) == ""


def test_a_node_that_has_not_been_heard_of_has_its_place() -> None:
    """Parts below the diagram stay where they are when its nodes report; a node without GPUs needs no room for them."""

    def height(cells: dict[str, NodeCells]) -> float:
        body = chain_diagram(branch(SITE), {}, cells, 700.0)
        (found,) = re.findall(r'viewBox="0 0 860 (\d+)" role', body)
        return float(found)

    unheard = {name: NodeCells("", name, (), ()) for name in "ab"}
    assert height(unheard) == height(cells("a", "b"))
    assert height({}) < height(unheard)


def test_hostile_names_are_text() -> None:
    body = drawn([replace(A, id=EVIL, parent=None, nodes=[EVIL])], mark="page")
    page = Page(body)
    assert page.faults == []
    assert "<script>" not in body
    assert EVIL[:20] in page.text
