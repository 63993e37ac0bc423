"""The part of HTTP/1.1 that the dashboard needs: requests on connections that are kept alive, and the
upgrade to a WebSocket.

aiohttp took 150 ms of every start and 12 MB of memory, a fifth of both (docs/decisions/0018).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from telemetry.errors import ConfigError
from telemetry.files import local_token
from tui.feed.socket import GUID, Socket, hang_up

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of one answer or message at most."""
_BUFFER = 1024 * 1024
"""Bytes that are read ahead: a tick of 10,000 GPUs is half of it."""
_NEAR = {"localhost", "127.0.0.1", "::1"}
"""Hosts for which compression costs more than the bytes that it saves."""


class HttpReplyError(ConnectionError):
    """The answer is no HTTP, or incomplete."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class HttpConnection:
    """A server, and the idle connections to it."""

    def __init__(self, url: str, token: str | None) -> None:
        """Raises `ConfigError` where `url` is no address."""
        parts, port = _parts(url)
        self._secure = parts.scheme == "https"
        self.host, self.port = parts.hostname or "", port or (443 if self._secure else 80)
        self._base = parts.path.rstrip("/")
        where = f"[{self.host}]" if ":" in self.host else self.host
        self._headers = {"Host": where if port is None else f"{where}:{port}"}
        self._local = url if token is None and parts.username is None else None
        """The URL, where the token is that of an aggregator of this user, which changes at its start."""
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._idle: list[_Line] = []

    async def request(self, method: str, path: str, body: bytes | None = None) -> HttpReply:
        """Send a request, and return the answer. Raises `OSError`."""
        line = self._idle.pop() if self._idle and method == "GET" else None
        if line is not None:
            with suppress(OSError, EOFError):  # it was closed while it waited: a fresh one
                return await self._ask(line, method, path, body)
        return await self._ask(await self._open(), method, path, body)

    async def socket(self, path: str) -> Socket | HttpReply:
        """Open a WebSocket; returns the answer where the server refuses. Raises `OSError`."""
        line = await self._open()
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
        }
        try:
            line.send("GET", f"{self._base}/{path}", self._fixed() | upgrade, None)
            answer = await line.answer()
        except BaseException:
            line.close()
            raise
        if answer.status != 101:
            line.close()
            return answer
        proof = hashlib.sha1(f"{key}{GUID}".encode(), usedforsecurity=False).digest()
        if answer.headers.get("sec-websocket-accept") != base64.b64encode(proof).decode():
            line.close()
            raise HttpReplyError("the server upgrades to something that is no WebSocket")
        return Socket(line.reader, line.writer, MOST_BYTES)

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _fixed(self) -> dict[str, str]:
        """Return the headers of every request."""
        headers = dict(self._headers)
        token = None if self._local is None else local_token.find(self._local)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _open(self) -> _Line:
        context = self._context if self._secure else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context, limit=_BUFFER)
        return _Line(reader, writer)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """The trusted certificates, read only for https: that takes a while."""
        import ssl  # noqa: PLC0415 - most aggregators are on this machine, or behind ssh

        return ssl.create_default_context()

    async def _ask(self, line: _Line, method: str, path: str, body: bytes | None) -> HttpReply:
        try:
            headers = self._fixed()
            if self.host not in _NEAR:
                headers["Accept-Encoding"] = "gzip"
            if body is not None:
                headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
            line.send(method, f"{self._base}/{path}", headers, body)
            answer = await line.answer()
        except BaseException:  # a request that is given up leaves its answer on the line
            line.close()
            raise
        if line.kept:
            self._idle.append(line)
        else:
            line.close()
        return answer


class _Line:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.kept = True
        """Whether the server keeps it open for another request."""

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> None:
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    async def answer(self) -> HttpReply:
        try:
            status, headers = _head(await self.reader.readuntil(b"\r\n\r\n"))
            body = b"" if status in {101, 204, 304} else await self._body(headers)
            if headers.get("content-encoding", "").lower() == "gzip":
                body = zlib.decompress(body, 31)
        except (asyncio.LimitOverrunError, ValueError, zlib.error) as error:
            raise HttpReplyError(f"its answer is no HTTP: {error}") from error
        except asyncio.IncompleteReadError as error:
            raise HttpReplyError("it closed the connection without an answer") from error
        self.kept = self.kept and headers.get("connection", "").lower() != "close"
        return HttpReply(status, headers, body)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self._chunks()
        if "content-length" in headers:
            return await self.reader.readexactly(_bounded(int(headers["content-length"])))
        self.kept = False
        return await self.reader.read()

    async def _chunks(self) -> bytes:
        parts: list[bytes] = []
        length = 0
        while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            length = _bounded(length + size)
            parts.append((await self.reader.readexactly(size + 2))[:-2])
        while await self.reader.readuntil(b"\r\n") != b"\r\n":  # trailers
            pass
        return b"".join(parts)

    def close(self) -> None:
        hang_up(self.writer)


def _parts(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError("URL", f"{url!r}: {error}", "Write http://HOST:9400.") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("URL", f"{url!r} is no address", "Write http://HOST:9400.")
    return parts, port


def _head(text: bytes) -> tuple[int, dict[str, str]]:
    """Return status and headers. Raises `ValueError`."""
    first, *lines = text.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not protocol.startswith("HTTP/1."):
        raise ValueError(f"it begins with {first[:40]!r}")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return int(rest[:3]), headers


def _bounded(size: int) -> int:
    if not 0 <= size <= MOST_BYTES:
        raise ValueError(f"{size} bytes are too many")
    return size
