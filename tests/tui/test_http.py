"""The dashboard's own HTTP and WebSocket, met by servers that are not ours."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import WSMsgType, web

from api.columns import HistoryReply
from telemetry.errors import ConfigError
from tests.kit.waiting import until, within
from tests.tui.test_client import following, serving
from tui.feed.connection import ConnectionState
from tui.feed.http import HttpConnection, HttpReply, HttpReplyError
from tui.feed.socket import Socket, SocketClosedError
from tui.feed.wants import DocumentRequest, Wants

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking(*replies: bytes, rude: bool = False) -> AsyncIterator[tuple[HttpConnection, list[bytes]]]:
    """A server that says exactly these bytes, one reply a request, and keeps what it was asked.
    `rude`: it closes after each without a word."""
    asked: list[bytes] = []
    left = list(replies)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while left:
                asked.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(left.pop(0))
                await writer.drain()
                if rude:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = HttpConnection(f"http://127.0.0.1:{port}/below/", "secret")
    try:
        yield http, asked
    finally:
        http.close()
        server.close()


async def get(http: HttpConnection, path: str = "a") -> HttpReply:
    """Ask, but not for ever."""
    async with within():
        return await http.request("GET", path)


async def test_one_connection_serves_many_requests_and_says_who_asks() -> None:
    length = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    chunked = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: Chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n"
    async with talking(length, chunked, length) as (http, asked):
        assert await get(http, "a?b=c%2Fd") == HttpReply(200, {"content-length": "2"}, b"hi")
        answer = await get(http)
        assert (answer.status, answer.body) == (404, b"abc")
        assert (await get(http)).body == b"hi"
        assert asked[0].startswith(b"GET /below/a?b=c%2Fd HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nAuthorization: Bearer secret\r\n" in asked[0]
        assert len(asked) == 3


async def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(3)]
    async with talking(*replies, rude=True) as (http, asked):
        assert [(await get(http)).body for _ in replies] == [b"0", b"1", b"2"]
        assert len(asked) == 3
        with pytest.raises(OSError, match=r"(?i)without an answer|reset|lost"):
            await get(http)  # no reply any more, on the old connection nor on a new one


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 204 Nothing\r\nContent-Length: 9\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b"packed"),
            b"packed",
        ),
    ],
    ids=["to the end", "nothing", "gzip"],
)
async def test_every_way_to_end_an_answer_is_understood(reply: bytes, body: bytes) -> None:
    async with talking(reply) as (http, _):
        assert (await get(http)).body == body


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 2xx OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 3_000_000,
    ],
    ids=["ssh", "status", "negative", "huge", "short", "chunk", "no gzip", "endless head"],
)
async def test_what_is_no_answer_is_an_error_and_no_traceback(reply: bytes) -> None:
    async with talking(reply) as (http, _):
        with pytest.raises(HttpReplyError):
            await get(http)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:99999", "http://[::1", "x"])
def test_a_bad_address_is_one_clear_error(url: str) -> None:
    with pytest.raises(ConfigError, match="Write http://HOST:9400"):
        HttpConnection(url, None)


async def test_a_name_and_password_in_the_address_are_sent() -> None:
    async with talking(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (http, asked):
        named = HttpConnection(f"http://ann:p%40ss@127.0.0.1:{http.port}", None)
        await get(named)
        named.close()
        assert b"Authorization: Basic YW5uOnBAc3M=\r\n" in asked[0]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """An operator's own for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    own, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=aggregator", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(own)],
        check=True, capture_output=True,
    )  # fmt: skip
    return own, key


async def test_over_tls_only_a_server_that_is_known_is_believed(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of an operator's own is made known by SSL_CERT_FILE, as to every other program."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.scheme)

    async with serving(answer, context) as url:
        with pytest.raises(OSError, match="certificate verify failed"):
            await get(HttpConnection(url, None))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        http = HttpConnection(url, None)
        assert (await get(http)).body == b"https"
        http.close()


async def test_a_socket_answers_pings_joins_parts_and_takes_long_messages() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        line_text = await socket.receive_str()
        await socket.ping(b"there?")
        pong = await socket.receive()
        assert (pong.type, pong.data) == (WSMsgType.PONG, b"there?")
        await socket.send_str(line_text[::-1])
        await socket.send_bytes(b"x" * 300_000)
        assert request.transport is not None
        request.transport.write(b"\x01\x02on\x89\x00\x80\x01e")  # a text in two, a ping between
        await socket.receive()
        await socket.close()
        return socket

    async with serving(handler) as url, within():
        socket = await HttpConnection(url, None).socket("stream")
        assert isinstance(socket, Socket)
        socket.send("é" * 40_000)
        assert await socket.receive() == (True, ("é" * 40_000).encode())
        assert await socket.receive() == (False, b"x" * 300_000)
        assert await socket.receive() == (True, b"one")
        with pytest.raises(SocketClosedError, match="closed"):
            await socket.receive()
        socket.close()


@pytest.mark.parametrize(
    "frame",
    [b"\x81\x81mask!", b"\xc1\x00", b"\x80\x01x", b"\x01\x01a\x01\x01b", b"\x82\x7f" + b"\xff" * 8, b"\x81"],
    ids=["masked", "reserved", "no start", "within", "huge", "cut off"],
)
async def test_a_socket_that_breaks_the_rules_is_given_up(frame: bytes) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert request.transport is not None
        request.transport.write(frame)
        request.transport.close()
        return socket

    async with serving(handler) as url, within():
        socket = await HttpConnection(url, None).socket("stream")
        assert isinstance(socket, Socket)
        with pytest.raises(SocketClosedError):
            await socket.receive()
        socket.close()


async def test_an_upgrade_without_proof_is_no_socket() -> None:
    reply = b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: wrong\r\n\r\n"
    async with talking(reply) as (http, _):
        with pytest.raises(HttpReplyError, match="no WebSocket"):
            await http.socket("stream")


@asynccontextmanager
async def old_aggregator(
    asked: list[dict[str, object]], more: Callable[[web.Request], Awaitable[None]]
) -> AsyncIterator[str]:
    """One of an older release, which knows neither packed readings nor circuits by columns, and says
    so. `more`: what it does before each answer."""
    rows = {"node": ["n"], "gpu": [0], "uuid": ["GPU-0"], "name": ["A"], "present": [True]}
    answers: dict[str, object] = {
        "status": {"version": "2026.1", "cluster": "old", "at": 1, "nodes": 1, "gpus": 1},
        "nodes": {"at": 1, "nodes": [{"node": "n", "state": "online"}]},
        "circuits": {"at": 3, "circuits": [{"id": "PDU-1", "watts": 1234.0}]},
        "fleet": {"rows": {"node": ["n"]}, "columns": {"node_wall_power_watts": [None]}},
    }

    async def handler(request: web.Request) -> web.StreamResponse:
        await more(request)
        name = request.path.rpartition("/")[2]
        if name == "circuits" and request.query:
            return web.json_response({"error": {"what": "'columns' is not known"}}, status=400)
        if name != "stream":
            return web.json_response(answers.get(name), status=200 if name in answers else 404)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            asked.append(msgspec.json.decode(message.data))
            if "packed" in asked[-1]:
                fault = {"where": "request", "what": "unknown field `packed`", "cure": ""}
                await socket.send_json({"type": "error", "error": fault})
            else:
                await socket.send_json({"type": "rows", "version": 1, "rows": rows})
                columns = {"gpu_power_watts": [77.5]}
                await socket.send_json({"type": "data", "version": 1, "at": 2, "columns": columns})
        return socket

    async with serving(handler) as url:
        yield url


async def test_an_older_aggregator_is_asked_in_its_own_words() -> None:
    asked: list[dict[str, object]] = []

    async def nothing(_: web.Request) -> None:
        return

    async with old_aggregator(asked, nothing) as url, following(url) as feed:
        await until(lambda: feed.connection.state is ConnectionState.LIVE)
        assert feed.state.gpus.value("gpu_power_watts", 0) == 77.5
        assert ["packed" in each for each in asked] == [True, False]
        await until(lambda: bool(feed.state.circuits))
        assert [(c.id, c.watts) for c in feed.state.circuits] == [("PDU-1", 1234.0)]


async def test_a_document_that_takes_long_holds_up_no_other() -> None:
    """A day of history from a busy disk: alerts and circuits go on."""
    looks: Counter[str] = Counter()
    answer = asyncio.Event()

    async def slow(request: web.Request) -> None:
        looks[request.path.rpartition("/")[2]] += 1
        if request.path.endswith("history"):
            await answer.wait()

    async with old_aggregator([], slow) as url, following(url) as feed:
        feed.want(Wants(nodes=(), documents=(DocumentRequest("api/v1/history?metric=x", HistoryReply, 0.2),)))
        await until(lambda: looks["history"] == 1 and looks["incidents"] >= 1)
        before = looks["incidents"]
        await until(lambda: looks["incidents"] >= before + 3)
        assert looks["history"] == 1
        assert feed.state.came("api/v1/history?metric=x") == 0
        answer.set()
        await until(lambda: bool(feed.state.fault("api/v1/history?metric=x")))
