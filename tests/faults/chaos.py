"""A TCP proxy that spoils connections on purpose: our own network between a part and its broker.

It runs in a thread with a loop of its own, so that tests may block. What it does to bytes is its
`weather`, which may change at any time; what it does to connections are calls. The bytes
themselves always arrive whole and in order, for TCP promises that, or never.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

CHUNK_BYTES = 8 * 1024
CHUNKS_ON_THE_WAY = 16
"""What the proxy itself holds of each direction; beyond it the sender feels the pressure."""
FINE_BYTES = 48
"""Sliced, the first bytes of each chunk go one by one: there stand the lengths that parsers need."""
COARSE_BYTES = 200
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What happens to bytes on their way, in each direction."""

    latency: float = 0.0
    """Seconds."""
    jitter: float = 0.0
    """Seconds at most, added to the latency; never changes the order."""
    stall_chance: float = 0.0
    """Share of the chunks that wait `stall` seconds more, and all behind them, as after a loss."""
    stall: float = 0.0
    sliced: bool = False
    """Segments of a byte each at the beginning of a chunk, and of a few after it."""
    coalesce: float = 0.0
    """Seconds for which bytes are gathered before they go in one piece."""
    bytes_per_second: float | None = None
    refuse: bool = False
    """New connections are reset at once."""
    kick_after: float | None = None
    """Seconds after which new connections are reset: connected, and thrown out."""


CLEAR = Weather()


@dataclass(eq=False, slots=True)
class _Link:
    """One connection through the proxy."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    swallowed_at: float | None = None
    """Monotonic time since which it is half open: bytes vanish without an error."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def reset(self) -> None:
        """End it without a goodbye."""
        for writer in (self.near, self.far):
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


class Chaos:
    """Listens on `port` and connects to `target`, a port of the loopback address."""

    def __init__(self, target: int, seed: int = 1, buffer_bytes: int | None = None) -> None:
        """`buffer_bytes` bounds what the kernel holds on either side of the proxy."""
        self.weather = CLEAR
        self.port = 0
        self.accepted: list[float] = []
        """When clients came, monotonic seconds."""
        self.connected: list[float] = []
        """When the target had taken a client, monotonic seconds."""
        self.noticed: list[float] = []
        """After how many seconds clients let go of connections that had been swallowed."""
        self._target = target
        self._dice = random.Random(seed)
        self._buffer_bytes = buffer_bytes
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        listening = threading.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(listening),), daemon=True
        )
        self._thread.start()
        listening.wait()

    # Called from tests.

    def reset(self) -> None:
        """Reset all connections there are."""
        self._loop.call_soon_threadsafe(self._reset)

    def swallow(self) -> int:
        """Make a black hole of all connections there are: they stay open, and nothing arrives.
        Returns how many there are: while a client waits before it comes back there is none."""
        swallowed = self._swallow(time.monotonic())
        return asyncio.run_coroutine_threadsafe(swallowed, self._loop).result()

    def close(self) -> None:
        """End everything."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        self._loop.close()

    # In the thread.

    async def _serve(self, listening: threading.Event) -> None:
        near = socket.create_server(("127.0.0.1", 0))
        if self._buffer_bytes is not None:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                near.setsockopt(socket.SOL_SOCKET, option, self._buffer_bytes)
        server = await asyncio.start_server(self._take, sock=near, limit=CHUNK_BYTES)
        self.port = near.getsockname()[1]
        listening.set()
        await self._ended.wait()
        server.close()
        tasks = [task for link in self._links for task in link.tasks]
        for link in list(self._links):
            link.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _reset(self) -> None:
        for link in list(self._links):
            link.reset()

    async def _swallow(self, now: float) -> int:
        alive = [link for link in self._links if not any(task.done() for task in link.tasks)]
        for link in alive:
            link.swallowed_at = now
        return len(alive)

    async def _take(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self.accepted.append(time.monotonic())
        weather = self.weather
        try:
            if weather.refuse:
                raise ConnectionRefusedError
            far_reader, far = await self._connect()
        except OSError:
            _Link(near, near).reset()
            return
        self.connected.append(time.monotonic())
        link = _Link(near, far)
        link.tasks = [
            asyncio.create_task(self._pump(link, reader, far, client=True)),
            asyncio.create_task(self._pump(link, far_reader, near, client=False)),
        ]
        self._links.add(link)
        try:
            await asyncio.wait(link.tasks, timeout=weather.kick_after)
            if weather.kick_after is None:
                await asyncio.wait(link.tasks)
        finally:
            for task in link.tasks:
                task.cancel()
            self._links.discard(link)
            link.reset()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the target. Raises `OSError`."""
        far = socket.socket()
        far.setblocking(False)
        if self._buffer_bytes is not None:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes)
        try:
            await self._loop.sock_connect(far, ("127.0.0.1", self._target))
            return await asyncio.open_connection(sock=far, limit=CHUNK_BYTES)
        except BaseException:
            far.close()
            raise

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool
    ) -> None:
        """Read one direction; a task beside it writes when it is time."""
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(CHUNKS_ON_THE_WAY)
        deliver = asyncio.create_task(self._deliver(queue, writer))
        due = 0.0
        try:
            while True:
                chunk = await reader.read(CHUNK_BYTES)
                if link.swallowed_at is not None:
                    if not chunk and client:
                        self.noticed.append(time.monotonic() - link.swallowed_at)
                    if not chunk:
                        break
                    continue
                if not chunk:
                    await queue.put(None)
                    await deliver
                    break
                due = max(due, self._loop.time() + self._delay())
                await queue.put((due, chunk))
        except OSError:
            if client and link.swallowed_at is not None:
                self.noticed.append(time.monotonic() - link.swallowed_at)
        finally:
            deliver.cancel()
            if link.swallowed_at is None:
                with contextlib.suppress(OSError, RuntimeError):
                    writer.write_eof()

    def _delay(self) -> float:
        weather = self.weather
        stalled = self._dice.random() < weather.stall_chance
        return weather.latency + weather.jitter * self._dice.random() + (weather.stall if stalled else 0.0)

    async def _deliver(self, queue: asyncio.Queue[tuple[float, bytes] | None], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while (entry := await queue.get()) is not None:
                due, chunk = entry
                # A sleep that ends early is not the wire's time.
                while (left := due - self._loop.time()) > 0:  # noqa: ASYNC110 - for an instant, not for a state
                    await asyncio.sleep(left)
                ended = False
                if self.weather.coalesce:
                    await asyncio.sleep(self.weather.coalesce)
                    while not queue.empty() and not ended:
                        more = queue.get_nowait()
                        ended = more is None
                        chunk += more[1] if more is not None else b""
                await self._write(chunk, writer)
                if ended:
                    return

    async def _write(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        at = 0
        while at < len(chunk):
            weather, size = self.weather, len(chunk)
            if weather.sliced:
                size = 1 if at < FINE_BYTES else self._dice.randint(1, COARSE_BYTES)
            if weather.bytes_per_second is not None:
                size = min(size, max(1, int(weather.bytes_per_second / 20)))
            piece = chunk[at : at + size]
            writer.write(piece)
            await writer.drain()
            at += len(piece)
            if weather.bytes_per_second is not None:
                await asyncio.sleep(len(piece) / weather.bytes_per_second)
