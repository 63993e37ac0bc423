"""The first page: what is wrong now, the most urgent circuits, and what reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.circuits import circuits_now
from aggregator.http.marks import status_of
from aggregator.http.metrics import SUMMARIZER
from aggregator.http.parameters import one_of, query
from aggregator.http.ports import ports_reply
from aggregator.http.recent import RECENT
from aggregator.http.reply import VIEW
from aggregator.register.node_status import status_of as status_of_node
from aggregator.view import AggregatorView, parts_of
from aggregator.web.alert_list import incidents_part
from aggregator.web.chain_part import fitting_chain
from aggregator.web.circuit_list import nearest_table
from aggregator.web.content import PageContent, shown_to
from aggregator.web.days_strip import days_of, days_strip
from aggregator.web.electrical_pages import circuit_with_facts
from aggregator.web.fleet_cells import rack_of
from aggregator.web.fleet_map import QUANTITIES, MapForm, OtherNode, other_nodes
from aggregator.web.folded_chain import folded_chain
from aggregator.web.gpu_holders import LEAST_ROWS, users_section
from aggregator.web.headline_part import headline_part, tiles
from aggregator.web.map_part import map_part
from aggregator.web.markup import link, section, text
from aggregator.web.overview_room import APART, INSIDE, PORTS, ROOM, USERS, MapNode, form_of, map_height, table_rows
from aggregator.web.overview_tiles import overview_tiles
from aggregator.web.past_readings import SHARED_PAST
from aggregator.web.port_pages import places_line
from api.alerts import Incident, IncidentsReply, Subject
from api.fleet import FleetSummary
from api.power import CircuitsReply, CircuitState
from power.site.layout import SiteLayout
from power.snapshot.documents import uncomputed_states
from present.circuit.figures import by_urgency
from present.circuit.rows import gentlest
from present.fleet.headline import Heard, headline
from present.fleet.trend import power_words, trend_line
from telemetry.errors import StoreError
from telemetry.fleet import Fleet
from telemetry.wire.inventory import role_of

MOST, MOST_PLACES, MOST_INCIDENTS = 4, 4, 3
"""Circuits, switches or rails that are named, and incidents: the page is on one screen, and each list leads to the whole."""


async def overview(request: web.Request) -> PageContent:
    """Return the first page."""
    quantity = one_of(query(request, "map"), "map", tuple(QUANTITIES))
    view, private = request.app[VIEW], request[CALLER].sees_private
    now, summary = view.wall(), request.app[SUMMARIZER].summary(view.fleet, view.now())
    every = view.pipeline.manager.incidents()
    found = view.pipeline.quality.marked(every[:MOST_INCIDENTS])
    incidents = shown_to(request, IncidentsReply(now, list(found))).incidents
    circuits = shown_to(request, CircuitsReply(at=now, circuits=await circuits_now(view))).circuits
    status, parts = status_of(view.alerts()), parts_of(view, "overview")
    layout = view.electrical.site.layout
    # Before the first snapshot each has its place already, with an unknown load.
    placed = circuits or ([] if layout is None else uncomputed_states(layout))
    urgent = by_urgency(placed, lambda name: status.get(name, 0))
    if circuits:
        urgent = await _with_facts(request, urgent, every)
    gpus = sum(len(node.inventory.gpus) for node in view.fleet.nodes.values())
    heard = Heard(
        nodes=len(view.fleet.nodes),
        silent=sum(not node.online for node in view.fleet.nodes.values()),
        gpus=gpus,
        unread=max(0, gpus - sum(model.power_known for model in summary.models)),
    )
    wrong = section(
        "What is wrong",
        incidents_part(incidents, now) + await _days(request),
        "incidents",
        more=link(f"all {len(every):,}", "alerts"),
    )
    near = section(
        "Nearest breakers",
        nearest_table(urgent[:MOST], status, parts),
        "circuits",
        more=link(f"all {len(placed):,}", "circuits"),
    )
    ports, more = await _ports(view), _more(view.fleet, view.now())
    # Of few GPUs all stands beside each other; of more the map is wide, and who uses what a line below it.
    on_map = [
        MapNode(rack_of(node), name, len(node.inventory.gpus))
        for name, node in view.fleet.nodes.items()
        if node.inventory.gpus
    ]
    rows = table_rows(min(MOST, len(urgent)))
    users = users_section(view, private=private, rows=rows)
    beside = sum((PORTS + APART) * bool(one) for one in (ports, more))
    under = (USERS + APART) * bool(users)
    form = form_of(on_map, beside + under * (rows < LEAST_ROWS))
    few = form is MapForm.FIGURES
    if not few and urgent:
        rows = 0
        users = users_section(view, private=private, rows=rows)
    taken = map_height(on_map, form, INSIDE[not few]) + APART + under * (rows < LEAST_ROWS)
    room = ROOM - taken - beside * few
    chain = await fitting_chain(view, urgent, status, room, INSIDE[not few])
    if not chain:
        near = folded_chain(urgent, status, _sources(layout), parts) or near
    columns = ("w16", "w8") if chain and not few else ("w15", "w9")
    gpu_map = section("GPUs", await map_part(request, quantity, form), "map") if gpus else ""
    low, table = (users, "") if rows < LEAST_ROWS else ("", users)
    left = chain + gpu_map + low + ports + more if few else gpu_map + low + chain
    verdict = headline([*incidents, *every[MOST_INCIDENTS:]], urgent if circuits else (), heard)
    return PageContent(
        "Overview",
        headline_part(replace(verdict, act=gentlest(verdict.act)))  # with all acts it would grow and shrink
        + _trend(request, summary, heard, circuits=bool(circuits))
        + tiles(
            *overview_tiles(
                view, request.app[RECENT], summary, heard, (urgent[0], status.get(urgent[0].id, 0)) if urgent else None
            )
        )
        + f'<div class="stack {columns[0]}">{left}</div><div class="stack {columns[1]}">{wrong}{near}{table}</div>'
        + ("" if few else ports + more),
        live=True,
        titled=False,
    )


def _trend(request: web.Request, summary: FleetSummary, heard: Heard, *, circuits: bool) -> str:
    """Return whether it is better or worse than an hour ago. Outside the headline: nobody wants it read aloud every ten
    seconds."""
    view = request.app[VIEW]
    wall, gpus = power_words(view.electrical.wall_sum(view.fleet, view.now()), summary, heard)
    line = trend_line(request.app[RECENT].trends(), wall, gpus, circuits=circuits)
    return f'<p data-k="trend" class="about trend">{text(line)}</p>'


def _sources(layout: SiteLayout | None) -> dict[str, str]:
    """Return what feeds each circuit."""
    circuits = {} if layout is None else layout.circuits
    return {name: one.parent or one.source or "" for name, one in circuits.items()}


async def _days(request: web.Request) -> str:
    """Return the last 30 days, or that their incidents can't be read."""
    view = request.app[VIEW]

    async def draw() -> str:
        return days_strip(await days_of(view))

    try:
        drawn: str = await request.app[SHARED_PAST].read(("days",), draw)
    except (StoreError, TimeoutError):
        return "<p>The incidents of the last 30 days can't be read.</p>"
    return drawn


async def _with_facts(
    request: web.Request, circuits: list[CircuitState], incidents: Sequence[Incident]
) -> list[CircuitState]:
    """Return the circuits, the one that the headline speaks of with its facts in words: the relief is one of
    them."""
    lead = incidents[0].alerts[0] if incidents and incidents[0].alerts else None
    name = "" if incidents or not circuits else circuits[0].id
    if lead is not None and lead.subject is Subject.CIRCUIT:
        name = lead.name
    return [await circuit_with_facts(request, one.id) or one if one.id == name else one for one in circuits]


async def _ports(view: AggregatorView) -> str:
    """Return the switches, or else the rails, of which a port is at fault."""
    groups = (await asyncio.to_thread(ports_reply, view, 0)).groups
    kind = "switch" if any(one.kind == "switch" for one in groups) else "rail"
    return section("Ports", places_line(groups, kind, MOST_PLACES), "ports", more=link("all ports", "ports"))


def _more(fleet: Fleet, now: float) -> str:
    """Return the nodes without GPUs, where a cluster has any."""
    others = [
        OtherNode(str(role_of(node.inventory) or ""), name, status_of_node(node, now))
        for name, node in fleet.nodes.items()
        if not node.inventory.gpus
    ]
    return section("Nodes without GPUs", other_nodes(others), "others") if others else ""
