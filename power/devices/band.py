"""Trip bands: between the earliest and the latest moment at which a protective device opens a circuit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, nan, sqrt

EDGES = ("earliest", "nominal", "latest")

INSTANT_SECONDS = 0.1
"""Longest time of an immediate trip by the standards."""


@dataclass(frozen=True, slots=True)
class Law:
    """A trip time of its own from some current on, beside the heat: magnetic, short-time, adiabatic."""

    from_ratio: float
    """Current over rating from which it holds."""
    seconds: float
    """Trip time at `from_ratio`."""
    exponent: float = 0.0
    """Power of the current that the time falls with; 0 is a definite time."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of a trip band: pick-up ratio, the time constants of two heated masses, and further laws."""

    pickup: float
    """Highest current over rating that never trips; NaN where the edge is not known."""
    fast_seconds: float
    """Time constant of the bimetal."""
    slow_seconds: float
    """Time constant of case and conductor."""
    laws: tuple[Law, ...] = ()
    """The first to trip counts."""

    def over(self, part: float) -> Edge:
        """Return this edge with its currents over `part` of the rating."""
        laws = tuple(replace(law, from_ratio=law.from_ratio / part) for law in self.laws)
        return replace(self, pickup=self.pickup / part, laws=laws)


@dataclass(frozen=True, slots=True)
class Band:
    """The trip band of devices up to `up_to_amps`."""

    up_to_amps: float
    earliest: Edge
    nominal: Edge
    latest: Edge
    why_unknown: str = ""
    """Reason why there is no band; empty where there is one."""

    @property
    def known(self) -> bool:
        """Whether it says anything about trip times."""
        return not self.why_unknown

    @property
    def instant_ratio(self) -> float:
        """Lowest current over rating that may open it within 0.1 s; NaN where that is not known."""
        found = [
            law.from_ratio
            if law.seconds <= INSTANT_SECONDS
            else law.from_ratio * (law.seconds / INSTANT_SECONDS) ** (1 / law.exponent)
            for law in self.earliest.laws
            if law.seconds <= INSTANT_SECONDS or law.exponent > 0
        ]
        return min(found, default=nan)

    def derated(self, effective: float, tested: float) -> Band:
        """Return this band over the `effective` rating, amps: its earliest and nominal edges are derated, the
        latest one is not, as it is promised of the rating without neighbours and heat (`tested`, amps). Laws
        beside the heat, a magnet's for example, are derated at the earliest edge only."""
        if effective == tested:
            return self
        part = effective / tested
        nominal = replace(self.nominal, laws=self.nominal.over(part).laws)
        return replace(self, nominal=nominal, latest=self.latest.over(part))

    def edges(self) -> tuple[Edge, Edge, Edge]:
        """Return the three edges in the order of `EDGES`."""
        return self.earliest, self.nominal, self.latest


def unknown(why: str) -> Band:
    """Return the band of a device of which no trip time is known, with the reason."""
    # The time constants keep its heat a number; without a pick-up it is a part of nothing.
    edge = Edge(nan, 60.0, 1000.0)
    return Band(inf, edge, edge, edge, why)


def magnetic(may: float, must: float | None) -> tuple[tuple[Law, ...], tuple[Law, ...], tuple[Law, ...]]:
    """Return the laws of the three edges of a magnetic part: from `may` on it can trip at once, from
    `must` on it does; None where no standard fixes that."""
    middle = sqrt(may * (2 * may if must is None else must))
    return ((Law(may, 0.0),), (Law(middle, INSTANT_SECONDS),), () if must is None else (Law(must, INSTANT_SECONDS),))


def between(earliest: Edge, latest: Edge) -> Edge:
    """Return the geometric middle of two edges, as the nominal one; with the laws of the latest."""
    return Edge(
        round(sqrt(earliest.pickup * latest.pickup), 4),
        round(sqrt(earliest.fast_seconds * latest.fast_seconds), 2),
        round(sqrt(earliest.slow_seconds * latest.slow_seconds), 1),
        latest.laws,
    )
