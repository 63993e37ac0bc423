"""`/api/v1/nodes`, `/api/v1/nodes/<node>`, `/api/v1/gpus/<uuid>`: one device and all about it.

A page of a past time (`?at=`) has today's inventory, because no older one is stored; readings, the
node's state and events are those of that time. Past alerts are in `/api/v1/incidents?from=`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http import columns as by_columns
from aggregator.http import past
from aggregator.http.errors import unknown
from aggregator.http.history import events_of, stored_past
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import AT, NODE, query
from aggregator.http.past import PAST_SECONDS, SECOND
from aggregator.http.present_jobs import gpu_holders
from aggregator.http.reply import VIEW, send_json
from aggregator.register.node_status import age, status_of
from aggregator.view import parts_of
from api.device import (
    DeviceReply,
    GpuPageReply,
    GpuReply,
    InstanceReply,
    LinkReply,
    NodePageReply,
    PortReply,
    WallAndGpus,
)
from api.fleet import NodeReply, NodesReply, NodeStatus
from present.device.wall import CONTRADICTED, contradicted
from telemetry.devices import Event, Link
from telemetry.fleet import Fleet, Node, gaps_of
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane, Table
from telemetry.text.decimals import plain
from telemetry.wire.inventory import role_of
from telemetry.wire.schema import GPU_FAST, NODE_FAST
from telemetry.wire.tables import KINDS

RECENT = 50
"""How many events a GPU's page shows at most."""
EVENTS_SECONDS = 7 * 86_400
"""How far back the page of a past time looks for events."""


class DeviceReadings(NamedTuple):
    """Readings of a device in base units by metric, and the reason for each that is absent."""

    readings: dict[str, float]
    gaps: dict[str, str]


_OTHERS = tuple(kind for kind in KINDS.values() if not kind.has_pages)
_ON_PAGE = (Table.GPU, Table.PORT, *(kind.table for kind in _OTHERS))
"""Tables whose devices are on the page of their node."""
_NOTHING = DeviceReadings({}, {})
"""Of a device that was not there yet."""


def describe(node: Node, now: float) -> NodeReply:
    """Return a node's line in a list."""
    inventory = node.inventory
    return NodeReply(
        node=inventory.node,
        state=status_of(node, now),
        age_seconds=age(node, now),
        sampled_at=node.sampled_at or None,
        interval_seconds=node.interval,
        slow_interval_seconds=node.slow_interval,
        session=node.session,
        seq=node.seq,
        gpus=len(inventory.gpus),
        gpus_present=sum([gpu.present for gpu in inventory.gpus]),
        source=inventory.source,
        driver_state=inventory.driver_state,
        driver_message=inventory.driver_message,
        driver_version=inventory.driver_version,
        release=inventory.kilowatch,
        rack=str(inventory.host.get("rack", "")),
        job=str(inventory.host.get("job", "")),
        role=role_of(inventory) or "",
    )


def device(fleet: Fleet, table: Table, row: int, now: float) -> DeviceReadings:
    """Return all readings of one row; what is stale is a gap."""
    readings: dict[str, float] = {}
    absent: dict[str, str] = {}
    for matrix in fleet.matrices:
        if matrix.block.table is not table:
            continue
        raw = [*matrix.gauges[row].tolist(), *matrix.counters[row].tolist()]
        short = [*plain(matrix.gauges[row]).tolist(), *matrix.counters[row].tolist()]
        seen = float(matrix.seen[row])
        stale = not math.isinf(seen) and now - seen > matrix.max_age[row]
        for name, value, shown in zip(matrix.block.names, raw, short, strict=True):
            reason = Gap.STALE if stale else reason_of(value)
            if reason is None:
                readings[name] = shown
            else:
                absent[name] = reason.word
    return DeviceReadings(readings, absent)


def _now(fleet: Fleet, node: Node, table: Table, now: float) -> dict[str, DeviceReadings]:
    """Return the readings of all devices of a node in a table, by key."""
    keys = KINDS[table].keys(node.inventory)
    return {key: device(fleet, table, row, now) for row, key in enumerate(keys, node.rows[table].start)}


async def nodes(request: web.Request) -> web.Response:
    """Answer with all nodes."""
    query(request)
    view = request.app[VIEW]
    now = view.now()
    names = sorted(view.fleet.nodes)
    found = parts_of(view, "api").each("node", names, lambda place: describe(view.fleet.nodes[names[place]], now))
    return await send_json(request, NodesReply(view.wall(), found, list(view.missing)), values=20 * len(found))


async def node(request: web.Request) -> web.Response:
    """Answer with all about one node, now or at a past time."""
    return await send_json(request, await node_reply(request, query(request, "at")))


async def node_reply(request: web.Request, asked: Mapping[str, str]) -> NodePageReply:
    """Return all about the node of a path; `asked` may have a past time as `at`. Raises a 404."""
    view, name = request.app[VIEW], request.match_info["node"]
    found = view.fleet.nodes.get(name)
    if found is None:
        raise unknown("node", name, view.fleet.nodes)
    inventory = found.inventory
    if asked.get("at", "now") != "now":
        then = await _rows_then(request, name, Table.NODE, asked)
        found_of = {
            table: (await _rows_then(request, name, table, asked)).devices
            for table in _ON_PAGE
            if table is Table.GPU or KINDS[table].count(inventory)
        }
        at, line, alerts, listed = then.at, _line_then(request, found, then), [], None
        own = then.devices.get(name, _NOTHING)
    else:
        now = view.now()
        found_of = {table: _now(view.fleet, found, table, now) for table in _ON_PAGE}
        at, line = view.wall(), describe(found, now)
        own = device(view.fleet, Table.NODE, found.row, now)
        alerts = [alert for alert in view.alerts() if alert.node == name]
        listed = view.jobs.lists.get(name)
    gpus, ports = found_of[Table.GPU], found_of.get(Table.PORT, {})
    return NodePageReply(
        at=at,
        node=line,
        host=inventory.host,
        cuda_version=inventory.cuda_version,
        pools=list(inventory.pools),
        power=_power(view.fleet, found, own, gpus, None if asked.get("at", "now") != "now" else view.now()),
        readings=own.readings,
        gaps=own.gaps,
        gpus=[GpuReply(gpu, *gpus.get(gpu.uuid, _NOTHING), gpu_holders(listed, gpu.uuid)) for gpu in inventory.gpus],
        ports=[PortReply(port, *ports.get(port.id, _NOTHING)) for port in inventory.ports],
        devices=[
            DeviceReply(kind.table, key, its.text, *found_of[kind.table].get(key, _NOTHING))
            for kind in _OTHERS
            for key, its in zip(kind.keys(inventory), kind.names(inventory), strict=True)
        ],
        alerts=alerts,
    )


def _power(
    fleet: Fleet, node: Node, own: DeviceReadings, gpus: Mapping[str, DeviceReadings], now: float | None
) -> WallAndGpus:
    """Return the power at the wall beside that of the GPUs. `now`: None at a past time, of which no age is known."""
    read = [one.readings["gpu_power_watts"] for one in gpus.values() if "gpu_power_watts" in one.readings]
    wall, drawn = own.readings.get("node_wall_power_watts"), sum(read) if read else None

    def old(block: int, row: int, value: float | None) -> float | None:
        seen = float(fleet.matrices[block].seen[row])
        return None if now is None or value is None else round(max(0.0, now - seen), 3)

    return WallAndGpus(
        wall_watts=wall,
        wall_age_seconds=old(NODE_FAST, node.row, wall),
        gpu_watts=drawn,
        gpu_age_seconds=None if drawn is None else old(GPU_FAST, node.rows[Table.GPU].start, drawn),
        state=CONTRADICTED if contradicted(wall, drawn) else "",
    )


async def gpu(request: web.Request) -> web.Response:
    """Answer with all about one GPU, now or at a past time."""
    return await send_json(request, await gpu_reply(request, query(request, "at")))


async def gpu_reply(request: web.Request, asked: Mapping[str, str]) -> GpuPageReply:
    """Return all about the GPU of a path; `asked` may have a past time as `at`. Raises a 404."""
    view, uuid = request.app[VIEW], request.match_info["uuid"]
    row = view.fleet.by_uuid.get(uuid)
    entry = None if row is None else view.fleet.gpus[row]
    if row is None or entry is None:
        raise unknown("uuid", uuid, view.fleet.by_uuid)
    name, what = entry
    home = view.fleet.nodes[name]
    links: Mapping[str, DeviceReadings]
    if asked.get("at", "now") != "now":
        then = await _rows_then(request, name, Table.GPU, asked)
        links = (await _rows_then(request, name, Table.LINK, asked)).devices
        instances: Mapping[str, DeviceReadings] = {}
        if home.inventory.instances:
            instances = (await _rows_then(request, name, Table.INSTANCE, asked)).devices
        at, line, alerts, listed = then.at, _line_then(request, home, then), [], None
        own = then.devices.get(uuid, _NOTHING)
        events = await _events_then(request, name, uuid, then.at)
    else:
        now, first = view.now(), home.rows[Table.LINK].start
        links = {
            _key(link): device(view.fleet, Table.LINK, first + place, now)
            for place, link in enumerate(home.inventory.links)
            if link.gpu == uuid
        }
        instances = {
            each.uuid: device(view.fleet, Table.INSTANCE, home.rows[Table.INSTANCE].start + place, now)
            for place, each in enumerate(home.inventory.instances)
            if each.gpu == uuid
        }
        at, line = view.wall(), describe(home, now)
        own = device(view.fleet, Table.GPU, row, now)
        events = [event for event in view.recent_events() if event.gpu == uuid][:RECENT]
        alerts = [alert for alert in view.alerts() if alert.gpu == uuid]
        listed = view.jobs.lists.get(name)
    return GpuPageReply(
        at=at,
        node=line,
        gpu=what,
        readings=own.readings,
        gaps=own.gaps,
        links=[LinkReply(link, *links.get(_key(link), _NOTHING)) for link in home.inventory.links if link.gpu == uuid],
        instances=[
            InstanceReply(each, *instances.get(each.uuid, _NOTHING), gpu_holders(listed, uuid, (each.gpu_instance,)))
            for each in home.inventory.instances
            if each.gpu == uuid
        ],
        events=events,
        alerts=alerts,
        holders=gpu_holders(listed, uuid),
        processes=[] if listed is None else [one for one in listed.processes if one.gpu == uuid],
    )


def _key(link: Link) -> str:
    """Return the key under which the store has a link."""
    return f"{link.gpu}/{link.number}"


class _RowsThen(NamedTuple):
    """The rows of one table of one node at one instant."""

    at: int
    devices: dict[str, DeviceReadings]
    """By key, as the store has it."""
    newest: int
    """When the newest reading was taken, ns; 0 for none."""


async def _rows_then(request: web.Request, node: str, table: Table, asked: Mapping[str, str]) -> _RowsThen:
    choice = by_columns.choose("columns", table.value, [by_columns.ALL], [node])
    at, was = await past.then(request, choice, asked)
    (readings,) = was.frames
    devices = {}
    for row, (_, key) in enumerate(past.keys_of(was.rows, table)):
        found = devices[key] = DeviceReadings({}, {})
        for name, values in readings.columns.items():
            reason = int(gaps_of(values[row : row + 1])[0])
            if reason == 255:
                found.readings[name] = float(plain(values[row : row + 1])[0])
            else:
                found.gaps[name] = by_columns.gap_word(reason)
    seen = was.past.seen.get(Lane.FAST, np.zeros(1, np.int64))
    return _RowsThen(at, devices, int(seen.max(initial=0)))


def _line_then(request: web.Request, node: Node, rows: _RowsThen) -> NodeReply:
    """Return a node's line in a list, as it was."""
    newest = rows.newest or None
    return msgspec.structs.replace(
        describe(node, request.app[VIEW].now()),
        state=NodeStatus.STALE if newest is None else NodeStatus.ONLINE,
        age_seconds=None if newest is None else (rows.at - newest) / SECOND,
        sampled_at=newest,
        seq=-1,
    )


async def _events_then(request: web.Request, node: str, uuid: str, at: int) -> list[Event]:
    start = at - EVENTS_SECONDS * SECOND
    async with asyncio.timeout(PAST_SECONDS):
        found = await events_of(stored_past(request.app[VIEW]), start, at + 1, node, None, 1000)
    events = [stored.event for stored in found]
    return [event for event in events if event.gpu == uuid][:RECENT]


OPERATIONS = (
    Operation("/api/v1/nodes", nodes, "nodes", "All nodes.", NodesReply, scope=AccessScope.READ),
    Operation(
        "/api/v1/nodes/{node}",
        node,
        "node",
        "One node in detail, now or at a past time.",
        NodePageReply,
        (NODE, AT),
        (404, 503),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/gpus/{uuid}",
        gpu,
        "gpu",
        "One GPU in detail, now or at a past time.",
        GpuPageReply,
        (Parameter("uuid", "UUID of a GPU.", "GPU-n1-0", required=True, place="path"), AT),
        (404, 503),
        scope=AccessScope.READ,
    ),
)
