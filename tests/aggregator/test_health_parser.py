"""The plain requests of the health thread, held against the parsers of others: what it answers itself, the
main server would have read in the same way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import h11
import pytest
from aiohttp import HttpVersion, http_exceptions
from aiohttp.http_parser import HttpRequestParser

from aggregator.http.health_thread import PLAIN_HEADERS, HealthRequest, plain_request
from tests.kit.night import seed, size

INPUTS = size(6_000, 600_000)
CURL = b"GET /healthz HTTP/1.1\r\nHost: here\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n"
KUBELET = b"GET /readyz HTTP/1.1\r\nHost: here\r\nUser-Agent: kube-probe/1.33\r\nConnection: close\r\n\r\n"
BEGINNINGS = (CURL, KUBELET, CURL.replace(b"1.1", b"1.0"), CURL + KUBELET)
PIECES = (
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\x00", b"\x0b", b"\x85", b"\xff", b"\x7f", b":", b",", b";", b"?",
    b"Host: here", b"Host: there", b"Accept", b"Accept :", b"Content-Length: 3", b"Transfer-Encoding: chunked",
    b"Connection: keep-alive", b"Connection: Upgrade", b"Expect: 100-continue", b"GET ", b"HTTP/0.9", b"HTTP/1.10",
    b"http/1.1", b" folded", b"%2e", b"//", b"#", b"@", b"/healthz", b"a" * 300, b"\xc2\xa0", b"0",
)  # fmt: skip
"""Inputs that may be read in two ways."""
Parser = Callable[[bytes], HealthRequest | None]


def mutated(dice: random.Random) -> bytes:
    """Return a request that is nearly plain."""
    data = dice.choice(BEGINNINGS)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        at, length = dice.randrange(len(data) + 1), dice.choice((0, 0, 1, 1, 4, 8, 25))
        byte = bytes([dice.randrange(256)])
        lines = data.split(b"\r\n")
        lines.insert(dice.randrange(len(lines) + 1), dice.choice(PIECES))
        data = dice.choice(
            (
                data[:at] + dice.choice(PIECES) + data[at + length :],
                data[:at] + byte + data[at + length :],
                data[:at] + data[at + length :],
                b"\r\n".join(lines),
            )
        )
    return data


def ours(data: bytes) -> HealthRequest | None:
    """Read as the health thread does."""
    return plain_request(data, lambda name: name == "here")


def plain(method: str, path: str, minor: int, headers: list[tuple[str, str]], size: int) -> HealthRequest | None:
    """Return what another parser has read, where it is plain by the same measure."""
    found = {name.lower(): value for name, value in headers}
    connection = found.get("connection", "").lower()
    if (
        method != "GET"
        or path not in {"/healthz", "/readyz"}
        or len(found) != len(headers)
        or not {name.encode() for name in found} <= PLAIN_HEADERS
        or found.get("host") != "here"
        or connection not in {"", "close", "keep-alive"}
    ):
        return None
    last = connection == "close" if minor else connection != "keep-alive"
    return HealthRequest(path, size, last)


def aiohttps(data: bytes) -> HealthRequest | None:
    """Read as the main server does."""
    head, end, _ = data.partition(b"\r\n\r\n")
    loop = asyncio.get_event_loop()
    parser = HttpRequestParser(asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), loop=loop), loop, 2**16)  # type: ignore[arg-type]
    try:
        messages, _, _ = parser.feed_data(head + end)
    except http_exceptions.HttpProcessingError:
        return None
    if len(messages) != 1:
        return None
    message = messages[0][0]
    if message.version not in {HttpVersion(1, 0), HttpVersion(1, 1)}:
        return None
    headers = [(name.decode(), value.decode("latin-1")) for name, value in message.raw_headers]
    return plain(message.method, message.path, message.version.minor, headers, len(head + end))


def h11s(data: bytes) -> HealthRequest | None:
    """Read as h11 does, a strict parser that others rely on."""
    connection = h11.Connection(h11.SERVER)
    try:
        connection.receive_data(data)
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request) or event.http_version not in {b"1.0", b"1.1"}:
        return None
    headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
    rest = len(connection.trailing_data[0])
    minor = int(event.http_version == b"1.1")
    return plain(event.method.decode(), event.target.decode(), minor, headers, len(data) - rest)


@pytest.mark.nightly
@pytest.mark.parametrize("other", [aiohttps, h11s])
async def test_what_the_thread_answers_others_read_in_the_same_way(other: Parser) -> None:
    """The thread may leave any request that is nearly plain to the loop, and answers none that another refuses."""
    for data in BEGINNINGS:
        assert ours(data) == other(data) is not None
    dice = random.Random(seed(33))
    answered = refused = 0
    for _ in range(INPUTS):
        data = mutated(dice)
        found = ours(data)
        if found is None:
            refused += 1
            continue
        answered += 1
        assert other(data) == found, data
    assert answered > INPUTS / 20
    assert refused > INPUTS / 20
