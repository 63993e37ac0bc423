"""`/api/v1/nodes`, `/api/v1/nodes/<node>`, `/api/v1/gpus/<uuid>`: one device and all about it."""

from __future__ import annotations

import math

import msgspec
from aiohttp import web

from aggregator.http.errors import unknown
from aggregator.http.numbers import plain
from aggregator.http.reply import VIEW, query, send_json
from aggregator.http.standing import Standing, age, standing
from aggregator.model import View
from alerts.alert import Alert
from telemetry.fleet import Fleet, Node
from telemetry.gap import Gap, reason_of
from telemetry.inventory import Event, Gpu, Link, MemoryPool
from telemetry.metric import Table

RECENT = 50
"""How many events a GPU's page shows at most."""


class NodeReply(msgspec.Struct, frozen=True, kw_only=True):
    """One node in a list."""

    node: str
    state: Standing
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
        from aggregator.http.past_pages import node_then  # noqa: PLC0415 - it stands on this file

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
        from aggregator.http.past_pages import gpu_then  # noqa: PLC0415 - it stands on this file

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


def _links(view: View, home: Node, uuid: str, now: float) -> list[LinkReply]:
    first = home.rows[Table.LINK].start
    found: list[LinkReply] = []
    for offset, link in enumerate(home.inventory.links):
        if link.gpu == uuid:
            row = device(view.fleet, Table.LINK, first + offset, now)
            found.append(LinkReply(link, row.readings, row.gaps))
    return found
