"""The feed: keeps the dashboard's state up to date.

`DashboardFeed.run` never ends and never raises for a fault of the network: it reports what is wrong in
`DashboardFeed.connection`, waits a random while (so that a hundred dashboards do not come back at once) and tries
again. What was received stays in `DashboardFeed.state`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec

from api.alerts import AlertsReply
from api.columns import FleetReply
from api.decoding import decode, lenient
from api.fleet import NodesReply, StatusReply
from api.stream import (
    RowFilter,
    StreamAlerts,
    StreamData,
    StreamError,
    StreamEvents,
    StreamMessage,
    StreamPacked,
    StreamRequest,
    StreamRows,
)
from telemetry.runtime.backoff import Backoff
from telemetry.runtime.tasks import TaskGroup
from telemetry.text.decoders import of_json
from tui.feed.connection import Connection, ConnectionState
from tui.feed.http import HttpConnection
from tui.feed.requests import TIMEOUT, ActionRefusedError, ApiRequests, refusal, why
from tui.feed.socket import Socket
from tui.feed.wants import ALWAYS, RARE, SELDOM, SHARE, DocumentRequest, Wants
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import GpuRows, Gpus
from tui.state.readings import WALL

# Documents of a view: each is fetched when it is due, none waits for another.

AT_ONCE = 4
"""Documents that are fetched concurrently."""


class DocumentPoller(ApiRequests):
    """Fetches the documents of the dashboard's state when they are due."""

    def __init__(
        self, url: str, token: str | None, changed: Callable[[], None], clock: Callable[[], float], every: float = 1.0
    ) -> None:
        super().__init__(url, token)
        self.state = DashboardState()
        self._changed, self._clock, self._every = changed, clock, every
        self._wants = Wants()
        self._data_came = float("-inf")
        self._wake = asyncio.Event()
        """Set when a request is new, or an answer has come."""
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._due: dict[str, float] = {}
        self._pending: set[str] = set()
        """Paths of documents that are being fetched."""

    @property
    def wants(self) -> Wants:
        """The columns, nodes and documents that are requested."""
        return self._wants

    def want(self, wants: Wants) -> None:
        """Request other columns, nodes and documents from now on."""
        for ask in wants.documents:
            if ask not in self._wants.documents:
                self._due.pop(ask.path, None)
        self._wants = wants
        self._wake.set()

    def hurry(self, *paths: str) -> None:
        """Fetch documents at once: an action changed them."""
        for path in paths:
            self._due.pop(path, None)
        self._wake.set()

    @property
    def _all(self) -> tuple[DocumentRequest, ...]:
        return (*self._wants.documents, *ALWAYS)

    async def _poll_documents(self) -> None:
        """Fetch each document whenever it is due. Returns only by an exception."""
        self._due.clear()
        self._pending.clear()
        try:
            async with TaskGroup() as group:
                while True:
                    self._wake.clear()
                    for ask in self._all:
                        if self._due_at(ask) <= self._clock():
                            self._pending.add(ask.path)
                            group.create_task(self._fetch_document(ask), name=f"dashboard {ask.path}")
                    soon = min(map(self._due_at, self._all)) - self._clock()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(0.05, min(soon, SELDOM))):
                            await self._wake.wait()
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None

    def _due_at(self, ask: DocumentRequest) -> float:
        """Return when a document is due; never while it is being fetched."""
        return float("inf") if ask.path in self._pending else self._due.get(ask.path, 0.0)

    async def _fetch_document(self, ask: DocumentRequest) -> None:
        try:
            async with self._limit:
                began = self._clock()
                value = await self.document(ask)
        finally:
            self._pending.discard(ask.path)
            self._wake.set()
        now = self._clock()
        rest = min((now - began) / SHARE, RARE if ask.every >= RARE / 10 else SELDOM)
        self._due[ask.path] = now + max(ask.every, self._every, rest)
        self.state = self.state.with_doc(ask.path, value, now)
        wanted = {one.path for one in self._all}
        if len(self.state.docs) > len(wanted) + 16:
            kept = {path: doc for path, doc in self.state.docs.items() if path in wanted}
            self.state = replace(self.state, docs=kept)
        self._changed_in_passing()
        if ask in self._wants.documents:  # of the view on the screen: at once
            self._changed()

    def _changed_in_passing(self) -> None:
        """Report a change, unless readings that flow will cause a repaint soon."""
        if self._clock() - self._data_came > 1.5 * self._every:
            self._changed()


# The stream of readings.

PATH = "api/v1/stream"
_texts = of_json(StreamMessage)


class Stream:
    """An open stream of readings."""

    def __init__(self, socket: Socket, every: float) -> None:
        self._socket, self._every = socket, every
        self._pack = True
        """Whether readings come packed; an older aggregator refuses that."""
        self.asked = Wants()
        """The last request."""

    @classmethod
    async def open(cls, http: HttpConnection, every: float) -> Stream:
        """Connect. Raises `OSError`, and `ActionRefusedError` where nothing else would help."""
        found = await http.socket(PATH)
        if isinstance(found, Socket):
            return cls(found, every)
        reason = refusal(found.body) or f"the stream answers {found.status}"
        raise ActionRefusedError(reason) if found.status in {401, 403} else ConnectionError(reason)

    def ask(self, wants: Wants) -> None:
        """Request what to send from now on."""
        self.asked = wants
        request = StreamRequest(
            columns=wants.columns,
            rows=None if wants.nodes is None else RowFilter(wants.nodes),
            every=self._every,
            alerts=True,
            packed=self._pack,
        )
        self._socket.send(msgspec.json.encode(request).decode())

    async def next(self) -> StreamMessage | StreamPacked:
        """Wait for a message. Raises `OSError` and `msgspec.DecodeError`."""
        while True:
            text, body = await self._socket.receive()
            if not text:
                return decode(body, StreamPacked, packed=True)
            with lenient():
                message: StreamMessage = _texts.decode(body)
            if self._pack and isinstance(message, StreamError) and "packed" in str(message.error):
                self._pack = False
                self.ask(self.asked)
            else:
                return message

    def close(self) -> None:
        """Close the stream."""
        self._socket.close()


LEAST_WAIT, FIRST_WAIT, LONGEST_WAIT = 0.2, 1.0, 8.0
"""Seconds between two tries at most."""
NODES_A_SECOND = 250
"""Nodes that are listed a second: a long list is fetched less often."""
STATUS, NODES, READINGS = "status", "nodes", "readings"
"""Parts that the first picture needs."""


class DashboardFeed(DocumentPoller):
    """Keeps the state up to date, and calls `changed` when it or the connection changes."""

    def __init__(
        self, url: str, token: str | None, changed: Callable[[], None], clock: Callable[[], float], every: float = 1.0
    ) -> None:
        super().__init__(url, token, changed, clock, every)
        self.connection = Connection(ConnectionState.CONNECTING, clock())
        self._stream: Stream | None = None
        self._rows: Gpus | None = None
        self._missing: set[str] = set()
        """Parts that have not come since the connection was opened."""
        self._ready = asyncio.Event()
        """Set once all parts have come."""

    def want(self, wants: Wants) -> None:
        """Request other columns, nodes and documents from now on."""
        if wants == self._wants:
            return
        super().want(wants)
        stream = self._stream
        if stream and (wants.columns, wants.nodes) != (stream.asked.columns, stream.asked.nodes):
            stream.ask(wants)

    async def run(self) -> None:
        """Connect, follow, and come back after every fault, until cancelled."""
        tries, backoff = 0, Backoff(FIRST_WAIT, LONGEST_WAIT)
        while True:
            slow = False
            try:
                await self._follow()
            except ActionRefusedError as error:
                fault, state, tries = str(error), ConnectionState.REFUSED, 4
            except OSError as error:  # what is given up for being late, too
                fault, state = f"{urlsplit(self.url).netloc}: {why(error)}", ConnectionState.LOST
                slow = isinstance(error, TimeoutError)
            except (msgspec.DecodeError, ValueError) as error:
                fault = f"the aggregator's answer is not understood: {error}"
                state = ConnectionState.REFUSED
            finally:
                self._http.close()
            was_live = self.connection.state is ConnectionState.LIVE
            tries = 1 if was_live else tries + 1
            wait = max(LEAST_WAIT, backoff.after(tries))
            now = self._clock()
            same = state is self.connection.state
            self._set_connection(Connection(state, self.connection.since if same else now, fault, now + wait, slow))
            await asyncio.sleep(wait)

    async def fetch_once(self) -> DashboardState:
        """Fetch what the header and the lists show once, without a stream. Raises `ActionRefusedError`."""
        try:
            await self._fetch_status()
            await self._fetch_nodes()
            found = await self.get("api/v1/alerts", AlertsReply)
            self.state = replace(self.state, alerts=tuple(found.alerts), at=found.at)
            for ask in ALWAYS:
                await self._fetch_document(ask)
        finally:
            self._http.close()
        return self.state

    async def _follow(self) -> None:
        """Fetch all concurrently, again and again. Returns only by an exception."""
        self._missing = {STATUS, NODES, READINGS}
        self._ready.clear()
        first = asyncio.create_task(self._fetch_status(), name="dashboard first status")
        await _until_one_fails(
            first,
            asyncio.create_task(self._poll_status(first), name="dashboard status"),
            asyncio.create_task(self._poll_nodes(), name="dashboard nodes"),
            asyncio.create_task(self._listen(), name="dashboard stream"),
            asyncio.create_task(self._poll_documents_later(), name="dashboard documents"),
        )

    async def _poll_documents_later(self) -> None:
        """Fetch documents once the first picture is complete."""
        await self._ready.wait()
        await self._poll_documents()

    async def _listen(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            stream = await Stream.open(self._http, self._every)
        self._stream = stream
        try:
            stream.ask(self._wants)
            while True:
                async with asyncio.timeout(max(TIMEOUT, 2.5 * self._every)):
                    message = await stream.next()
                self._receive(stream, message)
        finally:
            self._stream = None
            stream.close()

    def _receive(self, stream: Stream, message: StreamMessage | StreamPacked) -> None:
        match message:
            case StreamRows():
                self._rows = Gpus(message.version, GpuRows.of(message.rows))
            case StreamData() | StreamPacked():
                if self._rows is not None and self._rows.version == message.version:
                    total = None if self.state.status is None else self.state.status.gpus
                    few = total is None or len(self._rows) < total
                    part = few and stream.asked.nodes is not None
                    self.state = self.state.with_data(message, self._rows, part=part)
                    self._data_came = self._clock()
                    self._part_came(READINGS)
            case StreamAlerts():
                self.state = replace(self.state, alerts=tuple(message.alerts), at=max(self.state.at, message.at))
                self._changed()
            case StreamEvents():
                pass
            case StreamError():
                raise ActionRefusedError(str(message.error))

    async def _poll_status(self, first: asyncio.Task[None]) -> None:
        await first
        while True:
            await asyncio.sleep(self._every)
            await self._fetch_status()

    async def _poll_nodes(self) -> None:
        while True:
            await self._fetch_nodes()
            await asyncio.sleep(max(self._every, len(self.state.nodes) / NODES_A_SECOND))

    async def _fetch_status(self) -> None:
        status = await self.get("api/v1/status", StatusReply)
        self.state = replace(self.state, status=status, status_came=self._clock())
        self._part_came(STATUS)

    async def _fetch_nodes(self) -> None:
        nodes, wall = await asyncio.gather(
            self.get("api/v1/nodes", NodesReply), self.get(f"api/v1/fleet?table=node&columns={WALL}", FleetReply)
        )
        self.state = self.state.with_nodes(nodes, wall)
        self._part_came(NODES)

    def _part_came(self, part: str) -> None:
        """Note that a part has come; with the last of them the connection is live."""
        self._missing.discard(part)
        if self._missing:
            return
        if not self._ready.is_set():
            self.state = replace(self.state, ready=True)
            self._ready.set()
            self._set_connection(Connection(ConnectionState.LIVE, self._clock()))
        elif part == READINGS:
            self._changed()
        else:
            self._changed_in_passing()

    def _set_connection(self, connection: Connection) -> None:
        self.connection = connection
        self._changed()


async def _until_one_fails(first: asyncio.Task[None], *tasks: asyncio.Task[None]) -> None:
    """Wait until one of several endless tasks fails, cancel the others, and raise its exception; that
    of `first` where it has one: the status explains best what is wrong."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([first])
        for task in (first, *done):
            task.result()
    finally:
        for task in (first, *tasks):
            task.cancel()
        await asyncio.gather(first, *tasks, return_exceptions=True)
