"""Numbers with their units have one wording each."""

from __future__ import annotations

import pytest

from present import units
from telemetry.metric import Unit


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
def test_power_has_the_unit_that_keeps_it_short(value: float | None, limit: float | None, line_text: str) -> None:
    assert units.watts_of(value, limit) == line_text


def test_a_missing_value_is_a_dash_and_nothing_is_a_zero() -> None:
    for as_text in (units.number, units.watts, units.percent, units.celsius, units.gibibytes):
        assert as_text(None) == "—"
        assert as_text(0.0) != "—"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (units.exact_watts(17_000.4), "17,000 W"), (units.exact_watts(0.44), "0.4 W"), (units.exact_watts(2.0), "2 W"),
        (units.watts_of(912, 1000, exact=True), "912/1,000 W"), (units.watts_change(-13_640), "-13.6 kW"),
        (units.amperes(16.0), "16 A"), (units.amperes(13.84), "13.8 A"), (units.amperes_change(9.3), "+9.3 A"),
        (units.percent(0.984), "98%"), (units.percent(0.0724, 1), "7.2%"), (units.percent_change(-0.12), "-12%"),
        (units.megahertz(1.98e9), "1,980 MHz"), (units.gigabits(5e10), "400 Gb/s"), (units.volts(230.0), "230 V"),
        (units.gibibytes(80 * 2**30), "80 GiB"), (units.gibibytes(3.5 * 2**30), "3.5 GiB"),
        (units.gibibytes_of(2**31, 80 * 2**30), "2/80 GiB"), (units.gibibytes_of(None, 2**30), "—/1 GiB"), (units.watts_of(None, 700, exact=True), "—/700 W"),
        (units.kilowatt_hours(0.00123), "0.0012 kWh"), (units.kilowatt_hours(0.61), "0.61 kWh"),
        (units.kilowatt_hours(1234.5), "1,234 kWh"), (units.kilowatt_hours(12_345), "12.3 MWh"),
        (units.kilowatt_hours(1234.5, exact=True), "1,234.5 kWh"), (units.energy(3.6e6), "1.00 kWh"),
        (units.kilograms(0.1234), "0.123 kg"), (units.kilograms(1234), "1,234 kg"),
        (units.money(7578.4, "USD"), "$7,578"), (units.money(0.031, "EUR"), "0.03 EUR"),
        (units.exact_money(7578.4, "USD"), "$7,578.40"), (units.exact_money(-0.5, "USD"), "-$0.50"), (units.exact_money(1234.5, "EUR"), "1,234.50 EUR"),
        (units.roughly("98%", partial=True), "~98%"), (units.roughly("—", partial=True), "—"),
        (units.rate_text("pcie", 1.82e11), "182 GB/s"), (units.rate_text("gemm", 6.12e14), "612 TFLOP/s"),
    ],
)  # fmt: skip
def test_a_number_has_one_form(text: str, wanted: str) -> None:
    assert text == wanted


@pytest.mark.parametrize(
    ("unit", "value", "wanted"),
    [
        (Unit.CELSIUS, 91.0, "91 °C"), (Unit.WATTS, 1150.0, "1,150 W"), (Unit.AMPERES, 47.25, "47.2 A"),
        (Unit.RATIO, 0.0724, "7.2%"), (Unit.RATIO, 5e-4, "0.0005"), (Unit.SECONDS, 4000.0, "67 min"),
        (Unit.HERTZ, 1.98e9, "1,980 MHz"), (Unit.BYTES, 2.0**31, "2 GiB"), (Unit.JOULES, 3.6e6, "1.00 kWh"),
        (Unit.FLAG, 1.0, "yes"), (Unit.STATE, 4.0, "active"), (Unit.STATE, 9.0, "state 9"), (Unit.COUNT, 3.0, "3"),
        (Unit.SECONDS, float("inf"), "never"), (Unit.WATTS, float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_a_reading_has_its_unit(unit: Unit, value: float, wanted: str) -> None:
    assert units.value_text(unit, [(4, "active")], value) == wanted
