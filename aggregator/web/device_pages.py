"""Pages of devices: all nodes worst first, a node with its GPUs, a GPU with its readings."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.nodes import describe, gpu_reply, node_reply
from aggregator.http.parameters import between, one_of, query, whole_number
from aggregator.http.reply import VIEW
from aggregator.register.node_register import drift
from aggregator.view import AggregatorView, parts_of
from aggregator.web.chart_time import USUAL_SPAN, time_tabs
from aggregator.web.content import PageContent, shown_to
from aggregator.web.device_tables import alert_table, reading_cell, readings_table
from aggregator.web.gpu_holders import holders_section
from aggregator.web.load_chart import NOTHING_STORED, load_chart
from aggregator.web.markup import fact, facts, link, moment, path, section, table, text, toned
from aggregator.web.node_list import (
    COLUMNS,
    WORST,
    NodeLine,
    nodes_body,
    release_text,
    state_badge,
)
from aggregator.web.past_readings import FROM_DATA, power_of_gpus, readings_of
from aggregator.web.port_pages import ports_of_node
from api.alerts import AlertState, Severity
from api.device import GpuReply, InstanceReply, NodePageReply
from api.fleet import NodeReply, NodesReply
from present.device.gpu import event_row, gpu_name, identity_rows, state_row
from present.device.gpu import now_rows as gpu_now_rows
from present.device.node import driver_row, frame_row, gpus_row, now_rows, release_row, role_row
from present.device.reading import metric_text, plain
from telemetry.catalogue import BY_NAME
from telemetry.devices import Event
from telemetry.metric import Table, Unit
from telemetry.runtime.release import release
from telemetry.text import ABSENT, counted

Floats = npt.NDArray[np.floating]
_SHOWN = (
    "gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio", "gpu_memory_used_bytes",
)  # fmt: skip
"""Readings of a GPU in the table of its node."""
_SHOWN_OF_INSTANCE = (
    "instance_memory_used_bytes", "instance_memory_total_bytes", "instance_sm_active_ratio",
    "instance_tensor_active_ratio", "instance_dram_active_ratio", "instance_processes",
)  # fmt: skip
_CHARTS = (
    "gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio", "gpu_sm_clock_hertz",
)  # fmt: skip
"""Readings of a GPU that its page draws."""
_NODE_CHARTS = (
    "node_wall_power_watts",
    "node_cpu_utilization_ratio",
    "node_memory_available_bytes",
)
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
    found = list(_lines(view, shown, now))
    body = await asyncio.to_thread(nodes_body, found, asked, page, parts)
    return PageContent("Nodes", body, live=True)


def _lines(view: AggregatorView, shown: Sequence[NodeReply], now: float) -> Iterator[NodeLine]:
    power = view.fleet.column("gpu_power_watts", now)
    heat = view.fleet.column("gpu_temperature_celsius", now)
    nodes = [view.fleet.nodes[line.node] for line in shown]
    rows = [node.rows[Table.GPU] for node in nodes]
    sums, most = _of_each(np.add, power, rows), _of_each(np.fmax, heat, rows)
    firing = [alert for alert in view.alerts() if alert.state is AlertState.FIRING]
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
    one, now = reply.node, reply.at
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), USUAL_SPAN)
    charts = time_tabs(("nodes", one.node), "past", asked, start, end)
    charts += await _node_charts(view, one.node, [each.gpu.uuid for each in reply.gpus], start, end)
    host = tuple(
        (plain(name), text(value))
        for name, value in reply.host.items()
        if name not in {"rack", "job"}  # they stand above
    )
    heads = ("GPU", "model", *map(metric_text, _SHOWN))
    rows = [_gpu_row(each) for each in reply.gpus]
    gpus = [each.gpu for each in reply.gpus]
    body = (
        facts((*_node_facts(reply), *host))
        + section("Alerts", alert_table(view, reply.alerts, now), "alerts")
        + section(
            "GPUs", table(counted(len(rows), "GPU"), heads, rows, range(2, len(heads))), "gpus"
        )
        + section("Ports", ports_of_node(reply.ports, gpus, reply.alerts), "ports")
        + holders_section(view, one.node, gpus, private=private)
        + section("Past", charts, "past")
        + section("Readings of the node", readings_table(reply.readings, reply.gaps), "readings")
        + f'<p><a href="{path("alerts", view="past", node=one.node)}">past incidents of this node</a></p>'
    )
    return PageContent(one.node, body, live="to" not in asked)


async def _node_charts(
    view: AggregatorView, name: str, gpus: Sequence[str], start: int, end: int
) -> str:
    """Return the charts of what the node has reported; a quantity that it lacks has none."""
    drawn = [("GPU power", Unit.WATTS, await power_of_gpus(view, gpus, start, end))]
    for each in _NODE_CHARTS:
        found = await readings_of(view, Table.NODE, name, each, start, end)
        drawn.append((metric_text(each), BY_NAME[each].unit, found))
    known = [one for one in drawn if any(value is not None for value in one[2].values)]
    charts = (
        load_chart(series, start, end, (), label, from_zero=unit not in FROM_DATA)
        for label, unit, series in known
    )
    return "".join(charts) or NOTHING_STORED


def _node_facts(page: NodePageReply) -> Iterator[tuple[str, str]]:
    one = page.node
    yield "state", state_badge(one)
    rows = (
        frame_row(one.age_seconds),
        driver_row(one.driver_version, one.driver_state, one.driver_message),
        role_row(one.role),
        gpus_row(one.gpus, one.gpus_present, one.role),
    )
    yield from ((row.label, fact(row)) for row in rows)
    yield "source", text(one.source)
    yield "rack", text(one.rack)
    yield "job", text(one.job)
    release_ = release_row(one.release, drift(one.release, release()))
    yield release_.label, release_text(release_)
    yield from (
        (row.label, fact(row)) for row in now_rows(page.readings.get) if row.value != ABSENT
    )


def _gpu_row(each: GpuReply) -> tuple[str, ...]:
    cells = (reading_cell(each.readings, each.gaps, name) for name in _SHOWN)
    name = link(gpu_name("", each.gpu.index), "gpus", each.gpu.uuid)
    state = state_row(each.gpu, each.readings, each.gaps)
    mark = toned(f" {text(state.value)}", state.tone) if state.value else ""
    return f"{name}{mark}", text(each.gpu.name), *cells


async def gpu(request: web.Request) -> PageContent:
    """Return the page of a GPU; `from` and `to` choose the time of its charts."""
    asked, view = query(request, "from", "to"), request.app[VIEW]
    reply = shown_to(request, await gpu_reply(request, {}))
    one, home = reply.gpu, reply.node.node
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), USUAL_SPAN)
    limit = reply.readings.get("gpu_power_limit_watts")
    limits = {"gpu_power_watts": [] if limit is None else [("limit", limit)]}
    drawn = [
        await _chart(view, one.uuid, name, start, end, limits.get(name, ())) for name in _CHARTS
    ]
    charts = time_tabs(("gpus", one.uuid), "past", asked, start, end) + "".join(drawn)
    state = state_row(one, reply.readings, reply.gaps)
    rows = (*identity_rows(one), *([state] if state.value else gpu_now_rows(reply.readings.get)))
    about = facts(
        [
            ("node", link(home, "nodes", home)),
            ("model", text(one.name)),
            *((row.label, fact(row)) for row in rows if row.value),
        ]
    )
    body = (
        about
        + section("Alerts", alert_table(view, reply.alerts, reply.at), "alerts")
        + holders_section(view, home, [one], private=request[CALLER].sees_private)
        + _instances(reply.instances)
        + section("Past", charts, "past")
        + section("Readings", readings_table(reply.readings, reply.gaps), "readings")
        + section("Events", _events(reply.events, reply.at), "events")
    )
    return PageContent(gpu_name(home, one.index), body, live="to" not in asked)


def _instances(instances: Sequence[InstanceReply]) -> str:
    """Return the MIG instances of a GPU with their readings; nothing without any."""
    if not instances:
        return ""
    heads = ("instance", *map(metric_text, _SHOWN_OF_INSTANCE))
    rows = [
        (
            text(each.instance.name),
            *(reading_cell(each.readings, each.gaps, name) for name in _SHOWN_OF_INSTANCE),
        )
        for each in instances
    ]
    body = table(counted(len(rows), "instance"), heads, rows, range(1, len(heads)))
    return section("MIG instances", body, "instances")


async def _chart(
    view: AggregatorView,
    uuid: str,
    name: str,
    start: int,
    end: int,
    limits: Sequence[tuple[str, float]],
) -> str:
    series = await readings_of(view, Table.GPU, uuid, name, start, end)
    from_zero = BY_NAME[name].unit not in FROM_DATA
    return load_chart(series, start, end, limits, metric_text(name), from_zero=from_zero)


def _events(events: Sequence[Event], now: int) -> str:
    found = [(one.at, event_row(one)) for one in events]
    rows = [
        (moment(at, now), toned(text(row.label), row.tone), text(row.value)) for at, row in found
    ]
    return table(counted(len(rows), "event"), ("when", "kind", "what"), rows)
