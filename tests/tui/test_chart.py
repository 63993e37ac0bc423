"""Charts and bars: a fixed scale, holes that stay holes, and limits that are seen."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

from tui.kit.bars import Bar, bar_list
from tui.kit.chart import Mark, bridge, chart, dots, resample, spark, spread


def text(lines: list) -> list[str]:
    """Every line without its tones."""
    return ["".join(piece for piece, _ in line) for line in lines]


def test_a_value_fills_its_share_of_the_height() -> None:
    assert dots(np.array([0.0, 100.0]), (0.0, 100.0), 1, 2) == ["⢸", "⣸"]
    assert dots(np.array([100.0, 100.0]), (0.0, 100.0), 1, 1) == ["⣿"]
    assert dots(np.array([50.0, 50.0]), (0.0, 100.0), 1, 2) == [" ", "⣿"]


def test_what_is_not_known_is_a_hole_and_a_zero_is_not() -> None:
    assert dots(np.array([np.nan, np.nan, 0.0, 0.0]), (0.0, 1.0), 2, 1) == [" ⣀"]


def test_the_scale_is_fixed_and_a_limit_is_drawn_across() -> None:
    drawn = text(chart(np.full(66, 350.0), (0.0, 700.0), 40, 6, lambda v: f"{v:.0f}",
                       [Mark(650.0, "cap")], ["12:00", "12:15"]))  # fmt: skip
    assert drawn[0].startswith("   700┤┄")
    assert drawn[0].endswith(" cap")
    assert drawn[-2].startswith("     0┤⣿")
    assert drawn[-1].strip().startswith("12:00")
    assert drawn[-1].endswith("12:15")
    assert {cell_len(line) for line in drawn} == {40}


def test_times_without_a_reading_stay_empty_and_short_gaps_between_readings_do_not() -> None:
    at = np.array([0.0, 10.0, 20.0, 80.0, 90.0])
    spaced = resample(at, np.ones(5), 0.0, 100.0, 20)
    assert np.isnan(spaced).sum() == 15
    joined = bridge(spaced, 2)
    assert not np.isnan(joined[:6]).any()
    assert np.isnan(joined[8:15]).all()


def test_no_data_is_no_chart() -> None:
    assert np.isnan(resample(np.empty(0), np.empty(0), 0.0, 1.0, 10)).all()
    assert spark(np.array([np.nan]), (0.0, 1.0), 4) == "    "
    assert len(spark(np.linspace(0, 1, 500), (0.0, 1.0), 30)) == 30


def test_words_are_spread_from_end_to_end() -> None:
    assert spread(["a", "b", "c"], 9) == "a   b   c"
    assert spread(["too long for it"], 5) == "     "


@pytest.mark.parametrize("width", [30, 80, 160])
def test_bars_line_up_and_say_when_more_than_full(width: int) -> None:
    bars = [Bar("PDU-17B", 1.12, "bar_crit", [("112%", "crit")]), Bar("a\x1b[2J" * 60, 0.5, "bar", [(" 50%", "")]),
            Bar("x", None, "bar", [("   —", "")])]  # fmt: skip
    drawn = text(bar_list(bars, width, 3))
    assert {cell_len(line) for line in drawn} == {width}
    assert "▶" in drawn[0]
    assert "\x1b" not in drawn[1]
    assert "█" not in drawn[2]
    assert text(bar_list(bars, width, 2))[-1].strip() == "and 2 more"
    assert bar_list(bars, width, 0) == []
