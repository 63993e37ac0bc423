"""The GPUs of nodes as the map and the power chain draw them: a quantity of each, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.http.marks import marks_of
from aggregator.view import AggregatorView
from aggregator.web.fleet_map import QUANTITIES, NodeCells
from telemetry.metric import Table


def fleet_cells(
    view: AggregatorView, quantity: str, names: Sequence[str] | None = None
) -> list[NodeCells]:
    """Return the GPUs of all nodes, or of some, by one quantity."""
    fleet = view.fleet
    column = fleet.column(QUANTITIES[quantity], view.now())
    nodes, gpus = marks_of(view.alerts())
    return [
        NodeCells(
            str(node.inventory.host.get("rack", "")), name, column[node.rows[Table.GPU]].tolist(),
            [gpu.uuid for gpu in node.inventory.gpus], nodes.get(name, ""), gpus.get(name, {}),
        )
        for name, node in fleet.nodes.items()
        if node.inventory.gpus and (names is None or name in names)
    ]  # fmt: skip
