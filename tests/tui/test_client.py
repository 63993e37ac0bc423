"""The line to the aggregator, met by the faults that it must outlive."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from api.power import CircuitReply
from present.circuit.figures import continuous_watts, headroom_amps, load, share
from present.circuit.outlook import next_event
from tests.aggregator.test_http_circuits import lab
from tests.kit.waiting import until
from tests.tui.cluster import Cluster, served
from tui.feed.connection import ConnectionState
from tui.feed.feed import DashboardFeed
from tui.feed.wants import DocumentRequest, Wants
from tui.state.circuit_columns import page_of
from tui.state.readings import POWER, TEMPERATURE

TIMEOUT = 30.0


@asynccontextmanager
async def following(url: str, token: str | None = None) -> AsyncIterator[DashboardFeed]:
    """A feed that runs."""
    feed = DashboardFeed(url, token, lambda: None, time.monotonic, every=0.2)
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def beat_until(cluster: Cluster, holds: Callable[[], bool]) -> None:
    """Let the cluster beat until a condition is true."""

    async def beaten() -> bool:
        await cluster.beat()
        return holds()

    await until(beaten)


async def test_the_state_holds_what_the_aggregator_serves() -> None:
    cluster = Cluster(nodes=3, gpus=4)
    cluster.lose("GPU-dgx-01-2")
    await cluster.beat()
    async with served(cluster) as url, following(url) as feed:
        await until(lambda: feed.state.ready and bool(feed.state.alerts))
        state = feed.state
        row = state.gpus.row_of["GPU-dgx-02-3"]
        assert feed.connection.state is ConnectionState.LIVE
        assert len(state.gpus) == 12
        assert state.gpus.value(POWER, row) == 530.0
        lost = state.gpus.row_of["GPU-dgx-01-2"]
        assert state.gpus.value(POWER, lost) is None
        assert state.gpus.gap(TEMPERATURE, lost) == "device_lost"
        assert [node.node for node in state.nodes] == ["dgx-00", "dgx-01", "dgx-02"]
        assert state.wall == dict.fromkeys(("dgx-00", "dgx-01", "dgx-02"), 6234.0)
        assert state.status is not None
        assert state.status.gpus == 12
        assert [alert.rule for alert in state.alerts] == ["gpu_lost"]


async def test_new_readings_and_new_nodes_arrive() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    await cluster.beat()
    async with served(cluster) as url, following(url) as feed:
        await until(lambda: feed.state.ready)
        cluster.wrong["GPU-dgx-00-0"] = {POWER: 123.0}
        await beat_until(cluster, lambda: feed.state.gpus.value(POWER, 0) == 123.0)
        cluster.place("new", 3)
        await beat_until(cluster, lambda: len(feed.state.gpus) == 5 and len(feed.state.nodes) == 2)


async def test_it_comes_back_by_itself_when_the_aggregator_does() -> None:
    cluster = Cluster(nodes=1, gpus=1)
    await cluster.beat()
    async with listening(cluster, HttpConfig(listen="127.0.0.1:0")) as (host, port):
        url = f"http://{host}:{port}"
        task = following(url)
        feed = await task.__aenter__()
        await until(lambda: feed.connection.state is ConnectionState.LIVE)
    try:
        await until(lambda: feed.connection.state is ConnectionState.LOST)
        assert feed.connection.reason
        assert feed.connection.retry_at is not None
        assert len(feed.state.gpus) == 1
        since = feed.connection.since
        await until(lambda: "nothing listens there" in feed.connection.reason)
        assert feed.connection.since == since
        async with listening(cluster, HttpConfig(listen=f"{host}:{port}")):
            await beat_until(cluster, lambda: feed.connection.state is ConnectionState.LIVE)
    finally:
        await task.__aexit__(None, None, None)


async def test_without_the_token_it_is_refused_and_with_it_it_is_let_in(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    cluster = Cluster(nodes=1, gpus=1)
    await cluster.beat()
    async with served(cluster, path) as url:
        async with following(url) as feed:
            await until(lambda: feed.connection.state is ConnectionState.REFUSED)
            assert "a token is needed" in feed.connection.reason
        async with following(url, "0123456789abcdef") as feed:
            await until(lambda: feed.connection.state is ConnectionState.LIVE)


@asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Something that is no aggregator of ours."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_what_is_no_aggregator_is_named_as_such() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    async def nothing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=502)

    for handler, state, words in (
        (page, ConnectionState.REFUSED, "not understood"),
        (nothing, ConnectionState.REFUSED, "is this a kilowatch aggregator?"),
        (broken, ConnectionState.LOST, "answers 502"),
    ):
        async with serving(handler) as url, following(url) as feed:
            await until(lambda feed=feed: bool(feed.connection.reason))  # type: ignore[misc]
            assert feed.connection.state is state
            assert words in feed.connection.reason


async def test_nobody_at_the_address_is_a_state_and_no_exception() -> None:
    async with following("http://127.0.0.1:1") as feed:
        await until(lambda: feed.connection.state is ConnectionState.LOST)
        assert "127.0.0.1" in feed.connection.reason
        assert not feed.state.ready


async def test_an_aggregator_without_an_answer_is_slow_and_a_stopped_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tui.feed.requests.TIMEOUT", 0.2)

    async def never(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as url, following(url) as feed:
        await until(lambda: feed.connection.state is ConnectionState.LOST)
        assert feed.connection.slow
        assert "no answer" in feed.connection.reason
    async with following("http://127.0.0.1:1") as feed:
        await until(lambda: feed.connection.state is ConnectionState.LOST)
        assert not feed.connection.slow


async def test_it_asks_for_the_columns_that_it_shows_and_no_others() -> None:
    cluster = Cluster(nodes=1, gpus=1)
    await cluster.beat()
    async with served(cluster) as url, following(url) as feed:
        await until(lambda: feed.state.ready)
        assert POWER in feed.state.gpus.columns
        assert len(feed.state.gpus.columns) == 12


async def test_circuits_come_by_columns_and_the_open_one_as_a_whole() -> None:
    """What lists show is the same in both forms; poles and facts are only in the whole one."""
    view = await lab()
    async with served(view) as url, following(url) as feed:
        await until(lambda: bool(feed.state.circuits))
        brief = feed.state.circuit("lab/2")
        assert brief is not None
        assert not brief.facts
        feed.want(Wants(nodes=(), documents=(DocumentRequest(page_of("lab/2"), CircuitReply, 1.0),)))
        await until(lambda: bool(feed.state.circuit("lab/2").facts))  # type: ignore[union-attr]
        full = feed.state.circuit("lab/2")
        assert full is not None
        assert list(full.amps) == ["L1", "L2"]
        for line_text in (
            share,
            load,
            continuous_watts,
            headroom_amps,
            lambda c: next_event(c).kind.value,
            lambda c: next_event(c).seconds,
        ):
            measured_watts = (line_text(brief), line_text(full))  # type: ignore[operator]
            assert measured_watts[0] == measured_watts[1] or measured_watts[0] == pytest.approx(
                measured_watts[1], rel=1e-3
            )
        assert (full.nodes, full.parent) == (brief.nodes, brief.parent) == (["n2"], "main")
