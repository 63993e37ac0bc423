"""The aggregator's HTTP server: routes, and how it starts and ends.

async with listening(view, HttpConfig(listen="127.0.0.1:9400")) as (host, port): ...
await serve(view, config)  # until cancelled
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import getpass
import logging
import re
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_urldispatcher import MatchInfoError

from aggregator.access.guests import GuestCounter
from aggregator.access.tokens import AccessScope, AccessToken, TokenRegister, hashed
from aggregator.http import dcgm, health, metrics, stream
from aggregator.http.auth import GUARD, AccessGuard, AccessRule, harden
from aggregator.http.config import CONFIG, HttpConfig
from aggregator.http.errors import PAGES_ASIDE, Handler, errors
from aggregator.http.exposition import ExpositionPages
from aggregator.http.listener import CONNECTIONS, BoundedSite, ConnectionStats
from aggregator.http.node_metrics import PAGE_TURN
from aggregator.http.operations import OPERATIONS
from aggregator.http.quality import SUGGESTION_TURN
from aggregator.http.recent import RECENT, RecentCluster
from aggregator.http.reply import VIEW
from aggregator.http.rule_input_metrics import RULE_INPUTS, RuleInputMetrics
from aggregator.http.stream_hub import HUB, Hub
from aggregator.http.summary import Summarizer
from aggregator.impairments import Impairments, report_task
from aggregator.view import AggregatorView
from aggregator.web.frame import add_pages, missing_pages, page_rules
from telemetry.errors import ConfigError
from telemetry.files import local_token
from telemetry.runtime.supervision import Supervisor, in_thread

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 2.0
"""How long running requests may go on when the server ends."""


RULES = page_rules() | {(op.path, op.method): AccessRule(op.id, op.scope, op.most_bytes, op.own) for op in OPERATIONS}


async def _expect(request: web.Request) -> None:
    """Answer `Expect: 100-continue`. That the caller has hung up meanwhile is no fault of ours, and must
    not fill the log."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed
    with contextlib.suppress(ConnectionResetError):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


_LOCAL = ("/static/", *(op.path for op in OPERATIONS if op.local))
"""Paths that this aggregator answers by itself."""
MISSING = "Kilowatch-Missing"
"""Header that names the aggregators of the cluster that an answer lacks."""


@web.middleware
async def _of_all(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Have an answer made of what all aggregators of a cluster know now."""
    if not request.path.startswith(_LOCAL):
        await request.app[VIEW].refresh()
    return await handler(request)


async def _say_who_is_missing(request: web.Request, response: web.StreamResponse) -> None:
    missing = request.app[VIEW].missing
    if missing and response.status < 400 and not request.path.startswith(_LOCAL):
        response.headers[MISSING] = "; ".join(missing)


class _Unmatched(MatchInfoError):  # noqa: N818 - no exception
    """A request that no route matches: what it expects is judged as on any other."""

    @property
    def expect_handler(self) -> Callable[[web.Request], Awaitable[None]]:
        return _expect


class _Routes(web.UrlDispatcher):
    """Routes on which no header of a stranger raises: aiohttp writes an unknown `Expect` back, as text."""

    async def resolve(self, request: web.Request) -> web.UrlMappingMatchInfo:
        found = await super().resolve(request)
        return found if found.http_exception is None else _Unmatched(found.http_exception)


def make_app(view: AggregatorView, config: HttpConfig | None = None) -> web.Application:
    """Make the application. Raises `ConfigError` for an address that it must not listen on."""
    config = config or HttpConfig()
    guard = AccessGuard(config, config.check(), RULES)
    with warnings.catch_warnings():
        # A router of one's own is deprecated, and aiohttp has no other way to it.
        warnings.simplefilter("ignore", DeprecationWarning)
        app = web.Application(router=_Routes(), middlewares=[errors, missing_pages, guard.middleware(), _of_all])
    app[GUARD] = guard
    app[VIEW] = view
    app[CONFIG] = config
    app[dcgm.WANTED] = config.counters()
    app[PAGES_ASIDE] = view.pages_aside
    app[health.LIVENESS] = health.Liveness(view.here)
    app[metrics.PAGES] = ExpositionPages()
    app[PAGE_TURN] = asyncio.Lock()
    app[SUGGESTION_TURN] = asyncio.Lock()
    app[metrics.SUMMARIZER] = Summarizer()
    app[RECENT] = RecentCluster(view, app[metrics.SUMMARIZER])
    app[RULE_INPUTS] = RuleInputMetrics()
    app[HUB] = Hub(view, config.slow_viewer_seconds)
    app[stream.SOCKETS] = set()
    app[stream.VIEWERS] = GuestCounter(stream.MOST_VIEWERS, stream.MOST_VIEWERS_EACH)
    app[CONNECTIONS] = ConnectionStats()
    for op in OPERATIONS:
        if op.method == "get":
            app.router.add_get(op.path, op.handler, allow_head=op.id != "stream", expect_handler=_expect)
        else:
            app.router.add_route(op.method, op.path, op.handler, expect_handler=_expect)
    add_pages(app, _expect)
    app.on_response_prepare.append(harden)
    app.on_response_prepare.append(_say_who_is_missing)
    app.on_shutdown.append(stream.close_all)
    app.cleanup_ctx.append(_keep("http liveness", lambda app: app[health.LIVENESS].run))
    app.cleanup_ctx.append(_keep("series of the cluster", lambda app: app[RECENT].run))
    return app


def _keep(
    name: str, work: Callable[[web.Application], Callable[[], Awaitable[None]]]
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return the context in which a task of the server runs for as long as the application does."""

    async def kept(app: web.Application) -> AsyncIterator[None]:
        task = _supervised(app[VIEW].impairments, name, work(app))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return kept


def _supervised(
    impairments: Impairments, name: str, work: Callable[[], Awaitable[None]], over: Callable[[], bool] = lambda: False
) -> asyncio.Task[None]:
    """Start a task of the server, which is started again whatever ends it."""
    supervisor = Supervisor(functools.partial(report_task, impairments))
    supervisor.started()
    return asyncio.create_task(supervisor.run(name, work, over=over), name=name)


def _server_log() -> logging.Logger:
    """Return aiohttp's log without what strangers can write into it at will: a request that is no
    HTTP, or too large, is answered 400 and is no fault of the server."""
    server = logging.getLogger(f"{__name__}.server")
    if not server.filters:
        server.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return server


@asynccontextmanager
async def listening(view: AggregatorView, config: HttpConfig | None = None) -> AsyncIterator[tuple[str, int]]:
    """Serve for as long as the block runs; yields the address and port that were bound."""
    config = config or HttpConfig()
    app, certificate = make_app(view, config), config.certificate()
    if certificate is None and not config.loopback:
        log.warning(
            "http: %s is not encrypted: who sees the network sees its tokens. Set "
            "aggregator.tls_cert, or listen on loopback behind a proxy.",
            config.listen,
        )
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,  # no body is accepted that would need it
        keepalive_timeout=config.idle_seconds,
        shutdown_timeout=SHUTDOWN_SECONDS,
        logger=_server_log(),
    )
    await runner.setup()
    try:
        site = BoundedSite(
            runner,
            config,
            certificate,
            app[CONNECTIONS],
            functools.partial(health.health_of, view.here, app[health.LIVENESS]),
            app[GUARD].called,
        )
        try:
            await site.start()
        except OSError as error:
            raise _unbound(config, error) from error
        host, port = runner.addresses[0][:2]
        addresses = [each[:2] for each in runner.addresses]
        tasks = [_supervised(view.impairments, "http connections", site.upkeep)]
        if (thread := site.health) is not None:
            serve = functools.partial(in_thread, "http-health", thread.serve)
            tasks.append(_supervised(view.impairments, "http health", serve, thread.ended))
        try:
            with _local_token(config, app[GUARD].tokens, addresses):
                log.info("http listens address=%s port=%d tls=%s", host, port, bool(certificate))
                yield host, port
        finally:
            await site.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def _local_token(config: HttpConfig, tokens: TokenRegister, addresses: list[tuple[str, int]]) -> Iterator[None]:
    """Accept a token that programs of this user find by themselves, for as long as the block runs."""
    if config.state_folder is None:
        yield
        return
    secret = local_token.make()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(local_token.published(config.state_folder, addresses, secret))
        except OSError as error:
            log.warning("http: no local token is made, and writing needs --token-file: %s", error)
        else:
            tokens.add(
                AccessToken(name=_user(), scopes=(AccessScope.ADMIN,), sha256=hashed(secret), created=time.time_ns())
            )
        yield


def _user() -> str:
    """Return the name of the user who runs this process, as the name of a token."""
    try:
        return re.sub(r"[^A-Za-z0-9._@-]", "-", getpass.getuser()).lstrip("._@-") or "local"
    except (KeyError, OSError):  # a container without a name for its user
        return "local"


async def serve(view: AggregatorView, config: HttpConfig | None = None) -> None:
    """Serve until cancelled."""
    async with listening(view, config):
        await asyncio.Event().wait()


def _unbound(config: HttpConfig, error: OSError) -> ConfigError:
    cure = "Choose another address or port with aggregator.listen."
    if error.errno == errno.EADDRINUSE:
        cure = "Is another aggregator running? Stop it, or choose another port."
    return ConfigError("aggregator.listen", f"{config.listen} can't be bound: {error}", cure)
