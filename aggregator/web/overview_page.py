"""The first page: what is wrong now, the most urgent circuits, and what reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from aiohttp import web

from aggregator.http.circuits import circuits_now
from aggregator.http.metrics import SUMMARIZER
from aggregator.http.parameters import one_of, query
from aggregator.http.ports import ports_reply
from aggregator.http.power import power_reply
from aggregator.http.reply import VIEW
from aggregator.register.node_register import drift
from aggregator.register.node_status import status_of as status_of_node
from aggregator.view import AggregatorView, parts_of
from aggregator.web.alert_list import incidents_body
from aggregator.web.circuit_list import circuits_table
from aggregator.web.content import PageContent, shown_to
from aggregator.web.electrical_pages import status_of
from aggregator.web.fleet_map import QUANTITIES, NodeCells, OtherNode, fleet_map, other_nodes
from aggregator.web.fleet_pages import fitness_chart, fitness_links
from aggregator.web.markup import facts, link, path, section, text
from aggregator.web.port_pages import places_table
from api.alerts import IncidentsReply
from api.fleet import FleetSummary
from api.node_register import ReleaseDrift
from api.power import CircuitsReply, PowerReply
from present.circuit.figures import by_urgency
from present.fleet.fitness import fitness_row
from present.units import watts
from telemetry.inventory import role_of
from telemetry.metric import Table
from telemetry.release import release

MOST = 10


async def overview(request: web.Request) -> PageContent:
    """Return the first page."""
    quantity = one_of(query(request, "map"), "map", tuple(QUANTITIES))
    view = request.app[VIEW]
    now, manager = view.wall(), view.pipeline.manager
    found = view.pipeline.quality.marked(list(manager.incidents())[:MOST])
    incidents = shown_to(request, IncidentsReply(now, list(found))).incidents
    circuits = shown_to(request, CircuitsReply(at=now, circuits=await circuits_now(view))).circuits
    status = status_of(view)
    urgent = by_urgency(circuits, lambda name: status.get(name, 0))[:MOST]
    rows = [(0, circuit) for circuit in urgent]
    every = f'<p><a href="{path("circuits")}">all circuits</a></p>'
    power = shown_to(request, power_reply(view))
    cells, parts = _cells(view, quantity), parts_of(view, "overview")
    others = [
        OtherNode(str(role_of(node.inventory) or ""), name, status_of_node(node, view.now()))
        for name, node in view.fleet.nodes.items()
        if not node.inventory.gpus
    ]
    drawn = await asyncio.to_thread(fleet_map, cells, quantity) if cells else ""
    groups = (await asyncio.to_thread(ports_reply, view, 0)).groups
    kind = "switch" if any(one.kind == "switch" for one in groups) else "rail"
    ports = places_table([one for one in groups if one.kind == kind][:MOST], kind)
    fitness = view.fitness.newest
    return PageContent(
        "Overview",
        facts(_facts(view, power, request.app[SUMMARIZER].summary(view.fleet, view.now())))
        + section("What is wrong", incidents_body(incidents, now, past=False), "incidents")
        + (section("Most urgent circuits", circuits_table(rows, status, parts) + every, "circuits") if rows else "")
        + section("GPUs", drawn, "map")
        + (section("Ports", ports + f'<p><a href="{path("ports")}">all ports</a></p>', "ports") if ports else "")
        + (section("Fitness", fitness_chart(fitness.history) + fitness_links(), "fitness") if fitness else "")
        + (section("Nodes without GPUs", other_nodes(others), "others") if others else ""),
        live=True,
    )  # fmt: skip


def _cells(view: AggregatorView, quantity: str) -> list[NodeCells]:
    fleet = view.fleet
    column = fleet.column(QUANTITIES[quantity], view.now())
    return [
        NodeCells(
            str(node.inventory.host.get("rack", "")), name, column[node.rows[Table.GPU]].tolist()
        )
        for name, node in fleet.nodes.items()
        if node.inventory.gpus
    ]


def _facts(
    view: AggregatorView, power: PowerReply, summary: FleetSummary
) -> Iterator[tuple[str, str]]:
    nodes = view.fleet.nodes.values()
    yield "nodes", f"{sum(node.online for node in nodes):,} of {len(nodes):,} online"
    gpus = sum(len(node.inventory.gpus) for node in nodes)
    yield "GPUs", f"{gpus:,}"
    if summary.gpu_power_watts is not None:
        known = sum(model.power_known for model in summary.models)
        yield (
            "GPU power",
            f"{watts(summary.gpu_power_watts)}, reported by {known:,} of {gpus:,} GPUs",
        )
    good = fitness_row(None if view.fitness.newest is None else view.fitness.newest.fleet)
    if good.value:
        yield good.label, f"{text(good.value)}: {text(good.note)} {link('why', 'fitness')}"
    found = Counter(drift(node.inventory.kilowatch, release()) for node in nodes)
    other = [each for each in (ReleaseDrift.OLDER, ReleaseDrift.NEWER) if found[each]]
    if other:
        words = [
            f'<a href="{path("nodes", q=each)}">{found[each]:,} {text(each)}</a>' for each in other
        ]
        yield "releases", f"{' and '.join(words)} than this aggregator's {text(release())}"
    measured = power.wall_nodes
    yield (
        "at the wall",
        ""
        if power.wall_watts is None
        else f"{watts(power.wall_watts)}, reported by {measured or 0:,} nodes",
    )
