"""Charts and bars: a fixed scale, holes that stay holes, and limits that are seen."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

from tui.kit.bars import Bar, bar_list
from tui.kit.chart import LATE, Mark, apart, chart, dots, held, resample, spark, spread


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
    drawn = text(
        chart(np.full(66, 350.0), (0.0, 700.0), 40, 6, lambda v: f"{v:.0f}", [Mark(650.0, "cap")], ["12:00", "12:15"])
    )
    assert drawn[0].startswith("   700┤┄")
    assert drawn[0].endswith(" cap ")
    assert drawn[-2].startswith("     0┤⣿")
    assert drawn[-1].strip().startswith("12:00")
    assert drawn[-1].endswith("12:15")
    assert {cell_len(line) for line in drawn} == {40}


def test_times_without_a_reading_stay_empty_and_short_gaps_between_readings_do_not() -> None:
    at = np.array([0.0, 10.0, 20.0, 80.0, 90.0])
    assert np.isnan(resample(at, np.ones(5), 0.0, 100.0, 20)).sum() == 15
    joined = held(at, np.ones(5), 0.0, 100.0, 20, LATE * apart(at))
    assert not np.isnan(joined[:7]).any()
    assert np.isnan(joined[7:16]).all()
    assert not np.isnan(joined[16:]).any()


@pytest.mark.parametrize("phase", [0.0, 0.5, 0.985, 0.999])
@pytest.mark.parametrize("points", [40, 266, 600])
def test_readings_a_little_early_or_late_leave_no_hole_and_a_missing_one_does(phase: float, points: int) -> None:
    """A node that is busy reads up to a fifth of a second late, wherever its second begins."""
    late = np.random.default_rng(3).uniform(0.0, 0.2, 60)
    at = np.arange(60) + phase + late
    drawn = held(at, np.ones(60), phase, 60.0, points, LATE * apart(at))
    assert not np.isnan(drawn[points // 60 + 1 :]).any()
    gone = np.delete(at, [30, 31, 32])
    drawn = held(gone, np.ones(57), phase, 60.0, points, LATE * apart(gone))
    assert np.isnan(drawn).any()


def test_a_reading_that_was_asked_for_and_not_known_is_not_drawn_over() -> None:
    at = np.arange(10.0)
    values = np.where(at == 4, np.nan, 1.0)
    drawn = held(at, values, 0.0, 10.0, 40, LATE * apart(at))
    assert np.isnan(drawn[18:20]).all()
    assert not np.isnan(drawn[:16]).any()
    assert not np.isnan(drawn[20:]).any()


def test_a_bucket_stands_for_its_length_and_an_empty_one_is_a_hole() -> None:
    at = np.array([0.0, 10.0, 20.0, 30.0])
    drawn = held(at, np.array([1.0, np.nan, 3.0, 4.0]), 0.0, 50.0, 50, 10.0)
    assert (drawn[:10] == 1).all()
    assert np.isnan(drawn[10:20]).all()
    assert (drawn[30:40] == 4).all()
    assert np.isnan(drawn[40:]).all()


def test_no_data_is_no_chart() -> None:
    assert np.isnan(resample(np.empty(0), np.empty(0), 0.0, 1.0, 10)).all()
    assert spark(np.array([np.nan]), (0.0, 1.0), 4) == "    "
    assert len(spark(np.linspace(0, 1, 500), (0.0, 1.0), 30)) == 30


def test_words_are_spread_from_end_to_end() -> None:
    assert spread(["a", "b", "c"], 9) == "a   b   c"
    assert spread(["too long for it"], 5) == "     "


@pytest.mark.parametrize("width", [30, 80, 160])
def test_bars_line_up_and_say_when_more_than_full(width: int) -> None:
    bars = [
        Bar("PDU-17B", 1.12, "bar_crit", [("112%", "crit")]),
        Bar("a\x1b[2J" * 60, 0.5, "bar", [(" 50%", "")]),
        Bar("x", None, "bar", [("   —", "")]),
    ]
    drawn = text(bar_list(bars, width, 3))
    assert {cell_len(line) for line in drawn} == {width}
    assert "▶" in drawn[0]
    assert "\x1b" not in drawn[1]
    assert "█" not in drawn[2]
    assert text(bar_list(bars, width, 2))[-1].strip() == "and 2 more"
    assert bar_list(bars, width, 0) == []


def test_a_spark_without_room_is_nothing() -> None:
    """A card may be narrower than what it is drawn from."""
    assert spark(np.linspace(0, 1, 50), (0.0, 1.0), 0) == ""


def test_a_limit_leaves_every_dot_and_colours_those_on_its_line() -> None:
    values = np.linspace(400.0, 800.0, 66)
    bare = chart(values, (0.0, 800.0), 40, 6, lambda v: f"{v:.0f}")
    lined = chart(values, (0.0, 800.0), 40, 6, lambda v: f"{v:.0f}", [Mark(700.0, "cap")])
    assert [line.replace("┄", " ").replace("cap", "   ") for line in text(lined)] == text(bare)
    tones = {tone for piece, tone in lined[0] if "⣿" in piece}
    assert tones == {"warn"}


def test_the_name_of_a_limit_under_data_moves_to_a_free_line_or_is_left_out() -> None:
    drawn = text(chart(np.full(66, 640.0), (0.0, 800.0), 40, 6, str, [Mark(620.0, "cap")]))
    assert "cap" in drawn[0]
    assert "⣿" * 33 in drawn[1]
    full = text(chart(np.full(66, 800.0), (0.0, 800.0), 40, 1, str, [Mark(620.0, "cap")]))
    assert "cap" not in "".join(full)


@pytest.mark.parametrize("tall", [5, 8, 10, 11])
def test_the_middle_of_a_scale_is_half_of_it(tall: int) -> None:
    drawn = text(chart(np.full(66, 50.0), (0.0, 100.0), 40, tall, lambda v: f"{v:.0f}"))
    assert [line.split("┤")[0].strip() for line in drawn if line.split("┤")[0].strip()] == ["100", "50", "0"]


def test_bars_leave_a_gap_to_the_line_above() -> None:
    drawn = text(bar_list([Bar("a", 1.0, "bar", []), Bar("b", 0.5, "bar", [])], 40, 2))
    assert all("█" not in line and "▆" in line for line in drawn)
