"""Breakers: the standards' trip bands as rows, the continuous limit, and derating.

Only the latest edge rests on the standards (UL 489, IEC 60898-1); the earliest one is typical
behaviour, which a hot or old breaker can beat. Between them lies the geometric middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

EDGES = ("earliest", "nominal", "latest")


class Curve(StrEnum):
    """The standard that a breaker follows and, for IEC, its magnetic class."""

    UL489 = "UL489"
    IEC_B = "IEC-B"
    IEC_C = "IEC-C"
    IEC_D = "IEC-D"
    IEC_60947 = "IEC-60947"
    """An industrial breaker; its maker sets the curve within the standard's limits."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of a trip band: pick-up ratio and the time constants of the two heated masses."""

    pickup: float
    """Highest current over rating that never trips."""
    fast_seconds: float
    """Time constant of the bimetal."""
    slow_seconds: float
    """Time constant of case and conductor."""


@dataclass(frozen=True, slots=True)
class Band:
    """A trip band of breakers up to `up_to_amps`."""

    up_to_amps: float
    earliest: Edge
    nominal: Edge
    latest: Edge

    def edges(self) -> tuple[Edge, Edge, Edge]:
        """Return the three edges in the order of `EDGES`."""
        return self.earliest, self.nominal, self.latest


_UL_EARLIEST = Edge(1.05, 27, 600)
_IEC_EARLIEST = Edge(1.13, 18.4, 600)
UL489 = (
    Band(30, _UL_EARLIEST, Edge(1.19, 62, 850), Edge(1.342, 143, 1200)),
    Band(50, _UL_EARLIEST, Edge(1.19, 91, 850), Edge(1.342, 309, 1200)),
    Band(float("inf"), _UL_EARLIEST, Edge(1.19, 110, 1200), Edge(1.342, 446, 2400)),
)
"""Must trip at 135 % within 1 h (2 h above 50 A) and at 200 % within 2, 4 or 6 minutes."""
IEC60898 = (
    Band(32, _IEC_EARLIEST, Edge(1.27, 46, 850), Edge(1.441, 114, 1200)),
    Band(63, _IEC_EARLIEST, Edge(1.27, 66, 850), Edge(1.441, 240, 1200)),
    Band(float("inf"), _IEC_EARLIEST, Edge(1.27, 66, 1200), Edge(1.441, 240, 2400)),
)
"""Must trip at 1.45 within 1 h (2 h above 63 A) and at 2.55 within 60 s (120 s above 32 A)."""
IEC60947 = (
    Band(63, _UL_EARLIEST, Edge(1.165, 62, 850), Edge(1.292, 143, 1200)),
    Band(float("inf"), _UL_EARLIEST, Edge(1.165, 110, 1200), Edge(1.292, 446, 2400)),
)
"""Must hold 1.05 and trip at 1.30 within 1 h (2 h above 63 A); the fast part is that of UL 489."""
_ROWS = {Curve.UL489: UL489, Curve.IEC_60947: IEC60947}

MAGNETIC = {
    Curve.UL489: (5.0, 10.0),
    Curve.IEC_B: (3.0, 5.0),
    Curve.IEC_C: (5.0, 10.0),
    Curve.IEC_D: (10.0, 20.0),
    Curve.IEC_60947: (8.0, 12.0),
}
"""Multiples of the rating: from the first it may trip at once, from the second it must."""
_REFERENCE_CELSIUS = {Curve.UL489: 40.0}
_DERATING_PER_CELSIUS = 0.005


class Magnetic(StrEnum):
    """Behaviour of the magnetic part at a peak."""

    HOLDS = "holds"
    MAY_TRIP = "may trip"
    MUST_TRIP = "must trip"


def band(curve: Curve, rated_amps: float) -> Band:
    """Return the trip band of a breaker of this rating."""
    rows = _ROWS.get(curve, IEC60898)
    return next(row for row in rows if rated_amps <= row.up_to_amps)


def effective_amps(
    rated_amps: float, curve: Curve, ambient_celsius: float, grouping: float = 1.0
) -> float:
    """Return the rating after derating for ambient heat and grouping; never above the rating."""
    reference = _REFERENCE_CELSIUS.get(curve, 30.0)
    heat = 1.0 - _DERATING_PER_CELSIUS * (ambient_celsius - reference)
    return min(rated_amps, rated_amps * heat * grouping)


def magnetic(peak_ratio: float, curve: Curve) -> Magnetic:
    """Return what a peak of `peak_ratio` times the rating does."""
    may, must = MAGNETIC[curve]
    if peak_ratio >= must:
        return Magnetic.MUST_TRIP
    return Magnetic.MAY_TRIP if peak_ratio >= may else Magnetic.HOLDS


HOME_VOLTS = {
    **dict.fromkeys(("US", "CA", "NA", "PR", "VE", "CO", "EC", "CR", "DO", "GT", "HN", "NI", "PA", "SV"),
                    120.0),
    "MX": 127.0, "TW": 110.0, "JP": 100.0,
}  # fmt: skip
"""Nominal volts of regions without 230 V; their breakers follow UL 489."""


def default_curve(volts: float, region: str | None) -> Curve:
    """Return the most likely curve of a breaker of this region."""
    if region is not None:
        return Curve.UL489 if region in HOME_VOLTS else Curve.IEC_C
    return Curve.UL489 if volts in {100, 120, 208, 240, 277, 480} else Curve.IEC_C
