"""`/api/v1/fleet`, `/api/v1/catalogue`, `/api/v1/status`: the whole, by columns and in numbers."""

from __future__ import annotations

import msgspec
from aiohttp import web

from aggregator.http import columns as by_columns
from aggregator.http import past
from aggregator.http.columns import ColumnChoice, ColumnRows, Gaps
from aggregator.http.errors import unknown
from aggregator.http.health import newest_age
from aggregator.http.metrics import SUMMARIZER, release
from aggregator.http.reply import JSON, VIEW, json_bytes, query, send, send_json
from aggregator.http.stream_hub import HUB
from aggregator.http.summary import FleetSummary
from aggregator.stats import Stats
from telemetry.catalogue import CATALOGUE
from telemetry.metric import Kind, Lane, Metric, Table, Unit


class FleetReply(msgspec.Struct, frozen=True):
    """Readings by columns."""

    cluster: str
    table: Table
    version: int
    """Changes whenever a row gets another meaning; 0 for a past time."""
    at: int
    """ns since 1970."""
    of: int
    """How many rows there are."""
    reporting: int
    """How many of them have at least one of the columns."""
    rows: ColumnRows
    columns: dict[str, list[float | None]]
    gaps: Gaps


class MetricReply(msgspec.Struct, frozen=True):
    """One row of the catalogue."""

    name: str
    unit: Unit
    kind: Kind
    table: Table
    lane: Lane
    help: str
    span: tuple[float, float] | None
    """One scale for the whole fleet."""
    states: dict[str, str]
    """Word by number, for a state."""


class CatalogueReply(msgspec.Struct, frozen=True):
    """Every metric there is."""

    metrics: list[MetricReply]


class StatusReply(msgspec.Struct, frozen=True):
    """The aggregator and its cluster at one instant: the header of a dashboard."""

    version: str
    cluster: str
    at: int
    """ns since 1970."""
    started_at: int
    fleet_version: int
    newest_frame_age_seconds: float | None
    nodes: int
    gpus: int
    alerts: dict[str, int]
    """How many are pending, firing and resolved."""
    summary: FleetSummary
    stats: Stats


async def fleet(request: web.Request) -> web.Response:
    """Readings of the whole fleet, by columns; now, or at a past time."""
    asked = query(request, "table", "columns", "node", "at")
    view = request.app[VIEW]
    choice = by_columns.chosen(asked)
    if asked.get("at", "now") != "now":
        return await _then(request, choice, asked["at"])
    for name in choice.nodes or ():
        if name not in view.fleet.nodes:
            raise unknown("node", name, view.fleet.nodes, status=404)
    where = request.app[HUB].layout(choice)
    readings = by_columns.read(view.fleet, where, choice.columns, view.now())
    version, at = where.version, view.wall()

    def make() -> bytes:
        body = FleetReply(
            view.cluster, choice.table, version, at, len(where.index),
            by_columns.reporting(readings, len(where.index)), where.rows,
            by_columns.numbers(readings), by_columns.gaps(readings),
        )  # fmt: skip
        return json_bytes(body)

    return await send(request, make, JSON, work=readings.cells)


async def _then(request: web.Request, choice: ColumnChoice, text: str) -> web.Response:
    """The same of a past time: nobody's rows are numbered so now, hence version 0."""
    at, was = await past.then(request, choice, text)
    cluster, (readings,) = request.app[VIEW].cluster, was.frames

    def make() -> bytes:
        body = FleetReply(
            cluster, choice.table, 0, at, was.count, by_columns.reporting(readings, was.count),
            was.rows, by_columns.numbers(readings), by_columns.gaps(readings),
        )  # fmt: skip
        return json_bytes(body)

    return await send(request, make, JSON, work=readings.cells)


def _metric(metric: Metric) -> MetricReply:
    return MetricReply(
        metric.name, metric.unit, metric.kind, metric.table, metric.lane, metric.help, metric.span,
        {str(number): word for number, word in metric.states},
    )  # fmt: skip


_CATALOGUE = CatalogueReply([_metric(metric) for metric in CATALOGUE])


async def catalogue(request: web.Request) -> web.Response:
    """Every metric with unit, help and span."""
    query(request)
    return await send_json(request, _CATALOGUE)


async def status(request: web.Request) -> web.Response:
    """The aggregator and its cluster at this instant."""
    query(request)
    view = request.app[VIEW]
    now = view.now()
    alerts = dict.fromkeys(("pending", "firing", "resolved"), 0)
    for alert in view.alerts():
        alerts[alert.state.value] += 1
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
        summary=request.app[SUMMARIZER].summary(view.fleet, now),
        stats=view.stats,
    )
    return await send_json(request, body)
