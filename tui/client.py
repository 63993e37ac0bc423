"""The dashboard's line to the aggregator: HTTP and one WebSocket, kept up whatever happens.

`Feed.run` never ends and never raises for a fault of the network: it says what is wrong in
`Feed.line`, waits a random while (so that a hundred dashboards do not come back at once) and tries
again. What came stays in `Feed.board`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import aiohttp
import msgspec
from yarl import URL

from tui.board import (
    BUDGETS,
    CIRCUITS,
    COLUMNS,
    INCIDENTS,
    POWER_PAGE,
    TODAY,
    WALL,
    Board,
    tidy,
)
from tui.messages import (
    Alerts,
    AlertsMessage,
    BudgetRows,
    Circuits,
    DataMessage,
    ErrorMessage,
    EventsMessage,
    Fault,
    Incidents,
    Message,
    NodeReadings,
    Nodes,
    Power,
    Refusal,
    Report,
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


@dataclass(frozen=True, slots=True)
class Ask:
    """A document that a screen shows."""

    path: str
    """Below the aggregator's address, with its query."""
    kind: type[msgspec.Struct]
    every: float
    """Seconds between two looks, at least."""


ALWAYS = (
    Ask(INCIDENTS, Incidents, 1.0),
    Ask(CIRCUITS, Circuits, 1.0),
    Ask(POWER_PAGE, Power, 5.0),
    Ask(BUDGETS, BudgetRows, 5.0),
    Ask(TODAY, Report, 30.0),
)
"""What the header shows, whatever is below it."""
SELDOM, RARE = 5.0, 300.0
"""But not more seldom than this: what counts down must stay true; a report may be older."""
SHARE = 0.04
"""A document is asked for so seldom that making it takes at most this share of the time: 700
circuits of a big site cost 100 ms, and are then looked at every 2.5 s."""


@dataclass(frozen=True)
class Wants:
    """What a screen shows, and nothing else is asked for."""

    columns: tuple[str, ...] = COLUMNS
    nodes: tuple[str, ...] | None = None
    """Only the GPUs of these; None for all."""
    asks: tuple[Ask, ...] = ()


class ActionError(Exception):
    """The aggregator did not do what a user asked of it; the text says why."""


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
        self._wants = Wants()
        self._sent = Wants()
        """What the stream was asked for last."""
        self._news = asyncio.Event()
        self._due: dict[str, float] = {}

    @property
    def wants(self) -> Wants:
        """What is asked for."""
        return self._wants

    def want(self, wants: Wants) -> None:
        """Ask for something else from now on."""
        if wants != self._wants:
            for ask in wants.asks:
                if ask not in self._wants.asks:
                    self._due.pop(ask.path, None)
            self._wants = wants
            self._news.set()

    def hurry(self, *paths: str) -> None:
        """Look at documents again at once: something was done to them."""
        for path in paths:
            self._due.pop(path, None)
        self._news.set()

    def _at(self, path: str) -> URL:
        """Return the address of a path that is quoted already, with its query."""
        return URL(f"{str(self.url).rstrip('/')}/{path}", encoded=True)

    async def act(self, method: str, path: str, body: object) -> bytes:
        """Ask the aggregator to change something. Raises `ActionError`."""
        try:
            async with (
                aiohttp.ClientSession(
                    headers=self._headers, timeout=aiohttp.ClientTimeout(total=PATIENCE)
                ) as http,
                http.request(method, self._at(path), json=body) as response,
            ):
                answer = await response.read()
                if response.status >= 400:
                    raise ActionError(_fault(answer) or f"it answers {response.status}")
                return answer
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ActionError(_why(error)) from error

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

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return self._headers

    async def look_once(self, http: aiohttp.ClientSession) -> Board:
        """Ask once for all that the header and the lists show; no stream. Raises `RefusedError`."""
        await self._look(http)
        await self._look_at_nodes(http)
        async with http.get(self._at("api/v1/alerts")) as response:
            if response.status == 200:
                found = msgspec.json.decode(await response.read(), type=Alerts)
                self.board = replace(self.board, alerts=tuple(found.alerts), at=found.at)
        for ask in ALWAYS:
            await self._read(http, ask)
        return self.board

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        """Look once at all, then listen. Returns only by an exception."""
        await self._look(http)
        await self._look_at_nodes(http)
        stream = self.url / "api/v1/stream"
        async with http.ws_connect(
            stream, heartbeat=PATIENCE, max_msg_size=_STREAM_BYTES
        ) as socket:
            await self._ask(socket)
            self._due.clear()
            await _until_one_fails(
                asyncio.create_task(self._listen(socket), name="dashboard stream"),
                asyncio.create_task(self._keep_looking(http), name="dashboard status"),
                asyncio.create_task(self._keep_looking_at_nodes(http), name="dashboard nodes"),
                asyncio.create_task(self._keep_reading(http, socket), name="dashboard documents"),
            )

    async def _ask(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Tell the stream what to send."""
        wants = self._sent = self._wants
        rows = None if wants.nodes is None else {"nodes": wants.nodes}
        await socket.send_json(
            {"table": "gpu", "columns": wants.columns, "rows": rows, "every": self._every,
             "alerts": True}
        )  # fmt: skip

    async def _keep_reading(
        self, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        """Look at the documents that are wanted, each when it is due."""
        while True:
            self._news.clear()
            if (self._wants.columns, self._wants.nodes) != (self._sent.columns, self._sent.nodes):
                await self._ask(socket)
            for ask in (*self._wants.asks, *ALWAYS):
                if self._clock() >= self._due.get(ask.path, 0.0):
                    await self._read(http, ask)
            now = self._clock()
            due = min(self._due.get(ask.path, now) for ask in (*self._wants.asks, *ALWAYS))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, due - now)):
                    await self._news.wait()

    async def _read(self, http: aiohttp.ClientSession, ask: Ask) -> None:
        began = self._clock()
        value: object
        async with http.get(self._at(ask.path)) as response:
            body = await response.read()
            if response.status >= 500:
                raise aiohttp.ClientConnectionError(f"it answers {response.status}")
            if response.status in {401, 403}:
                raise RefusedError(f"it refuses us. {_fault(body)}")
            value = (
                msgspec.json.decode(body, type=ask.kind)
                if response.status == 200
                else Fault(what=_fault(body) or f"it answers {response.status}")
            )
        now = self._clock()
        rest = min((now - began) / SHARE, RARE if ask.every >= RARE / 10 else SELDOM)
        self._due[ask.path] = now + max(ask.every, self._every, rest)
        self.board = self.board.with_doc(ask.path, value, now)
        wanted = {one.path for one in (*self._wants.asks, *ALWAYS)}
        if len(self.board.docs) > len(wanted) + 16:
            kept = {path: doc for path, doc in self.board.docs.items() if path in wanted}
            self.board = replace(self.board, docs=kept)
        self._looked()
        if ask in self._wants.asks:  # what the screen is about: at once
            self._changed()

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
                    part = len(self._rows.rows.uuid) < (
                        self.board.status.gpus if self.board.status else 0
                    )
                    self.board = self.board.with_data(
                        message, self._rows, part=part and self._sent.nodes is not None
                    )
                    self.board = replace(self.board, ready=True)
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
