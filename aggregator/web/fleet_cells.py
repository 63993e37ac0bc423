"""The GPUs of nodes as the map and the power chain draw them: a quantity of each, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aggregator.view import AggregatorView
from aggregator.web.fleet_map import QUANTITIES, NodeCells
from api.alerts import Alert, AlertState, Severity
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


def marks_of(alerts: Iterable[Alert]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the worst severity of what fires on each node, and on each GPU of each."""
    nodes: dict[str, str] = {}
    gpus: dict[str, dict[str, str]] = {}
    for alert in alerts:
        if alert.state is not AlertState.FIRING or not alert.node:
            continue
        if alert.severity not in {Severity.PAGE, Severity.TICKET}:
            continue
        worst = [alert.severity.value]
        nodes[alert.node] = min([nodes.get(alert.node, "ticket"), *worst])  # by their names, too
        if alert.gpu:
            its = gpus.setdefault(alert.node, {})
            its[alert.gpu] = min([its.get(alert.gpu, "ticket"), *worst])
    return nodes, gpus
