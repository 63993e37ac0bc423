"""Wall power of a node: from the best source available, else from a model, always with its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from power.devices.supply import Points, wall_watts


class WallSource(StrEnum):
    """Sources of wall power, best first."""

    CIRCUIT_METER = "circuit meter"
    PDU = "pdu"
    PLUG = "plug"
    BMC = "bmc"
    UPS = "ups"
    MODEL = "model"
    """GPU watts by the driver, plus a model of the host."""
    COMMITTED = "committed"
    """Power commitment of a silent node that is not off."""


SIGMA_RATIO = {
    WallSource.CIRCUIT_METER: 0.01,
    WallSource.PDU: 0.01,
    WallSource.PLUG: 0.02,
    WallSource.BMC: 0.04,
    WallSource.UPS: 0.04,
    WallSource.MODEL: 0.12,
    WallSource.COMMITTED: 0.12,
}
"""Standard deviation of each source, as a part of its value."""
STALE_PENALTY = 0.15
"""Added uncertainty while a better source is stale."""
COMMITTED_SECONDS = 300.0
"""Seconds for which a silent node is assumed to draw its power commitment."""


@dataclass(frozen=True, slots=True)
class WallReading:
    """A power reading of one source with its time."""

    watts: float
    at: float
    """Seconds."""
    period: float
    """Seconds between its readings."""


@dataclass(frozen=True, slots=True)
class WallEstimate:
    """Watts at the wall, with one standard deviation and its origin."""

    watts: float
    sigma_watts: float
    source: WallSource
    degraded: bool = False
    """Whether a better source is configured and stale."""


def best(readings: Mapping[WallSource, WallReading], now: float) -> WallEstimate | None:
    """Return the best fresh reading; None when all are stale. Stale is 3 periods, 30 s at least."""
    degraded = False
    for source in WallSource:
        reading = readings.get(source)
        if reading is None:
            continue
        if now - reading.at > max(3 * reading.period, 30.0):
            degraded = True
            continue
        # A clamp around the wrong way reads negative; the power is the same.
        watts = abs(reading.watts)
        ratio = SIGMA_RATIO[source] + (STALE_PENALTY if degraded else 0.0)
        return WallEstimate(watts, ratio * watts, source, degraded)
    return None


def of_silent_node(
    last_heard: float, committed_watts: float, last: WallEstimate | None, now: float
) -> WallEstimate | None:
    """Return the assumed power of a silent node: its power commitment for 5 min, then its last draw.

    None where neither is known, never 0.
    """
    if now - last_heard <= COMMITTED_SECONDS or last is None:
        sigma = SIGMA_RATIO[WallSource.COMMITTED] * committed_watts
        return WallEstimate(committed_watts, sigma, WallSource.COMMITTED, degraded=True)
    return WallEstimate(
        last.watts, STALE_PENALTY * last.watts + last.sigma_watts, last.source, True
    )


def model(
    gpu_watts: Sequence[float],
    *,
    base_watts: float,
    cpu_watts: float = 0.0,
    module_scope: bool = False,
    points: Points,
    rated_watts: float | None = None,
    supplies: int = 1,
) -> WallEstimate:
    """Return wall watts from GPU watts. `base_watts` is fans, board, disks and network.

    With `module_scope` the GPU readings cover CPU and GPU together (GH200 and its like): the CPU is
    not added again.
    """
    inside = sum(gpu_watts) + base_watts + (0.0 if module_scope else cpu_watts)
    watts = wall_watts(inside, points, rated_watts, supplies)
    return WallEstimate(watts, SIGMA_RATIO[WallSource.MODEL] * watts, WallSource.MODEL)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit of a meter: wall watts = offset + slope x GPU watts."""

    offset_watts: float
    slope: float
    sigma_watts: float

    def apply(self, gpu_watts: float) -> WallEstimate:
        """Return the calibrated power; its uncertainty is the residual's."""
        return WallEstimate(
            self.offset_watts + self.slope * gpu_watts, self.sigma_watts, WallSource.MODEL
        )


def calibrate(gpu_watts: Sequence[float], meter_watts: Sequence[float]) -> Calibration | None:
    """Return the linear fit of paired readings; None for too few or too similar ones."""
    x, y = np.asarray(gpu_watts, dtype=float), np.asarray(meter_watts, dtype=float)
    if len(x) < 10 or np.ptp(x) < 0.2 * max(float(x.max()), 1.0):
        return None  # a line through one cloud of points has any slope
    slope, offset = np.polyfit(x, y, 1)
    residual = y - (offset + slope * x)
    sigma = float(np.sqrt(np.square(residual).sum() / (len(x) - 2)))
    return Calibration(float(offset), float(slope), sigma)
