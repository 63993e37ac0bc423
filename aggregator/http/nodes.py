"""`/api/v1/nodes`, `/api/v1/nodes/<node>`, `/api/v1/gpus/<uuid>`: one device and all about it."""

from __future__ import annotations

import asyncio
import math
from typing import NamedTuple

import msgspec
import numpy as np
from aiohttp import web

from aggregator.http import columns as by_columns
from aggregator.http import past
from aggregator.http.errors import unknown
from aggregator.http.node_standing import NodeStanding, age, standing
from aggregator.http.numbers import plain
from aggregator.http.past import PATIENCE, SECOND
from aggregator.http.reply import VIEW, query, send_json
from aggregator.view import AggregatorView
from api.alerts import Alert
from telemetry.fleet import Fleet, Node, gaps_of
from telemetry.gap import Gap, reason_of
from telemetry.inventory import Event, Gpu, Link, MemoryPool
from telemetry.metric import Lane, Table

RECENT = 50
"""How many events a GPU's page shows at most."""


class NodeReply(msgspec.Struct, frozen=True, kw_only=True):
    """One node in a list."""

    node: str
    state: NodeStanding
    age_seconds: float | None
    """Age of its newest frame; None when there was none."""
    sampled_at: int | None
    """Its own clock in that frame, ns since 1970."""
    interval_seconds: float
    slow_interval_seconds: float
    session: int
    seq: int
    """Number of its newest frame in this session; -1 before the first."""
    gpus: int
    gpus_present: int
    source: str
    driver_state: str
    driver_message: str
    driver_version: str | None
    release: str
    rack: str
    """As the node says; empty where it does not."""
    job: str
    """What runs on it, as the node says; empty where it does not."""


class NodesReply(msgspec.Struct, frozen=True):
    """All nodes, by name."""

    at: int
    """ns since 1970."""
    nodes: list[NodeReply]


class DeviceReply(msgspec.Struct, frozen=True):
    """One device's readings in base units by catalogue name; what is absent has a reason."""

    readings: dict[str, float]
    gaps: dict[str, str]


class GpuReply(msgspec.Struct, frozen=True):
    """One GPU of a node."""

    gpu: Gpu
    readings: dict[str, float]
    gaps: dict[str, str]


class LinkReply(msgspec.Struct, frozen=True):
    """One link of a GPU."""

    link: Link
    readings: dict[str, float]
    gaps: dict[str, str]


class NodePageReply(msgspec.Struct, frozen=True):
    """All about one node."""

    at: int
    node: NodeReply
    host: dict[str, str]
    """Facts for people."""
    cuda_version: str | None
    pools: list[MemoryPool]
    readings: dict[str, float]
    gaps: dict[str, str]
    gpus: list[GpuReply]
    alerts: list[Alert]


class GpuPageReply(msgspec.Struct, frozen=True):
    """All about one GPU."""

    at: int
    node: NodeReply
    gpu: Gpu
    readings: dict[str, float]
    gaps: dict[str, str]
    links: list[LinkReply]
    events: list[Event]
    """The last ones in memory, newest first."""
    alerts: list[Alert]


def describe(node: Node, now: float) -> NodeReply:
    """Return a node's line in a list."""
    inventory = node.inventory
    return NodeReply(
        node=inventory.node,
        state=standing(node, now),
        age_seconds=age(node, now),
        sampled_at=node.sampled_at or None,
        interval_seconds=node.interval,
        slow_interval_seconds=node.slow_interval,
        session=node.session,
        seq=node.seq,
        gpus=len(inventory.gpus),
        gpus_present=sum(gpu.present for gpu in inventory.gpus),
        source=inventory.source,
        driver_state=inventory.driver_state,
        driver_message=inventory.driver_message,
        driver_version=inventory.driver_version,
        release=inventory.kilowatch,
        rack=str(inventory.host.get("rack", "")),
        job=str(inventory.host.get("job", "")),
    )


def device(fleet: Fleet, table: Table, row: int, now: float) -> DeviceReply:
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
    return DeviceReply(readings, absent)


async def nodes(request: web.Request) -> web.Response:
    """All nodes."""
    query(request)
    view = request.app[VIEW]
    now = view.now()
    found = [describe(node, now) for _, node in sorted(view.fleet.nodes.items())]
    return await send_json(request, NodesReply(view.wall(), found), values=20 * len(found))


async def node(request: web.Request) -> web.Response:
    """All about one node, now or at a past time."""
    asked = query(request, "at")
    view, name = request.app[VIEW], request.match_info["node"]
    found = view.fleet.nodes.get(name)
    if found is None:
        raise unknown("node", name, view.fleet.nodes)
    if asked.get("at", "now") != "now":
        from aggregator.http.nodes import node_then  # noqa: PLC0415 - it stands on this file

        return await node_then(request, found, asked["at"])
    now, inventory = view.now(), found.inventory
    own = device(view.fleet, Table.NODE, found.rows[Table.NODE].start, now)
    first = found.rows[Table.GPU].start
    rows = [device(view.fleet, Table.GPU, first + n, now) for n in range(len(inventory.gpus))]
    body = NodePageReply(
        view.wall(),
        describe(found, now),
        inventory.host,
        inventory.cuda_version,
        list(inventory.pools),
        own.readings,
        own.gaps,
        [
            GpuReply(gpu, row.readings, row.gaps)
            for gpu, row in zip(inventory.gpus, rows, strict=True)
        ],
        [alert for alert in view.alerts() if alert.node == name],
    )
    return await send_json(request, body)


async def gpu(request: web.Request) -> web.Response:
    """All about one GPU, now or at a past time."""
    asked = query(request, "at")
    view, uuid = request.app[VIEW], request.match_info["uuid"]
    row = view.fleet.by_uuid.get(uuid)
    entry = None if row is None else view.fleet.gpus[row]
    if row is None or entry is None:
        raise unknown("uuid", uuid, view.fleet.by_uuid)
    name, what = entry
    if asked.get("at", "now") != "now":
        from aggregator.http.nodes import gpu_then  # noqa: PLC0415 - it stands on this file

        return await gpu_then(request, view.fleet.nodes[name], what, asked["at"])
    now, home = view.now(), view.fleet.nodes[name]
    own = device(view.fleet, Table.GPU, row, now)
    body = GpuPageReply(
        view.wall(),
        describe(home, now),
        what,
        own.readings,
        own.gaps,
        _links(view, home, uuid, now),
        [event for event in view.recent_events() if event.gpu == uuid][:RECENT],
        [alert for alert in view.alerts() if alert.gpu == uuid],
    )
    return await send_json(request, body)


def _links(view: AggregatorView, home: Node, uuid: str, now: float) -> list[LinkReply]:
    first = home.rows[Table.LINK].start
    found: list[LinkReply] = []
    for offset, link in enumerate(home.inventory.links):
        if link.gpu == uuid:
            row = device(view.fleet, Table.LINK, first + offset, now)
            found.append(LinkReply(link, row.readings, row.gaps))
    return found


# Pages of one node and one GPU as they were: `/api/v1/nodes/<node>?at=`, `/api/v1/gpus/<uuid>?at=`.
#
# What a node is made of is that of today: no inventory of the past is kept. Readings, whether anything
# was heard of it, and events are those of then. Alerts are in `/api/v1/incidents?from=`.

EVENTS_SECONDS = 7 * 86_400
"""How far back a GPU's page looks for events."""
_WORDS = {int(reason): reason.word for reason in Gap}


class _Rows(NamedTuple):
    """The rows of one table of one node at one instant."""

    at: int
    devices: dict[str, DeviceReply]
    """By key, as the store has it."""
    heard: int
    """When the newest reading was taken, ns; 0 for none."""


async def node_then(request: web.Request, found: Node, text: str) -> web.Response:
    """All about one node at a past time."""
    name, inventory = found.inventory.node, found.inventory
    own = await _rows(request, name, Table.NODE, text)
    gpus = await _rows(request, name, Table.GPU, text)
    mine = own.devices.get(name, _NOTHING)
    body = NodePageReply(
        own.at,
        _described(request, found, own),
        inventory.host,
        inventory.cuda_version,
        list(inventory.pools),
        mine.readings,
        mine.gaps,
        [
            GpuReply(gpu, row.readings, row.gaps)
            for gpu in inventory.gpus
            for row in [gpus.devices.get(gpu.uuid, _NOTHING)]
        ],
        [],
    )
    return await send_json(request, body)


async def gpu_then(request: web.Request, home: Node, what: Gpu, text: str) -> web.Response:
    """All about one GPU at a past time."""
    name = home.inventory.node
    gpus = await _rows(request, name, Table.GPU, text)
    links = await _rows(request, name, Table.LINK, text)
    own = gpus.devices.get(what.uuid, _NOTHING)
    body = GpuPageReply(
        gpus.at,
        _described(request, home, gpus),
        what,
        own.readings,
        own.gaps,
        [
            LinkReply(link, row.readings, row.gaps)
            for link in home.inventory.links
            if link.gpu == what.uuid
            for row in [links.devices.get(f"{link.gpu}/{link.number}", _NOTHING)]
        ],
        await _events(request, name, what.uuid, gpus.at),
        [],
    )
    return await send_json(request, body)


_NOTHING = DeviceReply({}, {})
"""Of a device that was not there yet."""


async def _rows(request: web.Request, node: str, table: Table, text: str) -> _Rows:
    choice = by_columns.choose("columns", table.value, [by_columns.ALL], [node])
    at, was = await past.then(request, choice, text)
    (readings,) = was.frames
    devices = {}
    for row, (_, key) in enumerate(past.keys_of(was.rows, table)):
        numbers: dict[str, float] = {}
        absent: dict[str, str] = {}
        for name, values in readings.columns.items():
            reason = int(gaps_of(values[row : row + 1])[0])
            if reason == 255:
                numbers[name] = float(plain(values[row : row + 1])[0])
            else:
                absent[name] = _WORDS.get(reason, Gap.UNKNOWN.word)
        devices[key] = DeviceReply(numbers, absent)
    seen = was.past.seen.get(Lane.FAST, np.zeros(1, np.int64))
    return _Rows(at, devices, int(seen.max(initial=0)))


def _described(request: web.Request, node: Node, rows: _Rows) -> NodeReply:
    """A node's line in a list, with what was heard of it then."""
    heard = rows.heard or None
    return msgspec.structs.replace(
        describe(node, request.app[VIEW].now()),
        state=NodeStanding.STALE if heard is None else NodeStanding.ONLINE,
        age_seconds=None if heard is None else (rows.at - heard) / SECOND,
        sampled_at=heard,
        seq=-1,
    )


async def _events(request: web.Request, node: str, uuid: str, at: int) -> list[Event]:
    start = at - EVENTS_SECONDS * SECOND
    async with asyncio.timeout(PATIENCE):
        found = await request.app[VIEW].store.events(start, at + 1, node, None, 1000)
    events = [stored.event for stored in found]
    return [event for event in events if event.gpu == uuid][:RECENT]
