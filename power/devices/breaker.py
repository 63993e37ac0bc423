"""Protective devices: trip bands by class and rating, the continuous limit of each class, and derating.

Only the latest edge rests on the standards; the earliest one is typical behaviour, which a hot or old
breaker can beat. Between them lies the geometric middle. A rating that a class does not know has no band:
`Band.known` is false, and no trip time is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from power.devices.band import EDGES, Band, Edge, between, magnetic, unknown
from power.devices.fuse import BS1362_SOURCE, GG_SOURCE, bs1362_band, gg_band
from power.devices.lsi import SOURCE as LSI_SOURCE
from power.devices.lsi import LsiSettings, lsi_band
from power.devices.mains import MAINS
from present.units import quoted

__all__ = ["DEVICE_CLASSES", "EDGES", "Band", "Curve", "Edge", "band", "continuous_ratio",
           "default_curve", "effective_amps", "latest_amps"]  # fmt: skip


class Curve(StrEnum):
    """The class of a protective device: its standard and, for IEC, its magnetic range."""

    UL489 = "UL489"
    IEC_B = "IEC-B"
    IEC_C = "IEC-C"
    IEC_D = "IEC-D"
    IEC_60947 = "IEC-60947"
    """An industrial breaker; its maker sets the curve within the standard's limits."""
    IEC_K = "IEC-K"
    IEC_Z = "IEC-Z"
    JIS = "JIS"
    """A Japanese breaker, which must trip at 1.25 times its rating."""
    BS1362 = "BS1362"
    """The fuse of a British plug."""
    GG = "gG"
    """A fuse-link of IEC 60269 for general use."""
    HYDRAULIC_MAGNETIC = "hydraulic-magnetic"
    """A breaker that ambient heat does not change."""
    LSI = "LSI"
    """An electronic trip unit; `lsi` has its settings."""
    UNKNOWN = "unknown"
    """A device of which no trip time is known."""


def _frames(
    earliest: Edge,
    pickup: float,
    rows: tuple[tuple[float, float, float], ...],
    nominal: dict[float, Edge],
    may: float,
    must: float | None,
) -> tuple[Band, ...]:
    """Return bands from (up to amps, fast, slow seconds of the latest edge)."""
    early, middle, late = magnetic(may, must)
    first = Edge(earliest.pickup, earliest.fast_seconds, earliest.slow_seconds, early)
    result = []
    for up_to, fast, slow in rows:
        latest = Edge(pickup, fast, slow, late)
        usual = nominal.get(up_to) or between(first, latest)
        usual = Edge(usual.pickup, usual.fast_seconds, usual.slow_seconds, middle)
        result.append(Band(up_to, first, usual, latest))
    return tuple(result)


# The latest edge takes what the 200 % test allows: 2, 4, 6 ... minutes by frame.
_FRAMES = (
    (150, 618.3, 2400), (225, 802.4, 2400), (400, 998.1, 2400), (600, 1205.3, 2400), (800, 1423.9, 2400),
    (1000, 1653.8, 2400), (1200, 1894.8, 2400), (1600, 2146.7, 2400), (2000, 2409.2, 2400),
    (2500, 2682.2, 2400), (5000, 2965.4, 2400),
)  # fmt: skip
_UL_EARLIEST = Edge(1.05, 27, 600)
_UL_USUAL = {
    30.0: Edge(1.19, 62, 850),
    50.0: Edge(1.19, 91, 850),
    100.0: Edge(1.19, 110, 1200),
    **{float(a): Edge(1.19, round(sqrt(27 * fast), 1), 1200) for a, fast, _ in _FRAMES},
}
_UL = _frames(_UL_EARLIEST, 1.342, ((30, 143, 1200), (50, 309, 1200), (100, 446, 2400), *_FRAMES), _UL_USUAL, 5.0, None)


def _iec_60898(may: float, must: float) -> tuple[Band, ...]:
    usual = {
        10.0: Edge(1.27, 46, 850),
        32.0: Edge(1.27, 46, 850),
        63.0: Edge(1.27, 66, 850),
        125.0: Edge(1.27, 66, 1200),
    }
    # A catalogue gives 10 A up to 210 s at twice the rating, which the standard does not fix.
    rows = ((10.0, 209.0, 1200.0), (32.0, 114.0, 1200.0), (63.0, 240.0, 1200.0), (125.0, 240.0, 2400.0))
    return _frames(Edge(1.13, 18.4, 600), 1.441, rows, usual, may, must)


def _iec_60947(may: float, must: float | None, up_to: float) -> tuple[Band, ...]:
    usual = {63.0: Edge(1.165, 62, 850), 100.0: Edge(1.165, 110, 1200)}
    usual |= {a: Edge(1.165, e.fast_seconds, 1200) for a, e in _UL_USUAL.items() if a > 100}
    rows = ((63, 143, 1200), (100, 446, 2400), *_FRAMES)
    return _frames(_UL_EARLIEST, 1.292, tuple(row for row in rows if row[0] <= up_to), usual, may, must)


_JIS = _frames(
    Edge(1.02, 27, 600), 1.242,
    (
        (30, 182.2, 1200), (50, 396.9, 1200), (100, 570.8, 2400), (225, 793.8, 2400), (400, 1033.4, 2400),
        (600, 1289.7, 2400), (800, 1563.0, 2400), (1000, 1853.2, 2400), (1200, 2160.5, 2400),
        (1600, 2484.8, 2400), (2000, 2826.1, 2400), (6000, 3184.2, 2400),
    ), {}, 5.0, None,
)  # fmt: skip
_HYDRAULIC = _frames(Edge(1.0, 1.0, 600), 1.342, ((30, 143, 1200), (50, 309, 1200), (100, 446, 2400)), {}, 1.001, None)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of protective devices."""

    source: str
    """Standard or catalogue that the rows rest on."""
    continuous: float | None
    """Continuous limit over rating by the installation code; None takes that of the region's breakers."""
    reference_celsius: float | None
    """Ambient up to which the rating holds; None where ambient heat changes nothing."""
    tested_celsius: float | None
    """Ambient of the test by which it must have tripped: a colder device trips later."""
    rows: tuple[Band, ...] = ()
    find: Callable[[float], Band] | None = None
    """For classes whose bands are no rows by rating."""
    inrush_ratio: float | None = None
    """Highest inrush over rating that does not open it, where that is not the band's instant region."""


_NEC = "continuous loads to 80 % of the rating (NEC 210.20(A))"
_IEC_CARRIES = "the rated current is carried without interruption"
_IEC_60898_SOURCE = (
    "IEC 60898-1: holds 1.13 and trips at 1.45 within 1 h, 2 h above 63 A; 2.55 within 60 s to 32 A, 120 s"
    f" above; to 125 A; {_IEC_CARRIES}"
)
_IEC_60947_SOURCE = (
    "IEC 60947-2: holds 1.05 and trips at 1.30 within 1 h, 2 h above 63 A; the fast part is that of UL 489,"
    f" because makers set it; {_IEC_CARRIES}"
)

DEVICE_CLASSES = {
    Curve.UL489: DeviceClass(
        "UL 489: holds 100 % at 40 degrees; at 25 degrees (Schneider, Compact NSF and NSJ, UL 489 test procedure)"
        " it trips at 135 % within 1 h, 2 h above 50 A; at 200 % within 2 min to 30 A, 4 to 50, 6 to 100, 8 to"
        " 150, 10 to 225, 12 to 400, 14 to 600, 16 to 800, 18 to 1,000, 20 to 1,200, 22 to 1,600, 24 to 2,000, 26"
        " to 2,500, 28 to 5,000 (those above 100 A: no public page was found that repeats them); no magnetic"
        f" range is fixed; {_NEC}",
        0.8, 40.0, 25.0, _UL,
    ),
    Curve.IEC_B: DeviceClass(f"{_IEC_60898_SOURCE}; magnetic 3 to 5", 1.0, 30.0, 30.0, _iec_60898(3, 5)),
    Curve.IEC_C: DeviceClass(f"{_IEC_60898_SOURCE}; magnetic 5 to 10", 1.0, 30.0, 30.0, _iec_60898(5, 10)),
    Curve.IEC_D: DeviceClass(f"{_IEC_60898_SOURCE}; magnetic 10 to 20", 1.0, 30.0, 30.0, _iec_60898(10, 20)),
    Curve.IEC_60947: DeviceClass(
        f"{_IEC_60947_SOURCE}; its magnetic part is adjustable", 1.0, 30.0, 30.0, _iec_60947(5, None, 1600)
    ),
    Curve.IEC_K: DeviceClass(
        f"{_IEC_60947_SOURCE}; makers of K: magnetic 8 to 12, or 10 to 14", 1.0, 30.0, 30.0, _iec_60947(8, 14, 100)
    ),
    Curve.IEC_Z: DeviceClass(
        f"{_IEC_60947_SOURCE}; makers of Z: magnetic 2 to 3, or 2.4 to 3.6", 1.0, 30.0, 30.0,
        _iec_60947(2, 3.6, 100),
    ),
    Curve.JIS: DeviceClass(
        "Japan, interpretation of the technical standards for electrical facilities, article 33: holds 100 %;"
        " trips at 125 % within 60 min, 120 min above 50 A; at 200 % within 2 min to 30 A, 4 to 50, 6 to 100,"
        " 8 to 225, 10 to 400, 12 to 600, 14 to 800, 16 to 1,000, 18 to 1,200, 20 to 1,600, 22 to 2,000, 24"
        " above, whatever the ambient; continuous loads to 80 % by practice; makers calibrate at 40 degrees,"
        " some at 25",
        0.8, 40.0, 25.0, _JIS,
    ),
    Curve.BS1362: DeviceClass(BS1362_SOURCE, 1.0, 40.0, 20.0, find=bs1362_band),
    Curve.GG: DeviceClass(GG_SOURCE, 1.0, 40.0, 20.0, find=gg_band),
    Curve.HYDRAULIC_MAGNETIC: DeviceClass(
        "Carling Technologies, time delay values at 25 degrees: holds 100 %, trips at 125 or 135 % by its delay;"
        " those of 150 % are not for UL 489; bears inrush of 12 times its rating for half a cycle; as a branch"
        " breaker within the limits of UL 489",
        None, None, None, _HYDRAULIC, inrush_ratio=12.0,
    ),
    Curve.LSI: DeviceClass(LSI_SOURCE, None, None, None),
    Curve.UNKNOWN: DeviceClass("", None, 30.0, 30.0),
}  # fmt: skip
"""Every class with its source."""
_DERATING_PER_CELSIUS = 0.005


def band(curve: Curve, rated_amps: float, lsi: LsiSettings | None = None) -> Band:
    """Return the trip band of a device of this rating; one that is not known outside its class."""
    if curve is Curve.LSI:
        return unknown("its settings are not configured (lsi)") if lsi is None else lsi_band(rated_amps, lsi)
    found = DEVICE_CLASSES[curve]
    if found.find is not None:
        return found.find(rated_amps)
    if not found.rows:
        return unknown("its curve is not known")
    top = found.rows[-1].up_to_amps
    return next(
        (row for row in found.rows if rated_amps <= row.up_to_amps),
        unknown(f"{quoted(rated_amps, 'A')} is above the {quoted(top, 'A')} that {curve.value} covers"),
    )


def inrush_ratio(curve: Curve, rows: Band) -> float:
    """Return the lowest short peak over rating that may open a device at once; NaN where not known."""
    return DEVICE_CLASSES[curve].inrush_ratio or rows.instant_ratio


def effective_amps(rated_amps: float, curve: Curve, ambient_celsius: float, grouping: float = 1.0) -> float:
    """Return the rating after derating for ambient heat and grouping; never above the rating."""
    reference = DEVICE_CLASSES[curve].reference_celsius
    heat = 1.0 if reference is None else 1.0 - _DERATING_PER_CELSIUS * (ambient_celsius - reference)
    return min(rated_amps, rated_amps * heat * grouping)


def latest_amps(rated_amps: float, curve: Curve, ambient_celsius: float) -> float:
    """Return the current that counts as the rating where a device must have tripped: never below the rating,
    because neighbours and heat may be less than assumed, and more in the cold, where it trips later."""
    tested = DEVICE_CLASSES[curve].tested_celsius
    cold = 0.0 if tested is None else _DERATING_PER_CELSIUS * (tested - ambient_celsius)
    return rated_amps * (1.0 + max(0.0, cold))


def default_curve(volts: float, region: str | None, rated_amps: float = 0.0) -> Curve:
    """Return the most likely class of a breaker of this region, voltage and rating."""
    if region is not None:
        usual = Curve(MAINS[region].breakers) if region in MAINS else Curve.IEC_C
    else:
        usual = Curve.UL489 if volts in {100, 120, 208, 240, 277, 480} else Curve.IEC_C
    top = DEVICE_CLASSES[usual].rows[-1].up_to_amps
    return Curve.IEC_60947 if usual is Curve.IEC_C and rated_amps > top else usual


def continuous_ratio(curve: Curve, volts: float, region: str | None) -> float:
    """Return the continuous limit over rating: what the code of the place lets a load draw for hours.

    The rated current of IEC devices is the continuous one; NEC allows 80 %.
    """
    own = DEVICE_CLASSES[curve].continuous
    return own or DEVICE_CLASSES[default_curve(volts, region)].continuous or 1.0
