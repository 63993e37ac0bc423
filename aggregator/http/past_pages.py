"""Pages of one node and one GPU as they were: `/api/v1/nodes/<node>?at=`, `/api/v1/gpus/<uuid>?at=`.

What a node is made of is that of today: no inventory of the past is kept. Readings, whether anything
was heard of it, and events are those of then. Alerts are in `/api/v1/incidents?from=`.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec
import numpy as np
from aiohttp import web

from aggregator.http import columns as by_columns
from aggregator.http import past
from aggregator.http.nodes import (
    RECENT,
    DeviceReply,
    GpuPageReply,
    GpuReply,
    LinkReply,
    NodePageReply,
    NodeReply,
    describe,
)
from aggregator.http.numbers import plain
from aggregator.http.past import PATIENCE, SECOND
from aggregator.http.reply import VIEW, send_json
from aggregator.http.standing import Standing
from aggregator.model import StoredEvent
from telemetry.fleet import Node, gaps_of
from telemetry.gap import Gap
from telemetry.inventory import Event, Gpu
from telemetry.metric import Lane, Table

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
        state=Standing.STALE if heard is None else Standing.ONLINE,
        age_seconds=None if heard is None else (rows.at - heard) / SECOND,
        sampled_at=heard,
        seq=-1,
    )


async def _events(request: web.Request, node: str, uuid: str, at: int) -> list[Event]:
    start = at - EVENTS_SECONDS * SECOND
    async with asyncio.timeout(PATIENCE):
        found = await request.app[VIEW].ask_store("events", start, at + 1, node, None, 1000)
    if not isinstance(found, list):
        raise TypeError(f"the store answered events with {type(found).__name__}")
    events = [stored.event for stored in found if isinstance(stored, StoredEvent)]
    return [event for event in events if event.gpu == uuid][:RECENT]
