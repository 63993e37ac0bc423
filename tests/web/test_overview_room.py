"""The map takes the most detailed form that leaves the other parts of the first screen their room."""

from __future__ import annotations

import pytest

from aggregator.web.fleet_map import DEEP, MapForm, NodeCells, fleet_map
from aggregator.web.overview_room import APART, INSIDE, PORTS, ROOM, USERS, MapNode, form_of, map_height, table_rows
from tests.web.test_pages import Page


def cluster(nodes: int, gpus: int = 8, rack: int = 4) -> list[MapNode]:
    """Nodes in racks; `rack`: nodes of one, 0 where none is known."""
    return [MapNode(f"R{number // rack:03}" if rack else "", f"node-{number:04}", gpus) for number in range(nodes)]


@pytest.mark.parametrize(
    ("nodes", "form"),
    [
        (cluster(1, 4), MapForm.FIGURES),
        (cluster(2), MapForm.FIGURES),
        (cluster(9), MapForm.NAMED),
        (cluster(64, gpus=1), MapForm.NAMED),  # a box each would be ten lines of boxes
        (cluster(64), MapForm.NAMED),
        (cluster(1250), MapForm.DENSE),
        (cluster(100, rack=1), MapForm.NAMED),
        (cluster(400, rack=0), MapForm.NAMED),
    ],
)
def test_a_form_leaves_the_other_parts_their_room(nodes: list[MapNode], form: MapForm) -> None:
    assert form_of(nodes) is form
    if form is not MapForm.DENSE:
        assert map_height(nodes, form, INSIDE[False]) + APART + USERS <= ROOM


def test_what_stands_in_the_column_of_the_map_takes_its_figures() -> None:
    few = cluster(6)
    assert form_of(few) is MapForm.FIGURES
    assert form_of(few, beside=PORTS + APART) is MapForm.NAMED


def test_no_more_racks_have_names_than_a_screen_holds() -> None:
    """With more racks of a kind the form never gets more detailed, whatever the racks are."""
    order = list(MapForm)
    for rack in (1, 4, 8, 18):
        forms = [order.index(form_of(cluster(nodes, rack=rack))) for nodes in range(1, 800, 7)]
        assert forms == sorted(forms)
        assert forms[-1] == order.index(MapForm.DENSE)


def test_the_breakers_leave_rows_for_who_uses_what() -> None:
    rows = [table_rows(circuits) for circuits in range(5)]
    assert rows == sorted(rows, reverse=True)
    assert (rows[0] > rows[1] >= 2, rows[4] < 2) == (True, True)


def test_nodes_in_no_rack_are_columns_of_one_picture() -> None:
    cells = [NodeCells("", f"n{n:03}", [50.0] * 8, [f"G{n}-{k}" for k in range(8)]) for n in range(3 * DEEP)]
    body = fleet_map(cells, "temperature", MapForm.NAMED)
    assert Page(body).faults == []
    assert f'height="{6 * DEEP - 1}"' in body
    assert 'width="145"' in body, "three columns of 47, and 2 between them"
