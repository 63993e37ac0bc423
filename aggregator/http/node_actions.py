"""Actions on nodes: removal of one that is gone for good."""

from __future__ import annotations

import logging

from aiohttp import web

from aggregator.http.auth import signed
from aggregator.http.errors import RequestError, bad
from aggregator.http.parameters import query, read_body
from aggregator.http.reply import VIEW, send_json
from api.fleet import ForgetReply, ForgetRequest
from telemetry.errors import BusError, ConfigError, NodeError

log = logging.getLogger(__name__)


async def forget(request: web.Request) -> web.Response:
    """Remove a node; its history stays."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    asked = await read_body(request, ForgetRequest)
    try:
        known = await view.forget(name)
    except ConfigError as error:
        raise bad("node", error.problem, error.hint) from error
    except NodeError as error:
        raise RequestError(409, "node", *_parts(error)) from error
    except BusError as error:
        raise RequestError(503, "bus", *_parts(error)) from error
    log.info(
        "node=%s forgotten by %s: %s", name, signed(request, asked.who), asked.why[:200] or "-"
    )
    return await send_json(request, ForgetReply(view.wall(), name, known))


def _parts(error: Exception) -> tuple[str, str]:
    """Return problem and cure of an error's text."""
    problem, _, cure = str(error).partition(". ")
    return problem, cure
