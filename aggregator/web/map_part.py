"""The map of all GPUs as a part of the first page: of few GPUs as it is now, of many a fifth of the racks at a time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

from aiohttp import web

from aggregator.http.marks import marks_of
from aggregator.http.reply import VIEW
from aggregator.web.chart_time import STEP_NS, chart_now
from aggregator.web.fleet_cells import fleet_cells, highest_of, rack_of
from aggregator.web.fleet_map import DrawnRacks, MapForm, fleet_map, map_of, rack_pictures, scale_of
from aggregator.web.live_pages import EVERY_SECONDS
from aggregator.web.past_readings import SHARED_PAST

TURNS = round(STEP_NS / 1e9 / EVERY_SECONDS)
"""Updates of a page until all racks have been drawn anew: all of 10,000 GPUs in one are 45 ms of a browser's thread."""


async def map_part(request: web.Request, quantity: str, form: MapForm) -> str:
    """Return the map. Of many GPUs each rack is drawn anew every ten seconds, as a chart is, and with others when an
    alert begins or ends, or the scale has another end."""
    view = request.app[VIEW]
    if form is MapForm.FIGURES:
        return fleet_map(fleet_cells(view, quantity), quantity)
    scale = scale_of(quantity, highest_of(view.fleet, quantity, view.now()))
    nodes, marks = marks_of(view.alerts())
    turns: list[dict[str, tuple[object, object]]] = [{} for _ in range(TURNS)]
    for name, node in view.fleet.nodes.items():
        if node.inventory.gpus:
            turns[turn_of(rack_of(node))][name] = (nodes.get(name), marks.get(name))
    drawn = [await _drawn(request, turn, quantity, scale, its) for turn, its in enumerate(turns)]
    return map_of(quantity, scale, drawn, form)


async def _drawn(
    request: web.Request,
    turn: int,
    quantity: str,
    scale: tuple[float, float],
    marked: Mapping[str, tuple[object, object]],
) -> DrawnRacks:
    """Return the racks that are drawn in a turn. `marked`: what is wrong, by node of theirs."""
    view = request.app[VIEW]

    async def draw() -> DrawnRacks:
        cells = fleet_cells(view, quantity, marked)
        return await asyncio.to_thread(rack_pictures, cells, quantity, scale)

    since = chart_now(view.wall(), turn * STEP_NS // TURNS)
    wrong = str([each for each in marked.items() if any(each[1])])
    key = ("map", turn, since, quantity, scale, len(marked), wrong)
    drawn: DrawnRacks = await request.app[SHARED_PAST].read(key, draw)
    return drawn


def turn_of(rack: str) -> int:
    """Return the turn in which a rack is drawn; the same for as long as it has its name."""
    return hashlib.blake2b(rack.encode(), digest_size=1).digest()[0] % TURNS
