"""Rows of the tables: how they are sorted, filtered, drawn, and how columns share the width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from api.alerts import Alert
from api.columns import ColumnRows, Numbers
from api.fleet import NodeReply
from api.stream import StreamData
from present.device.gpu import CLOCK_LIMITS
from tui.kit.text import CROSS, DASH
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import GpuRows, Gpus, numbers
from tui.state.readings import LIMIT, POWER, TEMPERATURE, UTILIZATION
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn, share
from tui.tables.fields import GPU_KEYS, NODE_KEYS
from tui.tables.filter import Filter, parse
from tui.tables.gpu_table import GPU_COLUMNS, gpu_listing
from tui.tables.node_table import NODE_COLUMNS, node_listing


def state(
    columns: dict[str, Numbers] | None = None,
    gaps: dict[str, dict[str, str]] | None = None,
    alerts: tuple[Alert, ...] = (),
) -> DashboardState:
    """Two nodes of two GPUs, listed in an order that is not theirs; one GPU has left."""
    who = ColumnRows(
        ["b", "b", "a", "a"], [1, 0, 1, 0], ["B1", "B0", "A1", "A0"],
        ["H100", "H100", "L40S", "L40\x1b[31mS"], [True, True, True, False],
    )  # fmt: skip
    usual: dict[str, Numbers] = {
        POWER: [400.0, None, 100.0, None],
        LIMIT: [700.0, 700.0, 350.0, None],
        TEMPERATURE: [60.0, 75.0, 50.0, None],
        UTILIZATION: [1.0, 0.5, 0.0, None],
    }
    data = StreamData(version=1, at=10**18, columns=usual | (columns or {}), gaps=gaps or {})
    nodes = (NodeReply("a", "offline", 34.0, gpus=2), NodeReply("b", "online", 0.4, gpus=2), NodeReply("c", "online"))
    return DashboardState(nodes=nodes, wall={"b": 3000.0}, alerts=alerts).with_data(data, Gpus(1, GpuRows.of(who)))


def gpus(text: str) -> Filter:
    """A filter of GPUs."""
    return parse(text, GPU_KEYS)


def nodes(text: str) -> Filter:
    """A filter of nodes."""
    return parse(text, NODE_KEYS)


def drawn(listing: object, width: int = 100) -> list[str]:
    """Every row as text."""
    return [
        "".join(text for text, _ in listing.line(place, width))  # type: ignore[attr-defined]
        for place in range(len(listing.order))  # type: ignore[attr-defined]
    ]


def keys(listing: object) -> list[str]:
    """Names in the order shown."""
    return [listing.key(place) for place in range(len(listing.order))]  # type: ignore[attr-defined]


def alert(gpu: str | None, node: str, severity: str = "page", state: str = "firing") -> Alert:
    """An alert of a rule called `rule`."""
    return Alert(f"rule/{node}/{gpu}", "rule", state, severity, node, gpu)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", ["A0", "B1", "A1", "B0"]),
        ("node", ["A0", "A1", "B0", "B1"]),
        ("W/limit", ["B1", "A1", "A0", "B0"]),
        ("°C", ["B0", "B1", "A1", "A0"]),
        ("util", ["B1", "B0", "A1", "A0"]),
    ],
)
def test_gpus_are_sorted_highest_first_and_what_is_missing_last(sort: str, order: list[str]) -> None:
    found = state(alerts=(alert("B1", "b"),))
    assert keys(gpu_listing(found, sort, gpus(""), node=None)) == order


@pytest.mark.parametrize(
    ("text", "node", "found"),
    [
        ("", None, ["A0", "A1", "B0", "B1"]),
        ("b1", None, ["B1"]),
        ("l40", None, ["A0", "A1"]),
        ("", "b", ["B0", "B1"]),
        ("a1", "b", []),
        ("nothing", None, []),
    ],
)
def test_a_filter_looks_at_node_uuid_and_model(text: str, node: str | None, found: list[str]) -> None:
    listing = gpu_listing(state(), "", gpus(text), node=node)
    assert keys(listing) == found
    assert listing.total == 4


def test_nodes_are_found_by_their_name_or_a_gpu_of_theirs() -> None:
    assert keys(node_listing(state(), "", nodes("B1"))) == ["b"]
    assert keys(node_listing(state(), "", nodes("c"))) == ["c"]
    assert keys(node_listing(state(), "GPU power", nodes(""))) == ["b", "a", "c"]


def test_a_row_says_what_is_known_and_a_dash_for_what_is_not() -> None:
    rows = drawn(gpu_listing(state(), "", gpus(""), node=None))
    assert rows[0].split() == [CROSS, "LOST", "a", "0", *[DASH] * 6]
    assert "100/350" in rows[1]
    assert " 0%" in rows[1]
    assert "—/700" in rows[2]
    assert "400/700" in rows[3]
    assert all("\x1b" not in row for row in drawn(gpu_listing(state(), "", gpus(""), node=None), 160))


@pytest.mark.parametrize(
    ("gap", "word"),
    [
        ("device_lost", f"{CROSS} LOST"),
        ("timed_out", f"{CROSS} HUNG"),
        ("stale", "▒ STALE"),
        ("", "▒ STALE"),
        ("unknown", "▒ NO DATA"),
        ("error", "▒ NO DATA"),
    ],
)
def test_a_gpu_of_which_nothing_is_known_says_why(gap: str, word: str) -> None:
    silent: Numbers = [1.0, None, 1.0, None]
    columns = dict.fromkeys((POWER, TEMPERATURE, UTILIZATION), silent)
    gaps = {TEMPERATURE: {"*": "stale", "1": gap}} if gap else {}
    rows = drawn(gpu_listing(state(columns, gaps), "", gpus("B0"), node=None))
    assert rows[0].startswith(word)


def test_the_worst_alert_gives_a_gpu_and_its_node_their_state() -> None:
    alerts = (
        alert("B1", "b"), alert("B0", "b", "ticket"), alert("A1", "a", "page", "pending"),
        alert(None, "c", "ticket"), alert("GONE", "z"),
    )  # fmt: skip
    shown = state(alerts=alerts)
    assert shown.gpu_status.tolist() == [RowStatus.CRIT, RowStatus.WARN, RowStatus.OK, RowStatus.DOWN]
    assert shown.node_status.tolist() == [RowStatus.DOWN, RowStatus.CRIT, RowStatus.WARN]
    node = drawn(node_listing(shown, "", nodes("b")))[0]
    assert node.startswith("▲ CRIT")
    assert "rule +1" in node


def test_a_node_sums_what_its_gpus_tell() -> None:
    rows = drawn(node_listing(state(), "", nodes("")))
    assert rows[0].startswith(f"{CROSS} OFFLINE")
    assert "offline for 34 s" in rows[0]
    assert "1/2" in rows[0]
    assert "100 W" in rows[0]
    assert ["400 W" in rows[1], "3.0 kW" in rows[1], " 75 " in rows[1], " 75%" in rows[1]] == [True] * 4
    assert "0/0" in rows[2]
    assert "0 W" not in rows[2]


@pytest.mark.parametrize("number", range(len(CLOCK_LIMITS)))
def test_only_the_worst_reason_that_holds_the_clocks_is_shown(number: int) -> None:
    columns: dict[str, Numbers] = {metric: [float(place >= number)] * 4 for place, metric in enumerate(CLOCK_LIMITS)}
    row = drawn(gpu_listing(state(columns), "", gpus("B1"), node=None))[0]
    assert [*CLOCK_LIMITS.values()][number] in row
    assert sum(word in row for word in CLOCK_LIMITS.values()) == 1


def test_a_gpu_whose_node_is_not_listed_yet_is_nobodys_sum() -> None:
    shown = state()
    alone = DashboardState(nodes=(NodeReply("b", "online", 0.1, gpus=2),), gpus=shown.gpus)
    assert alone.node_sum(POWER).tolist() == [400.0]


@given(st.integers(20, 300), st.booleans())
def test_columns_never_take_more_than_there_is(width: int, of_gpus: bool) -> None:
    columns: Sequence[TableColumn[Any]] = GPU_COLUMNS if of_gpus else NODE_COLUMNS
    shares = share(columns, width)
    taken = sum(size for _, size in shares) + len(shares) - 1
    assert all(size >= column.width for column, size in shares)
    assert taken <= max(width, sum(column.width + 1 for column, _ in shares) - 1)
    assert all(size <= max(column.most, column.width) for column, size in shares)


@pytest.mark.parametrize("width", [80, 100, 120, 160, 240])
def test_every_line_of_a_table_is_equally_wide(width: int) -> None:
    for listing in (gpu_listing(state(), "", gpus(""), node=None), node_listing(state(), "", nodes(""))):
        heads = "".join(text for text, _ in listing.head(width))
        assert {cell_len(row) for row in drawn(listing, width)} == {cell_len(heads)}
        assert cell_len(heads) <= width


def test_numbers_of_json_become_a_column() -> None:
    assert numbers([1.5, None]).tolist()[0] == 1.5
    assert str(numbers([1.5, None])[1]) == "nan"


def test_nodes_are_listed_worst_first_and_by_name_when_asked() -> None:
    shown = state()
    listing = node_listing(shown, "")
    assert listing.key(0) == "a", "it is offline"
    assert [node_listing(shown, "node").key(place) for place in range(3)] == ["a", "b", "c"]
    hung = NodeReply("z", "online", 0.1, gpus=2, driver_state="hung")
    shown = DashboardState(nodes=(*shown.nodes, hung))
    assert [node_listing(shown, "").key(place) for place in range(2)] == ["a", "z"]
