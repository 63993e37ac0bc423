"""The energy ledger of a running cluster: energy, cost and idle GPUs by day."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from power.report.energy import JOULES_PER_KWH, between

IDLE_BELOW = 0.05
"""A GPU whose utilisation is below this is idle."""
KEPT_DAYS = 400
"""A year, and the month before it to compare with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySample:
    """The whole cluster at one instant."""

    watts: float
    """Watts at the wall of all nodes where known; NaN where none is."""
    nodes: int = 0
    """Number of those nodes."""
    gpu_joules: float = 0.0
    """Joules by the GPUs' counters since the previous sample."""
    gpus: int = 0
    """GPUs whose utilisation is known."""
    busy_gpus: float = 0.0
    """Sum of their utilisation."""
    idle_gpus: int = 0
    idle_watts: float = 0.0
    """Watts of the idle GPUs."""
    unmapped_watts: float = math.nan
    """Watts at the wall of the nodes on no circuit; NaN where none is known."""
    silent_watts: float = 0.0
    """Watts that the silent ones among them reported last: they are not in `unmapped_watts`."""
    node_names: tuple[str, ...] = ()
    node_watts: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Watts at the wall by node; NaN where not known."""
    node_idle: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """GPUs of known utilisation, idle GPUs, and watts of those at the wall, by node."""
    node_sums: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    """Part of each node in the sums above, where somebody needs it by node."""
    whole: bool = True
    """Whether every node was heard that belongs to the sums."""


class Day(msgspec.Struct, kw_only=True):
    """Energy and use of one day, local time."""

    joules: float = 0.0
    seconds: float = 0.0
    """Time that `joules` covers."""
    estimated_seconds: float = 0.0
    unknown_seconds: float = 0.0
    cost: float = 0.0
    """Money for `priced_joules`, without the building's overhead."""
    priced_joules: float = 0.0
    gpu_joules: float = 0.0
    peak_watts: float = 0.0
    gpu_seconds: float = 0.0
    busy_gpu_seconds: float = 0.0
    idle_gpu_seconds: float = 0.0
    idle_joules: float = 0.0
    idle_cost: float = 0.0


class EnergyLedger(msgspec.Struct, kw_only=True):
    """Energy and use by day, and the previous sample."""

    days: dict[str, Day] = {}
    """By date, `2026-11-21`."""
    at: float = 0.0
    """Wall clock of the last sample, seconds since 1970; 0 before the first."""
    watts: float | None = None
    """Watts of the last sample."""

    def add(self, sample: EnergySample, at: float, day: str, period: float, price: float | None) -> None:
        """Add the time since the previous sample. `price` is the present money per kWh."""
        passed = at - self.at
        first = self.at == 0.0
        before = math.nan if self.watts is None else self.watts
        self.at, self.watts = at, sample.watts if math.isfinite(sample.watts) else None
        entry = self.days.get(day)
        if entry is None:
            entry = self.days[day] = Day()
            for old in sorted(self.days)[:-KEPT_DAYS]:
                del self.days[old]
        if first or passed <= 0:  # the clock was set back: no time has passed
            return
        energy = between(before, sample.watts, passed, period)
        entry.joules += energy.joules
        entry.seconds += energy.seconds
        entry.estimated_seconds += energy.estimated_seconds
        entry.unknown_seconds += energy.unknown_seconds
        if self.watts is not None:
            entry.peak_watts = max(entry.peak_watts, self.watts)
        if price is not None:
            entry.priced_joules += energy.joules
            entry.cost += energy.kwh * price
        if energy.seconds and not energy.estimated_seconds:
            self._count_gpus(entry, sample, passed, price)

    @staticmethod
    def _count_gpus(entry: Day, sample: EnergySample, seconds: float, price: float | None) -> None:
        entry.gpu_joules += sample.gpu_joules
        entry.gpu_seconds += sample.gpus * seconds
        entry.busy_gpu_seconds += sample.busy_gpus * seconds
        entry.idle_gpu_seconds += sample.idle_gpus * seconds
        idle = sample.idle_watts * seconds
        entry.idle_joules += idle
        entry.idle_cost += idle / JOULES_PER_KWH * (price or 0.0)


def total(days: Iterable[Day]) -> Day:
    """Return many days as one."""
    found = Day()
    for day in days:
        for name in Day.__struct_fields__:
            joined = max if name == "peak_watts" else float.__add__
            setattr(found, name, joined(getattr(found, name), float(getattr(day, name))))
    return found
