"""The map: each GPU is on it once, faults are visible, and noise repaints nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.map.grid import Grid, Zoom, lay_out
from tui.map.heatmap import CRIT, DOWN, MISSING, OK, STALE, WARN, HeatmapCells, draw, quantise


def fleet(nodes: int, gpus: int, racks: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Order, node and group of a fleet, and the names of the groups."""
    order = np.arange(nodes * gpus)
    node = order // gpus
    return order, node, node * racks // max(1, nodes), [f"rack-{n}" for n in range(racks)]


def cells(count: int, level: int | None = 3, **ill: int) -> HeatmapCells:
    """All at one level; `ill` by `g<row>`."""
    status = np.zeros(count, np.int8)
    for name, state in ill.items():
        status[int(name[1:])] = state
    shades = None if level is None else np.full(count, level, np.uint8)
    return HeatmapCells(shades, ["50"] * count, status)


def text(lines: list[list[tuple[str, str]]]) -> list[str]:
    """Every line without its tones."""
    return ["".join(piece for piece, _ in line) for line in lines]


@given(
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(1, 6),
    st.sampled_from([None, *Zoom]),
    st.integers(20, 200),
    st.integers(1, 60),
)
def test_every_gpu_has_one_place_and_the_place_is_found_again(
    nodes: int, gpus: int, racks: int, zoom: Zoom | None, width: int, height: int
) -> None:
    racks = min(racks, nodes)
    grid = lay_out(*fleet(nodes, gpus, racks), width, height, zoom)
    placed = grid.slots[grid.slots >= 0]
    assert sorted(placed.tolist()) == list(range(nodes * gpus))
    drawn = draw(grid, cells(nodes * gpus), shaded=True)
    assert all(cell_len(line) <= max(width, grid.margin + grid.wide) for line in text(drawn))
    y, x = grid.place(0) or (0, 0)
    assert grid.at(grid.margin + x * grid.wide, y) == int(grid.slots[y, x, 0])


@pytest.mark.parametrize(
    ("nodes", "size", "zoom"),
    [
        (2, (80, 18), Zoom.DIGITS),
        (40, (80, 18), Zoom.HALVES),
        (1250, (80, 18), Zoom.DOTS),
        (1250, (156, 34), Zoom.HALVES),
        (12_500, (80, 18), Zoom.RACKS),
    ],
)
def test_the_finest_zoom_that_fits_is_used(nodes: int, size: tuple[int, int], zoom: Zoom) -> None:
    grid = lay_out(*fleet(nodes, 8, max(1, nodes // 16)), *size)
    assert grid.zoom is zoom
    assert grid.height <= size[1]


def test_ten_thousand_gpus_at_80_by_24_say_which_gpu_of_which_node_is_ill() -> None:
    grid = lay_out(*fleet(1250, 8, 313), 80, 18)
    drawn = draw(grid, cells(10_000, None, g904=CRIT, g2098=WARN), shaded=True)
    lines = text(drawn)
    assert len(lines) == 18
    assert lines[0].startswith("rack-0   ····")
    assert lines[1][9 + 113 - 71] == "⠁"
    assert ("⠁", "crit_chip") in drawn[1]
    assert lines[3][9 + 262 - 3 * 71] == "⠂"
    assert lines[-1].split()[0] == f"rack-{17 * 71 * 313 // 1250}"


@pytest.mark.parametrize("size", [(156, 35), (80, 18), (296, 80)])
@pytest.mark.parametrize("racks", [50, 313, 625])
def test_ten_thousand_gpus_by_rack_name_racks_at_every_size(size: tuple[int, int], racks: int) -> None:
    """Each line begins with the rack of its first GPU, or each rack has its name."""
    order, node, group, names = fleet(1250, 8, racks)
    grid = lay_out(order, node, group, names, *size)
    assert grid.named
    assert grid.height <= size[1]
    for line, label in enumerate(grid.labels):
        first = int(grid.slots[line][grid.slots[line] >= 0][0])
        assert label.strip() in {names[int(group[first])], ""}
    for line, captions in zip(grid.slots[:, :, 0], grid.captions, strict=False):
        for column, name in captions:
            after = line[column // grid.wide :]
            assert name.lstrip("│").strip() == names[int(group[after[after >= 0][0]])]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(20, 120))
def test_a_rack_that_fits_into_a_line_is_not_cut_while_there_is_room(sizes: list[int], width: int) -> None:
    group = np.repeat(np.arange(len(sizes)), sizes)
    order = np.arange(len(group))
    grid = lay_out(order, order, group, [f"r{n}" for n in range(len(sizes))], width, 10_000, Zoom.DOTS)
    columns = grid.slots.shape[1]
    for number, size in enumerate(sizes):
        lines, _ = np.nonzero(np.isin(grid.slots[:, :, 0], order[group == number]))
        assert len(set(lines.tolist())) <= (1 if size <= columns else -(-size // columns))


@pytest.mark.parametrize(("state", "sign"), [(STALE, "▒"), (WARN, "!"), (CRIT, "▲"), (DOWN, "\u00d7")])
@pytest.mark.parametrize("shaded", [True, False])
def test_a_fault_is_a_sign_and_not_a_colour_alone(state: int, sign: str, shaded: bool) -> None:
    grid = lay_out(*fleet(8, 8), 40, 20, Zoom.HALVES)
    assert sign in "".join(text(draw(grid, cells(64, 3, g9=state), shaded=shaded)))


def test_a_whole_node_that_is_gone_is_one_sign() -> None:
    grid = lay_out(*fleet(20, 8), 40, 10, Zoom.DOTS)
    gone = {f"g{row}": DOWN for row in range(8, 16)}
    assert text(draw(grid, cells(160, None, **gone), shaded=True))[0].replace(" ", "")[-19] == "\u00d7"


def test_what_a_filter_leaves_out_stays_where_it_is_without_an_alarm() -> None:
    grid = lay_out(*fleet(2, 8), 80, 10)
    ill = cells(16, 3, g1=CRIT, g9=CRIT)
    dimmed = np.zeros(16, bool)
    dimmed[8:] = True
    drawn = draw(grid, HeatmapCells(ill.level, ill.digits, ill.status, dimmed), shaded=True)
    assert text(drawn)[0].count("▲") == 1
    assert "▲" not in text(drawn)[1]
    assert len(text(drawn)[1]) == len(text(drawn)[0])


def test_a_metric_that_is_not_known_is_no_level() -> None:
    grid = Grid(Zoom.HALVES, np.array([[[0, 1]]]), (), 1)
    unknown = HeatmapCells(np.array([MISSING, 0], np.uint8), [], np.zeros(2, np.int8))
    assert draw(grid, unknown, shaded=True) == [[("▀", "faint/r0")]]
    assert text(
        draw(grid, HeatmapCells(np.array([MISSING] * 2, np.uint8), [], np.zeros(2, np.int8)), shaded=False)
    ) == ["-"]


def test_neighbours_that_look_alike_are_one_run() -> None:
    grid = lay_out(*fleet(1250, 8), 156, 34)
    drawn = draw(grid, cells(10_000), shaded=True)
    assert sum(len(line) for line in drawn) <= 3 * len(drawn)


def test_the_cursor_is_seen_on_every_zoom() -> None:
    for zoom in Zoom:
        grid = lay_out(*fleet(4, 8, 2), 60, 20, zoom)
        drawn = draw(grid, cells(32), shaded=True, cursor=int(grid.slots[0, 0, 0]))
        assert "here" in {tone for line in drawn for _, tone in line}


@given(st.lists(st.floats(0, 800) | st.just(float("nan")), min_size=1, max_size=50))
def test_levels_are_of_the_value_or_missing(values: list[float]) -> None:
    column = np.array(values)
    level = quantise(column, (0.0, 700.0), None)
    assert (level[np.isnan(column)] == MISSING).all()
    known = level[~np.isnan(column)]
    assert ((known >= 0) & (known < 8)).all()


def test_noise_at_a_border_keeps_the_level_and_a_real_change_does_not() -> None:
    before = quantise(np.array([349.0]), (0.0, 800.0), None)
    assert quantise(np.array([401.0]), (0.0, 800.0), before).tolist() == before.tolist() == [3]
    assert quantise(np.array([430.0]), (0.0, 800.0), before).tolist() == [4]
    assert quantise(np.array([np.nan]), (0.0, 800.0), before).tolist() == [MISSING]


def test_an_empty_fleet_is_an_empty_map() -> None:
    empty = np.empty(0, np.intp)
    grid = lay_out(empty, empty, empty, [], 80, 20)
    assert draw(grid, HeatmapCells(None, [], np.empty(0, np.int8)), shaded=True) == []
    assert OK == 0


@pytest.mark.parametrize("zoom", Zoom)
def test_a_cluster_without_gpus_has_an_empty_map(zoom: Zoom) -> None:
    """Its nodes are there, as with a collector that found no driver."""
    none = np.empty(0, np.intp)
    found = lay_out(none, none, none, ["rack-a"], 80, 20, zoom)
    assert (found.slots < 0).all()
