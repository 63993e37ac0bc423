"""Efficiency by load of what stands between the utility and the circuits: UPSs and transformers.

Each row is a published figure at one load, which a loss model turns into points over the load: losses that
are constant (magnetisation, electronics) and losses that rise with the load, or with its square in a
winding. The split is an estimate; a device's own table beats it (`check_points`). A floor-standing
distribution unit is its transformer; a rack's strip has no row, because no published figure of one is
known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from power.devices.supply import Points


class Conversion(StrEnum):
    """How a UPS converts."""

    DOUBLE_CONVERSION = "double-conversion"
    """A UPS that feeds its load from the inverter always (VFI)."""
    LINE_INTERACTIVE = "line-interactive"
    """A UPS that regulates the line's voltage (VI)."""
    ECO = "eco"
    """A UPS that passes the line through while it is good (VFD), or an offline one."""


TRANSFORMER = None
"""Kind of a row of no UPS."""


@dataclass(frozen=True, slots=True)
class ConversionRow:
    """The efficiency of one kind from a rating on."""

    kind: Conversion | None
    """`TRANSFORMER`: a three-phase dry-type transformer, or a distribution unit with one."""
    from_watts: float
    """Lowest rating that the row is for, watts (volt-amperes of a transformer)."""
    efficiency: Callable[[float], float]
    """Output over input at `at_load`, by the rating in watts."""
    at_load: float
    source: str


_ENERGY_STAR = "ENERGY STAR Uninterruptible Power Supplies 2.0: least average efficiency"
_DOE = "10 CFR 431.196, low-voltage dry-type, three-phase, from 2016: least efficiency at 35 % load"


def _at(percent: float) -> Callable[[float], float]:
    return lambda _watts: percent / 100


ROWS = (
    ConversionRow(
        Conversion.DOUBLE_CONVERSION, 0, lambda w: 0.0099 * math.log(w) + 0.815, 0.5, _ENERGY_STAR
    ),
    ConversionRow(
        Conversion.DOUBLE_CONVERSION, 10_000, lambda w: 0.0099 * math.log(w) + 0.805, 0.5, _ENERGY_STAR
    ),
    ConversionRow(Conversion.LINE_INTERACTIVE, 0, _at(96.7), 0.5, _ENERGY_STAR),
    ConversionRow(Conversion.LINE_INTERACTIVE, 10_000, _at(95.0), 0.5, _ENERGY_STAR),
    ConversionRow(Conversion.ECO, 0, _at(96.7), 0.5, _ENERGY_STAR),
    ConversionRow(Conversion.ECO, 1_500, _at(97.0), 0.5, _ENERGY_STAR),
    *(
        ConversionRow(TRANSFORMER, 1000 * kva, _at(percent), 0.35, _DOE)
        for kva, percent in (
            (0, 97.89), (30, 98.23), (45, 98.40), (75, 98.60), (112.5, 98.74), (150, 98.83),
            (225, 98.94), (300, 99.02), (500, 99.14), (750, 99.23), (1000, 99.28),
        )
    ),
)  # fmt: skip
"""In rising order of rating within a kind. The first row of transformers is that of 15 kVA."""

_LOADS = (0.05, 0.1, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0)


def row(kind: Conversion | None, rated_watts: float) -> ConversionRow:
    """Return the row of a device of this rating."""
    return [r for r in ROWS if r.kind is kind and r.from_watts <= rated_watts][-1]


def conversion_points(kind: Conversion | None, rated_watts: float) -> Points:
    """Return (load ratio, efficiency) of a device of this rating, for `supply.wall_watts` and its inverse.

    Half of the losses at the row's load are constant; the other half rises with the load in a UPS and with
    its square in a transformer. Raises `ValueError` for a rating that is not above 0.
    """
    if not rated_watts > 0:
        raise ValueError("a rating is above 0 W")
    found = row(kind, rated_watts)
    share = found.efficiency(rated_watts)
    lost = found.at_load * (1 / share - 1)
    power = 2 if kind is TRANSFORMER else 1
    return tuple((load, load / (load + 0.5 * lost * (1 + (load / found.at_load) ** power))) for load in _LOADS)
