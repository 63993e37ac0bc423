"""Snapshots of many nodes for metrics pages and remote write, in pieces between which the event loop
does other work, and without devices while those are shed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import hdrs, web

from aggregator.http.errors import RequestError
from aggregator.http.exposition import ExpositionPages, ExpositionSnapshot
from aggregator.http.job_metrics import job_families
from aggregator.http.load_metrics import shed_family
from aggregator.http.rule_input_metrics import RuleInputMetrics, rule_input_families
from aggregator.load.shedding import RETRY_AFTER
from aggregator.view import AggregatorView
from telemetry.fleet import Node

NODES_AT_ONCE = 200
"""Nodes of one piece: about 10 ms of work."""
TURN_SECONDS = 10.0
"""Seconds that a page of many nodes waits for another one to be made."""

PAGE_TURN = web.AppKey("page turn", asyncio.Lock)
"""Held while a page of many nodes is made: two at a time would need twice the memory."""


async def snapshots_of(
    view: AggregatorView,
    pages: ExpositionPages,
    inputs: RuleInputMetrics,
    nodes: Sequence[Node],
    scope: bool,
) -> list[ExpositionSnapshot]:
    """Copy what the pages of some nodes show. Nodes that leave the fleet meanwhile are left out."""
    known, shedding = view.fleet.nodes, view.shedding
    found: list[ExpositionSnapshot] = []
    for start in range(0, len(nodes), NODES_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        some = [
            node
            for node in nodes[start : start + NODES_AT_ONCE]
            if known.get(node.inventory.node) is node
        ]
        devices = not shedding.sheds("device_metrics")
        part = pages.snapshot(view.fleet, some, view.now(), scope, devices=devices)
        if devices:
            part.families.extend(rule_input_families(view, inputs, some, scope))
            part.families.extend(job_families(view, some, scope))
        else:
            shedding.pages_reduced += not start
            part.families.append(shed_family(shedding))
        found.append(part)
    return found


async def wait_for_turn(lock: asyncio.Lock) -> None:
    """Acquire the lock of pages of many nodes. Raises a 503 when that takes too long."""
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await lock.acquire()
    except TimeoutError as error:
        raise RequestError(
            503, "path", "another page of all nodes is being made",
            "Scrape node by node: /sd/prometheus lists the targets.",
            headers={hdrs.RETRY_AFTER: str(RETRY_AFTER)},
        ) from error  # fmt: skip
