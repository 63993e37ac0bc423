"""The power chain as a tree in the terminal: each circuit once, with its bar against its limits; what is open, not known or
assumed is seen to be so; and the list of the most urgent stays where the tree would hide one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from api.chain import ChainKind, ChainLoad, ChainPiece, ChainReply, ChainState
from api.errors import ErrorDetail
from api.power import CircuitState, LoadState
from present.circuit.chain import node_row
from tests.present.circuits import ASSUMED, COOL
from tests.tui.test_lines import line_text, state
from tui.kit.bars import Limits, bar_list, limit_bar
from tui.kit.theme import THEMES, Tones
from tui.screens.overview import chain_bars
from tui.state.chain import chain_rows
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CHAIN

PANEL = replace(COOL, id="panel", kind="panel", nodes=[])
A = replace(COOL, id="A", parent="panel", nodes=["n1"])
B = replace(COOL, id="B", parent="panel", nodes=["n1"], load_ratio=1.2, sustained_ratio=1.2)
LIMITS = Limits([("continuous", 0.8), ("rating", 1.0)])


def piece(kind: ChainKind, name: str, *parents: str, **more: Any) -> ChainPiece:
    """A piece that flows."""
    its = {"state": ChainState.FLOWS, "load": ChainLoad.MEASURED, **more}
    prefix = kind.value if kind in {ChainKind.SOURCE, ChainKind.NODE, ChainKind.GPU} else "circuit"
    return ChainPiece(id=f"{prefix}/{name}", kind=kind, name=name, label=name, parents=[*parents], **its)


PIECES = [
    piece(ChainKind.SOURCE, "grid"), piece(ChainKind.PANEL, "panel", "source/grid"),
    piece(ChainKind.CIRCUIT, "A", "circuit/panel"), piece(ChainKind.CIRCUIT, "B", "circuit/panel", "source/grid"),
    piece(ChainKind.NODE, "n1", "circuit/A", "circuit/B", watts=812.0), piece(ChainKind.GPU, "g", "node/n1", watts=400.0),
]  # fmt: skip


def drawn(
    circuits: Sequence[CircuitState], pieces: Sequence[ChainPiece], room: int = 20, width: int = 78, **reply: Any
) -> list[str]:
    """The tree as text."""
    found = state(circuits=list(circuits)).with_doc(CHAIN, ChainReply(pieces=list(pieces), **reply), 98.0)
    return of(found, room, width)


def of(shown: DashboardState, room: int, width: int = 78) -> list[str]:
    """The tree of a state as text."""
    lines = bar_list(chain_bars(shown, chain_rows(shown, room), Now(0.0), width), width, room)
    assert all(cell_len(line_text(line)) <= width for line in lines)
    return [line_text(line).rstrip() for line in lines]


def test_each_circuit_is_below_what_feeds_it_and_a_node_below_both_its_feeds() -> None:
    lines = drawn([PANEL, A, B], PIECES)
    assert [line[:8].rstrip() for line in lines] == ["grid", "└ panel", "  ├ A", "  │ └ n1", "  └ B", "    └ n1"]
    assert "34%" in lines[2]
    assert "▶" not in lines[2]
    assert "120%" in lines[4]
    assert lines[3].endswith("812 W")


def test_nodes_and_then_sources_make_room_and_at_last_the_list_of_the_most_urgent_stays() -> None:
    assert [len(drawn([PANEL, A, B], PIECES, room)) for room in (6, 5, 4, 3, 2)] == [6, 4, 4, 3, 0]


@pytest.mark.parametrize(
    ("circuits", "reply"),
    [([PANEL, A, B], {"folded": 1}), ([PANEL, A, B, replace(A, id="spare")], {}), ([PANEL], {"pieces": []})],
    ids=["folded", "not in it", "empty"],
)
def test_a_tree_that_would_hide_a_circuit_is_not_drawn(circuits: list[CircuitState], reply: dict[str, Any]) -> None:
    assert drawn(circuits, **{"pieces": PIECES, **reply}) == []


def test_an_aggregator_without_the_chain_leaves_the_list() -> None:
    shown = state(circuits=[PANEL, A, B])
    assert of(shown, 20) == []
    assert of(shown.with_doc(CHAIN, ErrorDetail("path", "no such page", ""), 98.0), 20) == []


def test_nodes_that_are_not_all_in_the_reply_are_left_out() -> None:
    assert len(drawn([PANEL, A, B], PIECES, left_out=2)) == 4


def test_an_open_breaker_and_what_is_dark_below_it_have_no_figure() -> None:
    dark = [replace(one, state=ChainState.OPEN if one.name == "A" else ChainState.LOST) for one in PIECES]
    lines = drawn([PANEL, A, B], dark)
    assert lines[2].split()[-2:] == ["open", "—"]
    assert [line.rsplit("  ", 1)[1].strip() for line in (lines[0], lines[3])] == ["no power"] * 2
    assert not any("%" in line or " W" in line for line in lines)
    assert not any("▆" in line for line in lines)


def test_a_load_that_is_not_known_is_hatched_up_to_the_rating_and_has_no_figure() -> None:
    silent = replace(A, load_state=LoadState.UNKNOWN, watts=None, load_ratio=None, sustained_ratio=None)
    lines = drawn([PANEL, silent, B], [*PIECES[:4], replace(PIECES[4], watts=None, load=ChainLoad.UNKNOWN)])
    assert "░░░" in lines[2]
    assert "%" not in lines[2]
    assert lines[3].endswith("load not known")


def test_an_assumed_load_is_hatched_and_marked() -> None:
    its = piece(ChainKind.CIRCUIT, "office", state=ChainState.ASSUMED, load=ChainLoad.ASSUMED)
    [line] = drawn([ASSUMED], [its])
    assert "▒▒▒" in line
    assert "▆" not in line
    assert "~121%" in line


def test_a_narrow_tree_keeps_its_bars() -> None:
    wide, narrow = (drawn([PANEL, A, B], PIECES, width=width) for width in (78, 56))
    assert "W" in wide[2].split()[-1]
    assert "W" not in narrow[2]
    assert narrow[2].count("▆") >= 4


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "                ┊   │     "), (0.5, "▆▆▆▆▆▆▆▆▆▆      ┊   │     "), (0.9, "▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆┊▆  │     "),
     (1.15, "▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆┊▆▆▆│▆▆   "), (2.0, "▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆┊▆▆▆│▆▆▆▆▶"), (None, "░░░░░░░░░░░░░░░░┊░░░│     ")],
)  # fmt: skip
def test_a_bar_ends_at_the_same_share_of_every_breaker(ratio: float | None, text: str) -> None:
    """At 1.3 of the rating, as on the pages: 26 cells are 5% each."""
    found = limit_bar(ratio, LIMITS, 26, "bar")
    assert "".join(sign for sign, _ in found) == text
    assert limit_bar(ratio, LIMITS, 0, "bar") == []


def test_the_signs_of_the_tree_and_its_bars_are_told_apart_in_ascii() -> None:
    plain = Tones(THEMES["dark"], ascii_only=True).as_text("├ └ │ ▆▒░┊▶")
    assert plain.isascii()
    assert len(set(plain[6:8] + plain[8])) == 3, "load, assumed, not known"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"watts": 812.0}, "812 W"),
        ({"watts": 812.0, "load": ChainLoad.MODELLED}, "812 W"),
        ({"watts": 812.0, "load": ChainLoad.PARTIAL}, "≥812 W"),
        ({"watts": 812.0, "load": ChainLoad.ASSUMED}, "~812 W, assumed"),
        ({"watts": 812.0, "load": ChainLoad.LAST_KNOWN}, "812 W, last known"),
        ({"load": ChainLoad.UNKNOWN}, "load not known"),
        ({"watts": 812.0, "load": ChainLoad.UNKNOWN}, "load not known"),
        ({"watts": 812.0, "state": ChainState.LOST}, "no power"),
    ],
)
def test_how_the_load_of_a_node_is_known_is_in_its_words(more: dict[str, Any], words: str) -> None:
    assert node_row(piece(ChainKind.NODE, "n", **more)).value == words
