"""The language of `/`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.tables.fields import GPU_KEYS
from tui.tables.filter import FilterError, parse

FIELDS = {
    "": lambda: ["dgx-01/0 gpu-a h100", "dgx-01/1 gpu-b h100", "rig/0 gpu-c rtx 5090"],
    "node": lambda: ["dgx-01", "dgx-01", "rig"],
    "circuit": lambda: ["pdu-a,pdu-b", "pdu-a,pdu-b", "Office"],
    "power": lambda: np.array([650.0, np.nan, 0.0]),
    "util": lambda: np.array([0.9, 0.5, 0.0]),
    "sev": lambda: np.array([0.0, 3.0, 2.0]),
    "job": lambda: ["", "8841", "8842"],
}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", [1, 1, 1]),
        ("DGX", [1, 1, 0]),
        ("dgx 5090", [0, 0, 0]),
        ("dgx | 5090", [1, 1, 1]),
        ("!dgx", [0, 0, 1]),
        ("power>600", [1, 0, 0]),
        ("power<=0", [0, 0, 1]),
        ("power!=650", [0, 0, 1]),
        ("!power>600", [0, 1, 1]),
        ("power>0.6k", [1, 0, 0]),
        ("util>50%", [1, 0, 0]),
        ("util=50%", [0, 1, 0]),
        ("sev>=warn", [0, 1, 1]),
        ("sev=crit", [0, 1, 0]),
        ("node~=^dgx", [1, 1, 0]),
        ("circuit=PDU-B", [1, 1, 0]),
        ("circuit=office", [0, 0, 1]),
        ("job!=8841", [0, 0, 1]),
        ('"rtx 5090"', [0, 0, 1]),
        ("(dgx | rig) & util>0.6", [1, 0, 0]),
        ("dgx & !(util>0.6)", [0, 1, 0]),
        ("power~=65", [1, 0, 0]),
    ],
)
def test_what_fits(text: str, fits: list[int]) -> None:
    assert parse(text, GPU_KEYS).mask(FIELDS, 3).tolist() == [bool(n) for n in fits]


@pytest.mark.parametrize(
    ("text", "column", "line_text"),
    [
        ("powr>600", 0, "power"),
        ("power>", 6, "a value is missing"),
        ("power>many", 6, "no number"),
        ("node~=[", 6, "no regular expression"),
        ("(dgx", 0, "not closed"),
        ("dgx )", 4, "not expected"),
        ("& dgx", 0, "not expected"),
        ("dgx &", 5, "missing at the end"),
        ('"dgx', 0, "quotation mark"),
        ("power > > 3", 8, "a value is missing"),
    ],
)
def test_a_fault_says_where_and_what(text: str, column: int, line_text: str) -> None:
    with pytest.raises(FilterError, match=line_text) as caught:
        parse(text, GPU_KEYS)
    assert abs(caught.value.column - column) <= 2


@given(st.text(max_size=40))
def test_whatever_is_typed_is_a_filter_or_a_fault_within_it(text: str) -> None:
    column = None
    try:
        parse(text, GPU_KEYS)
    except FilterError as error:
        column = error.column
    assert column is None or 0 <= column <= len(text)
