"""The power chain as a part of a page: of the cluster, or around one circuit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aggregator.view import AggregatorView
from aggregator.web.chain_diagram import chain_diagram
from aggregator.web.fleet_cells import fleet_cells
from aggregator.web.fleet_map import NodeCells
from aggregator.web.markup import section, text
from api.power import CircuitState
from power.snapshot.power_chain import branch
from present.circuit.rows import load_row

_ROOM = 1.25
"""Highest watts of the scale over the highest of a GPU: a full load is not the darkest step."""


async def chain_part(
    view: AggregatorView, circuits: Sequence[CircuitState], status: Mapping[str, int], around: str = ""
) -> str:  # fmt: skip
    """Return the diagram in its panel; nothing without circuits that feed nodes. `circuits`: the most urgent
    first; `around`: a circuit whose branch is wanted."""
    found = branch(circuits, around)
    cells = {
        name: NodeCells("", name, (), ()) for name in found.nodes if name not in view.fleet.nodes
    }
    cells |= {one.node: one for one in fleet_cells(view, "power", found.nodes)}
    highest = max((value for one in cells.values() for value in one.values if value > 0), default=1.0)  # fmt: skip
    drawn = await asyncio.to_thread(chain_diagram, found, status, cells, _ROOM * highest)
    window = load_row(found.leaves[0]).label if found.leaves else ""
    caption = f'<p class="dim">Circuits: {text(window)}. GPUs: now.</p>'
    return section(
        "Power chain", f'{caption}<div class="chain-panel">{drawn}</div>' if drawn else "", "chain"
    )
