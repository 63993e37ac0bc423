"""Requests over HTTP or HTTPS, which never take longer than they may.

No proxies and no redirects: a password or a token goes to the server that the settings name, and to nobody else.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of an answer at most."""


class HttpRequestError(Exception):
    """An answer that is none, and why."""

    def __init__(self, text: str, status: int | None = None, *, late: bool = False) -> None:
        """`status`: of the answer, where one came; `late`: whether it did not come in time."""
        super().__init__(text)
        self.status = status
        self.late = late


class RequestReply(NamedTuple):
    """An answer, of whatever status."""

    status: int
    headers: HTTPMessage
    body: bytes


class HttpRequests:
    """Requests to one server over one connection, which together take no longer than they may."""

    def __init__(self, server: str, seconds: float, trust: ssl.SSLContext | None = None) -> None:
        """`server`: `https://HOST:PORT`. The time counts from the connection on: names are looked up before."""
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port
        self._server, self._seconds, self._path = server, seconds, parts.path.rstrip("/")
        self._connection = (
            HTTPSConnection(host, port, timeout=seconds, context=trust)
            if parts.scheme == "https"
            else HTTPConnection(host, port, timeout=seconds)
        )
        self._late = threading.Event()
        self._timer = threading.Timer(seconds, self._give_up)
        self._timer.daemon = True

    def __enter__(self) -> HttpRequests:
        """Connect. Raises `HttpRequestError`."""
        try:
            self._connection.connect()
            self._timer.start()
        except (OSError, ValueError) as error:
            self._connection.close()
            raise self._explained(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the connection."""
        self._timer.cancel()
        self._connection.close()

    def ask(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> RequestReply:
        """Return the answer to a request. Raises `HttpRequestError` where none comes in time."""
        try:
            self._connection.request(method, self._path + path, body, dict(headers or {}))
            answer = self._connection.getresponse()
            found = answer.read(MOST_BYTES + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise self._explained(error) from error
        if self._late.is_set():
            raise self._timed_out()
        if len(found) > MOST_BYTES:
            raise HttpRequestError(f"the answer of {self._server} is larger than {MOST_BYTES} bytes")
        return RequestReply(answer.status, answer.headers, found)

    def _give_up(self) -> None:
        self._late.set()
        with contextlib.suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _timed_out(self) -> HttpRequestError:
        text = f"{self._server} does not answer within {self._seconds:g} s"
        return HttpRequestError(text, late=True)

    def _explained(self, error: Exception) -> HttpRequestError:
        if self._late.is_set() or isinstance(error, TimeoutError):
            return self._timed_out()
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return HttpRequestError(f"{self._server} does not answer: {text or type(error).__name__}")


def get(server: str, path: str, *, token: str, seconds: float, trust: ssl.SSLContext | None = None) -> bytes:
    """Return the body of an answer 200. `token`: "" sends none. Raises `HttpRequestError`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with HttpRequests(server, seconds, trust) as requests:
        answer = requests.ask(path, headers=headers)
    if answer.status != 200:
        raise HttpRequestError(f"{server} answers {answer.status}", answer.status)
    return answer.body
