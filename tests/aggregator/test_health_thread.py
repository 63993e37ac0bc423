"""Health is answered while the event loop stands still, and all else as if there were no thread."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from aggregator.http import health_thread
from aggregator.http.health_thread import HealthRequest, HealthThread, plain_request
from telemetry.runtime.supervision import ProgressMarks
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door

T = TypeVar("T")


def get(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    """Ask over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


async def test_health_is_answered_while_the_loop_stands_still() -> None:
    """And other requests when it goes on: this test holds the loop until health was answered."""
    view = FakeView()
    async with door(view) as client:
        await client.text("/healthz")  # the thread runs
        with ThreadPoolExecutor() as pool:
            page = pool.submit(get, client.port, "/metrics")
            answers = [pool.submit(get, client.port, path) for path in ("/healthz", "/readyz")] * 3
            for answer in answers:
                status, body = answer.result(timeout=60)  # blocks this loop
                assert (status, json.loads(body)["ok"]) == (200, True)
            assert not page.done()
            status, _ = await asyncio_result(page)
            assert status == 200


async def asyncio_result(future: Future[T]) -> T:
    """Wait for a thread without holding the loop."""
    return await asyncio.wrap_future(future)


async def test_a_loop_that_stands_still_is_said_by_health() -> None:
    """It is not silence that a supervisor has to understand."""
    view = FakeView()
    view.marks = ProgressMarks({"flush": 10.0}, ("flush",), clock=lambda: view.monotonic)
    async with door(view) as client:
        await client.text("/healthz")  # the thread runs
        with ThreadPoolExecutor() as pool:
            view.monotonic += 11
            status, body = pool.submit(get, client.port, "/healthz").result(timeout=60)
    assert status == 503
    assert json.loads(body)["reasons"] == ["There has been no progress of flush for 11 s."]


async def test_both_ways_give_the_same_answer() -> None:
    """A header that the thread does not judge makes the loop answer."""
    async with door(FakeView()) as client:
        thread = client.text("/healthz")
        loop = client.text("/healthz", headers={"X-Anything": "a"})
        (status, body, headers), (same_status, same_body, same_headers) = await thread, await loop
    skipped = {"Date", "Server", "Content-Length", "Connection"}
    assert status == same_status
    assert {**json.loads(body), "uptime_seconds": 0} == {**json.loads(same_body), "uptime_seconds": 0}
    assert {n: v for n, v in headers.items() if n not in skipped} == {
        n: v for n, v in same_headers.items() if n not in skipped
    }


async def test_a_connection_goes_on_with_the_loop_after_health() -> None:
    """Nothing that was sent is lost, two requests in one segment too."""
    async with door(FakeView()) as client:
        with ThreadPoolExecutor() as pool:

            def talk() -> bytes:
                with socket.create_connection(("127.0.0.1", client.port), 60) as line:
                    host = b"Host: 127.0.0.1\r\n"
                    line.sendall(
                        b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n"
                        b"GET /api/v1/nodes HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
                    )
                    return b"".join(iter(lambda: line.recv(65536), b""))

            text = await asyncio_result(pool.submit(talk))
    assert text.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert text.index(b'"uptime_seconds"') < text.index(b'"nodes":[')


async def test_another_host_is_refused_as_everywhere() -> None:
    async with door(FakeView()) as client:
        status, body, _ = await client.text("/healthz", headers={"Host": "evil.example"})
    assert status == 421
    assert "evil.example" in body


async def test_a_page_of_another_site_is_refused_as_everywhere() -> None:
    """The thread judges no Origin: whatever has one is for the loop."""
    async with door(FakeView()) as client:
        for path in ("/healthz", "/readyz"):
            for origin in ("https://evil.example", "null", "", f"{client.url}.evil.example"):
                status, body = await client.json(path, headers={"Origin": origin})
                assert (status, body["error"]["where"]) == (403, "Origin"), origin
            assert (await client.json(path, headers={"Origin": client.url}))[0] == 200


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[:-1],
        WHOLE.replace(b"GET", b"POST"),
        WHOLE.replace(b"GET", b"HEAD"),
        WHOLE.replace(b"healthz", b"healthz?x=1"),
        WHOLE.replace(b"healthz", b"metrics"),
        WHOLE.replace(b"1.1", b"2.0"),
        WHOLE.replace(b"here", b"there"),
        WHOLE.replace(b"Host: here\r\n", b""),
        WHOLE.replace(b"here", b"h\xffre"),
        WHOLE.replace(b"here\r\n", b"here\r\nHost: here\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\nOrigin: here\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\nContent-Length: 3\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\nConnection: Upgrade\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\n folded\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\nAccept: a\nContent-Length: 3\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\nAccept: a\rHost: there\r\n"),
        WHOLE.replace(b"here\r\n", b"here\r\nAccept: \x00\r\n"),
        WHOLE.replace(b"Host", b"User-Agent: a\nHost: there\r\nHost"),
        b"\r\n" + WHOLE,
        b"",
    ],
)
def test_what_is_not_plain_is_for_the_loop(data: bytes) -> None:
    assert plain_request(data, lambda name: name == "here") is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (WHOLE, HealthRequest("/healthz", len(WHOLE), last=False)),
        (WHOLE + b"GET /", HealthRequest("/healthz", len(WHOLE), last=False)),
        (WHOLE.replace(b"healthz", b"readyz"), HealthRequest("/readyz", len(WHOLE) - 1, last=False)),
        (WHOLE.replace(b"1.1", b"1.0"), HealthRequest("/healthz", len(WHOLE), last=True)),
        (b"GET /healthz HTTP/1.1\r\nhOST:here\r\nconnection: close\r\n\r\n", HealthRequest("/healthz", 55, last=True)),
    ],
)
def test_what_is_plain_is_read(data: bytes, found: HealthRequest) -> None:
    assert plain_request(data, lambda name: name == "here") == found


@contextlib.contextmanager
def serving(body: bytes) -> Iterator[tuple[HealthThread, int, threading.Event]]:
    """Serve a body; yields the thread, its port, and an event that is set when a connection is passed on."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    passed = threading.Event()
    served = HealthThread([listening], lambda _: (200, body), lambda _: True, passed.set, 30.0)
    port, before = listening.getsockname()[1], sys.getswitchinterval()
    thread = threading.Thread(target=served.serve, daemon=True)
    thread.start()
    try:
        yield served, port, passed
    finally:
        served.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert sys.getswitchinterval() == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_a_reader_that_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off after a while."""
    monkeypatch.setattr(health_thread, "SEND_SECONDS", 2.0)
    with contextlib.ExitStack() as stack:
        served, port, _ = stack.enter_context(serving(b"x" * 30_000_000))
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        slow.sendall(WHOLE)
        assert slow.recv(10).startswith(b"HTTP/1.1 2")
        assert len(get(port, "/healthz")[1]) == 30_000_000
        while served.held:
            threading.Event().wait(0.01)
    assert served.answered == 2


def test_connections_that_say_nothing_go_to_the_loop_and_others_are_answered() -> None:
    with contextlib.ExitStack() as stack:
        served, port, passed = stack.enter_context(serving(b"{}"))
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        while len(served.passed) < 200:
            assert passed.wait(60)
            passed.clear()
        assert get(port, "/healthz") == (200, b"{}")
        for each in served.passed:
            each.close()


def test_while_the_loop_takes_none_no_more_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait in the kernel, and go on when it does."""
    monkeypatch.setattr(health_thread, "MOST_PASSED", 3)
    with contextlib.ExitStack() as stack:
        served, port, passed = stack.enter_context(serving(b"{}"))
        lines = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(9)]
        for each in lines:
            each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        taken = 0
        while taken < 9:
            assert passed.wait(60)
            passed.clear()
            while served.passed:
                assert len(served.passed) <= 9
                served.passed.popleft().close()
                taken += 1


def test_a_fault_of_the_answer_leaves_it_to_the_loop() -> None:
    """The loop may change what is being read."""
    listening = socket.create_server(("127.0.0.1", 0))
    passed = threading.Event()

    def fail(_: str) -> tuple[int, bytes]:
        raise RuntimeError("dictionary changed size during iteration")

    served = HealthThread([listening], fail, lambda _: True, passed.set, 30.0)
    threading.Thread(target=served.serve, daemon=True).start()
    with socket.create_connection(listening.getsockname(), 60) as line:
        line.sendall(WHOLE)
        assert passed.wait(60)
        taken = served.passed.popleft()
        with taken:
            assert taken.recv(1000) == WHOLE
    served.stop()
