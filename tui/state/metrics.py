"""Metrics of the map: columns, scale and text of a value. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from present.device.gpu import CLOCK_LIMITS, POWER_CAP
from present.units import celsius, gibibytes, in_gibibytes, in_megahertz, megahertz, percent, watts
from tui.state import readings
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats


@dataclass(frozen=True, slots=True)
class MapMetric:
    """A metric that the map can show."""

    word: str
    unit: str
    columns: tuple[str, ...]
    """Columns that it is computed from."""
    values: Callable[[DashboardState], Floats]
    span: Callable[[DashboardState], tuple[float, float]]
    """Scale of the whole fleet, so that two GPUs compare by eye."""
    digits: Callable[[float], str]
    """At most four signs."""
    as_text: Callable[[float | None], str]


def _limit(state: DashboardState) -> tuple[float, float]:
    """Return a scale from 0 to the highest power limit of the fleet."""
    limits = state.gpus.column(readings.LIMIT)
    if np.isfinite(limits).any():
        return 0.0, float(np.nanmax(limits))
    status = state.status
    total = None if status is None else status.summary.gpu_power_limit_watts
    known = 0 if status is None else sum(m.power_known for m in status.summary.models)
    return (0.0, -(-total / known // 50) * 50) if total and known else (0.0, 1200.0)


def _memory(state: DashboardState) -> tuple[float, float]:
    totals = state.gpus.column(readings.MEMORY_TOTAL)
    return 0.0, float(np.nanmax(totals)) if np.isfinite(totals).any() else 80 * 2.0**30


def _clock_limit(state: DashboardState) -> Floats:
    """Return how badly clocks are limited: 0 not at all, 0.5 by the power cap, 1 by a fault."""
    found = np.full(len(state.gpus), np.nan)
    for metric, word in reversed(CLOCK_LIMITS.items()):
        flags = state.gpus.column(metric)
        known = ~np.isnan(flags)
        found[known & np.isnan(found)] = 0.0
        found[known & (flags > 0)] = 0.5 if word == POWER_CAP else 1.0
    return found


METRICS: dict[str, MapMetric] = {
    metric.word: metric
    for metric in (
        MapMetric("power", "W", (readings.POWER,), lambda state: state.gpus.column(readings.POWER), _limit,
                  lambda v: f"{v:.0f}", watts),
        MapMetric("temperature", "°C", (readings.TEMPERATURE,),
                  lambda state: state.gpus.column(readings.TEMPERATURE), lambda _: (20.0, 95.0),
                  lambda v: f"{v:.0f}", celsius),
        MapMetric("utilisation", "%", (readings.UTILIZATION,),
                  lambda state: state.gpus.column(readings.UTILIZATION), lambda _: (0.0, 1.0),
                  lambda v: f"{100 * v:.0f}", percent),
        MapMetric("memory", "GiB", (readings.MEMORY_USED, readings.MEMORY_TOTAL),
                  lambda state: state.gpus.column(readings.MEMORY_USED), _memory,
                  in_gibibytes, gibibytes),
        MapMetric("clock", "MHz", (readings.CLOCK,), lambda state: state.gpus.column(readings.CLOCK),
                  lambda _: (0.0, 3e9), in_megahertz, megahertz),
        MapMetric("clock limit", "0 none, 1 by a fault", tuple(CLOCK_LIMITS), _clock_limit,
                  lambda _: (0.0, 1.0), lambda v: {0.0: "·", 0.5: "cap"}.get(v, "!"),
                  lambda v: "—" if v is None else {0.0: "none", 0.5: POWER_CAP}.get(v, "fault")),
    )
}  # fmt: skip
STATE = "state"
"""Shows the status of GPUs in place of a metric."""
BASE = (readings.POWER, readings.TEMPERATURE)
"""Columns that are always requested: a GPU with either is reporting."""
GROUPS = ("rack", "circuit", "job", "model", "node", "value")


def group_names(state: DashboardState, group: str) -> list[str]:
    """Return the group of each GPU."""
    who = state.gpus.who
    lines = {line.node: line for line in state.nodes}
    match group:
        case "node":
            return list(who.node)
        case "model":
            return list(who.name)
        case "rack":
            names = {node: line.rack or "no rack" for node, line in lines.items()}
        case "job":
            names = {node: line.job or "no job" for node, line in lines.items()}
        case "circuit":
            names = {node: (state.feeds.get(node) or ["no circuit"])[0] for node in lines}
        case _:
            return [""] * len(who.node)
    return [names.get(node, "?") for node in who.node]
