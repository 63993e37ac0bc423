"""The first page: what is wrong now, the most urgent circuits, and what reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.circuits import circuits_now
from aggregator.http.metrics import SUMMARIZER
from aggregator.http.parameters import one_of, query
from aggregator.http.ports import ports_reply
from aggregator.http.power import power_reply
from aggregator.http.reply import VIEW
from aggregator.register.node_register import drift
from aggregator.register.node_status import status_of as status_of_node
from aggregator.view import AggregatorView, parts_of
from aggregator.web.alert_list import incidents_part
from aggregator.web.bars import load_bar
from aggregator.web.circuit_list import ALERT_TONES, STATUS_WORDS, nearest_table
from aggregator.web.content import PageContent, shown_to
from aggregator.web.electrical_pages import status_of
from aggregator.web.fleet_map import QUANTITIES, NodeCells, OtherNode, fleet_map, other_nodes
from aggregator.web.fleet_pages import fitness_chart, fitness_links
from aggregator.web.gpu_holders import users_section
from aggregator.web.headline_part import headline_part, tile, tiles
from aggregator.web.markup import fact, link, path, section, text
from aggregator.web.port_pages import places_table
from api.alerts import Alert, AlertState, IncidentsReply, Severity
from api.fleet import FleetSummary
from api.node_register import ReleaseDrift
from api.power import CircuitsReply, CircuitState, PowerReply
from present.circuit.figures import by_urgency
from present.circuit.outlook import next_row
from present.circuit.rows import limits_row, share_row
from present.fleet.fitness import fitness_row
from present.fleet.headline import Heard, headline
from present.row import Tone
from present.units import percent, watts
from telemetry.inventory import role_of
from telemetry.metric import Table
from telemetry.runtime.release import release
from telemetry.text import ABSENT, counted

MOST = 10
SMALL = 64
"""GPUs up to which circuits have more room than the map."""


async def overview(request: web.Request) -> PageContent:
    """Return the first page."""
    quantity = one_of(query(request, "map"), "map", tuple(QUANTITIES))
    view, private = request.app[VIEW], request[CALLER].sees_private
    now, summary = view.wall(), request.app[SUMMARIZER].summary(view.fleet, view.now())
    every = view.pipeline.manager.incidents()
    found = view.pipeline.quality.marked(every[:MOST])
    incidents = shown_to(request, IncidentsReply(now, list(found))).incidents
    circuits = shown_to(request, CircuitsReply(at=now, circuits=await circuits_now(view))).circuits
    status, parts = status_of(view), parts_of(view, "overview")
    urgent = by_urgency(circuits, lambda name: status.get(name, 0))
    power = shown_to(request, power_reply(view))
    cells = _cells(view, quantity)
    drawn = await asyncio.to_thread(fleet_map, cells, quantity) if cells else ""
    gpus = sum(len(one.values) for one in cells)
    heard = Heard(
        nodes=len(view.fleet.nodes),
        silent=sum(not node.online for node in view.fleet.nodes.values()),
        gpus=gpus,
        unread=gpus - sum(model.power_known for model in summary.models),
    )
    wrong = section(
        "What is wrong",
        incidents_part(incidents, len(every), now),
        "incidents",
        more=link("all", "alerts"),
    )
    near = section(
        "Nearest breakers",
        nearest_table(urgent[:MOST], status, parts),
        "circuits",
        more=link(f"all {len(circuits):,}", "circuits"),
    )
    gpu_map, users = section("GPUs", drawn, "map"), users_section(view, private=private)
    left, right = (
        (near + gpu_map, wrong + users)
        if gpus <= SMALL and near
        else (gpu_map, wrong + near + users)
    )
    wide, narrow = ("w15", "w9") if gpus <= SMALL else ("w16", "w8")
    return PageContent(
        "Overview",
        headline_part(headline(every, urgent, heard))
        + f'{tiles(*_tiles(view, power, summary, urgent, status, heard))}<div class="stack {wide}">{left}</div><div class="stack {narrow}">{right}</div>'
        + await _more(view),
        live=True,
        titled=False,
    )  # fmt: skip


async def _more(view: AggregatorView) -> str:
    """Return what not every cluster has: switches or rails, fitness, nodes without GPUs."""
    others = [
        OtherNode(str(role_of(node.inventory) or ""), name, status_of_node(node, view.now()))
        for name, node in view.fleet.nodes.items()
        if not node.inventory.gpus
    ]
    groups = (await asyncio.to_thread(ports_reply, view, 0)).groups
    kind = "switch" if any(one.kind == "switch" for one in groups) else "rail"
    ports = places_table([one for one in groups if one.kind == kind][:MOST], kind)
    fitness = view.fitness.newest
    return (
        section("Ports", ports, "ports", more=link("all ports", "ports"))
        + (section("Fitness", fitness_chart(fitness.history) + fitness_links(), "fitness") if fitness else "")
        + (section("Nodes without GPUs", other_nodes(others), "others") if others else "")
    )  # fmt: skip


def _cells(view: AggregatorView, quantity: str) -> list[NodeCells]:
    fleet = view.fleet
    column = fleet.column(QUANTITIES[quantity], view.now())
    nodes, gpus = _marks(view.alerts())
    return [
        NodeCells(
            str(node.inventory.host.get("rack", "")), name, column[node.rows[Table.GPU]].tolist(),
            [gpu.uuid for gpu in node.inventory.gpus], nodes.get(name, ""), gpus.get(name, {}),
        )
        for name, node in fleet.nodes.items()
        if node.inventory.gpus
    ]  # fmt: skip


def _marks(alerts: Iterable[Alert]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
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


def _tiles(
    view: AggregatorView, power: PowerReply, summary: FleetSummary, urgent: Sequence[CircuitState],
    status: Mapping[str, int], heard: Heard,
) -> Iterator[str]:  # fmt: skip
    if power.wall_watts is not None:
        by = f"reported by {power.wall_nodes or 0:,} of {counted(heard.nodes, 'node')}"
        yield tile("At the wall", watts(power.wall_watts), sub=by)
    read = heard.gpus - heard.unread
    if summary.gpu_power_watts is None:
        yield tile("GPU power", "?", sub="no GPU reports its power", tone=Tone.STALE)
    else:
        limits = percent(_part(summary.limited_power_watts, summary.limited_power_limit_watts))
        yield tile(
            "GPU power",
            watts(summary.gpu_power_watts),
            sub=f"reported by {read:,} of {counted(heard.gpus, 'GPU')}",
            aside=f"{limits} of the limits",
        )
    if urgent:
        yield _nearest(urgent[0], status.get(urgent[0].id, 0))
    busy = f"use {percent(summary.utilization_mean_ratio)}"
    away = f"; {heard.silent:,} silent" if heard.silent else ""
    yield tile(
        "GPUs",
        f"{heard.gpus:,}",
        sub=f"on {counted(heard.nodes, 'node')}{away}{_releases(view)}",
        aside=busy,
    )
    good = fitness_row(None if view.fitness.newest is None else view.fitness.newest.fleet)
    if good.value:
        yield tile(text(good.label), good.value, sub=f"{text(good.note)} {link('why', 'fitness')}")


def _part(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _nearest(circuit: CircuitState, status: int) -> str:
    its, next_ = share_row(circuit), next_row(circuit, ALERT_TONES[status])
    return tile(
        f"Nearest breaker: {link(circuit.id, 'circuits', circuit.id)}",
        "?" if its.short == ABSENT else its.short,
        sub=text(limits_row(circuit).value),
        aside="" if next_.value == ABSENT else fact(next_),
        part=load_bar(circuit, STATUS_WORDS[status], tall=True),
        tone=ALERT_TONES[status],
    )


def _releases(view: AggregatorView) -> str:
    """Return how many nodes run another release than the aggregator's, with a link to them."""
    found = Counter(
        drift(node.inventory.kilowatch, release()) for node in view.fleet.nodes.values()
    )
    other = [each for each in (ReleaseDrift.OLDER, ReleaseDrift.NEWER) if found[each]]
    words = [
        f'<a href="{path("nodes", q=each)}">{found[each]:,} {text(each)}</a>' for each in other
    ]
    return f"; {' and '.join(words)} than this aggregator's {text(release())}" if other else ""
