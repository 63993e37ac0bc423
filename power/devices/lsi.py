"""Electronic trip units: long-time, short-time and instantaneous protection by their settings (LSI)."""

from __future__ import annotations

import msgspec

from power.devices.band import INSTANT_SECONDS, Band, Edge, Law, between

SOURCE = (
    "Schneider MasterPact NT/NW catalogue 0613CT0001, MicroLogic 5.0: trips between 1.05 and 1.20 Ir; at tr"
    " = 16 s 400 s at 1.5 Ir, 16 s at 6 Ir and 11 s at 7.2 Ir, less at most 30 % at 1.5 Ir and 20 % above;"
    " pick-ups of S and I within 10 %"
)
_PICKUP_TOLERANCE = 0.1


class LsiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dials of an electronic trip unit."""

    ir: float = 1.0
    """Long-time pick-up over the rating: the current that it carries."""
    tr: float = 16.0
    """Long-time delay: seconds at 6 Ir."""
    isd: float | None = None
    """Short-time pick-up over Ir. [off]"""
    tsd: float = 0.1
    """Short-time delay in seconds, at a definite time."""
    i2t: bool = False
    """Whether the short-time delay falls with the square of the current; the latest time is then that of
    the long-time part."""
    ii: float | None = None
    """Instantaneous pick-up over the rating. [off]"""


def check(settings: LsiSettings) -> None:
    """Refuse dials that no trip unit has. Raises `ValueError` with the reason."""
    for name, value, low, high in (
        ("ir", settings.ir, 0.2, 1.0),
        ("tr", settings.tr, 0.5, 150.0),
        ("isd", settings.isd, 1.2, 15.0),
        ("tsd", settings.tsd, 0.0, 1.0),
        ("ii", settings.ii, 1.2, 20.0),
    ):
        if value is not None and not low <= value <= high:
            raise ValueError(f"{name} = {value:g} is outside {low:g} to {high:g}")


def lsi_band(rated_amps: float, settings: LsiSettings) -> Band:
    """Return the band over Ir: ratios are of the current over `ir` times the rating.

    One heated mass: its time constant is 24.5 tr at the latest edge (tr at 6 Ir with a pick-up of 1.2) and
    25.7 tr at the earliest (0.8 tr at 6 Ir with one of 1.05).
    """
    low, high = 1 - _PICKUP_TOLERANCE, 1 + _PICKUP_TOLERANCE
    early: list[Law] = []
    late: list[Law] = []
    if settings.isd is not None:
        early.append(Law(low * settings.isd, 0.0))
        if not settings.i2t:
            late.append(Law(high * settings.isd, max(INSTANT_SECONDS, 1.4 * settings.tsd)))
    if settings.ii is not None:
        early.append(Law(low * settings.ii / settings.ir, 0.0))
        late.append(Law(high * settings.ii / settings.ir, INSTANT_SECONDS))
    first, last = 25.7 * settings.tr, 24.5 * settings.tr
    earliest = Edge(1.05, first, first, tuple(early))
    latest = Edge(1.2, last, last, tuple(late))
    return Band(rated_amps, earliest, between(earliest, latest), latest)
