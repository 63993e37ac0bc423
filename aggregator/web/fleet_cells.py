"""The GPUs of nodes as the map and the power chain draw them: a quantity of each, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from aggregator.http.marks import marks_of
from aggregator.view import AggregatorView
from aggregator.web.fleet_map import QUANTITIES, NodeCells
from telemetry.fleet import Fleet, Node
from telemetry.metric import Table


def fleet_cells(view: AggregatorView, quantity: str, names: Collection[str] | None = None) -> list[NodeCells]:
    """Return the GPUs of all nodes, or of some, by one quantity."""
    fleet = view.fleet
    column = fleet.column(QUANTITIES[quantity], view.now())
    nodes, gpus = marks_of(view.alerts())
    return [
        NodeCells(
            rack_of(node),
            name,
            column[node.rows[Table.GPU]].tolist(),
            [gpu.uuid for gpu in node.inventory.gpus],
            nodes.get(name, ""),
            gpus.get(name, {}),
        )
        for name, node in fleet.nodes.items()
        if node.inventory.gpus and (names is None or name in names)
    ]


def rack_of(node: Node) -> str:
    """Return the rack of a node; "" where it has none."""
    return str(node.inventory.host.get("rack", ""))


def highest_of(fleet: Fleet, quantity: str, now: float) -> float:
    """Return the highest value of a GPU; 0 where none is known."""
    column = fleet.column(QUANTITIES[quantity], now)
    return float(np.fmax.reduce(column, initial=0.0))
