"""Summary of the cluster in a dozen numbers: for `/metrics`, `/api/v1/status` and the dashboard's header."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregator.register.node_status import status_of
from api.fleet import FleetSummary, ModelSummary, NodeStatus
from telemetry.fleet import Fleet, Floats
from telemetry.metric import Table
from telemetry.text.decimals import Wide
from telemetry.wire.inventory import role_of
from telemetry.wire.schema import GPU_FAST

GPU_STATES = ("reporting", "silent", "lost")
"""A GPU reports when any metric of its fast lane has a value; it is lost when its node says that it
has left the bus; else it is silent."""


@dataclass(slots=True)
class _Models:
    """The model of each row, as long as the fleet has the same version."""

    version: int
    names: list[str]
    model: npt.NDArray[np.intp]
    """For each GPU row the position in `names`; -1 for a row that is free."""
    present: npt.NDArray[np.bool_]


class Summarizer:
    """A maker of summaries; it remembers the models between versions of the fleet."""

    def __init__(self) -> None:
        self._models: _Models | None = None

    def summary(self, fleet: Fleet, now: float) -> FleetSummary:
        """Return the cluster at `now`, the fleet's monotonic seconds."""
        states = Counter(status_of(node, now) for node in fleet.nodes.values())
        releases = Counter(node.inventory.kilowatch for node in fleet.nodes.values())
        roles = Counter(str(role_of(node.inventory) or "") for node in fleet.nodes.values())
        power = fleet.column("gpu_power_watts", now)
        limit = fleet.column("gpu_power_limit_watts", now)
        both = np.isfinite(power) & np.isfinite(limit)
        wall = fleet.column("node_wall_power_watts", now)
        return FleetSummary(
            nodes={state.value: states[state] for state in NodeStatus},
            roles=dict(sorted(roles.items())),
            releases=dict(sorted(releases.items())),
            models=self._by_model(fleet, power, now),
            gpu_power_watts=_sum(power),
            gpu_power_limit_watts=_sum(limit),
            limited_power_watts=_sum(power[both]),
            limited_power_limit_watts=_sum(limit[both]),
            wall_power_watts=_sum(wall),
            wall_power_known=int(np.isfinite(wall).sum()),
            temperature_max_celsius=_max(fleet.column("gpu_temperature_celsius", now)),
            memory_temperature_max_celsius=_max(fleet.column("gpu_memory_temperature_celsius", now)),
            utilization_mean_ratio=_mean(fleet.column("gpu_utilization_ratio", now)),
            memory_used_bytes=_sum(fleet.column("gpu_memory_used_bytes", now)),
            memory_total_bytes=_sum(fleet.column("gpu_memory_total_bytes", now)),
        )

    def _by_model(self, fleet: Fleet, power: Floats, now: float) -> list[ModelSummary]:
        models = self._models
        if models is None or models.version != fleet.version:
            models = self._models = _read_models(fleet)
        count = len(models.model)
        matrix = fleet.matrices[GPU_FAST]
        fresh = now - matrix.seen[:count] <= matrix.max_age[:count]
        reporting = fresh & np.isfinite(matrix.gauges[:count]).any(axis=1) & models.present
        found: list[ModelSummary] = []
        for number, name in enumerate(models.names):
            its = models.model == number
            lost, reports = int((its & ~models.present).sum()), int((its & reporting).sum())
            watts = power[its]
            found.append(
                ModelSummary(
                    model=name,
                    gpus=dict(zip(GPU_STATES, (reports, int(its.sum()) - reports - lost, lost), strict=True)),
                    power_watts=_sum(watts),
                    power_known=int(np.isfinite(watts).sum()),
                )
            )
        return found


def _read_models(fleet: Fleet) -> _Models:
    names: dict[str, int] = {}
    model = np.full(fleet.size(Table.GPU), -1, np.intp)
    present = np.zeros(len(model), bool)
    for row, entry in enumerate(fleet.gpus):
        if entry is not None:
            model[row] = names.setdefault(entry[1].name, len(names))
            present[row] = entry[1].present
    return _Models(fleet.version, list(names), model, present)


def _known(values: Floats) -> Wide:
    wide = values.astype(np.float64)
    return wide[np.isfinite(wide)]


def _sum(values: Floats) -> float | None:
    known = _known(values)
    return round(float(known.sum()), 3) if known.size else None


def _max(values: Floats) -> float | None:
    known = _known(values)
    return round(float(known.max()), 3) if known.size else None


def _mean(values: Floats) -> float | None:
    known = _known(values)
    return round(float(known.mean()), 4) if known.size else None
