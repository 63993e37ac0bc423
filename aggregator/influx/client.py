"""The HTTP client of the server: the only file that sends requests to it. Blocking, for threads.

One connection is kept open; every failure on the way is an `UnreachableError`, and every response a
`ServerReply`, whatever its status.
"""

from __future__ import annotations

import base64
import http.client
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

from aggregator.influx.names import bucket
from aggregator.influx.response import ServerReply
from aggregator.settings.influx import InfluxApi, InfluxConfig
from telemetry.text.connection_faults import connection_fault

MOST_ANSWER = 256 * 1024 * 1024
"""Most bytes of a reply to a query."""


class UnreachableError(Exception):
    """No complete reply in time; the text has place and cause."""


@dataclass(frozen=True, slots=True)
class InfluxServer:
    """Product and version of the server."""

    product: str
    """`InfluxDB`, or `VictoriaMetrics`, or `unknown`."""
    version: str
    """`1.6.7~rc0`; empty when it reports none."""

    @property
    def major(self) -> int:
        """The first number of the version; 0 when there is none."""
        digits = self.version.lstrip("v").partition(".")[0]
        return int(digits) if digits.isdigit() else 0

    def __str__(self) -> str:
        return f"{self.product} {self.version}".strip()


class InfluxClient:
    """A connection to a server; used by one thread at a time."""

    def __init__(self, config: InfluxConfig) -> None:
        """Raises `ConfigError` for secrets and certificates that can't be read."""
        self.config = config
        self._where = urlsplit(config.url)
        self._context = config.context()
        self._headers = {"User-Agent": "kilowatch", **_authorization(config)}
        self._open: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def write(self, policy: str, body: bytes) -> ServerReply:
        """Send lines, gzipped, to a retention policy."""
        config = self.config
        if config.api is InfluxApi.V1:
            path = "/write"
            query = {"db": config.database, "rp": policy, "precision": "ms"}
        else:
            path = "/api/v2/write"
            place = bucket(config.database, policy)
            query = {"org": config.org, "bucket": place, "precision": "ms"}
        headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"}
        return self.request("POST", path, query, body, headers)

    def select(self, text: str, epoch: str = "ns") -> ServerReply:
        """Send a query in InfluxQL, which can only read."""
        return self.request("GET", "/query", {"db": self.config.database, "q": text, "epoch": epoch})

    def change(self, text: str) -> ServerReply:
        """Send a statement in InfluxQL, which may change the server."""
        return self.request("POST", "/query", {"q": text}, b"")

    def server(self) -> InfluxServer:
        """Return product and version. Raises `UnreachableError`."""
        answer, headers = self._exchange("GET", "/ping", {}, None, {})
        version = headers.get("X-Influxdb-Version", "")
        if version and answer.status < 404:
            return InfluxServer("InfluxDB", version.lstrip("v"))
        if answer.status == 204:
            text, more = self._exchange("GET", "/health", {}, None, {})
            if text.status == 200 and text.text.strip() == "OK":
                return InfluxServer("VictoriaMetrics", "")
            if "influx" in (more.get("X-Influxdb-Build", "") + text.text).lower():
                return InfluxServer("InfluxDB", more.get("X-Influxdb-Version", "").lstrip("v"))
        return InfluxServer("unknown", "")

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ServerReply:
        """Send a request. Raises `UnreachableError`."""
        return self._exchange(method, path, query or {}, body, headers or {})[0]

    def close(self) -> None:
        """Close the connection."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def interrupt(self) -> None:
        """Abort the request under way, from another thread."""
        connection = self._open
        sock = None if connection is None else connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[ServerReply, Message]:
        text = "&".join([urlencode(query, quote_via=quote)] if query else [])
        target = self._where.path.rstrip("/") + path + (f"?{text}" if text else "")
        with self._lock:
            kept = self._open is not None
            try:
                return self._once(method, target, body, headers)
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError) as error:
                self.close()
                if not kept:  # a fresh connection was refused: nothing listens
                    raise self._unreachable(error) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._unreachable(error) from error
            try:  # the server had closed the idle connection
                return self._once(method, target, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._unreachable(error) from error

    def _once(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[ServerReply, Message]:
        connection = self._open
        if connection is None:
            connection = self._open = self._connection()
        connection.request(method, target, body, {**self._headers, **headers})
        response = connection.getresponse()
        text = response.read(MOST_ANSWER).decode("utf-8", errors="replace")
        if not response.isclosed():
            self.close()
        found = response.headers  # a mapping that ignores case: some servers write names small
        return ServerReply(response.status, text, found.get("Retry-After", "")), found

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._where.hostname or "", self._where.port
        seconds = self.config.timeout_seconds
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=seconds, context=self._context)
        return http.client.HTTPConnection(host, port or 80, timeout=seconds)

    def _unreachable(self, error: Exception) -> UnreachableError:
        if isinstance(error, TimeoutError):
            words = f"no answer within {self.config.timeout_seconds:g} s"
        else:
            words = connection_fault(error).what
        return UnreachableError(f"{self.config.url}: {words}")


def _authorization(config: InfluxConfig) -> dict[str, str]:
    secret = config.secret()
    if config.token_file:
        return {"Authorization": f"Token {secret}"}
    if config.username:
        pair = f"{config.username}:{secret}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}
