"""The board: all that the screen shows at one instant, as columns. Never changed, only replaced.

So a paused screen keeps the board it has, while newer ones come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tui.messages import (
    Alert,
    DataMessage,
    Gaps,
    NodeLine,
    NodeReadings,
    Nodes,
    Numbers,
    RowsMessage,
    Status,
)
from tui.messages import GpuRows as Identity
from tui.text import clean

POWER = "gpu_power_watts"
LIMIT = "gpu_power_limit_watts"
TEMPERATURE = "gpu_temperature_celsius"
UTILIZATION = "gpu_utilization_ratio"
MEMORY_USED = "gpu_memory_used_bytes"
MEMORY_TOTAL = "gpu_memory_total_bytes"
CLOCK = "gpu_sm_clock_hertz"
WALL = "node_wall_power_watts"
REASONS = (
    ("gpu_clocks_event_hw_power_brake_slowdown", "power brake"),
    ("gpu_clocks_event_hw_thermal_slowdown", "heat (hw)"),
    ("gpu_clocks_event_sw_thermal_slowdown", "heat (sw)"),
    ("gpu_clocks_event_hw_slowdown", "hw slowdown"),
    ("gpu_clocks_event_sw_power_cap", "power cap"),
)
"""Why clocks are held down, worst first: only the first that holds is shown."""
COLUMNS = (
    POWER, LIMIT, TEMPERATURE, UTILIZATION, MEMORY_USED, MEMORY_TOTAL, CLOCK,
    *(metric for metric, _ in REASONS),
)  # fmt: skip
"""What the screen asks the aggregator for: what it shows, nothing else."""

_LIVELY = (POWER, TEMPERATURE, UTILIZATION, CLOCK, *(metric for metric, _ in REASONS))
"""Those that are read at every tick: limits and sizes are read seldom, and stay for a while after
their GPU has fallen silent."""

Floats = npt.NDArray[np.float64]


class Standing(IntEnum):
    """How a GPU or node is, worse with every step."""

    OK = 0
    STALE = 1
    """Nothing new came; what it was is not what it is."""
    WARN = 2
    CRIT = 3
    DOWN = 4
    """Lost, hung or switched off."""


@dataclass(frozen=True)
class Gpus:
    """Every GPU of the cluster, by columns."""

    version: int = -1
    who: Identity = field(default_factory=lambda: Identity([], [], [], [], []))
    columns: Mapping[str, Floats] = field(default_factory=dict)
    gaps: Gaps = field(default_factory=dict)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.who.uuid)

    def column(self, name: str) -> Floats:
        """One metric, NaN where it is absent."""
        found = self.columns.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def value(self, name: str, row: int) -> float | None:
        """One reading, None where it is absent."""
        column = self.columns.get(name)
        if column is None or np.isnan(column[row]):
            return None
        return float(column[row])

    def gap(self, name: str, row: int) -> str:
        """Why a reading is absent."""
        reasons = self.gaps.get(name, {})
        return reasons.get(str(row), reasons.get("*", ""))

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row by UUID."""
        return {uuid: row for row, uuid in enumerate(self.who.uuid)}

    @cached_property
    def reporting(self) -> npt.NDArray[np.bool_]:
        """Whether anything that is read at every tick is known of a GPU."""
        known = np.zeros(len(self), bool)
        for name in _LIVELY:
            known |= ~np.isnan(self.column(name))
        return known


@dataclass(frozen=True)
class Board:
    """One instant."""

    status: Status | None = None
    status_came: float = 0.0
    """When the status came, monotonic seconds of this machine."""
    nodes: tuple[NodeLine, ...] = ()
    wall: Mapping[str, float] = field(default_factory=dict)
    """Wall power by node, of those that tell."""
    gpus: Gpus = field(default_factory=Gpus)
    alerts: tuple[Alert, ...] = ()
    at: int = 0
    """The aggregator's clock in the newest message, ns since 1970."""
    ready: bool = False
    """Whether all parts have come once."""

    @property
    def badge(self) -> str:
        """A word that says that these are not real GPUs, or `` when they are."""
        sources = {line.source.partition(":")[0] for line in self.nodes}
        if "simulated" in sources:
            return "SIMULATED"
        return "RECORDED" if "recording" in sources else ""

    def age(self, now: float) -> float | None:
        """Seconds since the newest frame; None when there was none."""
        if self.status is None or self.status.newest_frame_age_seconds is None:
            return None
        return self.status.newest_frame_age_seconds + now - self.status_came

    @cached_property
    def node_row(self) -> dict[str, int]:
        """Position in `nodes` by name."""
        return {line.node: row for row, line in enumerate(self.nodes)}

    @cached_property
    def gpu_standing(self) -> npt.NDArray[np.int8]:
        """`Standing` of each GPU: its alerts, and whether anything is known of it."""
        standing = np.where(self.gpus.reporting, Standing.OK, Standing.STALE).astype(np.int8)
        for alert in self.alerts:
            row = None if alert.gpu is None else self.gpus.row_of.get(alert.gpu)
            if row is not None:
                standing[row] = max(int(standing[row]), _severity(alert))
        standing[~np.array(self.gpus.who.present, bool)] = Standing.DOWN
        for silent in np.flatnonzero(~self.gpus.reporting).tolist():
            if self.gpus.gap(TEMPERATURE, silent) in {"device_lost", "timed_out"}:
                standing[silent] = Standing.DOWN
        return standing

    @cached_property
    def node_standing(self) -> npt.NDArray[np.int8]:
        """`Standing` of each node: its state, and the worst alert on it."""
        states = {"online": Standing.OK, "stale": Standing.STALE}
        standing = np.array(
            [states.get(line.state, Standing.DOWN) for line in self.nodes], np.int8
        ).reshape(len(self.nodes))
        for name, alerts in self.node_alerts.items():
            row = self.node_row.get(name)
            if row is not None and alerts:
                standing[row] = max(int(standing[row]), *map(_severity, alerts))
        return standing

    @cached_property
    def node_alerts(self) -> dict[str, list[Alert]]:
        """What fires on each node and its GPUs, worst first."""
        found: dict[str, list[Alert]] = {}
        for alert in self.alerts:
            if alert.state == "firing":
                found.setdefault(alert.node, []).append(alert)
        return found

    @cached_property
    def _home(self) -> npt.NDArray[np.intp]:
        """Position in `nodes` of each GPU's node; one past the end for a node not listed yet."""
        rows, stray = self.node_row, len(self.nodes)
        return np.array([rows.get(node, stray) for node in self.gpus.who.node], np.intp)

    def node_sum(self, metric: str) -> Floats:
        """Sum over each node's GPUs that tell; NaN where none does."""
        return _grouped(np.add, self.gpus.column(metric), self._home, len(self.nodes))

    def node_max(self, metric: str) -> Floats:
        """Highest of each node's GPUs that tell; NaN where none does."""
        return _grouped(np.maximum, self.gpus.column(metric), self._home, len(self.nodes))

    def node_mean(self, metric: str) -> Floats:
        """Mean over each node's GPUs that tell; NaN where none does."""
        known = (~np.isnan(self.gpus.column(metric))).astype(np.float64)
        counts = _grouped(np.add, known, self._home, len(self.nodes))
        return self.node_sum(metric) / np.where(counts > 0, counts, np.nan)

    def node_reporting(self) -> Floats:
        """How many GPUs of each node report."""
        known = self.gpus.reporting.astype(np.float64)
        return np.nan_to_num(_grouped(np.add, known, self._home, len(self.nodes)))

    def with_data(self, message: DataMessage, who: RowsMessage) -> Board:
        """Return the board with new readings."""
        columns = {name: numbers(values) for name, values in message.columns.items()}
        gpus = Gpus(message.version, who.rows, columns, message.gaps)
        return replace(self, gpus=gpus, at=message.at)

    def with_nodes(self, nodes: Nodes, wall: NodeReadings) -> Board:
        """Return the board with new nodes."""
        watts = wall.columns.get(WALL, [])
        told = {
            node: value
            for node, value in zip(wall.rows.node, watts, strict=False)
            if value is not None
        }
        return replace(self, nodes=tuple(nodes.nodes), wall=told)


def numbers(values: Numbers) -> Floats:
    """Make a column of JSON's numbers; null becomes NaN."""
    return np.array(values, dtype=np.float64)


def tidy(rows: RowsMessage) -> RowsMessage:
    """Return rows whose names can do a terminal no harm. Keys stay what they are."""
    who = rows.rows
    return RowsMessage(
        rows.version,
        Identity(who.node, who.gpu, who.uuid, [clean(name) for name in who.name], who.present),
    )


def _severity(alert: Alert) -> Standing:
    if alert.state != "firing":
        return Standing.OK
    return {"page": Standing.CRIT, "ticket": Standing.WARN}.get(alert.severity, Standing.OK)


def _grouped(join: np.ufunc, values: Floats, groups: npt.NDArray[np.intp], count: int) -> Floats:
    known = ~np.isnan(values)
    start = 0.0 if join is np.add else -np.inf
    result = np.full(count + 1, start)
    join.at(result, groups[known], values[known])
    told = np.zeros(count + 1, bool)
    told[groups[known]] = True
    return np.where(told, result, np.nan)[:count]
