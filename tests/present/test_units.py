"""Numbers with their units have one wording each."""

from __future__ import annotations

import pytest

from present import units


@pytest.mark.parametrize(
    ("value", "limit", "line_text"),
    [
        (None, None, "—"),
        (None, 700, "—"),
        (0.0, None, "0 W"),
        (412.4, None, "412 W"),
        (999.6, None, "1.0 kW"),
        (11_240, None, "11.2 kW"),
        (999_600, None, "1.00 MW"),
        (6_930_000, 8_400_000, "6.93/8.40 MW"),
        (412, 700, "412/700 W"),
        (650, 11_200, "0.7/11.2 kW"),
    ],
)
def test_power_has_the_unit_that_keeps_it_short(
    value: float | None, limit: float | None, line_text: str
) -> None:
    assert units.watts_of(value, limit) == line_text


def test_a_missing_value_is_a_dash_and_nothing_is_a_zero() -> None:
    for as_text in (
        units.number,
        units.watts,
        units.percent,
        units.celsius,
        units.gibibytes,
    ):
        assert as_text(None) == "—"
        assert as_text(0.0) != "—"
