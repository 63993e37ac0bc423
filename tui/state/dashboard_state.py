"""The state of the dashboard: all values of one instant, as columns. Never changed, only replaced.

So a paused screen holds its state, while newer ones come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from api.alerts import Alert
from api.columns import FleetReply
from api.fleet import FleetSummary, NodeReply, NodesReply, StatusReply
from api.power import CircuitState
from api.stream import StreamData, StreamPacked, StreamWall
from present.circuit.figures import by_urgency
from present.fleet.wall import WallSum
from tui.state.cluster_sums import SUMMED, summed
from tui.state.documents import LOADING, Doc, Documents
from tui.state.gpus import Floats, Gpus, numbers, unpacked
from tui.state.readings import TEMPERATURE, WALL
from tui.state.row_status import RowStatus, severity_of

AS_NEW = 3_000_000_000
"""ns by which the GPUs' readings may be older than the status and still stand for it: a view that wants few stops the
others."""


@dataclass(frozen=True)
class DashboardState(Documents):
    """The values that the screen shows at one instant."""

    status: StatusReply | None = None
    status_came: float = 0.0
    """When the status came, monotonic seconds of this machine."""
    nodes: tuple[NodeReply, ...] = ()
    wall: Mapping[str, float] = field(default_factory=dict)
    """Wall power by node, where it is measured."""
    gpus: Gpus = field(default_factory=Gpus)
    """The GPUs of the fleet, as of the last view that wanted all."""
    gpus_at: int = 0
    """The time of `gpus`, ns since 1970."""
    gpus_wall: StreamWall | None = None
    """The cluster at the wall at that time; None where the aggregator does not say it there."""
    part: Gpus = field(default_factory=Gpus)
    """GPUs of the nodes that a view wants alone."""
    alerts: tuple[Alert, ...] = ()
    at: int = 0
    """The aggregator's clock in the newest message, ns since 1970."""
    ready: bool = False
    """Whether all parts have been received once."""

    @cached_property
    def badge(self) -> str:
        """A label for GPUs that are not real, or ``."""
        sources = {line.source.partition(":")[0] for line in self.nodes}
        if "simulated" in sources:
            return "SIMULATED"
        return "RECORDED" if "recording" in sources else ""

    @cached_property
    def urgent(self) -> tuple[CircuitState, ...]:
        """Every circuit, the most urgent first: by time to trip, alert, time to the rating, load."""
        status = self.circuit_status
        return tuple(by_urgency(self.circuits, lambda name: status.get(name, RowStatus.OK)))

    @cached_property
    def circuit_status(self) -> dict[str, RowStatus]:
        """`RowStatus` of each circuit with an alert: colours come from the rules."""
        found: dict[str, RowStatus] = {}
        for alert in self.alerts:
            if alert.subject == "circuit":
                found[alert.name] = max(found.get(alert.name, RowStatus.OK), severity_of(alert))
        return found

    @property
    def _whole(self) -> bool:
        """Whether every GPU of the cluster is on the screen, and none is older than the status."""
        status = self.status
        return (
            status is not None
            and len(self.gpus) == status.gpus > 0
            and self.gpus.columns.keys() >= SUMMED
            and self.gpus_at >= status.at - AS_NEW
        )

    @cached_property
    def summary(self) -> FleetSummary:
        """The figures of the cluster: of the readings on the screen where these are all, else of the status."""
        if self.status is None:
            return FleetSummary()
        return summed(self.status.summary, self.gpus) if self._whole else self.status.summary

    @cached_property
    def gpu_counts(self) -> dict[str, int]:
        """GPUs that are `reporting`, `silent` and `lost`, counted where `summary` is summed."""
        models = () if self.status is None else self.status.summary.models
        count = {kind: sum(one.gpus.get(kind, 0) for one in models) for kind in ("reporting", "silent", "lost")}
        if self._whole:
            read = int(np.count_nonzero(self.gpus.reporting))
            lost = min(count["lost"], len(self.gpus) - read)
            count = {"reporting": read, "silent": len(self.gpus) - read - lost, "lost": lost}
        return count

    @cached_property
    def at_the_wall(self) -> WallSum:
        """The sum at the wall, of the instant of `summary` where the aggregator says so."""
        status, reported = self.status, self.gpus_wall
        if reported is not None and self._whole:
            return WallSum(reported.watts, reported.nodes, reported.partial_nodes, reported.age_seconds)
        if status is not None and status.wall_nodes is not None:
            apart = max(0.0, (self.gpus_at - status.at) / 1e9) if self._whole else 0.0
            age = status.wall_age_seconds + apart
            return WallSum(status.wall_watts, status.wall_nodes, status.wall_partial_nodes, age)
        if self.power is None:
            return WallSum()
        return WallSum(self.power.wall_watts, self.power.wall_nodes, self.power.wall_partial_nodes)

    def age(self, now: float) -> float | None:
        """Return the seconds since the newest frame; None without one."""
        if self.status is None or self.status.newest_frame_age_seconds is None:
            return None
        return self.status.newest_frame_age_seconds + now - self.status_came

    @property
    def gpus_unknown(self) -> str:
        """The reason why no GPU is listed though there are some, or ``."""
        some = self.status is not None and self.status.gpus > 0
        return LOADING if some and not len(self.gpus) else ""

    @property
    def gpu_order(self) -> npt.NDArray[np.intp]:
        """Rank of each GPU by node and index."""
        places = np.empty(len(self.gpus), np.intp)
        places[self.gpus.order] = np.arange(len(self.gpus))
        return places

    @cached_property
    def node_row(self) -> dict[str, int]:
        """Position in `nodes` by name."""
        return {line.node: row for row, line in enumerate(self.nodes)}

    @cached_property
    def gpu_status(self) -> npt.NDArray[np.int8]:
        """`RowStatus` of each GPU, by its alerts and readings."""
        status = np.where(self.gpus.reporting, RowStatus.OK, RowStatus.STALE).astype(np.int8)
        for alert in self.alerts:
            row = None if alert.gpu is None else self.gpus.row_of.get(alert.gpu)
            if row is not None:
                status[row] = max(int(status[row]), severity_of(alert))
        status[~np.array(self.gpus.who.present, bool)] = RowStatus.DOWN
        for silent in np.flatnonzero(~self.gpus.reporting).tolist():
            if self.gpus.gap(TEMPERATURE, silent) in {"device_lost", "timed_out"}:
                status[silent] = RowStatus.DOWN
        return status

    @cached_property
    def node_status(self) -> npt.NDArray[np.int8]:
        """`RowStatus` of each node, by its state and alerts."""
        states = {"online": RowStatus.OK, "stale": RowStatus.STALE, "unheard": RowStatus.STALE}
        status = np.array([states.get(line.state, RowStatus.DOWN) for line in self.nodes], np.int8).reshape(
            len(self.nodes)
        )
        for name, alerts in self.node_alerts.items():
            row = self.node_row.get(name)
            if row is not None and alerts:
                status[row] = max(int(status[row]), *map(severity_of, alerts))
        return status

    @cached_property
    def node_alerts(self) -> dict[str, list[Alert]]:
        """Firing alerts of each node and its GPUs, worst first."""
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
        """Return the sum over each node's GPUs with a reading; NaN without one."""
        return _grouped(np.add, self.gpus.column(metric), self._home, len(self.nodes))

    def node_max(self, metric: str) -> Floats:
        """Return the maximum over each node's GPUs with a reading; NaN without one."""
        return _grouped(np.maximum, self.gpus.column(metric), self._home, len(self.nodes))

    def node_mean(self, metric: str) -> Floats:
        """Return the mean over each node's GPUs with a reading; NaN without one."""
        known = (~np.isnan(self.gpus.column(metric))).astype(np.float64)
        counts = _grouped(np.add, known, self._home, len(self.nodes))
        return self.node_sum(metric) / np.where(counts > 0, counts, np.nan)

    def node_reporting(self) -> Floats:
        """Return the number of reporting GPUs of each node."""
        known = self.gpus.reporting.astype(np.float64)
        return np.nan_to_num(_grouped(np.add, known, self._home, len(self.nodes)))

    def with_data(self, message: StreamData | StreamPacked, rows: Gpus, *, part: bool = False) -> DashboardState:
        """Return the state with new readings, of all GPUs or of a part; `rows` identify them."""
        columns = (
            {name: numbers(values) for name, values in message.columns.items()}
            if isinstance(message, StreamData)
            else {name: unpacked(values, len(rows)) for name, values in message.columns.items()}
        )
        gpus = Gpus(message.version, rows.who, columns, message.gaps).known_from(self.gpus)
        if part:
            return replace(self, part=gpus, at=message.at)
        return replace(self, gpus=gpus, gpus_at=message.at, gpus_wall=message.wall, at=message.at)

    def with_doc(self, path: str, value: object, now: float) -> DashboardState:
        """Return the state with a newer document."""
        return replace(self, docs={**self.docs, path: Doc(value, now)})

    def with_nodes(self, nodes: NodesReply, wall: FleetReply) -> DashboardState:
        """Return the state with new nodes."""
        watts = wall.columns.get(WALL, [])
        known_watts = {node: value for node, value in zip(wall.rows.node, watts, strict=False) if value is not None}
        return replace(self, nodes=tuple(nodes.nodes), wall=known_watts)


def _grouped(join: np.ufunc, values: Floats, groups: npt.NDArray[np.intp], count: int) -> Floats:
    known = ~np.isnan(values)
    start = 0.0 if join is np.add else -np.inf
    result = np.full(count + 1, start)
    join.at(result, groups[known], values[known])
    known_watts = np.zeros(count + 1, bool)
    known_watts[groups[known]] = True
    return np.where(known_watts, result, np.nan)[:count]
