"""`/api/v1/stream`: a WebSocket that sends a viewer its columns, tick by tick.

A viewer sends one JSON object (`StreamRequest`), and another whenever it wants something else.
It gets `rows` at once and then `data`. Nothing is queued: a viewer that is slow misses ticks, and
one that does not read (`HttpConfig.slow_viewer_seconds`) is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from asyncio import FIRST_COMPLETED
from itertools import takewhile

import msgspec
from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from aggregator.access.guests import GuestCounter
from aggregator.access.private_fields import public_json
from aggregator.access.tokens import AccessScope
from aggregator.http.auth import CALLER
from aggregator.http.columns import ColumnChoice, choose
from aggregator.http.errors import RequestError, printable
from aggregator.http.listener import CONNECTIONS, guest_of
from aggregator.http.operation import Operation
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW, json_bytes
from aggregator.http.stream_hub import HUB, Hub, StreamSnapshot
from aggregator.load.shedding import RETRY_AFTER
from aggregator.view import AggregatorView
from api.errors import ErrorDetail
from api.stream import StreamAlerts, StreamError, StreamEvents, StreamRequest
from telemetry.text.decoders import of_json
from telemetry.text.settings import fault_of

SHORTEST, LONGEST = 0.2, 3600.0
HEARTBEAT = 20.0
"""Seconds between two pings; a viewer that does not answer within half of it is gone."""
MOST_VIEWERS, MOST_VIEWERS_EACH = 200, 50
"""Viewers at a time, in all and with one token, or without one from one address; on this machine of one user."""
MOST_BYTES = 64 * 1024
"""Size of a request: the names of 2,000 nodes."""
FIRST_EVENTS = 100

SOCKETS = web.AppKey("sockets", set[web.WebSocketResponse])
VIEWERS = web.AppKey("viewers", GuestCounter)


_requests = of_json(StreamRequest)


class Viewer:
    """A WebSocket with its request, and the data that was sent last."""

    def __init__(self, view: AggregatorView, hub: Hub, socket: web.WebSocketResponse, *, sees_private: bool) -> None:
        self._view, self._hub, self._socket = view, hub, socket
        self._sees_private = sees_private
        self._request = StreamRequest()
        self._choice: ColumnChoice | None = None
        self._asked = asyncio.Event()
        self._before: StreamSnapshot | None = None
        self._due = float("-inf")
        self._alerts: bytes | None = None
        self._newest: str | None = None
        """Id of the newest event that was sent; None before the first."""

    def ask(self, text: str) -> None:
        """Accept a request. Raises `RequestError`; then the one before stays in force."""
        request = _parse(text)
        nodes = None if request.rows is None else request.rows.nodes
        self._choice = choose("columns", request.table, request.columns, nodes)
        self._request, self._before, self._alerts, self._newest = request, None, None, None
        self._due = float("-inf")
        self._asked.set()

    async def show(self) -> None:
        """Send, for as long as the socket is open. Raises `TimeoutError` for a slow viewer."""
        await self._asked.wait()
        flushes = self._view.flushes
        tick = asyncio.ensure_future(flushes.after(flushes.number))
        try:
            while True:
                self._asked.clear()
                now = self._view.now()
                every = max(self._request.every, self._view.shedding.viewer_seconds)
                if now >= self._due:
                    self._due = now + every - min(0.1, every / 4)  # flushes are not on the dot
                    await self._send_all()
                asked = asyncio.ensure_future(self._asked.wait())
                try:
                    # A second at most: without flushes values grow stale, and that must be sent.
                    await asyncio.wait({tick, asked}, timeout=1.0, return_when=FIRST_COMPLETED)
                finally:  # also when the viewer leaves just now
                    asked.cancel()
                if tick.done():
                    tick = asyncio.ensure_future(flushes.after(tick.result()))
        finally:
            tick.cancel()

    async def _send_all(self) -> None:
        choice, request = self._choice, self._request
        if choice is None:
            return
        await self._view.refresh()
        snapshot = self._hub.snapshot(choice)
        if self._before is None or self._before.layout is not snapshot.layout:
            self._before = None
            await self._send(self._hub.rows(choice, snapshot))
        before = self._before if request.changes else None
        data = await self._hub.data(snapshot, before, packed=request.packed)
        if data is not None:
            await self._send(data, binary=request.packed)
        if self._request is not request:  # another came meanwhile, and starts afresh
            return
        self._before = snapshot
        if request.alerts:
            await self._send_alerts()
        if request.events:
            await self._send_events()

    async def _send_alerts(self) -> None:
        alerts = list(self._view.alerts())
        encoded = json_bytes(alerts)
        if encoded != self._alerts:
            self._alerts = encoded
            await self._send_document(StreamAlerts(self._view.wall(), alerts))

    async def _send_events(self) -> None:
        events = list(self._view.recent_events())
        known = self._newest
        fresh = events[:FIRST_EVENTS] if known is None else list(takewhile(lambda event: event.id != known, events))
        self._newest = events[0].id if events else ""
        if fresh:
            await self._send_document(StreamEvents(self._view.wall(), fresh))

    async def _send_document(self, document: StreamAlerts | StreamEvents) -> None:
        body = json_bytes(document)
        await self._send(body if self._sees_private else public_json(body))

    async def refuse(self, fault: ErrorDetail) -> None:
        """Send the fault of a request."""
        await self._send(json_bytes(StreamError(printable(fault))))

    async def _send(self, message: bytes, *, binary: bool = False) -> None:
        async with asyncio.timeout(self._hub.slow_viewer_seconds):
            if binary:
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_str(message.decode())


def _parse(text: str) -> StreamRequest:
    """Read a request. Raises `RequestError` that names the key at fault."""
    try:
        request = _requests.decode(text)
    except msgspec.ValidationError as error:
        fault = fault_of(error, StreamRequest)
        hint = fault.hint or "Send one JSON object."
        raise RequestError(400, fault.place or "request", fault.problem, hint) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(400, "request", str(error), "Send one JSON object.") from error
    if not SHORTEST <= request.every <= LONGEST:
        raise RequestError(
            400, "every", f"{request.every:g} s is out of bounds", f"Use {SHORTEST} to {LONGEST:g} seconds."
        )
    return request


def is_far(remote: str | None) -> bool:
    """Return whether a caller is on another machine."""
    try:
        return not ipaddress.ip_address(remote or "").is_loopback
    except ValueError:
        return True


async def stream(request: web.Request) -> web.StreamResponse:
    """Send readings of chosen columns, as they come."""
    query(request)
    hub, viewers, transport = request.app[HUB], request.app[VIEWERS], request.transport
    guest = request[CALLER].name or ("" if transport is None else guest_of(transport))
    problem = viewers.full(guest)
    if problem:
        raise RequestError(503, "stream", problem, "Close a dashboard, or try again later.")
    shedding = request.app[VIEW].shedding
    if shedding.refuses_viewers and is_far(request.remote):
        shedding.viewers_refused += 1
        raise RequestError(
            503,
            "stream",
            f"the aggregator is overloaded: {shedding.reason}",
            "Try again later, or on the aggregator's own machine.",
            headers={hdrs.RETRY_AFTER: str(RETRY_AFTER)},
        )
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MOST_BYTES, compress=False, timeout=2.0)
    if not socket.can_prepare(request):
        raise RequestError(426, "Upgrade", "this is a WebSocket", "Connect with ws://.")
    try:
        await socket.prepare(request)
    except ConnectionResetError:  # the viewer went away: no fault of the server, and no traceback
        return web.Response(status=499)
    request.app[SOCKETS].add(socket)
    if request.transport is not None:
        request.app[CONNECTIONS].streams.add(request.transport)
    hub.viewers += 1
    viewers.enter(guest)
    viewer = Viewer(request.app[VIEW], hub, socket, sees_private=request[CALLER].sees_private)
    try:
        await _serve(viewer, socket, request, hub)
    finally:
        hub.viewers -= 1
        viewers.leave(guest)
        request.app[SOCKETS].discard(socket)
    return socket


async def _serve(viewer: Viewer, socket: web.WebSocketResponse, request: web.Request, hub: Hub) -> None:
    """Read requests and send what they ask for, until either side ends it."""
    show = asyncio.create_task(viewer.show(), name="stream viewer")
    read = asyncio.create_task(_read(viewer, socket), name="stream reader")
    try:
        done, _ = await asyncio.wait({show, read}, return_when=FIRST_COMPLETED)
        for task in done:
            task.result()
    except TimeoutError:
        hub.dropped += 1
        if request.transport is not None:
            request.transport.abort()  # a closing handshake would wait for the same slow reader
    except ConnectionError:
        pass
    finally:
        for task in (show, read):
            task.cancel()
        await asyncio.gather(show, read, return_exceptions=True)
        with contextlib.suppress(ConnectionError):
            await socket.close()


async def _read(viewer: Viewer, socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            try:
                viewer.ask(message.data)
            except RequestError as error:
                await viewer.refuse(error.fault)
        elif message.type is WSMsgType.BINARY:
            await viewer.refuse(ErrorDetail("request", "it is binary", "Send JSON as text."))


async def close_all(app: web.Application) -> None:
    """Close the connection of every viewer."""
    sockets = app[SOCKETS]
    for socket in tuple(sockets):
        with contextlib.suppress(ConnectionError):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the aggregator stops")


OPERATIONS = (
    Operation(
        "/api/v1/stream",
        stream,
        "stream",
        "A WebSocket. Send a StreamRequest, and another to change it; receive StreamRows, then "
        "StreamData for each tick (in MessagePack, StreamPacked), and on request StreamAlerts and "
        "StreamEvents. StreamError names the fault of a request.",
        faults=(426, 503),
        scope=AccessScope.READ,
    ),
)
