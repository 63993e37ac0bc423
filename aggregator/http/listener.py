"""The listening socket: how many connections there may be, and how long a silent one stays.

aiohttp closes a connection on which no whole request comes in time. This bounds how many there are, in all and
for each address, on this machine for each user, and closes those whose reader does not read. TLS begins only when a connection is
counted, so that handshakes are bounded too. Without TLS a thread accepts (`health_thread`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import msgspec
from aiohttp import web

from aggregator.access.guests import neighbourhood
from aggregator.access.local_user import local_user
from aggregator.http.config import HttpConfig, is_loopback
from aggregator.http.health_thread import HealthThread
from aggregator.http.tls import ServerCertificate
from api.errors import ErrorDetail, ErrorReply

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
UPKEEP_SECONDS = 1.0
BACKLOG = 100
"""Connections that may wait in the kernel."""
LONGEST_ANSWER = 300.0
"""Seconds in which an answer must be read whole."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 5\r\nContent-Length: %d\r\n\r\n%s"
)


@dataclass(slots=True)
class ConnectionStats:
    """Counters of the connections to a listener."""

    open: int = 0
    """How many there were at the last count."""
    refused: int = 0
    """How many were refused because there were too many."""
    dropped: int = 0
    """How many were closed because their reader did not read."""
    streams: WeakSet[asyncio.BaseTransport] = field(default_factory=WeakSet)
    """Connections of WebSockets, which watch their readers themselves."""


CONNECTIONS = web.AppKey("connections", ConnectionStats)


class BoundedSite(web.BaseSite):
    """A TCP listener with a bound on connections; `start` it as aiohttp's own sites."""

    def __init__(
        self,
        runner: web.BaseRunner,
        config: HttpConfig,
        certificate: ServerCertificate | None,
        stats: ConnectionStats,
        answer_health: Callable[[str], tuple[int, bytes]],
        called: Callable[[str], bool],
    ) -> None:
        """`answer_health`, `called`: as of `HealthThread`."""
        super().__init__(runner)
        self.certificate = certificate
        self.health: HealthThread | None = None
        """The thread that accepts, once started without TLS."""
        self.handshakes: set[HttpArrival] = set()
        """Connections that are not encrypted yet."""
        self.stats = stats
        self._config = config
        self._answer_health, self._called = answer_health, called
        self._adopting: set[asyncio.Task[None]] = set()
        self._unread: WeakKeyDictionary[asyncio.Transport, UnreadAnswer] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The address as a URL."""
        return f"{'http' if self.certificate is None else 'https'}://{self._config.listen}"

    async def start(self) -> None:
        """Listen. Raises `OSError`."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = server = await loop.create_server(
            lambda: HttpArrival(self), self._config.host, self._config.port, start_serving=self.certificate is not None
        )
        if self.certificate is None:
            listening = [each.dup() for each in server.sockets]
            for each in listening:
                each.listen(BACKLOG)
            self.health = HealthThread(
                listening, self._answer_health, self._called, lambda: self._from_thread(loop), self._config.idle_seconds
            )

    async def stop(self) -> None:
        """Accept no more."""
        if self.health is not None:
            await asyncio.to_thread(self.health.stop)
        await super().stop()

    def _from_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the process with it
            loop.call_soon_threadsafe(self._adopt)

    def _adopt(self) -> None:
        """Take over the connections that the thread passes on."""
        assert self.health is not None  # noqa: S101 - it calls this
        while self.health.passed:
            task = asyncio.create_task(self._arrive(self.health.passed.popleft()))
            self._adopting.add(task)
            task.add_done_callback(self._adopting.discard)

    async def _arrive(self, sock: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: HttpArrival(self), sock)
        except OSError:  # the peer is gone
            sock.close()

    @property
    def connections(self) -> Counter[str]:
        """Connections of the loop by the address of the peer, those in a handshake too. Those that the thread
        still keeps have a bound of their own."""
        return Counter([each.guest for each in self.handshakes] + [guest_of(each) for each in self._transports()])

    def full(self, guest: str) -> str:
        """Return why there can't be one more from an address, or ``."""
        held, config = self.connections, self._config
        self.stats.open = held.total()
        near = is_loopback(guest.partition(" ")[0])  # other machines can't keep out this one's own programs
        if held.total() >= config.max_connections and not near:
            return f"{held.total()} connections are open, and no more are possible"
        if held[guest] >= config.max_connections_each:
            return f"{held[guest]} connections are open from {guest}, and no more are possible"
        return ""

    def handler(self) -> web.RequestHandler | None:
        """Return a new handler of a connection; None while the listener ends."""
        server = self._runner.server
        return None if server is None else server()

    async def upkeep(self) -> None:
        """Drop readers that do not read, and follow the files of the certificate, until cancelled."""
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                held = 0 if self.health is None else len(self.health.held)
                self.stats.open = self.connections.total() + held
                self._drop_unread(asyncio.get_running_loop().time())
                if self.certificate is not None:
                    await asyncio.to_thread(self.certificate.refresh)
            except Exception:  # the bounds must outlive any fault of one connection
                log.exception("http: the upkeep of connections failed")

    def _drop_unread(self, now: float) -> None:
        for transport in self._transports():
            size = transport.get_write_buffer_size()
            before = self._unread.pop(transport, None)
            if not size or transport in self.stats.streams:
                continue
            if before is None:
                unread = UnreadAnswer(size, now, now)
            elif size < before.size:
                unread = UnreadAnswer(size, now, before.began)
            else:
                unread = before
            if unread.overdue(now, self._config.slow_viewer_seconds):
                self.stats.dropped += 1
                transport.abort()
            else:
                self._unread[transport] = unread

    def _transports(self) -> list[asyncio.Transport]:
        server = self._runner.server
        handlers = [] if server is None else server.connections
        found = (handler.transport for handler in handlers)
        return [transport for transport in found if isinstance(transport, asyncio.Transport)]


class UnreadAnswer(NamedTuple):
    """The part of an answer that waits in memory for its reader."""

    size: int
    """Bytes."""
    moved: float
    """When it became less, monotonic seconds."""
    began: float
    """When it began."""

    def overdue(self, now: float, patient_seconds: float) -> bool:
        """Whether its reader does not read, or reads too slowly."""
        return now - self.moved > patient_seconds or now - self.began > LONGEST_ANSWER


class HttpArrival(asyncio.Protocol):
    """A connection that has just come: counted, encrypted where the listener is, and handed on."""

    def __init__(self, site: BoundedSite) -> None:
        self.guest = ""
        """The address of the peer."""
        self._site = site
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it on, or refuse it."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - the socket is TCP's
        self.guest = guest_of(transport)
        problem, handler = self._site.full(self.guest), self._site.handler()
        if problem or handler is None:
            self._refuse(transport, problem or "the aggregator stops")
        elif self._site.certificate is None:
            transport.set_protocol(handler)
            handler.connection_made(transport)
        else:
            transport.pause_reading()
            self._site.handshakes.add(self)
            self._task = asyncio.create_task(self._encrypt(transport, handler, self._site.certificate))

    async def _encrypt(
        self, transport: asyncio.Transport, handler: web.RequestHandler, certificate: ServerCertificate
    ) -> None:
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport, handler, certificate.context, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
            if secure is not None:
                handler.connection_made(secure)
        except (OSError, ssl.SSLError):  # strangers speak what they like: no line in the log
            transport.abort()
        finally:
            self._site.handshakes.discard(self)

    def _refuse(self, transport: asyncio.Transport, problem: str) -> None:
        self._site.stats.refused += 1
        if self._site.certificate is None:
            body = msgspec.json.encode(
                ErrorReply(ErrorDetail("connection", problem, "Close some, or try again later."))
            )
            transport.write(_FULL % (len(body), body))
        transport.close()


_guests: WeakKeyDictionary[asyncio.BaseTransport, str] = WeakKeyDictionary()


def guest_of(transport: asyncio.BaseTransport) -> str:
    """Return the name under which the peer of a connection is counted: its address, and of this machine's own the user,
    so that one of them takes no other's place."""
    found = _guests.get(transport)
    if found is None:
        found = _guests[transport] = _named(transport)
    return found


def _named(transport: asyncio.BaseTransport) -> str:
    peer, own = (transport.get_extra_info(name) for name in ("peername", "sockname"))
    if not isinstance(peer, tuple):
        return ""
    user = local_user(peer[:2], own[:2])
    return neighbourhood(str(peer[0])) + ("" if user is None else f" of user {user}")
