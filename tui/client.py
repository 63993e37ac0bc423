"""The dashboard's line to the aggregator: HTTP and one WebSocket, kept up whatever happens.

`Feed.run` never ends and never raises for a fault of the network: it says what is wrong in
`Feed.line`, waits a random while (so that a hundred dashboards do not come back at once) and tries
again. What came stays in `Feed.board`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import aiohttp
import msgspec
from yarl import URL

from tui.board import COLUMNS, WALL, Board, tidy
from tui.messages import (
    AlertsMessage,
    DataMessage,
    ErrorMessage,
    EventsMessage,
    Message,
    NodeReadings,
    Nodes,
    Refusal,
    RowsMessage,
    Status,
)

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds without an answer, or without a message, after which the line counts as dead."""
LONGEST_WAIT = 8.0
"""Seconds between two tries, at most."""
NODES_A_SECOND = 250
"""How often the list of nodes is asked for: a long one less often."""
_STREAM_BYTES = 256 * 1024 * 1024
_messages = msgspec.json.Decoder(Message)


class LineState(StrEnum):
    """How the line is."""

    CONNECTING = "connecting"
    """Nothing has come yet."""
    LIVE = "live"
    LOST = "lost"
    """It was live, or it can't be reached; tried again by itself."""
    REFUSED = "refused"
    """The other side answers and does not want us, or is no aggregator: an operator must act."""


@dataclass(frozen=True, slots=True)
class Line:
    """How the line is, and since when."""

    state: LineState
    since: float
    """Monotonic seconds."""
    reason: str = ""
    retry_at: float | None = None


class RefusedError(Exception):
    """The other side answers, and it will not help to ask again."""


class Feed:
    """Keeps a board up to date, and calls `changed` whenever it or the line is another."""

    def __init__(
        self,
        url: str,
        token: str | None,
        changed: Callable[[], None],
        clock: Callable[[], float],
        every: float = 1.0,
    ) -> None:
        self.url = URL(url)
        self.board = Board()
        self.line = Line(LineState.CONNECTING, clock())
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._changed, self._clock, self._every = changed, clock, every
        self._rows: RowsMessage | None = None
        self._data_came = float("-inf")

    async def run(self) -> None:
        """Connect, follow, and come back after every fault, until cancelled."""
        tries = 0
        while True:
            try:
                async with aiohttp.ClientSession(
                    headers=self._headers, timeout=aiohttp.ClientTimeout(total=PATIENCE)
                ) as http:
                    await self._follow(http)
            except RefusedError as error:
                fault, state, tries = str(error), LineState.REFUSED, 4
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                fault, state = _why(error), LineState.LOST
            except msgspec.DecodeError as error:
                fault = f"the aggregator's answer is not understood: {error}"
                state = LineState.REFUSED
            was_live = self.line.state is LineState.LIVE
            tries = 1 if was_live else tries + 1
            wait = random.uniform(0.2, min(LONGEST_WAIT, 0.5 * 2**tries))  # noqa: S311 - jitter
            now = self._clock()
            same = state is self.line.state
            self._say(Line(state, self.line.since if same else now, fault, now + wait))
            await asyncio.sleep(wait)

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        """Look once at all, then listen. Returns only by an exception."""
        await self._look(http)
        await self._look_at_nodes(http)
        stream = self.url / "api/v1/stream"
        async with http.ws_connect(
            stream, heartbeat=PATIENCE, max_msg_size=_STREAM_BYTES
        ) as socket:
            request = {"table": "gpu", "columns": COLUMNS, "every": self._every, "alerts": True}
            await socket.send_json(request)
            await _until_one_fails(
                asyncio.create_task(self._listen(socket), name="dashboard stream"),
                asyncio.create_task(self._keep_looking(http), name="dashboard status"),
                asyncio.create_task(self._keep_looking_at_nodes(http), name="dashboard nodes"),
            )

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive(timeout=PATIENCE)
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise aiohttp.ClientConnectionError("the aggregator closed the stream")
            self._take(_messages.decode(message.data))

    def _take(self, message: Message) -> None:
        match message:
            case RowsMessage():
                self._rows = tidy(message)
            case DataMessage():
                if self._rows is not None and self._rows.version == message.version:
                    self.board = replace(self.board.with_data(message, self._rows), ready=True)
                    self._live()
            case AlertsMessage():
                self.board = replace(
                    self.board, alerts=tuple(message.alerts), at=max(self.board.at, message.at)
                )
                self._changed()
            case EventsMessage():
                pass
            case ErrorMessage():
                raise RefusedError(str(message.error))

    async def _keep_looking(self, http: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self._look(http)

    async def _keep_looking_at_nodes(self, http: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.sleep(max(self._every, len(self.board.nodes) / NODES_A_SECOND))
            await self._look_at_nodes(http)

    async def _look(self, http: aiohttp.ClientSession) -> None:
        status = await self._get(http, "api/v1/status", Status)
        self.board = replace(self.board, status=status, status_came=self._clock())
        self._looked()

    async def _look_at_nodes(self, http: aiohttp.ClientSession) -> None:
        nodes = await self._get(http, "api/v1/nodes", Nodes)
        wall = await self._get(http, "api/v1/fleet", NodeReadings, table="node", columns=WALL)
        self.board = self.board.with_nodes(nodes, wall)
        self._looked()

    async def _get(self, http: aiohttp.ClientSession, path: str, kind: type[T], **query: str) -> T:
        async with http.get(self.url / path, params=query) as response:
            body = await response.read()
            if response.status >= 500:
                raise aiohttp.ClientConnectionError(f"it answers {response.status}")
            if response.status in {401, 403}:
                raise RefusedError(f"it refuses us. {_fault(body)}")
            if response.status != 200:
                raise RefusedError(f"it answers {response.status}: is this a kilowatch aggregator?")
            return msgspec.json.decode(body, type=kind)

    def _looked(self) -> None:
        """Readings that flow show what else is new in passing: one repaint for each of them."""
        if self._clock() - self._data_came > 1.5 * self._every:
            self._changed()

    def _live(self) -> None:
        self._data_came = self._clock()
        if self.line.state is not LineState.LIVE:
            self.line = Line(LineState.LIVE, self._clock())
        self._changed()

    def _say(self, line: Line) -> None:
        self.line = line
        self._changed()


async def _until_one_fails(*tasks: asyncio.Task[None]) -> None:
    """Wait for the first of some endless tasks to fail, end the others, and raise its fault."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _fault(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body, type=Refusal).error)
    except msgspec.DecodeError:
        return ""


def _why(error: BaseException) -> str:
    """Return a fault of the network in words; a timeout's own text is empty."""
    if isinstance(error, TimeoutError):
        return f"no answer within {PATIENCE:.0f} s"
    return str(error) or type(error).__name__
