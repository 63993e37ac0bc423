"""What the palette finds, and what an exported table may hold."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from api.fleet import NodeReply
from tests.tui.test_lines import HOT, incidents, state
from tests.tui.test_recent_frames import frame
from tui.frame.export import _csv, _without_formula
from tui.frame.palette_search import MOST, find


def test_nothing_typed_lists_the_views() -> None:
    assert [what for kind, _, what in find(state(), "") if kind == "view"][:2] == ["overview", "nodes"]


@pytest.mark.parametrize(
    ("text", "kind", "what"),
    [("pdu-17", "circuit", "PDU-17B"), ("n/gpu1", "gpu", "G1"), ("theme dark", "theme", "dark"),
     ("what 0", "incident", "r/0"), ("go circuits", "", ""), ("view circ", "view", "circuits")],
)  # fmt: skip
def test_a_few_letters_find_a_thing(text: str, kind: str, what: str) -> None:
    shown = frame(1)
    hits = [(k, w) for k, _, w in find(shown, text)]
    assert ((kind, what) in hits) == bool(kind)
    assert len(find(state(incidents(1)), "")) <= MOST
    assert HOT.id == "PDU-17B"


def test_ten_thousand_gpus_are_not_all_listed() -> None:
    assert len(find(frame(1, gpus=10_000), "gpu")) == MOST


@pytest.mark.parametrize(
    ("value", "kept"),
    [("=cmd()", "'=cmd()"), ("-2.1 kW", "-2.1 kW"), ("+14", "+14"), ("@x", "'@x"), ("node\x1b-1", "node?-1"),
     (3.5, 3.5), (None, None)],
)  # fmt: skip
def test_a_spreadsheet_meets_no_formula(value: object, kept: object) -> None:
    assert _without_formula(value) == kept


def test_a_table_without_rows_is_a_file_without_rows(tmp_path: Path) -> None:
    _csv(tmp_path / "a.csv", [])
    _csv(tmp_path / "b.csv", [{"node": "a,b", "watts": None}])
    assert (tmp_path / "a.csv").read_text().strip() == ""
    assert list(csv.reader((tmp_path / "b.csv").read_text().splitlines())) == [["node", "watts"], ["a,b", ""]]


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [("dgx02", "dgx-h100-02", True), ("dh02", "dgx-h100-02", True), ("dgx02", "dgx-h100-03", False),
     ("pdu17b", "PDU-17B", True), ("x02", "dgx-h100-02", False), ("h02", "dgx-h100-02", True)],
)  # fmt: skip
def test_parts_of_a_name_in_their_order_find_it(text: str, name: str, found: bool) -> None:
    shown = replace(state(), nodes=(NodeReply(name, "online"),))
    assert (("node", name) in [(kind, what) for kind, _, what in find(shown, text)]) == found


def test_what_has_the_whole_text_comes_before_what_has_its_parts() -> None:
    shown = replace(state(), nodes=tuple(NodeReply(n, "online") for n in ("a-b", "ab", "axb")))
    assert [what for kind, _, what in find(shown, "ab") if kind == "node"] == ["ab", "a-b"]
