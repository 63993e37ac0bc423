"""Masks for readings that exceed a limit only by assumed power, so that no alert fires on an estimate.

A silent node counts with the power it may draw, so that plans leave room for it; nobody measured
that. Where a circuit would be above a level only by such watts, the quantity that rules evaluate is a
gap: unknown neither fires nor clears, so that a true alert stays open.
"""

from __future__ import annotations

import numpy as np

from power.live.loads import CircuitLoads
from power.wiring import Flags, Floats, highest_of_three

SLIGHT = 0.05
"""Assumed part of a load that is ignored: the model of the rest is less certain than that."""


def reported_load(load: Floats, watts: Floats, assumed: Floats) -> Floats:
    """Return the reported part of a load, in its own unit; `assumed` of `watts` was not reported."""
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where((assumed > 0) & (watts > 0), np.minimum(assumed / watts, 1.0), 0.0)
    result: Floats = load * (1 - part)
    return result


def uncertain(load: Floats, least: Floats) -> Flags:
    """Return where more than a slight part of a load is assumed; `least` is its reported part."""
    with np.errstate(invalid="ignore"):
        result: Flags = least < (1 - SLIGHT) * load
    return result


def mask_uncertain(ratio: Floats, least: Floats, clear: float | Floats, level: float) -> Floats:
    """Return a ratio, or a gap where it may or may not be above `level`: where it is above `clear`, and
    `least`, its reported part, is not above `level`."""
    with np.errstate(invalid="ignore"):
        unsure = uncertain(ratio, least) & (ratio > clear) & (least <= level)
    return np.where(unsure, np.nan, ratio)


def above(amps: Floats, reported: Floats, limit: Floats) -> Floats:
    """Return amps over a continuous limit; a gap where only assumed power exceeds it."""
    return mask_uncertain(amps / limit, reported / limit, 1.0, 1.0)


def heating_amps(loads: CircuitLoads, begun: Flags) -> Floats:
    """Return the amps for the breakers' heat, of the pole with the highest: a silent node counts with its last
    reported draw, not with all that it may draw. Heat never starts (`begun`) from a load that is mostly assumed."""
    with np.errstate(invalid="ignore"):
        begins = begun | (loads.reported_part >= 0.5)
    return np.where(begins, highest_of_three(loads.drawn_amps), np.nan)
