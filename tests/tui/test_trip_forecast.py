"""The fan: what a load may become, drawn beside what it was, with limits and the predicted trip."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

from api.power import CircuitState, TripSeconds
from tui.kit.chart import Mark
from tui.kit.trip_forecast import Fan, Flag, axis, fan_chart, fan_of
from tui.screens.load_history import horizon, past_lines, stands

SECONDS = np.arange(300.0)
LIMITS = [Mark(60.0, "continuous limit", "warn"), Mark(80.0, "breaker", "crit")]


def text(lines: list) -> list[str]:
    """Every line without its tones."""
    return ["".join(piece for piece, _ in line) for line in lines]


def toned(lines: list, tone: str) -> str:
    """All that is drawn in a tone."""
    return "".join(piece for line in lines for piece, its in line if its == tone)


def test_a_steady_rise_is_followed_and_the_fan_opens_with_time() -> None:
    noise = np.random.default_rng(5).normal(0, 2, 300)
    fan = fan_of(SECONDS, 1000 + 5 * SECONDS + noise)
    assert fan is not None
    assert fan.per_second == pytest.approx(5, rel=0.02)
    assert fan.middle(np.array([60.0]))[0] == pytest.approx(1000 + 5 * 359, rel=0.01)
    near, far = fan.half(np.array([10.0, 600.0]))
    assert 0 < near < far


def test_a_level_load_stays_level_and_as_wide_as_it_scatters() -> None:
    fan = fan_of(SECONDS, np.random.default_rng(5).normal(1000, 50, 300))
    assert fan is not None
    assert fan.per_second == 0
    assert fan.middle(np.array([0.0, 500.0])).tolist() == [fan.level, fan.level]


@pytest.mark.parametrize("values", [np.full(300, np.nan), np.array([1.0] * 10 + [np.nan] * 290)])
def test_too_few_readings_foresee_nothing(values: np.ndarray) -> None:
    assert fan_of(SECONDS, values) is None


def test_the_picture_has_limits_now_and_the_fan_and_the_trip() -> None:
    fan = Fan(level=50.0, per_second=0.5, scatter=2.0, error=0.0, lever=0.0)
    drawn = fan_chart(
        np.full(60, 50.0), fan, 100.0, (0.0, 100.0), 57, 10, lambda v: f"{v:.0f}", LIMITS, Flag(50.0, 75.0)
    )
    lines = text(drawn)
    assert {cell_len(line) for line in lines} == {57}
    assert [line[7 + 30] for line in lines] == ["│"] * 10
    assert lines[0].index("▼") == 7 + 31 + 9
    assert "▼─────⣠" in lines[0]
    assert all(line[7 + 31 + 9] == "┊" for line in lines[1:])
    assert next(line for line in lines if " continuous limit │" in line)[7] == "┄"
    assert next(line for line in lines if " breaker │" in line)[7] == "┄"
    future = [line[7 + 31 :] for line in lines]
    highest_first = [next(y for y, line in enumerate(future) if line[x] > "\u2800") for x in (0, 18)]
    assert highest_first[1] < highest_first[0]
    braille = {c for c in toned(drawn, "bar_crit") if c > "\u2800"}
    assert braille, "what is foreseen above the breaker has its tone"


def test_a_limit_is_seen_through_a_load_that_is_above_it() -> None:
    drawn = fan_chart(np.full(60, 99.0), None, 100.0, (0.0, 100.0), 57, 10, str, LIMITS)
    crossed = [line for line in drawn if any("┄" in piece for piece, _ in line)]
    assert len(crossed) == len(LIMITS)
    assert all("⣿" * 30 in "".join(piece for piece, _ in line) for line in crossed)
    assert {tone for line in crossed for piece, tone in line if "⣿" in piece} == {"warn", "crit"}
    assert [line[7] for line in text(drawn)].count("⣿") == 10
    assert "continuous limit" in "".join(text(drawn))


def test_no_fan_is_no_guess() -> None:
    drawn = fan_chart(np.full(60, 50.0), None, 100.0, (0.0, 100.0), 57, 6, str, LIMITS)
    assert not [c for line in text(drawn) for c in line[7 + 31 :] if c > "\u2800"]


@pytest.mark.parametrize(("width", "height"), [(8, 1), (12, 2), (30, 4), (200, 30)])
def test_any_size_is_drawn_exactly(width: int, height: int) -> None:
    fan = Fan(50.0, 0.5, 20.0, 0.1, 60.0)
    drawn = text(
        fan_chart(
            np.full(width, 50.0),
            fan,
            100.0,
            (0.0, 100.0),
            width,
            height,
            lambda v: f"{v:.0f}",
            LIMITS,
            Flag(99.9, None),
        )
    )
    assert len(drawn) == height
    assert {cell_len(line) for line in drawn} == {max(11, width)}


def test_words_below_stand_at_their_place_and_never_on_each_other() -> None:
    assert axis([(10, "now"), (19, "+3m"), (11, "12:00")], 20) == "         now     +3m"
    assert axis([(0, "far too long a word")], 5) == "     "


CIRCUIT = CircuitState(
    "PDU-1",
    watts=6000.0,
    amps={"L1": 50.0},
    rated_amps=80.0,
    continuous_amps=64.0,
    effective_amps=72.0,
    load_ratio=0.625,
    sustained_ratio=0.625,
    trip_seconds=TripSeconds(120.0, 200.0, 300.0),
)


def test_a_circuits_picture_names_its_limits_and_the_instant_of_the_trip() -> None:
    at = 1_790_000_000_000_000_000 + (SECONDS * 1e9).astype(np.int64)
    drawn = text(past_lines(CIRCUIT, (at, np.full(300, 6000.0)), 90, 14, utc=True))
    assert "PDU-1 load W" in drawn[0]
    assert "5m to now" in drawn[0]
    assert "no trend" in drawn[0]
    for word in (" continuous limit │", " breaker in this heat │", " breaker │"):
        assert any(word in line for line in drawn), word
    assert "▼" in drawn[1]
    assert "may trip 14:20:19Z" in drawn[-1]
    assert all(cell_len(line) <= 90 for line in drawn)
    short = text(past_lines(CIRCUIT, (at, np.full(300, 6000.0)), 90, 14, utc=True, within=60))
    assert "3m to now" in short[0], "a trip that is near widens the picture"
    few = text(past_lines(CIRCUIT, (at[:4], np.full(4, 6000.0)), 90, 14, utc=True))
    assert few == ["PDU-1 load W  under five samples yet"]


def test_stored_loads_are_coarser_than_seen_ones_and_neither_has_gaps() -> None:
    at = np.concatenate([np.arange(0.0, 300, 10), np.arange(300.0, 400)])
    assert (stands(at)[:30] == 15).all()
    assert (stands(at)[30:] == 1.5).all()
    gone = np.delete(at, slice(10, 13))
    assert stands(gone).max() == 15, "a gap makes nothing stand longer"
    assert stands(at[:1]).tolist() == [0.0]


def test_the_picture_looks_ahead_as_far_as_it_is_of_use() -> None:
    assert horizon(900.0, None) == 225
    assert horizon(86_400.0, None) == 600
    assert horizon(900.0, 300.0) == pytest.approx(390)
    assert horizon(60.0, 7200.0) == 15
