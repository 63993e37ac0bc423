"""Poles and phases. Currents are phasors, so that loads of every kind add up exactly on a pole.

The reference voltages are unit vectors. A load from L1 to neutral puts its current on L1 along L1's
voltage; a load from L1 to L2 puts it on both, along the voltage between them and with opposite sign.
All loads of a circuit are assumed to have one power factor, which turns every phasor of it alike.
"""

from __future__ import annotations

import cmath
import math
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]

POLES = ("L1", "L2", "L3")
ROOT3 = 3.0**0.5
USUAL_POWER_FACTOR = 0.97
"""Power factor of computers' supplies under load."""


class Wiring(StrEnum):
    """How the conductors of a circuit or panel relate."""

    SINGLE = "single"
    """Single pole and neutral."""
    SPLIT = "split"
    """Two poles half a turn apart, with neutral: 120/240 V."""
    WYE = "3ph-wye"
    """Three poles and neutral; `volts` is between lines."""
    DELTA = "3ph-delta"
    """Three poles without neutral; `volts` is between lines."""


_THIRD = np.exp(-2j * np.pi / 3)
_SPLIT: Complex = np.array([1, -1, 0], dtype=complex)
_THREE: Complex = np.array([1, _THIRD, _THIRD**2], dtype=complex)


def voltages(wiring: Wiring) -> Complex:
    """Return the unit voltage of each of L1, L2, L3 to neutral."""
    return _SPLIT if wiring is Wiring.SPLIT else _THREE


def line_to_neutral(volts: float, wiring: Wiring, poles: int) -> float:
    """Return the voltage to neutral of a circuit that is described by `volts`."""
    if wiring in {Wiring.WYE, Wiring.DELTA} and poles > 1:
        return volts / ROOT3
    return volts / 2 if wiring is Wiring.SPLIT and poles > 1 else volts


def amps_per_watt(on: tuple[int, ...], volts_to_neutral: float, power_factor: float, wiring: Wiring) -> Complex:
    """Return the current phasor on each of L1, L2, L3 that one watt across the poles `on` causes.

    One pole: to neutral. Two: between them. Three: balanced. `on` counts from 0. Loads of different power
    factors are not in phase, so that their sum is less than that of their amps; angles are against loads of the
    usual power factor.
    """
    turned = voltages(wiring)
    current: Complex = np.zeros(3, dtype=complex)
    apparent = cmath.rect(1.0 / power_factor, math.acos(USUAL_POWER_FACTOR) - math.acos(power_factor))
    if len(on) == 2:
        first, second = on
        between = turned[first] - turned[second]
        direction = between / abs(between)
        branch = apparent / (volts_to_neutral * abs(between))
        current[first] += branch * direction
        current[second] -= branch * direction
        return current
    for pole in on:
        current[pole] = apparent / len(on) / volts_to_neutral * turned[pole]
    return current


def neutral_amps(pole_currents: Complex, third_harmonic: Floats | float = 0.0) -> Floats:
    """Return the neutral's amps; shape (..., 3) in, (...) out. Line-to-line loads cancel.

    `third_harmonic`: amps of the third harmonic over those of a pole, shape (...): on the neutral those of all three
    poles add up, as the third harmonics of three phases are in phase.
    """
    amps: Floats = np.hypot(np.abs(pole_currents.sum(axis=-1)), third_harmonic * np.abs(pole_currents).sum(axis=-1))
    return amps


def highest_of_three(values: Floats) -> Floats:
    """Return the highest value of the last axis, which has three; NaN where one is. NumPy's own maximum of rows so
    short takes ten times as long."""
    highest: Floats = np.maximum(np.maximum(values[..., 0], values[..., 1]), values[..., 2])
    return highest


def imbalance(amps: Floats) -> Floats:
    """Return max abs(I - mean) / mean over the last axis as a ratio; 0 where nothing flows."""
    mean = amps.mean(axis=-1)
    spread = np.abs(amps - mean[..., None]).max(axis=-1)
    ratio: Floats = np.divide(spread, mean, out=np.zeros_like(mean), where=mean > 0)
    return ratio
