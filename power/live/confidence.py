"""What a limit's rule must not believe: a load that is above it only by what nobody told.

A silent node counts with what it may draw, so that plans leave room for it. That is no measurement.
Where a circuit would be above a level only by such watts, what the rules judge is a gap there: unknown
neither fires nor clears, so nobody is woken by an assumption, and an alert that was true stays open.
"""

from __future__ import annotations

import numpy as np

from power.live.loads import CircuitLoads
from power.network.wiring import Flags, Floats

SLIGHT = 0.05
"""A smaller part that is assumed changes nothing: the best model of the rest is less sure than that."""


def reported_load(load: Floats, watts: Floats, assumed: Floats) -> Floats:
    """Return what of a load somebody told, in its own unit; `assumed` of `watts` nobody did."""
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where((assumed > 0) & (watts > 0), np.minimum(assumed / watts, 1.0), 0.0)
    result: Floats = load * (1 - part)
    return result


def uncertain(load: Floats, least: Floats) -> Flags:
    """Return where a load, of which `least` is told, is more than slightly assumed."""
    with np.errstate(invalid="ignore"):
        result: Flags = least < (1 - SLIGHT) * load
    return result


def mask_uncertain(ratio: Floats, least: Floats, clear: float | Floats, level: float) -> Floats:
    """Return a ratio, or a gap where nobody knows whether it is above `level`: it is above `clear`,
    and `least`, what of it somebody told, is not above `level`."""
    with np.errstate(invalid="ignore"):
        unsure = uncertain(ratio, least) & (ratio > clear) & (least <= level)
    return np.where(unsure, np.nan, ratio)


def above(amps: Floats, reported: Floats, limit: Floats) -> Floats:
    """Return amps over a continuous limit; a gap where nobody knows whether they are above it."""
    return mask_uncertain(amps / limit, reported / limit, 1.0, 1.0)


def heating_amps(loads: CircuitLoads, begun: Flags) -> Floats:
    """Return the amps that heat is reckoned with: what nobody tells counts with what it was when it was
    told last, not with all that it may be. Heat never begins (`begun`) from a load that is mostly
    assumed."""
    with np.errstate(invalid="ignore", divide="ignore"):
        surplus = np.where(loads.surplus > 0, loads.surplus / loads.watts, 0.0)
        begins = begun | (loads.assumed <= 0.5 * loads.watts)
    return np.where(begins, loads.highest * (1 - surplus), np.nan)
