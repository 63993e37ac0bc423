"""The power chain as a part of a page: of the cluster, or around one circuit."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from aggregator.view import AggregatorView
from aggregator.web.chain_diagram import WIDTH, chain_diagram, diagram_height, remarks
from aggregator.web.fleet_cells import fleet_cells
from aggregator.web.fleet_map import NodeCells
from aggregator.web.markup import section, text
from api.power import CircuitState
from power.snapshot.power_chain import MOST_NODES, Branch, branch
from present.circuit.rows import load_row

LEAST = 2
"""Nodes without which a diagram that leaves some out says less than rows of bars."""
_AROUND = 54.0
"""Height in px of the panel around the diagram."""
_ROOM = 1.25
"""Highest watts of the scale over the highest of a GPU: a full load is not the darkest step."""


async def chain_part(
    view: AggregatorView, circuits: Sequence[CircuitState], status: Mapping[str, int], around: str = ""
) -> str:
    """Return the diagram in its panel; nothing without circuits that feed nodes. `circuits`: the most urgent
    first; `around`: a circuit whose branch is wanted."""
    found = branch(circuits, around)
    return await _panel(found, status, _cells(view, found.nodes))


async def fitting_chain(
    view: AggregatorView, circuits: Sequence[CircuitState], status: Mapping[str, int], room: float, inside: float
) -> str:
    """Return the diagram of all circuits, or of the most urgent one's branch, with as many nodes as the height of a panel
    leaves room for; nothing where that is less than `LEAST` of several, or nothing feeds nodes. `room`: the height in px,
    `inside`: the width inside the panel."""
    if room < _AROUND:
        return ""
    cells = _cells(view, branch(circuits).nodes)
    for most in range(MOST_NODES, 0, -1):
        found = branch(circuits, most_nodes=most)
        cells |= _cells(view, set(found.nodes) - cells.keys())
        if not found.leaves or (most < LEAST and found.left_out):
            return ""
        if _AROUND + diagram_height(found, cells) * inside / WIDTH <= room:
            return await _panel(found, status, cells)
    return ""


def _cells(view: AggregatorView, names: Collection[str]) -> dict[str, NodeCells]:
    """Return the GPUs of nodes; none of a node that has not been heard of."""
    found = {name: NodeCells("", name, (), ()) for name in names if name not in view.fleet.nodes}
    return found | {one.node: one for one in fleet_cells(view, "power", names)}


async def _panel(found: Branch, status: Mapping[str, int], cells: Mapping[str, NodeCells]) -> str:
    if not found.leaves:
        return ""
    its = [value for name in found.nodes if name in cells for value in cells[name].values]
    highest = max((value for value in its if value > 0), default=1.0)
    drawn = await asyncio.to_thread(chain_diagram, found, status, cells, _ROOM * highest)
    window = load_row(found.leaves[0]).label
    words = " ".join((f"Circuits: {window}. GPUs: now.", *remarks(found)))
    return section(
        "Power chain", f'<p class="beside dim">{text(words)}</p><div class="chain-panel">{drawn}</div>', "chain"
    )
