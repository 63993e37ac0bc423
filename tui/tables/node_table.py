"""The table of nodes: columns, sort orders and filters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from present.device.node import DRIVER_FAULTS, driver_row, gpus_row, role_row, state_row
from present.units import number, percent, watts
from tui.kit.text import DASH, bar, clean
from tui.kit.theme import Piece
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats
from tui.state.readings import POWER, TEMPERATURE, UTILIZATION
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn
from tui.tables.fields import node_fields
from tui.tables.filter import ALL, Filter
from tui.tables.listing import MARKS, Listing, highest_first


class NodeSource:
    """The data of the cells of the node table."""

    def __init__(self, state: DashboardState) -> None:
        self.state = state
        self.status = state.node_status
        self.power = state.node_sum(POWER)
        self.hottest = state.node_max(TEMPERATURE)
        self.busy = state.node_mean(UTILIZATION)
        self.reporting = state.node_reporting()

    def urgency(self) -> Floats:
        """Return the status of each node as a number, the worst highest; a driver fault is a warning."""
        faulty = [node.driver_state in DRIVER_FAULTS for node in self.state.nodes]
        floor = np.where(np.array(faulty, bool), int(RowStatus.WARN), 0)
        return np.maximum(self.status, floor).astype(np.float64)

    def tone(self, row: int) -> str:
        """Return the tone of its numbers: dimmed for a silent node."""
        return "" if self.state.nodes[row].state == "online" else "dim"


def known_value(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _node_state(source: NodeSource, row: int, width: int) -> Piece:
    status = RowStatus(source.status[row])
    if status is RowStatus.OK and source.state.nodes[row].driver_state in DRIVER_FAULTS:
        return "! NODRV", "warn"
    return MARKS[status]


def _node_gpus(source: NodeSource, row: int, width: int) -> Piece:
    node = source.state.nodes[row]
    its = gpus_row(node.gpus, int(source.reporting[row]), node.role)
    return its.column, its.tone or source.tone(row)


def _driver(source: NodeSource, row: int) -> str:
    """Return the driver's version; of a node without GPUs its role."""
    node = source.state.nodes[row]
    return driver_row(node.driver_version, role=node.role).short


def _node_worst(source: NodeSource, row: int, width: int) -> Piece:
    node = source.state.nodes[row]
    alerts = source.state.node_alerts.get(node.node, [])
    if not alerts:
        its = state_row(node)
        return (its.brief if its.since else "", "stale")
    tone = {"page": "crit", "ticket": "warn"}.get(alerts[0].severity, "dim")
    more = f" +{len(alerts) - 1}" if len(alerts) > 1 else ""
    return f"{clean(alerts[0].rule)}{more}", tone


NODE_COLUMNS: tuple[TableColumn[NodeSource], ...] = (
    TableColumn("NODES", 9, _node_state),
    TableColumn("node", 9, lambda s, row, _: (clean(s.state.nodes[row].node), s.tone(row)), tail=True, grow=2, most=28),
    TableColumn("GPUs", 5, _node_gpus, right=True),
    TableColumn("GPU power", 9, lambda s, row, _: (watts(known_value(s.power[row])), s.tone(row)), right=True),
    TableColumn(
        "wall", 8, lambda s, row, _: (watts(s.state.wall.get(s.state.nodes[row].node)), s.tone(row)), right=True
    ),
    TableColumn("°C", 3, lambda s, row, _: (number(known_value(s.hottest[row])), s.tone(row)), right=True),
    TableColumn("util", 5, lambda s, row, _: (percent(known_value(s.busy[row])), s.tone(row)), right=True),
    TableColumn("", 5, lambda s, row, width: (bar(known_value(s.busy[row]), width), "bar"), grow=2, most=24),
    TableColumn("role", 8, lambda s, row, _: (clean(role_row(s.state.nodes[row].role).value), "dim"), need=112),
    TableColumn("driver", 14, lambda s, row, _: (clean(_driver(s, row)), "dim"), need=112),
    TableColumn("source", 18, lambda s, row, _: (clean(s.state.nodes[row].source or DASH), "dim"), need=112),
    TableColumn("worst alert", 15, _node_worst, grow=3),
)
NODE_SORTS: dict[str, Callable[[NodeSource], Floats] | None] = {
    "": lambda s: s.urgency(),
    "node": None,
    "GPU power": lambda s: s.power,
    "°C": lambda s: s.hottest,
    "util": lambda s: s.busy,
}


def node_listing(
    state: DashboardState, sort: str, wanted: Filter = ALL, *, reverse: bool = False, faults: bool = False
) -> Listing[NodeSource]:
    """List the nodes that fit a filter, the worst first where `sort` is empty."""
    source, names = NodeSource(state), [node.node for node in state.nodes]
    mask = wanted.mask(node_fields(state), len(names))
    if faults:
        mask &= source.status > RowStatus.OK
    rows = np.flatnonzero(mask)
    key = NODE_SORTS[sort]
    if key is not None:
        rows = highest_first(rows, key(source), reverse=reverse)
    elif reverse:
        rows = rows[::-1]
    return Listing(source, NODE_COLUMNS, rows, names, len(names), sort, "no node yet")
