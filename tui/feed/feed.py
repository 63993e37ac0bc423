"""The feed: a board that is kept up to date.

`Feed.run` never ends and never raises for a fault of the network: it says what is wrong in
`Feed.line`, waits a random while (so that a hundred dashboards do not come back at once) and tries
again. What came stays in `Feed.board`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import msgspec

from tui.board import Board
from tui.feed.line import Line, LineState
from tui.feed.reading import Reading
from tui.feed.requests import PATIENCE, RefusedError, why
from tui.feed.stream import Stream
from tui.feed.wants import ALWAYS, Wants
from tui.gpus import tidy
from tui.messages.alerts import Alerts
from tui.messages.fleet import NodeReadings, Nodes, Status
from tui.messages.stream import (
    AlertsMessage,
    DataMessage,
    ErrorMessage,
    EventsMessage,
    Message,
    PackedMessage,
    RowsMessage,
)
from tui.readings import WALL

LONGEST_WAIT = 8.0
"""Seconds between two tries, at most."""
NODES_A_SECOND = 250
"""How often the list of nodes is asked for: a long one less often."""
STATUS, NODES, READINGS = "status", "nodes", "readings"
"""Without these there is no picture."""


class Feed(Reading):
    """Keeps a board up to date, and calls `changed` whenever it or the line is another."""

    def __init__(
        self,
        url: str,
        token: str | None,
        changed: Callable[[], None],
        clock: Callable[[], float],
        every: float = 1.0,
    ) -> None:
        super().__init__(url, token, changed, clock, every)
        self.line = Line(LineState.CONNECTING, clock())
        self._stream: Stream | None = None
        self._rows: RowsMessage | None = None
        self._missing: set[str] = set()
        """Parts that have not come since the line was opened."""
        self._ready = asyncio.Event()
        """All have."""

    def want(self, wants: Wants) -> None:
        """Ask for something else from now on."""
        if wants == self._wants:
            return
        super().want(wants)
        stream = self._stream
        if stream and (wants.columns, wants.nodes) != (stream.asked.columns, stream.asked.nodes):
            stream.ask(wants)

    async def run(self) -> None:
        """Connect, follow, and come back after every fault, until cancelled."""
        tries = 0
        while True:
            slow = False
            try:
                await self._follow()
            except RefusedError as error:
                fault, state, tries = str(error), LineState.REFUSED, 4
            except OSError as error:  # what is given up for being late, too
                fault, state = why(error), LineState.LOST
                slow = isinstance(error, TimeoutError)
            except (msgspec.DecodeError, ValueError) as error:
                fault = f"the aggregator's answer is not understood: {error}"
                state = LineState.REFUSED
            finally:
                self._http.close()
            was_live = self.line.state is LineState.LIVE
            tries = 1 if was_live else tries + 1
            wait = random.uniform(0.2, min(LONGEST_WAIT, 0.5 * 2**tries))  # noqa: S311 - jitter
            now = self._clock()
            same = state is self.line.state
            self._say(Line(state, self.line.since if same else now, fault, now + wait, slow))
            await asyncio.sleep(wait)

    async def look_once(self) -> Board:
        """Ask once for all that the header and the lists show; no stream. Raises `RefusedError`."""
        try:
            await self._look()
            await self._look_at_nodes()
            found = await self.get("api/v1/alerts", Alerts)
            self.board = replace(self.board, alerts=tuple(found.alerts), at=found.at)
            for ask in ALWAYS:
                await self._read(ask)
        finally:
            self._http.close()
        return self.board

    async def _follow(self) -> None:
        """Look at all at once, and go on. Returns only by an exception."""
        self._missing = {STATUS, NODES, READINGS}
        self._ready.clear()
        first = asyncio.create_task(self._look(), name="dashboard first look")
        await _until_one_fails(
            first,
            asyncio.create_task(self._keep_looking(first), name="dashboard status"),
            asyncio.create_task(self._keep_looking_at_nodes(), name="dashboard nodes"),
            asyncio.create_task(self._listen(), name="dashboard stream"),
            asyncio.create_task(self._then_read(), name="dashboard documents"),
        )

    async def _then_read(self) -> None:
        """The picture comes first."""
        await self._ready.wait()
        await self._keep_reading()

    async def _listen(self) -> None:
        async with asyncio.timeout(PATIENCE):
            stream = await Stream.open(self._http, self._every)
        self._stream = stream
        try:
            stream.ask(self._wants)
            while True:
                async with asyncio.timeout(max(PATIENCE, 2.5 * self._every)):
                    message = await stream.next()
                self._take(stream, message)
        finally:
            self._stream = None
            stream.close()

    def _take(self, stream: Stream, message: Message | PackedMessage) -> None:
        match message:
            case RowsMessage():
                self._rows = tidy(message)
            case DataMessage() | PackedMessage():
                if self._rows is not None and self._rows.version == message.version:
                    total = None if self.board.status is None else self.board.status.gpus
                    few = total is None or len(self._rows.rows.uuid) < total
                    part = few and stream.asked.nodes is not None
                    self.board = self.board.with_data(message, self._rows, part=part)
                    self._data_came = self._clock()
                    self._came(READINGS)
            case AlertsMessage():
                self.board = replace(
                    self.board, alerts=tuple(message.alerts), at=max(self.board.at, message.at)
                )
                self._changed()
            case EventsMessage():
                pass
            case ErrorMessage():
                raise RefusedError(str(message.error))

    async def _keep_looking(self, first: asyncio.Task[None]) -> None:
        await first
        while True:
            await asyncio.sleep(self._every)
            await self._look()

    async def _keep_looking_at_nodes(self) -> None:
        while True:
            await self._look_at_nodes()
            await asyncio.sleep(max(self._every, len(self.board.nodes) / NODES_A_SECOND))

    async def _look(self) -> None:
        status = await self.get("api/v1/status", Status)
        self.board = replace(self.board, status=status, status_came=self._clock())
        self._came(STATUS)

    async def _look_at_nodes(self) -> None:
        nodes, wall = await asyncio.gather(
            self.get("api/v1/nodes", Nodes),
            self.get(f"api/v1/fleet?table=node&columns={WALL}", NodeReadings),
        )
        self.board = self.board.with_nodes(nodes, wall)
        self._came(NODES)

    def _came(self, part: str) -> None:
        """The line is live once all parts have come since it was opened."""
        self._missing.discard(part)
        if self._missing:
            return
        if not self._ready.is_set():
            self.board = replace(self.board, ready=True)
            self._ready.set()
            self._say(Line(LineState.LIVE, self._clock()))
        elif part == READINGS:
            self._changed()
        else:
            self._looked()

    def _say(self, line: Line) -> None:
        self.line = line
        self._changed()


async def _until_one_fails(first: asyncio.Task[None], *tasks: asyncio.Task[None]) -> None:
    """Wait for one of some endless tasks to fail, end the others, and raise its fault; that of
    `first` where it has one: a status says best what is wrong."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([first])
        for task in (first, *done):
            task.result()
    finally:
        for task in (first, *tasks):
            task.cancel()
        await asyncio.gather(first, *tasks, return_exceptions=True)
