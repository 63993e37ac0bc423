"""`/api/v1/history` and `/api/v1/events`: one metric of one device over time, and events, from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.columns import metric_of
from aggregator.http.errors import bad, unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import FROM, TO, between, duration, query, whole_number
from aggregator.http.reply import STORE_SECONDS, VIEW, send_json
from aggregator.register.node_register import NodeRegister
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import HistorySeries
from aggregator.view import AggregatorView
from api.columns import HistoryReply
from api.fleet import EventsReply, StoredEvent
from telemetry.fleet import Fleet
from telemetry.metric import Kind, Lane, Metric, Table
from telemetry.text.decimals import plain
from telemetry.wire.tables import KINDS

MOST_POINTS = 20_000
"""Wider than any screen, and about 1 MB."""
USUAL_POINTS = 300
_NAME_ONE = f"Name one: {'=, '.join(list(Table)[:-1])}= or {list(Table)[-1]}=."
USUAL_EVENTS, MOST_EVENTS = 1000, 10_000


async def history(request: web.Request) -> web.Response:
    """Answer with one metric of one device over time."""
    asked = query(request, *Table, "metric", "from", "to", "step")
    view = request.app[VIEW]
    table, name = _device(asked)
    if "metric" not in asked:
        raise bad("metric", "it is missing", "/api/v1/catalogue lists all.")
    metric = metric_of("metric", asked["metric"], table)
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-1h")
    found = await series_of(stored_past(view), table, name, metric, start, end, asked.get("step"))
    if not found.at and not _known(view.fleet, table, name):
        raise unknown(table.value, name, _devices(view.fleet, table))
    return await send_json(request, _reply(found, metric, start, end), values=3 * len(found.at))


class StoredPast(NamedTuple):
    """Source of the past of devices and nodes."""

    store: StoreExecutor
    fleet: Fleet
    register: NodeRegister
    """Knows former names of nodes, under which a part of their past is stored."""

    def names(self, node: str, start: int, end: int) -> list[tuple[str, int, int]]:
        """Return the names that a node had between two times, each with its own part of them."""
        return spans_between(self.register.names_of(node, self.fleet), start, end)


def stored_past(view: AggregatorView) -> StoredPast:
    """Return what an aggregator's past is read from now."""
    return StoredPast(view.store, view.fleet, view.register)


async def series_of(
    stored: StoredPast, table: Table, name: str, metric: Metric, start: int, end: int, step: str | None = None
) -> HistorySeries:
    """Return a metric of a device over time; without a step in a readable number of points. Raises a 400
    for a step that is none."""
    shortest = _interval(stored.fleet, name, metric)
    seconds = step_of(step, (end - start) / 1e9, shortest)
    async with asyncio.timeout(STORE_SECONDS):
        return await _series(stored, table, name, metric.name, start, end, seconds)


async def _series(
    stored: StoredPast, table: Table, name: str, metric: str, start: int, end: int, step: float
) -> HistorySeries:
    """Return the history of a device; that of a node with what it measured under its former names."""
    parts = [
        await stored.store.history(each, metric, begins, ends, step)
        for each, begins, ends in (stored.names(name, start, end) if table is Table.NODE else [(name, start, end)])
    ]
    return joined(name, parts)


def spans_between(
    names: Sequence[tuple[str, int | None, int | None]], start: int, end: int
) -> list[tuple[str, int, int]]:
    """Return the names that a node had between two times, each with its own part of them; None: no limit."""
    found = []
    for name, since, until in names:
        begins = start if since is None else max(start, since)
        ends = end if until is None else min(end, until)
        if begins < ends:
            found.append((name, begins, ends))
    return found


def joined(device: str, parts: Sequence[HistorySeries]) -> HistorySeries:
    """Return several series, of which none is None, as one of a device, in the order of time. Of two buckets
    at one time the later part's is taken."""
    if len(parts) == 1:
        return parts[0]
    points = {
        at: (part.mean[place], part.low[place], part.high[place]) for part in parts for place, at in enumerate(part.at)
    }
    order = sorted(points)
    mean, low, high = ([points[at][column] for at in order] for column in range(3))
    return msgspec.structs.replace(
        parts[-1],
        device=device,
        at=order,
        mean=mean,
        low=low,
        high=high,
        incomplete=[each for part in parts for each in part.incomplete],
        provisional=[each for part in parts for each in part.provisional],
        missing=sorted({each for part in parts for each in part.missing}),
    )


def _device(asked: dict[str, str]) -> tuple[Table, str]:
    named = [word for word in Table if word in asked]
    if len(named) != 1:
        raise bad("gpu", f"{len(named)} devices are named", _NAME_ONE)
    return named[0], asked[named[0]]


def step_of(text: str | None, length: float, shortest: float) -> float:
    """Return the seconds of a bucket, as requested, or so that there is a readable number of points.

    A reading comes a little early or late. A bucket hardly longer than the time between two of them
    is empty now and then though none is missing, and looks like a gap: every reading is given then,
    which is at most twice as many points.
    """
    if text is None:
        usual = float(max(np.ceil(length / USUAL_POINTS), shortest))
        return usual if usual >= 2 * shortest else 0.0
    step = duration("step", text)
    points = length / (step or shortest)
    if points > MOST_POINTS:
        enough = int(np.ceil(length / MOST_POINTS))
        raise bad(
            "step",
            f"{points:,.0f} points are more than {MOST_POINTS:,}",
            f"Use step={enough}s or more, or a shorter time.",
        )
    return step


def _known(fleet: Fleet, table: Table, name: str) -> bool:
    home = fleet.home_of(name)
    return home is not None and name in KINDS[table].keys(fleet.nodes[home].inventory)


def _devices(fleet: Fleet, table: Table) -> list[str]:
    key = KINDS[table].key
    return [key(entry[1]) for entry in fleet.devices[table] if entry]


def _interval(fleet: Fleet, name: str, metric: Metric) -> float:
    """Return the seconds between two readings; those of a usual node if this one is gone."""
    home = fleet.home_of(name)
    if home is None:
        return 1.0 if metric.lane is Lane.FAST else 15.0
    node = fleet.nodes[home]
    return node.interval if metric.lane is Lane.FAST else node.slow_interval


def _reply(found: HistorySeries, metric: Metric, start: int, end: int) -> HistoryReply:
    narrow = metric.kind is Kind.GAUGE
    return HistoryReply(
        found.device,
        found.metric,
        metric.unit,
        metric.kind,
        found.step,
        start,
        end,
        found.at,
        _short(found.mean, narrow),
        _short(found.low, narrow),
        _short(found.high, narrow),
        found.incomplete,
        found.provisional,
        found.missing,
    )


def _short(values: list[float | None], narrow: bool) -> list[float | None]:
    """Return gauges as short as the precision of a float32 allows."""
    if not narrow:
        return values
    short: list[float | None] = plain(np.array(values, np.float32)).tolist()
    return short


async def events_of(
    stored: StoredPast, start: int, end: int, node: str | None, kind: str | None, limit: int
) -> list[StoredEvent]:
    """Return events, newest first; those of a node with what happened under its former names."""
    names: Sequence[tuple[str | None, int, int]]
    names = [(None, start, end)] if node is None else stored.names(node, start, end)
    found: list[StoredEvent] = []
    for each, begins, ends in names:
        found += await stored.store.events(begins, ends, each, kind, limit)
    found.sort(key=lambda one: one.event.at, reverse=True)
    return found[:limit]


async def events(request: web.Request) -> web.Response:
    """Answer with events: XIDs, GPUs lost and back, driver reloads."""
    asked = query(request, "from", "to", "node", "kind", "limit")
    view = request.app[VIEW]
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-24h")
    limit = whole_number(asked, "limit", USUAL_EVENTS, MOST_EVENTS)
    async with asyncio.timeout(STORE_SECONDS):
        found = await events_of(stored_past(view), start, end, asked.get("node"), asked.get("kind"), limit)
    body = EventsReply(start, end, limit, len(found) == limit, found, list(view.missing))
    return await send_json(request, body, values=10 * len(found))


OPERATIONS = (
    Operation(
        "/api/v1/history",
        history,
        "history",
        "One metric of one device over time.",
        HistoryReply,
        (
            Parameter("metric", "Name of a metric.", "gpu_power_watts", required=True),
            Parameter("gpu", "UUID of a GPU. Name one device.", "GPU-n1-0"),
            Parameter("link", "A link: UUID of its GPU, '/', its number.", "GPU-n1-0/3"),
            Parameter("node", "Name of a node.", "n1"),
            *(
                Parameter(str(one.table), f"Key of a {one.noun}.", f"{one.prefix}n1")
                for one in KINDS.values()
                if one.prefix
            ),
            FROM,
            TO,
            Parameter(
                "step",
                "Length of a bucket, in seconds or as '10s', '5m'; 0 for every reading. If absent, "
                "about 300 buckets, or every reading where that is not many more. "
                f"{MOST_POINTS} points at most.",
                "10s",
            ),
        ),
        (404, 503),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/events",
        events,
        "events",
        "Events, newest first: XIDs, GPUs lost and back, driver reloads.",
        EventsReply,
        (
            FROM,
            TO,
            Parameter("node", "Name of a node.", "n1"),
            Parameter("kind", "Kind of event.", "xid"),
            Parameter(
                "limit",
                f"Highest number of events, 1 to {MOST_EVENTS}; {USUAL_EVENTS} if absent.",
                "100",
            ),
        ),
        (503,),
        scope=AccessScope.READ,
    ),
)
