"""The trip model against the standards' anchors and the published table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.devices.breaker import Curve, band, effective_amps
from power.devices.thermal import Element, cold, may_reset, seconds_to_trip, steady, step, used

EDGE = {"earliest": 0, "nominal": 1, "latest": 2}
NEVER = float("inf")


def trip(curve: Curve, rated: float, ratio: float, edge: str, before: float = 0.0) -> float:
    """Return seconds to trip at `ratio`, after hours at `before`."""
    element = Element.of([band(curve, rated)])
    heat = steady(np.array([before]))
    return float(seconds_to_trip(heat, np.array([ratio]), element)[0, EDGE[edge]])


@pytest.mark.parametrize(
    ("curve", "rated", "ratio", "edge", "seconds"),
    [
        (Curve.UL489, 20, 2.0, "earliest", 12),
        (Curve.UL489, 20, 2.0, "nominal", 38),
        (Curve.UL489, 20, 2.0, "latest", 120),
        (Curve.UL489, 20, 1.35, "latest", 61 * 60),
        (Curve.UL489, 50, 2.0, "latest", 240),
        (Curve.UL489, 100, 2.0, "latest", 360),
        (Curve.IEC_C, 16, 2.55, "earliest", 6),
        (Curve.IEC_C, 16, 2.0, "nominal", 34),
        (Curve.IEC_C, 16, 2.55, "latest", 60),
        (Curve.IEC_C, 63, 2.55, "latest", 120),
        (Curve.IEC_C, 16, 1.45, "latest", 3600),
    ],
)
def test_anchors(curve: Curve, rated: float, ratio: float, edge: str, seconds: float) -> None:
    """Within 2 %, or within half of the last digit that was printed."""
    assert trip(curve, rated, ratio, edge) == pytest.approx(seconds, rel=0.02, abs=0.5)


@pytest.mark.parametrize("rated", [15, 50, 100])
def test_what_must_hold_and_what_must_trip(rated: float) -> None:
    """100 % (1.13 for IEC) holds for ever; 135 % and 1.45 trip within the standard's time."""
    assert trip(Curve.UL489, rated, 1.0, "earliest") == NEVER
    assert trip(Curve.IEC_B, rated, 1.13, "earliest") == NEVER
    assert trip(Curve.IEC_60947, rated, 1.05, "earliest") == NEVER
    assert trip(Curve.UL489, rated, 1.35, "latest") < (3600 if rated <= 50 else 7200) * 1.02
    for curve, ratio in ((Curve.IEC_B, 1.45), (Curve.IEC_60947, 1.30)):
        assert trip(curve, rated, ratio, "latest") < (3600 if rated <= 63 else 7200) * 1.02


def test_an_overload_of_2_55_trips_no_earlier_than_a_second() -> None:
    """IEC 60898: cold, from 1 s to 60 s up to 32 A, to 120 s above."""
    for rated, most in ((16, 60), (32, 60), (40, 120), (63, 120)):
        assert trip(Curve.IEC_C, rated, 2.55, "earliest") > 1
        assert trip(Curve.IEC_C, rated, 2.55, "latest") <= most * 1.02


MINUTE = 60.0
TABLE = [  # ratio, curve, edge, cold, after 0.8; None is never
    (1.10, Curve.UL489, "earliest", 10 * MINUTE, 3 * MINUTE, MINUTE / 2),
    (1.20, Curve.UL489, "earliest", 96, 37, 0.5),
    (1.20, Curve.UL489, "nominal", 38 * MINUTE, 30 * MINUTE, MINUTE / 2),
    (1.20, Curve.IEC_C, "earliest", 8 * MINUTE, 2 * MINUTE, MINUTE / 2),
    (1.35, Curve.UL489, "earliest", 41, 19, 0.5),
    (1.35, Curve.UL489, "nominal", 206, 111, 0.5),
    (1.35, Curve.UL489, "latest", 61 * MINUTE, 52 * MINUTE, MINUTE / 2),
    (1.35, Curve.IEC_C, "earliest", 44, 23, 0.5),
    (1.50, Curve.UL489, "earliest", 27, 13, 0.5),
    (1.50, Curve.UL489, "nominal", 100, 60, 0.5),
    (1.50, Curve.UL489, "latest", 7.7 * MINUTE, 5.2 * MINUTE, 3),
    (1.50, Curve.IEC_C, "earliest", 25, 14, 0.5),
    (1.50, Curve.IEC_C, "latest", 24 * MINUTE, 17 * MINUTE, MINUTE / 2),
    (2.00, Curve.UL489, "earliest", 12, 5, 0.5),
    (2.00, Curve.UL489, "nominal", 38, 22, 0.5),
    (2.00, Curve.UL489, "latest", 120, 83, 0.5),
    (2.00, Curve.IEC_C, "earliest", 10, 5, 0.5),
    (2.00, Curve.IEC_C, "latest", 123, 90, 0.5),
]


@pytest.mark.parametrize(("ratio", "curve", "edge", "from_cold", "after_load", "digit"), TABLE)
def test_the_published_table(
    ratio: float, curve: Curve, edge: str, from_cold: float, after_load: float, digit: float
) -> None:
    """Within 2 % or half of the last printed digit."""
    assert trip(curve, 16, ratio, edge) == pytest.approx(from_cold, rel=0.02, abs=digit)
    warm = trip(curve, 16, ratio, edge, before=0.8)
    assert warm == pytest.approx(after_load, rel=0.02, abs=digit)


@pytest.mark.parametrize(
    ("ratio", "curve", "edge"),
    [
        (1.10, Curve.UL489, "nominal"),
        (1.10, Curve.UL489, "latest"),
        (1.20, Curve.UL489, "latest"),
        (1.10, Curve.IEC_C, "earliest"),
        (1.10, Curve.IEC_C, "latest"),
        (1.20, Curve.IEC_C, "latest"),
        (1.35, Curve.IEC_C, "latest"),
    ],
)
def test_what_the_table_calls_never(ratio: float, curve: Curve, edge: str) -> None:
    """Below the pick-up of an edge it does not trip, warm or cold."""
    assert trip(curve, 16, ratio, edge) == NEVER
    assert trip(curve, 16, ratio, edge, before=0.8) == NEVER


ELEMENT = Element.of([band(Curve.UL489, 20)])


@given(st.lists(st.floats(0.01, 900), min_size=1, max_size=20), st.floats(0, 2))
def test_irregular_sampling_gives_what_regular_sampling_gives(steps: list[float], ratio: float) -> None:
    """The step is exact for any interval."""
    amps = np.array([ratio])
    irregular = cold(1)
    for seconds in steps:
        irregular = step(irregular, amps, seconds, ELEMENT)
    regular = cold(1)
    for _ in range(50):
        regular = step(regular, amps, sum(steps) / 50, ELEMENT)
    assert np.allclose(used(irregular, ELEMENT), used(regular, ELEMENT), rtol=1e-9)


@given(st.floats(0.5, 3), st.floats(0.2, 2), st.floats(0, 1.5))
def test_the_time_to_trip_is_when_the_heat_is_there(ratio: float, before: float, since: float) -> None:
    """Also when the slow mass still cools from an older load."""
    heat = step(steady(np.array([before])), np.array([since]), 200, ELEMENT)
    amps = np.array([ratio])
    seconds = seconds_to_trip(heat, amps, ELEMENT)[0]
    for edge, after in enumerate(seconds):
        if 0 < after < NEVER:
            reached = used(step(heat, amps, after, ELEMENT), ELEMENT)[0, edge]
            assert reached == pytest.approx(1, abs=1e-6)


def test_cooling_only_falls_and_ends_in_a_reset() -> None:
    """Heat persists over a gap and cools with the same equation."""
    heat = steady(np.array([1.3]))
    assert not may_reset(heat, ELEMENT)[0]
    parts = []
    for _ in range(100):
        heat = step(heat, np.array([0.0]), 30, ELEMENT)
        parts.append(used(heat, ELEMENT)[0, 0])
    assert all(b < a for a, b in pairwise(parts))
    assert may_reset(heat, ELEMENT)[0]


@pytest.mark.parametrize(
    ("curve", "may", "must"),
    [(Curve.IEC_B, 3, 5), (Curve.IEC_C, 5, 10), (Curve.IEC_D, 10, 20), (Curve.IEC_K, 8, 14), (Curve.IEC_Z, 2, 3.6)],
)
def test_the_magnetic_region_is_in_the_band(curve: Curve, may: float, must: float) -> None:
    """B16 at 4 times its rating: from under 0.1 s, and not from 2 s."""
    assert trip(curve, 16, may * 0.999, "earliest") > 0.1
    assert trip(curve, 16, may, "earliest") < 0.1
    assert trip(curve, 16, must * 0.999, "latest") > 0.1
    assert trip(curve, 16, must, "latest") == pytest.approx(0.1)
    middle = (may + must) / 2
    assert trip(curve, 16, middle, "earliest") < 0.1 < trip(curve, 16, middle, "latest")


def test_no_magnetic_must_where_no_standard_fixes_one() -> None:
    """UL 489: some open at once from 5 times, and at 20 times none must by the standard."""
    assert trip(Curve.UL489, 20, 5, "earliest") < 0.1
    assert trip(Curve.UL489, 20, 20, "latest") > 0.1


def test_derating() -> None:
    """Heat takes from a rating and never adds; a hydraulic-magnetic breaker does not feel it."""
    assert effective_amps(16, Curve.IEC_C, 50) == pytest.approx(14.4)
    assert effective_amps(20, Curve.UL489, 10) == 20
    assert effective_amps(20, Curve.HYDRAULIC_MAGNETIC, 60) == 20
    assert effective_amps(20, Curve.HYDRAULIC_MAGNETIC, 60, 0.8) == 16
