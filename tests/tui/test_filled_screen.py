"""Maps with names of groups, cards that grow, and the legend under the cursor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from api.fleet import NodeReply
from present.units import celsius, gibibytes_of
from tests.tui.test_recent_frames import frame
from tui.map.cards import NARROW, TALL, TRACED, TWO_TRACES, _gauge, cards, columns_of
from tui.map.fleetmap import cursor_legend
from tui.map.grid import Grid, Zoom, lay_out
from tui.map.heatmap import HeatmapCells, draw


def racks(count: int, width: int, height: int, zoom: Zoom | None = Zoom.HALVES) -> Grid:
    """Racks of 16 GPUs in two nodes."""
    order = np.arange(16 * count)
    names = [f"rack-{number:03}" for number in range(count)]
    return lay_out(order, order // 8, order // 16, names, width, height, zoom)


@pytest.mark.parametrize(("width", "most"), [(160, 6), (300, 3)])
def test_many_racks_share_lines_each_with_its_name_and_border(width: int, most: int) -> None:
    grid = racks(40, width, 50)
    assert grid.height <= most
    cells = HeatmapCells(np.zeros(640, np.uint8), [""] * 640, np.zeros(640, np.int8))
    lines = ["".join(text for text, _ in line) for line in draw(grid, cells, shaded=True)]
    assert all(f"rack-{number:03}" in "".join(lines) for number in range(40))
    assert lines[0].count("│") == len(grid.captions[0]) - 1
    assert all(cell_len(line) <= width for line in lines)
    assert sorted(grid.slots[grid.slots >= 0].tolist()) == list(range(640))


def test_the_cell_that_is_drawn_is_the_cell_that_is_clicked() -> None:
    grid = racks(40, 160, 50)
    for row in (0, 17, 333, 639):
        place = grid.place(row)
        assert place is not None
        line, column = place
        first = grid.at(column * grid.wide, line)
        assert first is not None
        assert grid.place(first) == place
    start, name = grid.captions[0][1]
    assert grid.at(start + 1, 0) is None, name


def test_few_racks_keep_a_line_each() -> None:
    grid = racks(5, 300, 50)
    assert grid.captions == ()
    assert [label.strip() for label in grid.labels] == [f"rack-{n:03}" for n in range(5)]


@pytest.mark.parametrize("width", [NARROW, 50, 80])
def test_a_line_of_a_card_cuts_no_figure_of_the_largest_board(width: int) -> None:
    memory = gibibytes_of(287 * 2.0**30, 288 * 2.0**30)
    drawn = "".join(text for text, _ in _gauge("mem", memory, 0.99, celsius(105), width - 4))
    assert cell_len(drawn) == width - 4
    assert "287/288 GiB" in drawn
    assert drawn.endswith("105 °C")


@pytest.mark.parametrize("tall", [5, 8, 14, 30])
def test_a_card_with_room_has_clocks_and_a_taller_trace(tall: int) -> None:
    shown = frame(1)
    rows = shown.gpus.order.tolist()[:4]
    past = np.full((50, len(TRACED), len(shown.gpus)), 300.0)
    drawn = cards(shown, rows, 160, 2, past, None, tall)
    assert len(drawn) == tall * -(-len(rows) // 2)
    text = ["".join(piece for piece, _ in line) for line in drawn]
    assert {cell_len(line) for line in text} == {160}
    assert any("MHz" in line or "\u2014" in line for line in text)
    traced = sum(any("\u2800" < sign <= "\u28ff" for sign in line) for line in text[:tall])
    assert traced >= (1 if tall == TALL else tall * 6 // 10 if tall > 14 else min(2, tall - TALL))
    assert any("temperature" in line for line in text) == (tall >= TALL + TWO_TRACES)


def test_rows_of_cards_are_of_one_length() -> None:
    assert columns_of(16, 300, 100) == 8
    assert columns_of(64, 300, 66) == 8, "a line of cards for each node of eight"
    assert columns_of(64, 160, 33) == 0
    assert columns_of(4, 160, 50) == 4
    assert columns_of(4, 80, 24) == 2


def test_the_legend_names_the_gpu_under_the_cursor_and_its_rack() -> None:
    shown = frame(1)
    uuid = shown.gpus.who.uuid[0]
    node = shown.gpus.who.node[0]
    shown = replace(shown, nodes=(NodeReply(node, "online", rack="R16"),))
    words = cursor_legend(shown, uuid)
    assert words.startswith(f"{node}/gpu")
    assert "R16" in words
    assert "STALE" in words, "it has no reading"
    assert cursor_legend(shown, None) == ""
