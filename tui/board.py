"""The board: all that the screen shows at one instant, as columns. Never changed, only replaced.

So a paused screen keeps the board it has, while newer ones come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tui.messages import (
    Alert,
    BudgetRow,
    BudgetRows,
    Circuit,
    Circuits,
    DataMessage,
    Fault,
    Gaps,
    Incident,
    Incidents,
    NodeLine,
    NodeReadings,
    Nodes,
    Numbers,
    Power,
    Report,
    RowsMessage,
    Silence,
    Silences,
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
T = TypeVar("T")

CIRCUITS = "api/v1/circuits"
INCIDENTS = "api/v1/incidents"
SILENCES = "api/v1/silences"
POWER_PAGE = "api/v1/power"
BUDGETS = "api/v1/budgets"
TODAY = "api/v1/report?days=1"


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
    def order(self) -> npt.NDArray[np.intp]:
        """Rows by node and index; names with numbers in them as people count."""
        nodes = sorted(set(self.who.node), key=natural)
        rank = {node: place for place, node in enumerate(nodes)}
        homes = np.array([rank[node] for node in self.who.node], np.intp).reshape(len(self))
        return np.lexsort((np.array(self.who.gpu, np.intp).reshape(len(self)), homes))

    @cached_property
    def reporting(self) -> npt.NDArray[np.bool_]:
        """Whether anything that is read at every tick is known of a GPU."""
        known = np.zeros(len(self), bool)
        for name in _LIVELY:
            known |= ~np.isnan(self.column(name))
        return known


@dataclass(frozen=True, slots=True)
class Doc:
    """A document of the API as it came last."""

    value: object
    """What was decoded, or a `Fault`."""
    came: float
    """Monotonic seconds of this machine."""


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
    """All GPUs, as they were when a screen last looked at all."""
    part: Gpus = field(default_factory=Gpus)
    """Those of the nodes that a screen asks for alone."""
    docs: Mapping[str, Doc] = field(default_factory=dict)
    """Documents by path, with their query."""
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

    def doc(self, path: str, kind: type[T]) -> T | None:
        """Return a document, None before it came or while it is refused."""
        found = self.docs.get(path)
        return found.value if found is not None and isinstance(found.value, kind) else None

    def fault(self, path: str) -> str:
        """Why a document is refused, or ``."""
        found = self.docs.get(path)
        return str(found.value) if found is not None and isinstance(found.value, Fault) else ""

    def came(self, path: str) -> float:
        """When a document came, monotonic seconds; 0 before."""
        found = self.docs.get(path)
        return 0.0 if found is None else found.came

    @cached_property
    def circuits(self) -> tuple[Circuit, ...]:
        """Every circuit and panel, parents before what they feed."""
        found = self.doc(CIRCUITS, Circuits)
        return () if found is None else tuple(found.circuits)

    @cached_property
    def urgent(self) -> tuple[Circuit, ...]:
        """Every circuit, what needs somebody first: what trips soonest, what something fires on,
        what is full soonest, what is fullest."""
        standing, far = self.circuit_standing, 1e12

        def key(circuit: Circuit) -> tuple[float, float, float, float]:
            trip, full = circuit.trip_seconds.earliest, circuit.forecast_rated_seconds
            load = max(circuit.load_ratio or 0.0, circuit.continuous_ratio or 0.0)
            return (far if trip is None else trip, -standing.get(circuit.id, 0),
                    far if full is None else full, -load)  # fmt: skip

        return tuple(sorted(self.circuits, key=key))

    @property
    def circuits_at(self) -> int:
        """The aggregator's clock when it computed them, ns since 1970; 0 when nothing is known."""
        found = self.doc(CIRCUITS, Circuits)
        return 0 if found is None else found.at

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """Open incidents, worst first."""
        found = self.doc(INCIDENTS, Incidents)
        return () if found is None else tuple(found.incidents)

    @property
    def silences(self) -> tuple[Silence, ...]:
        """Silences in force, to come, and just ended."""
        found = self.doc(SILENCES, Silences)
        return () if found is None else tuple(found.silences)

    @property
    def budgets(self) -> tuple[BudgetRow, ...]:
        """Every budget."""
        found = self.doc(BUDGETS, BudgetRows)
        return () if found is None else tuple(found.rows)

    @property
    def power(self) -> Power | None:
        """The electrical side as a whole."""
        return self.doc(POWER_PAGE, Power)

    @property
    def today(self) -> Report | None:
        """Energy and cost of this day."""
        return self.doc(TODAY, Report)

    @cached_property
    def feeds(self) -> dict[str, list[str]]:
        """Circuits by node that they feed directly."""
        found: dict[str, list[str]] = {}
        for circuit in self.circuits:
            for node in circuit.nodes:
                found.setdefault(node, []).append(circuit.id)
        return found

    @cached_property
    def circuit_standing(self) -> dict[str, Standing]:
        """`Standing` of each circuit that something fires on: colours come from the rules."""
        found: dict[str, Standing] = {}
        for alert in self.alerts:
            if alert.subject == "circuit":
                found[alert.name] = max(found.get(alert.name, Standing.OK), _severity(alert))
        return found

    def age(self, now: float) -> float | None:
        """Seconds since the newest frame; None when there was none."""
        if self.status is None or self.status.newest_frame_age_seconds is None:
            return None
        return self.status.newest_frame_age_seconds + now - self.status_came

    @property
    def gpu_order(self) -> npt.NDArray[np.intp]:
        """Place of each GPU by node and index."""
        places = np.empty(len(self.gpus), np.intp)
        places[self.gpus.order] = np.arange(len(self.gpus))
        return places

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

    def with_data(self, message: DataMessage, who: RowsMessage, *, part: bool = False) -> Board:
        """Return the board with new readings, of all GPUs or of a part."""
        columns = {name: numbers(values) for name, values in message.columns.items()}
        gpus = Gpus(message.version, who.rows, columns, message.gaps)
        if part:
            return replace(self, part=gpus, at=message.at)
        return replace(self, gpus=gpus, at=message.at)

    def with_doc(self, path: str, value: object, now: float) -> Board:
        """Return the board with a newer document."""
        return replace(self, docs={**self.docs, path: Doc(value, now)})

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


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key: `n2` before `n10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name)]


_NUMBERS = re.compile(r"([0-9]+)")


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
