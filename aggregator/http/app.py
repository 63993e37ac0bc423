"""The aggregator's HTTP server: routes, and how it starts and ends.

async with listening(view, HttpConfig(listen="127.0.0.1:9400")) as (host, port): ...
await serve(view, config)  # until cancelled
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from aggregator.http import (
    alert_actions,
    alerts,
    circuit_history,
    circuits,
    dcgm,
    events,
    fleet,
    health,
    history,
    metrics,
    nodes,
    openapi,
    past,
    power,
    sd,
    stream,
)
from aggregator.http.auth import guard, harden
from aggregator.http.config import HttpConfig
from aggregator.http.errors import Handler, errors
from aggregator.http.exposition import ExpositionPages
from aggregator.http.reply import VIEW
from aggregator.http.rule_input_metrics import HAPPENINGS, RuleInputMetrics
from aggregator.http.stream_hub import HUB, Hub
from aggregator.http.summary import Summarizer
from aggregator.view import AggregatorView
from telemetry.errors import ConfigError

log = logging.getLogger(__name__)

ROUTES: dict[str, Handler] = {
    "/healthz": health.healthz,
    "/readyz": health.readyz,
    "/metrics": metrics.metrics,
    "/metrics/nodes": metrics.all_nodes_page,
    "/metrics/node/{node}": metrics.node_page,
    "/metrics/dcgm/{node}": dcgm.node_page,
    "/sd/prometheus": sd.prometheus,
    "/sd/dcgm": sd.dcgm,
    "/api/v1/openapi.json": openapi.document,
    "/api/v1/status": fleet.status,
    "/api/v1/catalogue": fleet.catalogue,
    "/api/v1/fleet": fleet.fleet,
    "/api/v1/fleet/frames": past.frames,
    "/api/v1/nodes": nodes.nodes,
    "/api/v1/nodes/{node}": nodes.node,
    "/api/v1/gpus/{uuid}": nodes.gpu,
    "/api/v1/history": history.history,
    "/api/v1/events": events.events,
    "/api/v1/alerts": alerts.alerts,
    "/api/v1/incidents": alerts.incidents,
    "/api/v1/incidents/{key}": alerts.incident,
    "/api/v1/incidents/{key}/story": alerts.story,
    "/api/v1/silences": alerts.silences,
    "/api/v1/rules": alerts.rules,
    "/api/v1/deliveries": alerts.deliveries,
    "/api/v1/channels": alerts.channels,
    "/api/v1/circuits": circuits.circuits,
    "/api/v1/circuits/{circuit}": circuits.circuit,
    "/api/v1/circuits/{circuit}/history": circuit_history.circuit_history,
    "/api/v1/budgets": circuits.budgets,
    "/api/v1/ups": circuits.ups,
    "/api/v1/power": power.power,
    "/api/v1/report": power.report,
    "/api/v1/stream": stream.stream,
}
"""Every route that is read, with GET. `openapi.OPERATIONS` describes each."""
ACTIONS: dict[tuple[str, str], Handler] = {
    ("/api/v1/incidents/{key}/ack", "POST"): alert_actions.acknowledge,
    ("/api/v1/incidents/{key}/ack", "DELETE"): alert_actions.unacknowledge,
    ("/api/v1/silences", "POST"): alert_actions.silence,
    ("/api/v1/silences/{id}", "DELETE"): alert_actions.unsilence,
    ("/api/v1/channels/{name}/test", "POST"): alert_actions.test,
    ("/api/v1/power/plan", "POST"): power.plan,
    ("/api/v1/power/reload", "POST"): power.reload,
}
"""Every route that changes something. `openapi.WRITES` describes each."""

SHUTDOWN_SECONDS = 2.0
"""How long requests under way may go on when the server ends."""


def make_app(view: AggregatorView, config: HttpConfig | None = None) -> web.Application:
    """Make the application. Raises `ConfigError` when it must not listen where it is told to."""
    config = config or HttpConfig()
    token = config.check()
    app = web.Application(middlewares=[errors, guard(config, token)])
    app[VIEW] = view
    app[sd.CONFIG] = config
    app[health.PULSE] = health.Liveness(view)
    app[metrics.PAGES] = ExpositionPages()
    app[metrics.SUMMARIZER] = Summarizer()
    app[HAPPENINGS] = RuleInputMetrics()
    app[HUB] = Hub(view, config.patience)
    app[stream.SOCKETS] = set()
    for path, handler in ROUTES.items():
        app.router.add_get(path, handler, allow_head=path != "/api/v1/stream")
    for (path, method), action in ACTIONS.items():
        app.router.add_route(method, path, action)
    app.on_response_prepare.append(harden)
    app.on_shutdown.append(stream.close_all)
    app.cleanup_ctx.append(_look)
    return app


async def _look(app: web.Application) -> AsyncIterator[None]:
    """Keep the pulse for as long as the application runs."""
    task = asyncio.create_task(app[health.PULSE].run(), name="http pulse")
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _server_log() -> logging.Logger:
    """aiohttp's log without what strangers can put in it at will: a request that is no HTTP, or
    too large, is answered 400 and is no fault of ours."""
    server = logging.getLogger(f"{__name__}.server")
    if not server.filters:
        server.addFilter(
            lambda record: (
                not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
            )
        )
    return server


@asynccontextmanager
async def listening(
    view: AggregatorView, config: HttpConfig | None = None
) -> AsyncIterator[tuple[str, int]]:  # fmt: skip
    """Serve for as long as the block runs; yields the address and port that were bound."""
    config = config or HttpConfig()
    runner = web.AppRunner(
        make_app(view, config),
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        logger=_server_log(),
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, config.host, config.port)
        try:
            await site.start()
        except OSError as error:
            raise _unbound(config, error) from error
        host, port = runner.addresses[0][:2]
        log.info("http listens address=%s port=%d token=%s", host, port, bool(config.token_file))
        yield host, port
    finally:
        await runner.cleanup()


async def serve(view: AggregatorView, config: HttpConfig | None = None) -> None:
    """Serve until cancelled."""
    async with listening(view, config):
        await asyncio.Event().wait()


def _unbound(config: HttpConfig, error: OSError) -> ConfigError:
    cure = "Choose another address or port with aggregator.listen."
    if error.errno == errno.EADDRINUSE:
        cure = "Is another aggregator running? Stop it, or choose another port."
    return ConfigError("aggregator.listen", f"{config.listen} can't be bound: {error}", cure)
