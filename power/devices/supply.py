"""Power supplies: from watts inside the case to watts at the wall, by load.

The rows are the 80 PLUS minimum efficiencies; a supply that reports its input and output, or its own
efficiency table, beats them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise


class Tier(StrEnum):
    """80 PLUS grades."""

    WHITE = "white"
    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PLATINUM = "platinum"
    TITANIUM = "titanium"


Points = tuple[tuple[float, float], ...]
"""(load ratio, efficiency) in rising order of load."""


def _points(*percents: float) -> Points:
    loads = (0.1, 0.2, 0.5, 1.0)[-len(percents) :]
    return tuple((load, percent / 100) for load, percent in zip(loads, percents, strict=True))


_LOW = {
    Tier.WHITE: _points(80, 80, 80),
    Tier.BRONZE: _points(82, 85, 82),
    Tier.SILVER: _points(85, 88, 85),
    Tier.GOLD: _points(87, 90, 87),
    Tier.PLATINUM: _points(90, 92, 89),
    Tier.TITANIUM: _points(90, 92, 94, 90),
}
_HIGH = {
    Tier.WHITE: _points(82, 85, 82),
    Tier.BRONZE: _points(85, 88, 85),
    Tier.SILVER: _points(87, 90, 87),
    Tier.GOLD: _points(90, 92, 89),
    Tier.PLATINUM: _points(92, 94, 90),
    Tier.TITANIUM: _points(90, 94, 96, 94),
}
_REDUNDANT = {
    Tier.BRONZE: _points(81, 85, 81),
    Tier.SILVER: _points(85, 89, 85),
    Tier.GOLD: _points(88, 92, 88),
    Tier.PLATINUM: _points(90, 94, 91),
    Tier.TITANIUM: _points(90, 94, 96, 91),
}


LOW_LINE_VOLTS = 150.0
"""Highest input voltage of the low line: 100 to 127 V nominal."""


def points_of(tier: Tier, volts: float, *, redundant: bool = False) -> Points:
    """Return the efficiency points of a grade at this input voltage."""
    if volts <= LOW_LINE_VOLTS:
        return _LOW[tier]
    return _REDUNDANT.get(tier, _HIGH[tier]) if redundant else _HIGH[tier]


def efficiency(points: Points, load: float) -> float:
    """Return output over input at `load` (output over rating); 0 at no load.

    Below the first known point the losses stay what they are there, so the efficiency falls.
    """
    first_load, first = points[0]
    if load < first_load:
        losses = first_load * (1 / first - 1)
        return load / (load + losses)
    for (low, at_low), (high, at_high) in pairwise(points):
        if load <= high:
            return at_low + (at_high - at_low) * (load - low) / (high - low)
    return points[-1][1]


def wall_watts(dc_watts: float, points: Points, rated_watts: float | None, supplies: int = 1) -> float:
    """Return watts at the wall for `dc_watts` inside, shared evenly by `supplies` of one rating.

    With an unknown rating the efficiency at half load applies, which is a supply's best point.
    """
    if rated_watts is None:
        return dc_watts / efficiency(points, 0.5)
    rated = rated_watts * supplies
    first_load, first = points[0]
    if dc_watts < first_load * rated:
        return dc_watts + first_load * rated * (1 / first - 1)
    return dc_watts / efficiency(points, dc_watts / rated)


def dc_watts(at_wall: float, points: Points, rated_watts: float | None, supplies: int = 1) -> float:
    """Return the watts inside the case for `at_wall` watts; the inverse of `wall_watts`."""
    low, high = 0.0, at_wall
    for _ in range(60):
        middle = 0.5 * (low + high)
        if wall_watts(middle, points, rated_watts, supplies) > at_wall:
            high = middle
        else:
            low = middle
    return low


def set_load(dc: float, rated_watts: float, working: int, needed: int) -> float:
    """Return the load ratio of the supplies that must carry everything: the working ones less the spares."""
    carrying = min(working, needed)
    return float("inf") if carrying == 0 else dc / (rated_watts * carrying)


def check_points(points: Sequence[Sequence[float]]) -> Points:
    """Return the efficiency points of a configuration. Raises `ValueError` with the reason."""
    pairs = tuple((float(load), float(value)) for load, value in points)
    if not pairs or any(not 0 < load <= 1 or not 0 < value <= 1 for load, value in pairs):
        raise ValueError("each point is [load, efficiency], both above 0 and at most 1")
    if any(one[0] >= two[0] for one, two in pairwise(pairs)):
        raise ValueError("the loads must rise")
    return pairs
