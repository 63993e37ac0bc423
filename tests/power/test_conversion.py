"""Efficiency of UPSs and transformers by load, against the figures that their rows name."""

from __future__ import annotations

from itertools import pairwise

import pytest

from power.devices.conversion import ROWS, TRANSFORMER, Conversion, conversion_points
from power.devices.supply import dc_watts, efficiency, wall_watts
from power.site.decode import decode
from telemetry.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "rated", "load", "least"),
    [
        (TRANSFORMER, 15_000, 0.35, 0.9789),
        (TRANSFORMER, 75_000, 0.35, 0.9860),
        (TRANSFORMER, 150_000, 0.35, 0.9883),
        (TRANSFORMER, 1_000_000, 0.35, 0.9928),
        (Conversion.DOUBLE_CONVERSION, 3_000, 0.5, 0.8943),
        (Conversion.DOUBLE_CONVERSION, 100_000, 0.5, 0.9190),
        (Conversion.LINE_INTERACTIVE, 1_000, 0.5, 0.967),
        (Conversion.ECO, 300, 0.5, 0.967),
    ],
)
def test_the_published_figure(kind: Conversion | None, rated: float, load: float, least: float) -> None:
    """At the load for which it is published."""
    assert efficiency(conversion_points(kind, rated), load) == pytest.approx(least, abs=0.0002)


@pytest.mark.parametrize("kind", [*Conversion, TRANSFORMER])
@pytest.mark.parametrize("rated", [500.0, 20_000.0, 500_000.0])
def test_losses_rise_with_the_load_and_never_vanish(kind: Conversion | None, rated: float) -> None:
    """From nothing to full load, and the inverse gives the load back."""
    points = conversion_points(kind, rated)
    loads = [0.0, 0.03, 0.1, 0.3, 0.6, 1.0]
    losses = [wall_watts(x * rated, points, rated) - x * rated for x in loads]
    assert losses[0] > 0
    assert all(b > a - 1e-9 for a, b in pairwise(losses))
    for load in loads[1:]:
        wall = wall_watts(load * rated, points, rated)
        assert dc_watts(wall, points, rated) == pytest.approx(load * rated, rel=1e-6)


def test_each_row_names_its_source_and_a_rating_is_needed() -> None:
    """And the rows of a kind stand in rising order."""
    for kind in (*Conversion, TRANSFORMER):
        ratings = [row.from_watts for row in ROWS if row.kind is kind]
        assert ratings == sorted(ratings)
        assert ratings[0] == 0
    assert all(row.source for row in ROWS)
    with pytest.raises(ValueError, match="above 0 W"):
        conversion_points(Conversion.ECO, 0)


def test_a_ups_is_no_transformer() -> None:
    """Its losses would be those of a winding; the words that it may have are in the answer."""
    site = {"ups": {"u": {"watts": 3000, "conversion": "transformer"}}}
    with pytest.raises(ConfigError, match="double-conversion") as found:
        decode("site.toml", site)
    assert "ups.u.conversion" in str(found.value)
