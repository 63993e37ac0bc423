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
    view: AggregatorView, pages: ExpositionPages, inputs: RuleInputMetrics, nodes: Sequence[Node], scope: bool
) -> list[ExpositionSnapshot]:
    """Copy what the pages of some nodes show. Nodes that leave the fleet meanwhile are left out; so is one whose
    part raises, which is an impairment, unless it is the only one that was asked for."""
    known, shedding, aside = view.fleet.nodes, view.shedding, view.pages_aside
    now = view.now()
    alone = [node for node in nodes if len(nodes) == 1 or part_of(node) in aside]
    together = [node for node in nodes if len(nodes) > 1 and part_of(node) not in aside]
    found: list[ExpositionSnapshot] = []
    for start in range(0, len(together), NODES_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        some = [node for node in together[start : start + NODES_AT_ONCE] if known.get(node.inventory.node) is node]
        try:
            found.append(_snapshot(view, pages, inputs, some, scope))
        except Exception:  # noqa: BLE001 - one of them; which, is seen node by node
            alone += some
    for node in alone:
        part = part_of(node)
        if known.get(node.inventory.node) is not node or (len(nodes) > 1 and not aside.due(part, now)):
            continue
        try:
            found.append(_snapshot(view, pages, inputs, [node], scope))
        except Exception as error:
            aside.fail(part, error, now)
            if len(nodes) == 1:
                raise
        else:
            aside.works(part)
    shedding.pages_reduced += shedding.sheds("device_metrics")
    return found


def part_of(node: Node) -> str:
    """Return the name under which a node is set aside that metrics pages can't show."""
    return f"node/{node.inventory.node}/pages"


def _snapshot(
    view: AggregatorView, pages: ExpositionPages, inputs: RuleInputMetrics, nodes: list[Node], scope: bool
) -> ExpositionSnapshot:
    """Copy what the pages of some nodes show, all or nothing."""
    devices = not view.shedding.sheds("device_metrics")
    part = pages.snapshot(view.fleet, nodes, view.now(), scope, devices=devices)
    if devices:
        part.families.extend(rule_input_families(view, inputs, nodes, scope))
        part.families.extend(job_families(view, nodes, scope))
    else:
        part.families.append(shed_family(view.shedding))
    return part


async def wait_for_turn(lock: asyncio.Lock) -> None:
    """Acquire the lock of pages of many nodes. Raises a 503 when that takes too long."""
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await lock.acquire()
    except TimeoutError as error:
        raise RequestError(
            503,
            "path",
            "another page of all nodes is being made",
            "Scrape node by node: /sd/prometheus lists the targets.",
            headers={hdrs.RETRY_AFTER: str(RETRY_AFTER)},
        ) from error
