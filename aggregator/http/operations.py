"""Every operation of the HTTP API, from the modules that declare them, in the order of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http import (
    alert_actions,
    alerts,
    chain,
    circuits,
    dcgm,
    drift,
    evidence_picture,
    fitness,
    fleet,
    health,
    history,
    jobs,
    metrics,
    node_actions,
    nodes,
    past,
    ports,
    power,
    quality,
    sd,
    stream,
    use,
)
from aggregator.http.openapi import build
from aggregator.http.operation import Operation
from aggregator.http.parameters import query
from aggregator.http.reply import send_json


async def document(request: web.Request) -> web.Response:
    """Answer with the description of all operations."""
    query(request)
    return await send_json(request, build(OPERATIONS))


OPERATIONS: tuple[Operation, ...] = (
    *health.OPERATIONS,
    *metrics.OPERATIONS,
    *dcgm.OPERATIONS,
    *sd.OPERATIONS,
    Operation(
        "/api/v1/openapi.json",
        document,
        "openapi",
        "This document.",
        dict[str, Any],
        scope=AccessScope.READ,
        local=True,
    ),
    *fleet.OPERATIONS,
    *past.OPERATIONS,
    *nodes.OPERATIONS,
    *node_actions.OPERATIONS,
    *drift.OPERATIONS,
    *fitness.OPERATIONS,
    *ports.OPERATIONS,
    *history.OPERATIONS,
    *alerts.OPERATIONS,
    *alert_actions.OPERATIONS,
    *quality.OPERATIONS,
    *evidence_picture.OPERATIONS,
    *circuits.OPERATIONS,
    *power.OPERATIONS,
    *chain.OPERATIONS,
    *use.OPERATIONS,
    *jobs.OPERATIONS,
    *stream.OPERATIONS,
)
