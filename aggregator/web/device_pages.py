"""Pages of devices: all nodes worst first, a node with its GPUs, a GPU with its readings."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from aiohttp import web

from aggregator.http.alerts import row_of
from aggregator.http.auth import CALLER
from aggregator.http.circuits import circuits_now
from aggregator.http.history import StoredPast, stored_past
from aggregator.http.marks import status_of
from aggregator.http.nodes import describe, device, gpu_reply, node_reply
from aggregator.http.parameters import one_of, query, whole_number
from aggregator.http.reply import VIEW
from aggregator.register.node_register import drift
from aggregator.view import parts_of
from aggregator.web.chart_time import chart_span, time_tabs
from aggregator.web.circuit_list import ALERT_TONES, nearest_table
from aggregator.web.content import PageContent, shown_to
from aggregator.web.device_tables import alert_table
from aggregator.web.electrical_pages import circuit_with_facts
from aggregator.web.gpu_holders import holders_section, holders_text
from aggregator.web.gpu_page import GpuParts, gpu_body
from aggregator.web.held_clocks import held_clocks
from aggregator.web.load_chart import NOTHING_STORED, load_chart
from aggregator.web.markup import section
from aggregator.web.multiples import METRICS, PEERS_IN_GREY, Beside, beside_chart, multiples, past_beside
from aggregator.web.node_list import COLUMNS, WORST, NodeLine, nodes_body
from aggregator.web.node_page import NodeParts, node_body, odd_one
from aggregator.web.past_readings import FROM_DATA, SHARED_PAST, power_of_gpus, readings_of
from aggregator.web.port_pages import ports_of_node
from alerts.incidents.manager import IncidentManager
from alerts.message.commands import recover_of
from api.alerts import Alert, AlertState, Severity
from api.device import GpuReply
from api.fleet import NodeReply, NodesReply
from api.power import CircuitsReply, CircuitState
from present.circuit.figures import by_urgency
from present.device.figures import HEAT, MEMORY
from present.device.gpu import gpu_name
from present.device.reading import metric_text
from present.fleet.device_headline import OpenAlert, gpu_headline, node_headline
from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.metric import Table, Unit
from telemetry.runtime.release import release

Floats = npt.NDArray[np.floating]
_CHARTS = (*METRICS, MEMORY)
"""Readings of a GPU that its page draws."""
_POWER = "GPU power"
_NODE_CHARTS = ("node_wall_power_watts", "node_cpu_utilization_ratio", "node_memory_available_bytes")
"""Readings of a node that its page draws, below the power of its GPUs."""


async def nodes(request: web.Request) -> PageContent:
    """Return the page of all nodes, worst first or by the column `sort`; `q` filters by name, rack, job and
    state; `page` counts from 1."""
    asked, view = query(request, "q", "sort", "page"), request.app[VIEW]
    one_of(asked, "sort", (WORST, *COLUMNS))
    page = whole_number(asked, "page", 1, 100_000)
    now, parts, every = view.now(), parts_of(view, "web"), list(view.fleet.nodes.values())
    lines = parts.each("node", view.fleet.nodes, lambda place: describe(every[place], now))
    shown = shown_to(request, NodesReply(view.wall(), lines)).nodes
    found = list(_lines(view.fleet, view.alerts(), shown, now))
    body = await asyncio.to_thread(nodes_body, found, asked, page, parts)
    return PageContent("Nodes", body, live=True)


def _lines(fleet: Fleet, alerts: Iterable[Alert], shown: Sequence[NodeReply], now: float) -> Iterator[NodeLine]:
    power = fleet.column("gpu_power_watts", now)
    heat = fleet.column("gpu_temperature_celsius", now)
    nodes = [fleet.nodes[line.node] for line in shown]
    rows = [node.rows[Table.GPU] for node in nodes]
    sums, most = _of_each(np.add, power, rows), _of_each(np.fmax, heat, rows)
    firing = [alert for alert in alerts if alert.state is AlertState.FIRING]
    pages, tickets = (
        Counter(alert.node for alert in firing if alert.severity is severity)
        for severity in (Severity.PAGE, Severity.TICKET)
    )
    ours = release()
    for number, node in enumerate(nodes):
        line, watts, celsius = shown[number], sums[number], most[number]
        if line.gpus_present < line.gpus:  # those that are gone are no gap
            present = [gpu.present for gpu in node.inventory.gpus]
            its = rows[number]
            watts = float(power[its][present].sum()) if any(present) else math.nan
            celsius = float(np.fmax.reduce(heat[its][present], initial=math.nan))
        yield NodeLine(
            line,
            None if math.isnan(watts) else watts,
            None if math.isnan(celsius) else celsius,
            pages[line.node],
            tickets[line.node],
            drift(line.release, ours),
        )


def _of_each(reduce: np.ufunc, values: Floats, rows: Sequence[slice]) -> list[float]:
    """Return a column reduced over the rows of each node, at once for all; NaN where a node has none."""
    ends = np.array([(one.start, one.stop) for one in rows], np.intp).reshape(-1, 2)
    if not len(ends):
        return []
    found = reduce.reduceat(np.append(values, math.nan), ends.ravel())[::2].astype(np.float64)
    found[ends[:, 0] == ends[:, 1]] = math.nan
    return list(found.tolist())


async def node(request: web.Request) -> PageContent:
    """Return the page of a node; `from` and `to` choose the time of its charts."""
    asked, view = query(request, "from", "to"), request.app[VIEW]
    reply, private = shown_to(request, await node_reply(request, {})), request[CALLER].sees_private
    name, gpus = reply.node.node, [each.gpu for each in reply.gpus]
    start, end = chart_span(asked, view.wall())
    past = await request.app[SHARED_PAST].read(
        ("node", name, start, end),
        lambda: _node_charts(stored_past(view), name, [each.uuid for each in gpus], start, end),
    )
    status = status_of(view.alerts())
    circuits = await _circuits_of(request, name, status)
    tones = {each.id: ALERT_TONES[status.get(each.id, 0)] for each in circuits}
    title = node_headline(reply, open_alerts(view.pipeline.manager, reply.alerts), circuits, tones)
    odd, beside = odd_one(reply.gpus, reply.alerts), ""
    if odd is not None and len(gpus) > 1:
        peers = [each for each in reply.gpus if each is not odd]
        found = await _past(request, odd.gpu.uuid, peers, METRICS, asked)
        words = f"{gpu_name('', odd.gpu.index)} beside the others"
        charts = multiples(found, odd, peers, start, end)
        beside = section(words, f"{PEERS_IN_GREY if charts else ''}{charts}", "odd")
    listed = view.jobs.lists.get(name)
    parts = NodeParts(
        alerts=alert_table(view.pipeline.manager, reply.alerts, reply.at),
        holders=holders_section(view, name, gpus, private=private),
        feeds=nearest_table(circuits, status),
        ports=ports_of_node(reply.ports, gpus, reply.alerts),
        odd=beside,
        past=time_tabs(("nodes", name), "past", asked, start, end) + past,
    )
    held = (lambda uuid: holders_text(listed, uuid)) if private and listed is not None else None
    return PageContent(name, node_body(reply, title, parts, held), live="to" not in asked)


async def _circuits_of(request: web.Request, name: str, status: Mapping[str, int]) -> list[CircuitState]:
    """Return the circuits that feed a node, the most urgent first, and that one with its facts in words."""
    view = request.app[VIEW]
    layout = view.electrical.site.layout
    names = set() if layout is None else {cord.circuit for cord in layout.cords if cord.machine == name}
    if layout is None or not names:
        return []
    names |= {layout.circuits[one].parent or one for one in names}
    found = CircuitsReply(at=view.wall(), circuits=await circuits_now(view, names))
    urgent = by_urgency(shown_to(request, found).circuits, lambda one: status.get(one, 0))
    return [await circuit_with_facts(request, one.id) or one for one in urgent[:1]] + urgent[1:]


def open_alerts(manager: IncidentManager, alerts: Sequence[Alert]) -> list[OpenAlert]:
    """Return alerts with the incidents that they belong to, and the command that helps."""
    return [OpenAlert(one, row_of(manager, one).incident or "", recover_of(one)) for one in alerts]


async def _node_charts(stored: StoredPast, name: str, gpus: Sequence[str], start: int, end: int) -> str:
    """Return the charts of what the node has reported; a quantity that it lacks has none."""
    drawn = [(_POWER, Unit.WATTS, await power_of_gpus(stored, gpus, start, end))]
    for each in _NODE_CHARTS:
        found = await readings_of(stored, Table.NODE, name, each, start, end)
        drawn.append((metric_text(each), BY_NAME[each].unit, found))
    charts = "".join(
        load_chart(series, start, end, (), label, from_zero=unit not in FROM_DATA, caption="", empty=label == _POWER)
        for label, unit, series in drawn
    )
    return f'<div class="multiples">{charts}</div>' if charts else NOTHING_STORED


async def gpu(request: web.Request) -> PageContent:
    """Return the page of a GPU; `from` and `to` choose the time of its charts."""
    asked, view = query(request, "from", "to"), request.app[VIEW]
    reply = shown_to(request, await gpu_reply(request, {}))
    one, home = reply.gpu, reply.node.node
    start, end = chart_span(asked, view.wall())
    peers, own = _peers(view.fleet, view.now(), one), GpuReply(one, reply.readings, reply.gaps)
    past = await _past(request, one.uuid, peers, _CHARTS, asked)
    heat = beside_chart(HEAT, past[HEAT], own, peers, start, end, small=False)
    grey = PEERS_IN_GREY if peers else ""
    rest = {name: its for name, its in past.items() if name != HEAT}
    small = multiples(rest, own, peers, start, end)
    held = await request.app[SHARED_PAST].read(
        ("held", one.uuid, start, end), lambda: held_clocks(stored_past(view), one.uuid, start, end)
    )
    parts = GpuParts(
        alerts=alert_table(view.pipeline.manager, reply.alerts, reply.at),
        holders=holders_section(view, home, [one], private=request[CALLER].sees_private),
        past=time_tabs(("gpus", one.uuid), "past", asked, start, end) + heat,
        multiples=small and grey + small,
        held=held,
    )
    title = gpu_headline(reply, open_alerts(view.pipeline.manager, reply.alerts), peers)
    body = gpu_body(reply, title, peers, parts)
    return PageContent(gpu_name(home, one.index), body, live="to" not in asked)


async def _past(
    request: web.Request, gpu: str, peers: Sequence[GpuReply], metrics: Sequence[str], asked: Mapping[str, str]
) -> Mapping[str, Beside]:
    """Return readings of a GPU in the time of the charts, beside the others'; for all viewers of ten seconds once."""
    view = request.app[VIEW]
    start, end = chart_span(asked, view.wall())
    key = (gpu, *metrics, start, end)
    found: Mapping[str, Beside] = await request.app[SHARED_PAST].read(
        key, lambda: past_beside(stored_past(view), gpu, peers, metrics, start, end)
    )
    return found


def _peers(fleet: Fleet, now: float, gpu: Gpu) -> list[GpuReply]:
    """Return the other GPUs of a GPU's node, with what they read now."""
    entry = fleet.gpus[fleet.by_uuid[gpu.uuid]] if gpu.uuid in fleet.by_uuid else None
    if entry is None:
        return []
    node = fleet.nodes[entry[0]]
    first = node.rows[Table.GPU].start
    return [
        GpuReply(each, *device(fleet, Table.GPU, first + place, now))
        for place, each in enumerate(node.inventory.gpus)
        if each.uuid != gpu.uuid
    ]
