"""Hostile HTTP: half-open connections, slow and false bodies, bombs, too many of anything, silent readers."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from aggregator.access.guests import TRIES, TRIES_PER_SECOND, GuestCounter, WrongTokens, neighbourhood
from aggregator.access.local_user import local_user
from aggregator.http import listener, stream
from aggregator.http.config import HttpConfig
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import Door, door, small_cluster
from tests.aggregator.test_http_alerts import SILENCE, hot
from tests.kit.waiting import until, within
from tests.second_user import NOBODY, needs_root

LOOPBACK = HttpConfig(listen="127.0.0.1:0")


@asynccontextmanager
async def line(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


def head(client: Door, length: int, *more: str) -> bytes:
    """Return the head of a request for a silence."""
    lines = [
        "POST /api/v1/silences HTTP/1.1", f"Host: 127.0.0.1:{client.port}",
        f"Authorization: Bearer {client.secret}", "Content-Type: application/json",
        f"Content-Length: {length}", *more,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode()


async def status(reader: asyncio.StreamReader) -> int:
    """Return the status of an answer."""
    async with within():
        return int((await reader.readuntil(b"\r\n\r\n")).split()[1])


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/nowhere", "/nodes", "/nowhere", "/static/x"])
async def test_an_unknown_expectation_is_a_417_wherever_it_is_sent(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no text are not written back: that was a 500 and a traceback in the log."""
    async with door(FakeView()) as client, line(client.port) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n".encode())
        writer.write(b"Expect: 100-con\xffinue\r\n\r\n")
        assert await status(reader) == 417
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "x" * 100, "gzip, gzip"])
@pytest.mark.parametrize("true", [False, True], ids=["false", "true"])
async def test_a_coded_body_is_a_400_and_never_unpacked(tmp_path: Path, coding: str, true: bool) -> None:
    """A megabyte of zeros is a kilobyte: what is not unpacked is no bomb."""
    body = gzip.compress(b"0" * 1_000_000) if true else json.dumps(SILENCE).encode()
    async with hot(tmp_path) as client:
        async with client.door.session.post(
            f"{client.door.url}/api/v1/silences",
            data=body,
            headers={**client.door.bearer, "Content-Type": "application/json", "Content-Encoding": coding},
        ) as answer:
            assert answer.status == 400
            fault = (await answer.json())["error"]
        assert fault["where"] == "Content-Encoding"
        assert "without Content-Encoding" in fault["cure"]
        assert (await client.get("/api/v1/silences"))["silences"] == []


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[" * 10_000, "not JSON|expected"),
        (b'{"why": ' + b'{"a": ' * 5_000 + b"1" + b"}" * 5_001, "unknown|not JSON|expected"),
        (b"\xff\xfe{", "it is not JSON"),
        (b'{"matchers": ["node=n1"], "why": "x", "for": 1e400}', "not JSON|out of range|no length"),
        (b'{"matchers": ["node=n1"], "why": "x", "for": NaN}', "it is not JSON"),
    ],
    ids=["deep lists", "deep objects", "no UTF-8", "infinite", "NaN"],
)
async def test_a_body_that_is_no_request_is_a_400(tmp_path: Path, raw: bytes, words: str) -> None:
    async with hot(tmp_path) as client:
        async with client.door.session.post(
            f"{client.door.url}/api/v1/silences",
            data=raw,
            headers={**client.door.bearer, "Content-Type": "application/json"},
        ) as answer:
            assert answer.status == 400
            what = (await answer.json())["error"]["what"]
        assert any(word in what for word in words.split("|")), what


async def test_each_operation_bounds_its_body(tmp_path: Path) -> None:
    """A plan of a large cluster is long; an acknowledgement is not."""
    async with hot(tmp_path) as client:
        for path, most in (("incidents/x/ack", 16), ("silences", 64), ("power/plan", 256)):
            for size, found in ((most * 1024 - 1000, {200, 400, 404}), (most * 1024 + 1000, {413})):
                async with client.door.session.post(
                    f"{client.door.url}/api/v1/{path}", json={"why": "x" * size}, headers=client.door.bearer
                ) as answer:
                    assert answer.status in found, (path, size, await answer.text())


async def test_a_body_that_does_not_come_is_a_408(tmp_path: Path) -> None:
    config = msgspec.structs.replace(LOOPBACK, body_seconds=0.2)
    async with hot(tmp_path, config) as client, line(client.door.port) as (reader, writer):
        writer.write(head(client.door, 100) + b'{"why"')
        assert await status(reader) == 408
        async with within():
            await reader.read()  # and the connection ends


async def test_a_body_that_breaks_off_is_no_fault_of_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hot(tmp_path) as client:
        async with line(client.door.port) as (reader, writer):
            writer.write(head(client.door, 100, "Transfer-Encoding: chunked"))
            assert await status(reader) == 400
        async with line(client.door.port) as (_, writer):
            writer.write(head(client.door, 100) + b'{"why"')
            await writer.drain()
        assert (await client.get("/api/v1/silences"))["silences"] == []
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "sent", [b"", b"GET /", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n"], ids=["nothing", "a line", "heads"]
)
async def test_a_request_that_does_not_come_whole_is_closed(sent: bytes) -> None:
    """Also when a byte more comes now and then (slowloris)."""
    config = msgspec.structs.replace(LOOPBACK, idle_seconds=0.5)
    async with door(FakeView(), config) as client, line(client.port) as (reader, writer):

        async def dribble() -> None:
            writer.write(sent)
            while sent:
                writer.write(b"X")
                await asyncio.sleep(0.05)

        task = asyncio.create_task(dribble())
        async with within():
            with contextlib.suppress(ConnectionResetError):  # a byte had come since the close
                assert await reader.read() == b""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_connections_are_bounded_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all, and from one address; one that ends makes room."""
    for far, config, words in (
        (
            False,
            msgspec.structs.replace(LOOPBACK, max_connections_each=3),
            f"from 127.0.0.1 of user {os.getuid()}, and no",
        ),
        (True, msgspec.structs.replace(LOOPBACK, max_connections=3), "3 connections are open, and"),
    ):
        if far:
            monkeypatch.setattr(listener, "guest_of", lambda _: "10.0.0.1")
        async with door(FakeView(), config) as client:
            lines = [line(client.port) for _ in range(3)]
            for each in lines:
                await each.__aenter__()

            async def full(client: Door = client, words: str = words) -> bool:
                async with line(client.port) as (reader, _), within():
                    answer = await reader.read()
                return answer.startswith(b"HTTP/1.1 503 ") and words.encode() in answer

            await until(full)
            await lines[0].__aexit__(None, None, None)
            await until(lambda client=client: _serves(client))  # type: ignore[misc]
            for each in lines[1:]:
                await each.__aexit__(None, None, None)
            page = (await client.text("/metrics"))[1]
        refused = next(
            text
            for text in page.splitlines()
            if text.startswith("kilowatch_aggregator_http_connections_refused_total ")
        )
        assert float(refused.split()[1]) >= 1


async def _serves(client: Door) -> bool:
    try:
        return (await client.text("/healthz"))[0] == 200
    except aiohttp.ClientError:
        return False


async def test_a_reader_that_does_not_read_is_dropped_and_holds_no_memory() -> None:
    view = FakeView()
    for number in range(400):
        view.add(inventory(f"n{number}", gpus=8, links=8))
    await view.tick(0)
    config = msgspec.structs.replace(LOOPBACK, slow_viewer_seconds=0.5)
    async with door(view, config) as client:
        wanted = "/api/v1/fleet?table=link&columns=*"
        whole = len((await client.text(wanted))[1])
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(silent, ("127.0.0.1", client.port))
        ask = f"GET {wanted} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n"
        await loop.sock_sendall(silent, ask.encode() * 4)

        async def shown(name: str, value: int) -> bool:
            page = (await client.text("/metrics"))[1]
            return f"\nkilowatch_aggregator_http_{name} {value}\n" in page

        await until(lambda: shown("connections_dropped_total", 1))
        await until(lambda: shown("connections", 1), "no connection but that of the metrics")
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while data := await loop.sock_recv(silent, 1 << 16):
                received += len(data)
        silent.close()
        assert received < 4 * whole, "what it had not read was thrown away"


async def test_viewers_are_bounded_for_each_token_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client who opens many keeps nobody else out."""
    monkeypatch.setattr(stream, "MOST_VIEWERS_EACH", 2)
    monkeypatch.setattr(stream, "MOST_VIEWERS", 3)
    async with door(await small_cluster()) as client:
        url = f"{client.url}/api/v1/stream"
        async with client.session.ws_connect(url), client.session.ws_connect(url) as second:
            async with client.session.get(url) as answer:
                assert answer.status == 503
                assert (
                    f"2 viewers of 127.0.0.1 of user {os.getuid()} are connected"
                    in (await answer.json())["error"]["what"]
                )
            async with (
                client.session.ws_connect(url, headers=client.bearer),
                client.session.get(url, headers=client.bearer) as answer,
            ):
                assert answer.status == 503
                assert "3 viewers are connected" in (await answer.json())["error"]["what"]
            await second.close()

            async def room() -> bool:
                try:
                    await (await client.session.ws_connect(url)).close()
                except aiohttp.WSServerHandshakeError:
                    return False
                return True

            await until(room)


@contextlib.contextmanager
def user_of_new_sockets(user: int) -> Iterator[None]:
    """Have this process open sockets as another user would."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@needs_root
async def test_one_user_of_this_machine_takes_no_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of connections nor of viewers: all of loopback is one address."""
    monkeypatch.setattr(stream, "MOST_VIEWERS_EACH", 2)
    config = msgspec.structs.replace(LOOPBACK, max_connections_each=3)
    async with door(await small_cluster(), config) as client, contextlib.AsyncExitStack() as held:
        url = f"{client.url}/api/v1/stream"
        with user_of_new_sockets(NOBODY):
            theirs = await held.enter_async_context(aiohttp.ClientSession())
            for _ in range(2):
                await held.enter_async_context(theirs.ws_connect(url))
            async with theirs.get(url) as answer:
                assert answer.status == 503
                assert f"2 viewers of 127.0.0.1 of user {NOBODY}" in await answer.text()
            await held.enter_async_context(line(client.port))

            async def full() -> bool:
                async with line(client.port) as (reader, _), within():
                    return b"from 127.0.0.1 of user %d, and no" % NOBODY in await reader.read()

            await until(full)
        async with client.session.ws_connect(url) as viewer:
            await viewer.send_str('{"every": 1}')
            assert (await viewer.receive()).type is aiohttp.WSMsgType.TEXT


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_user_of_a_connection_is_whose_socket_it_is(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        listening.listen()
        ours = socket.create_connection(listening.getsockname()[:2])
        accepted, peer = listening.accept()
        own = accepted.getsockname()[:2]
        assert local_user(peer[:2], own) == os.getuid()
        assert local_user(("10.0.0.1", peer[1]), own) is None
        assert local_user((host, 1), own) is None
        assert local_user(("nonsense", 1), own) is None
        accepted.send(b"unread")
        ours.close()  # what is left of it belongs to no process
        assert local_user(peer[:2], own) is None
        accepted.close()


@pytest.mark.parametrize(
    "path", ["/%1b[2J%07", "/api/v1/nodes/%1b]0;x%07", "/api/v1/nodes?%1b[31m=1", "/api/v1/fleet?columns=%e2%80%ae%00"]
)
async def test_no_error_text_commands_a_terminal(path: str) -> None:
    async with door(await small_cluster()) as client:
        status, body = await client.json(path)
    assert status in {400, 404}
    assert all(text.isprintable() for text in body["error"].values())


def test_addresses_are_counted_as_their_owners_have_them() -> None:
    assert neighbourhood("10.0.0.1") == neighbourhood("::ffff:10.0.0.1") == "10.0.0.1"
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::2:3") == "2001:db8::/64"
    assert neighbourhood("fe80::1%eth0") == "fe80::/64"
    assert neighbourhood("::1") == "::1"
    assert neighbourhood("nonsense") == "nonsense"


def test_wrong_tokens_of_an_address_run_out_and_come_back() -> None:
    tries = WrongTokens()
    news = [tries.add("a", 0.0) for _ in range(int(TRIES))]
    assert news == [True] + [False] * (len(news) - 1)
    assert tries.wait("a", 0.0) == pytest.approx(1 / TRIES_PER_SECOND)
    assert tries.wait("b", 0.0) == 0.0
    assert tries.wait("a", 1 / TRIES_PER_SECOND + 1e-6) == 0.0
    assert tries.count == TRIES
    for number in range(20_000):
        tries.add(f"address {number}", 1.0)
    assert len(tries._left) <= 10_000


def test_a_counter_forgets_guests_that_left() -> None:
    counter = GuestCounter(10, 2)
    for guest in ("a", "a", "b"):
        counter.enter(guest)
    assert counter.full("a")
    assert not counter.full("b")
    for guest in ("a", "a", "b"):
        counter.leave(guest)
    assert (counter.total, dict(counter._held)) == (0, {})
