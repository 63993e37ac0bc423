"""Names and bars as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.kit import text


@pytest.mark.parametrize(
    ("ratio", "drawn"),
    [(0.0, "    "), (1.0, "████"), (2.0, "████"), (0.5, "██  "), (0.28, "█▏  "), (-1.0, "    "),
     (None, "    "), (float("nan"), "    ")],
)  # fmt: skip
def test_a_bar_is_full_at_its_limit(ratio: float | None, drawn: str) -> None:
    assert text.bar(ratio, 4) == drawn


@given(st.text(), st.integers(0, 40), st.booleans(), st.booleans())
def test_what_is_fitted_has_exactly_its_width(word: str, width: int, right: bool, tail: bool) -> None:
    cleaned = text.clean(word)
    assert cell_len(text.fit(cleaned, width, right=right, tail=tail)) == width


@given(st.text())
def test_a_clean_name_holds_nothing_that_moves_a_cursor(word: str) -> None:
    assert text.clean(word).isprintable()


def test_names_are_cut_where_they_do_not_differ() -> None:
    assert text.fit("cluster-a-node-0262", 8, tail=True) == "…de-0262"
    assert text.fit("NVIDIA H100 80GB", 8) == "NVIDIA…"[:7] + " "
    assert text.clean("a\x1b[2Jb\u202ec\nd") == "a?[2Jb?c?d"
