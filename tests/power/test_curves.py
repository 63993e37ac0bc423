"""Efficiency curves of many machines: looked up, and the same as `np.interp`."""

from __future__ import annotations

import numpy as np
import pytest

from power.network.curves import _CELLS, _LOADS, _Interpolation

POINTS = {
    "few": (np.array([0.1, 0.2, 0.5, 1.0]), np.array([0.9, 0.94, 0.96, 0.95])),
    "many": (_LOADS * (1.02 + 0.05 * _LOADS), _LOADS),
    "one": (np.array([0.5]), np.array([0.94])),
    "narrow": (np.array([0.1, 0.1 + 1e-5, 1.0]), np.array([0.9, 0.92, 0.95])),
}


@pytest.mark.parametrize("name", POINTS)
def test_many_values_are_looked_up_as_few_are_searched(name: str) -> None:
    """At every knot, just beside each, beyond the ends, and where nothing is known."""
    at, values = POINTS[name]
    anywhere = np.random.default_rng(1).uniform(-0.5, 4.0, 3 * _CELLS)
    beside = [np.nextafter(at, 9.0), at, np.nextafter(at, -9.0), [np.nan, np.inf, -np.inf]]
    x = np.concatenate([anywhere, *beside])
    np.testing.assert_allclose(_Interpolation(at, values)(x), np.interp(x, at, values), rtol=1e-13, atol=1e-15)
