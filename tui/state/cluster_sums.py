"""The figures of the cluster as the header shows them: of the very readings that the GPUs on the screen have."""

from __future__ import annotations

import msgspec
import numpy as np

from api.fleet import FleetSummary
from tui.state.gpus import Floats, Gpus
from tui.state.readings import LIMIT, MEMORY_TOTAL, POWER, TEMPERATURE, UTILIZATION

SUMMED = {POWER, LIMIT, TEMPERATURE, UTILIZATION, MEMORY_TOTAL}
"""Columns that the figures are made of."""


def summed(summary: FleetSummary, gpus: Gpus) -> FleetSummary:
    """Return a summary with the figures of these GPUs, all that the cluster has, in place of its own."""
    power, limit = gpus.column(POWER), gpus.column(LIMIT)
    both = ~np.isnan(power) & ~np.isnan(limit)
    hottest, use = _known(gpus.column(TEMPERATURE)), _known(gpus.column(UTILIZATION))
    return msgspec.structs.replace(
        summary,
        gpu_power_watts=_sum(power),
        gpu_power_limit_watts=_sum(limit),
        limited_power_watts=_sum(power[both]),
        limited_power_limit_watts=_sum(limit[both]),
        temperature_max_celsius=float(hottest.max()) if len(hottest) else None,
        utilization_mean_ratio=float(use.mean()) if len(use) else None,
        memory_total_bytes=_sum(gpus.column(MEMORY_TOTAL)),
    )


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _sum(values: Floats) -> float | None:
    known = _known(values)
    return float(known.sum()) if len(known) else None
