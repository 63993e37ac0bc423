"""`/api/v1/fleet`, `/api/v1/catalogue`, `/api/v1/status`: the whole fleet, by columns and in numbers."""

from __future__ import annotations

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http import columns as by_columns
from aggregator.http import past
from aggregator.http.columns import COLUMNS, NODES, TABLE
from aggregator.http.errors import unknown
from aggregator.http.health import newest_age
from aggregator.http.metrics import SUMMARIZER
from aggregator.http.operation import Operation
from aggregator.http.parameters import AT, query
from aggregator.http.recent import RECENT
from aggregator.http.reply import JSON, VIEW, json_bytes, send, send_json
from aggregator.http.stream_hub import HUB
from api.columns import FleetReply
from api.fleet import CatalogueReply, MetricReply, StatusReply
from telemetry.catalogue import CATALOGUE
from telemetry.metric import Metric
from telemetry.runtime.release import release


async def fleet(request: web.Request) -> web.Response:
    """Answer with readings of the whole fleet, by columns; now, or at a past time."""
    asked = query(request, "table", "columns", "node", "at")
    view = request.app[VIEW]
    choice = by_columns.chosen(asked)
    incomplete: list[tuple[int, int]] = []
    missing = list(view.missing)
    if asked.get("at", "now") != "now":
        version = 0  # rows are numbered so only for this time
        at, was = await past.then(request, choice, asked)
        (readings,), rows, count = was.frames, was.rows, was.count
        incomplete, missing = was.past.incomplete, was.past.missing
    else:
        for name in choice.nodes or ():
            if name not in view.fleet.nodes:
                raise unknown("node", name, view.fleet.nodes, status=404)
        where = request.app[HUB].layout(choice)
        version, at, rows, count = where.version, view.wall(), where.rows, len(where.index)
        readings = by_columns.read(view.fleet, where, choice.columns, view.now())

    def make() -> bytes:
        body = FleetReply(
            cluster=view.cluster,
            table=choice.table,
            version=version,
            at=at,
            of=count,
            reporting=by_columns.reporting(readings, count),
            rows=rows,
            columns=by_columns.numbers(readings),
            gaps=by_columns.gaps(readings),
            incomplete=incomplete,
            missing=missing,
        )
        return json_bytes(body)

    return await send(request, make, JSON, work=readings.cells, readings=True)


def _metric(metric: Metric) -> MetricReply:
    return MetricReply(
        metric.name,
        metric.unit,
        metric.kind,
        metric.table,
        metric.lane,
        metric.help,
        metric.span,
        {str(number): word for number, word in metric.states},
    )


_CATALOGUE = CatalogueReply([_metric(metric) for metric in CATALOGUE])


async def catalogue(request: web.Request) -> web.Response:
    """Answer with every metric, its unit, help and span."""
    query(request)
    return await send_json(request, _CATALOGUE)


async def status(request: web.Request) -> web.Response:
    """Answer with the state of the aggregator and its cluster."""
    query(request)
    view = request.app[VIEW]
    now = view.now()
    alerts = dict.fromkeys(("pending", "firing", "resolved"), 0)
    for alert in view.alerts():
        alerts[alert.state.value] += 1
    wall = view.electrical.wall_sum(view.fleet, now)
    body = StatusReply(
        version=release(),
        cluster=view.cluster,
        at=view.wall(),
        started_at=view.started_at,
        fleet_version=view.fleet.version,
        newest_frame_age_seconds=newest_age(view.fleet, now),
        nodes=len(view.fleet.nodes),
        gpus=len(view.fleet.by_uuid),
        alerts=alerts,
        fitness=None if view.fitness.newest is None else view.fitness.newest.fleet,
        summary=request.app[SUMMARIZER].summary(view.fleet, now),
        wall_watts=wall.watts,
        wall_nodes=wall.nodes,
        wall_partial_nodes=wall.partial,
        wall_age_seconds=wall.age,
        trends=request.app[RECENT].trends(),
        stats=view.stats,
        missing=list(view.missing),
        members=list(view.members()),
    )
    return await send_json(request, body)


OPERATIONS = (
    Operation(
        "/api/v1/status",
        status,
        "status",
        "The aggregator and its cluster at this instant.",
        StatusReply,
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/catalogue",
        catalogue,
        "catalogue",
        "Every metric with unit, help and span.",
        CatalogueReply,
        scope=AccessScope.READ,
        local=True,
    ),
    Operation(
        "/api/v1/fleet",
        fleet,
        "fleet",
        "Readings of the whole fleet, by columns: now, or at the past time `at`.",
        FleetReply,
        (TABLE, COLUMNS, NODES, AT),
        (404, 503),
        scope=AccessScope.READ,
    ),
)
