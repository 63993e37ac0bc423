"""Thermal image of breakers (IEC 60255-149): heat of two masses, and the time until a trip.

Each mass follows the square of the current with its own time constant; the step is exact for any
interval, so irregular sampling gives what regular sampling gives, and cooling is the same equation.
Arrays: a leading shape of circuits (or poles of circuits), and a last axis of the three edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from power.devices.band import Band

Floats = npt.NDArray[np.float64]

FAST_SHARE = 0.75
"""Weight of the bimetal in the trip condition."""
RESET_BELOW = 0.5
"""Part of the trip heat below which a tripped breaker may be switched on."""
_STEPS = 48
"""Most steps to a root; by halves alone, an hour to a nanosecond."""
_CLOSE = 1e-11
"""Part of the trip heat, or of the time, to which a root is found."""


@dataclass(frozen=True, slots=True)
class Element:
    """The constants of many breakers; each array has the shape (circuits, 3 edges)."""

    pickup: Floats
    """NaN where the edge is not known."""
    fast_seconds: Floats
    slow_seconds: Floats
    laws: Floats
    """Further laws of each edge (from ratio, seconds there, exponent); shape (circuits, 3, laws, 3), inf
    where there is none."""

    @classmethod
    def of(cls, bands: list[Band]) -> Element:
        """Return the constants of these bands, one row each."""
        rows = np.array(
            [[(e.pickup, e.fast_seconds, e.slow_seconds) for e in band.edges()] for band in bands], dtype=float
        ).reshape(-1, 3, 3)
        most = max((len(e.laws) for band in bands for e in band.edges()), default=0)
        laws = np.full((len(bands), 3, most, 3), np.inf)
        for row, band in enumerate(bands):
            for number, edge in enumerate(band.edges()):
                for place, law in enumerate(edge.laws):
                    laws[row, number, place] = law.from_ratio, law.seconds, law.exponent
        return cls(rows[:, :, 0], rows[:, :, 1], rows[:, :, 2], laws)

    def part(self, rows: npt.NDArray[np.int64]) -> Element:
        """Return the constants of some breakers."""
        return Element(self.pickup[rows], self.fast_seconds[rows], self.slow_seconds[rows], self.laws[rows])


@dataclass(frozen=True, slots=True)
class Heat:
    """Heat of both masses, in units of the final heat at the effective rating, for each edge.

    Plain values: persist them with the time, and `step` them with a ratio of 0 over the gap.
    """

    fast: Floats
    slow: Floats


def cold(circuits: int) -> Heat:
    """Return the heat of breakers that have carried nothing for hours."""
    return Heat(np.zeros((circuits, 3)), np.zeros((circuits, 3)))


def steady(ratio: Floats) -> Heat:
    """Return the heat after hours at `ratio` (current over rating); shape (circuits,) in."""
    square = np.repeat(np.square(ratio)[:, None], 3, axis=1)
    return Heat(square, square.copy())


def step(heat: Heat, ratio: Floats, seconds: float | Floats, element: Element) -> Heat:
    """Return the heat after `seconds` (of all circuits, or one value each) at `ratio`, RMS current over
    effective rating; exact for any length."""
    square, passed = np.square(ratio)[:, None], np.asarray(seconds)[..., None]
    return Heat(
        heat.fast + (square - heat.fast) * -np.expm1(-passed / element.fast_seconds),
        heat.slow + (square - heat.slow) * -np.expm1(-passed / element.slow_seconds),
    )


def used(heat: Heat, element: Element) -> Floats:
    """Return the heat over the trip heat; 1 is a trip. Shape (circuits, 3)."""
    return _theta(heat.fast, heat.slow) / np.square(element.pickup)


def may_reset(heat: Heat, element: Element) -> npt.NDArray[np.bool_]:
    """Return whether each breaker is cool enough to be switched on again."""
    return np.asarray(used(heat, element).max(axis=1) < RESET_BELOW)


def seconds_to_trip(heat: Heat, ratio: Floats, element: Element) -> Floats:
    """Return seconds until each edge trips if `ratio` stays; inf is never, NaN not known. Shape
    (circuits, 3)."""
    square = np.broadcast_to(np.square(ratio)[:, None], heat.fast.shape)
    target = np.square(element.pickup)
    high, crosses = _bracket(heat, square, element, target)
    rows = np.flatnonzero(crosses.any(axis=1))
    if len(rows):
        part = Heat(heat.fast[rows], heat.slow[rows])
        high[rows] = _crossing(high[rows], part, square[rows], element.part(rows), target[rows])
    heated = _theta(heat.fast, heat.slow)
    seconds = np.where(heated >= target, 0.0, np.where(crosses, high, np.inf))
    seconds = np.minimum(seconds, _by_laws(ratio, heated / target, element))
    return np.where(np.isnan(target), np.nan, seconds)


def _crossing(high: Floats, heat: Heat, square: Floats, element: Element, target: Floats) -> Floats:
    """Return when the heat crosses `target`, which it has at `high`: by tangents from where it is below, and by
    halves where a tangent leaves the bracket."""
    fast, slow = FAST_SHARE * (heat.fast - square), (1 - FAST_SHARE) * (heat.slow - square)
    rest, low = square - target, np.zeros(square.shape)
    at = low
    for _ in range(_STEPS):
        of_fast = fast * np.exp(-at / element.fast_seconds)
        of_slow = slow * np.exp(-at / element.slow_seconds)
        left = rest + of_fast + of_slow
        above = left >= 0
        high, low = np.where(above, at, high), np.where(above, low, at)
        found = np.abs(left) <= _CLOSE * target
        if not ((high - low > _CLOSE * high) & ~found).any():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            tangent = at + left / (of_fast / element.fast_seconds + of_slow / element.slow_seconds)
        at = np.where((tangent > low) & (tangent < high), tangent, 0.5 * (low + high))
    return np.where(found, at, high)


def _by_laws(ratio: Floats, heated: Floats, element: Element) -> Floats:
    """Return the trip time by magnetic and other laws; inf where the current is below all of them.

    Heat shortens the earliest of them in proportion; at the latest edge it counts for nothing.
    """
    if not element.laws.shape[2]:
        return np.full(heated.shape, np.inf)
    start, at_start, exponent = np.moveaxis(element.laws, -1, 0)
    current = ratio[:, None, None]
    reached = current >= start
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        falls = np.where(reached, current / start, 1.0) ** -np.where(reached, exponent, 0.0)
    seconds = np.where(reached, at_start * falls, np.inf).min(axis=2)
    cold = 1.0 - np.clip(np.nan_to_num(heated[:, :1]), 0.0, 1.0)
    left = np.concatenate([cold, np.ones((len(ratio), 2))], axis=1)
    trips = np.isfinite(seconds)
    return np.where(trips, np.where(trips, seconds, 0.0) * left, np.inf)


def _bracket(heat: Heat, square: Floats, element: Element, target: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return a time after the heat has crossed `target`, and where it crosses at all.

    Either the end value lies above, or the fast mass heats while the slow one still cools from an
    earlier load, and their sum passes a peak on the way.
    """
    missing = np.maximum(square - np.minimum(heat.fast, heat.slow), 0.0)
    over = square - target
    ends_above = over > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        slowest = np.maximum(element.fast_seconds, element.slow_seconds)
        final = slowest * np.log(np.maximum(missing, over) / over)
        rising = FAST_SHARE * (square - heat.fast) / element.fast_seconds
        falling = (1 - FAST_SHARE) * (heat.slow - square) / element.slow_seconds
        peak = np.log(rising / falling) / (1 / element.fast_seconds - 1 / element.slow_seconds)
    peaks = (rising > 0) & (falling > 0) & (peak > 0) & np.isfinite(peak)
    peak = np.where(peaks, peak, 0.0)
    over_the_top = peaks & (_theta_at(peak, heat, square, element) >= target)
    final = np.where(ends_above, final + 1e-6, 0.0)
    return np.where(over_the_top, peak, final), ends_above | over_the_top


def _theta(fast: Floats, slow: Floats) -> Floats:
    return FAST_SHARE * fast + (1 - FAST_SHARE) * slow


def _theta_at(seconds: Floats, heat: Heat, square: Floats, element: Element) -> Floats:
    return _theta(
        square + (heat.fast - square) * np.exp(-seconds / element.fast_seconds),
        square + (heat.slow - square) * np.exp(-seconds / element.slow_seconds),
    )
