"""Who may come in, and what is refused, in words that help."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from aggregator.assembly.http_server import listening, make_app, serve
from aggregator.http.config import HttpConfig
from telemetry.errors import ConfigError
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import Door, bearer, door, small_cluster

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with a token, and a line end as editors write it."""
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "gpu-head.example:0"])
def test_beyond_loopback_it_does_not_start_without_a_token(listen: str) -> None:
    """The message says both ways out."""
    with pytest.raises(ConfigError, match=r"aggregator\.listen.*token_file.*127\.0\.0\.1"):
        make_app(FakeView(), HttpConfig(listen=listen))


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "can't be read"), ("short", "does not hold a token"), ("", "is empty")]
)
def test_a_token_file_without_a_token_is_an_error_of_its_own(tmp_path: Path, content: str | None, problem: str) -> None:
    """An empty file must not allow access without a token."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        make_app(FakeView(), HttpConfig(listen="0.0.0.0:0", token_file=path))


@pytest.mark.parametrize("listen", ["9400", "127.0.0.1:port", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    """Before anything is bound."""
    with pytest.raises(ConfigError, match=r"aggregator\.listen"):
        make_app(FakeView(), HttpConfig(listen=listen))


async def test_with_a_token_everything_but_health_asks_for_it(token_file: Path) -> None:
    """Also unknown routes, so that routes can't be probed."""
    config = HttpConfig(listen="0.0.0.0:0", token_file=token_file)
    async with door(await small_cluster(), config) as client:
        for path in ("/healthz", "/readyz"):
            assert (await client.json(path))[0] == 200
        for path in ("/metrics", "/api/v1/fleet", "/sd/prometheus", "/api/v1/stream", "/nothing"):
            status, body = await client.json(path)
            assert (status, body["error"]["where"]) == (401, "Authorization"), path
            assert (await client.json(path, headers=bearer(TOKEN[:-1])))[0] == 401
            assert (await client.json(path, headers={"Authorization": f"Basic {TOKEN}"}))[0] == 401
        status, _, headers = await client.text("/metrics")
        assert headers["WWW-Authenticate"] == "Bearer"
        assert (await client.text("/metrics", headers=bearer(TOKEN)))[0] == 200
        assert (await client.text("/nothing", headers=bearer(TOKEN)))[0] == 404


async def test_on_loopback_a_name_that_points_here_is_no_way_in() -> None:
    """A web page can make its own name resolve to 127.0.0.1; its requests carry that name."""
    config = HttpConfig(listen="127.0.0.1:0", names=("Monitor.lab",))
    async with door(await small_cluster(), config) as client:

        async def status(host: str, **more: str) -> int:
            return (await client.json("/api/v1/nodes", headers={"Host": host, **more}))[0]

        assert await status("evil.example") == 421
        assert await status(f"evil.example:{client.port}") == 421
        assert await status("127.0.0.1.evil.example") == 421
        assert await status("") == 421
        for host in ("localhost", "127.0.0.1", f"localhost:{client.port}", "[::1]:9400"):
            assert await status(host) == 200, host
        assert await status("monitor.lab:80") == 401  # as configured, but not this machine
        assert await status("monitor.lab:80", **client.bearer) == 200


async def test_a_page_of_another_site_may_not_ask() -> None:
    """A browser sends it here with the right Host; the Origin shows it."""
    async with door(await small_cluster()) as client:
        for origin in ("https://evil.example", "null", "http://[bad"):
            headers = {"Origin": origin}
            status, body = await client.json("/api/v1/nodes", headers=headers)
            assert (status, body["error"]["where"]) == (403, "Origin")
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await client.session.ws_connect(client.url + "/api/v1/stream", headers=headers)
        assert (await client.json("/api/v1/nodes", headers={"Origin": client.url}))[0] == 200


async def test_every_answer_has_the_modest_headers_errors_too() -> None:
    """No sniffing, no frames, no caches."""
    async with door(await small_cluster()) as client:
        for path in ("/healthz", "/api/v1/nodes", "/nothing", "/api/v1/fleet?columns=x"):
            _, _, headers = await client.text(path)
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


async def test_what_is_not_there_is_answered_with_what_is_near() -> None:
    """A typo costs one look, not a manual."""
    async with door(await small_cluster()) as client:
        status, body = await client.json("/api/v1/node")
        assert status == 404
        assert "/api/v1/nodes" in body["error"]["cure"]
        status, body = await client.json("/xyzzy")
        assert body["error"]["cure"] == "GET /api/v1/openapi.json lists all."


async def test_methods_are_answered_as_http_has_it(token_file: Path) -> None:
    """HEAD like GET without a body, OPTIONS with Allow, others 405."""
    async with door(await small_cluster()) as client:
        status, body, headers = await client.text("/api/v1/nodes", method="HEAD")
        assert (status, body) == (200, "")
        assert int(headers["Content-Length"]) > 100
        status, body, headers = await client.text("/api/v1/nodes", method="OPTIONS")
        assert (status, headers["Allow"]) == (204, "GET, HEAD, OPTIONS")
        status, answer = await client.json("/api/v1/nodes", method="POST")
        assert (status, answer["error"]["where"]) == (405, "method")
        assert (await client.text("/nothing", method="OPTIONS"))[0] == 404


async def test_a_port_that_is_taken_is_an_error_for_the_operator() -> None:
    """One line, and what to do."""
    async with listening(FakeView(), HttpConfig(listen="127.0.0.1:0")) as (_, port):
        with pytest.raises(ConfigError, match="another aggregator"):
            async with listening(FakeView(), HttpConfig(listen=f"127.0.0.1:{port}")):
                pass


async def test_serve_ends_when_it_is_cancelled_and_frees_its_port() -> None:
    """Cancellation is the only shutdown."""
    async with listening(FakeView(), HttpConfig(listen="127.0.0.1:0")) as (_, port):
        pass
    config = HttpConfig(listen=f"127.0.0.1:{port}")
    task = asyncio.create_task(serve(FakeView(), config))
    async with aiohttp.ClientSession() as session:
        client = Door(session, port)
        for _ in range(500):
            try:
                assert (await client.json("/healthz"))[0] == 200
                break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with listening(FakeView(), config) as (_, again):
        assert again == port


async def test_a_handler_that_breaks_is_500_without_a_traceback() -> None:
    """The log has it; the caller gets one line."""

    class Broken(FakeView):
        def alerts(self) -> list[object]:  # type: ignore[override]
            raise RuntimeError("secret detail")

    async with door(Broken()) as client:
        status, body = await client.json("/api/v1/alerts")
    assert status == 500
    assert "secret" not in str(body)


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"\x16\x03\x01\r\n"],
    ids=["a header too large", "no HTTP at all"],
)
async def test_a_stranger_can_not_fill_the_log(request_bytes: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """What is no request of ours is answered 400, without a traceback in the journal."""
    async with door(FakeView()) as opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
        writer.write(request_bytes)
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        await writer.wait_closed()
    assert b" 400 " in answer.splitlines()[0]
    assert not [record for record in caplog.records if record.exc_info]
