"""Calibration by meters: wall watts of a node as a straight line of the node's own readings.

Running sums, one set a machine, so that a year of readings takes no more memory than a minute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from power import thresholds
from power.wiring import Flags, Floats

EVERY = 10.0
"""Seconds between two samples: closer readings add no information."""
_LEAST, _FULL = 30.0, 10_000.0
"""Samples from which a line is used; above `_FULL` old samples count half."""
_SPREAD = 0.2
"""Smallest range of watts, as part of the highest, from which a line is determined."""
_SLOPES = (0.8, 2.5)
"""Plausible wall watts per watt of GPU and CPU; otherwise the meter measures something else."""
SUMS = ("n", "x", "y", "xx", "xy", "yy")


class WallCalibrator:
    """Fits of metered watts over own watts, one for each machine."""

    def __init__(self, machines: int) -> None:
        self.sums: dict[str, Floats] = {name: np.zeros(machines) for name in SUMS}
        self.lowest: Floats = np.full(machines, np.inf)
        self.highest: Floats = np.full(machines, -np.inf)
        self.with_host: Flags = np.zeros(machines, bool)
        """Whether the machine's own watts contain RAPL's: a fit holds for one of both."""
        self._last = -np.inf
        self._fits: tuple[Floats, Floats, Floats, Flags] | None = None

    def learn(self, now: float, own: Floats, with_host: Flags, metered: Floats) -> None:
        """Add one sample of every machine whose `own` and `metered` watts are known."""
        if now - self._last < EVERY:
            return
        self._last = now
        usable = ~np.isnan(own) & ~np.isnan(metered)
        if not usable.any():
            return
        self._restart(usable & (with_host != self.with_host), with_host)
        offset, slope, _, valid = self.fits()
        # A heater on the same meter must be reported, not learnt.
        strange = np.abs(metered - offset - slope * own) > np.maximum(
            thresholds.DEVIATION_RATIO * metered, thresholds.DEVIATION_WATTS
        )
        usable &= ~(valid & strange)
        x, y = np.where(usable, own, 0.0), np.where(usable, metered, 0.0)
        lessons = (usable, x, y, x * x, x * y, y * y)
        fade = np.where(self.sums["n"] >= _FULL, 0.5, 1.0)
        for name, lesson in zip(SUMS, lessons, strict=True):
            self.sums[name] = self.sums[name] * fade + lesson
        self.lowest = np.where(usable, np.minimum(self.lowest, own), self.lowest)
        self.highest = np.where(usable, np.maximum(self.highest, own), self.highest)
        self._fits = None

    def fits(self) -> tuple[Floats, Floats, Floats, Flags]:
        """Return offset, slope, sigma in watts, and where the fit is valid."""
        if self._fits is None:
            self._fits = self._fit()
        return self._fits

    def _fit(self) -> tuple[Floats, Floats, Floats, Flags]:
        n, x, y, xx, xy, yy = (self.sums[name] for name in SUMS)
        with np.errstate(all="ignore"):
            spread = xx - x * x / n
            slope = (xy - x * y / n) / spread
            offset = (y - slope * x) / n
            residual = np.maximum(yy - offset * y - slope * xy, 0.0)
            sigma = np.sqrt(residual / np.maximum(n - 2, 1))
            valid = (n >= _LEAST) & (self.highest - self.lowest >= _SPREAD * self.highest)
            valid &= (slope >= _SLOPES[0]) & (slope <= _SLOPES[1]) & np.isfinite(sigma)
        return np.where(valid, offset, 0), np.where(valid, slope, 0), np.where(valid, sigma, 0), valid

    def _restart(self, changed: Flags, with_host: Flags) -> None:
        if not changed.any():
            return
        for name in SUMS:
            self.sums[name][changed] = 0.0
        self.lowest[changed], self.highest[changed] = np.inf, -np.inf
        self.with_host = np.where(changed, with_host, self.with_host)
        self._fits = None

    def checkpoint(self, number: int) -> list[float] | None:
        """Return the sums of one machine as plain numbers; None without samples."""
        if self.sums["n"][number] == 0:
            return None
        numbers = [self.sums[name][number] for name in SUMS]
        numbers += [self.lowest[number], self.highest[number], self.with_host[number]]
        return [float(value) for value in numbers]

    def restore(self, number: int, numbers: Any) -> None:
        """Restore what `checkpoint` returned. Raises `TypeError` or `ValueError` for anything else."""
        values: npt.NDArray[np.float64] = np.array([float(v) for v in numbers])
        if len(values) != len(SUMS) + 3 or not np.isfinite(values).all():
            raise ValueError("no calibration")
        for name, value in zip(SUMS, values, strict=False):
            self.sums[name][number] = value
        self.lowest[number], self.highest[number] = values[-3], values[-2]
        self.with_host[number] = bool(values[-1])
        self._fits = None
