"""Writes frames into the ring in a thread of its own, so that a tick never waits for the disk.

While a disk is full, read-only, broken or hung, frames are not stored; they are counted, reported
once, and still published live. Writing is retried every few seconds. The thread calls the event
loop only when its state changes: a stored frame wakes no task.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from collector.ring.ring import Ring
from telemetry.runtime.supervision import describe, in_thread
from telemetry.wire.inventory import FrameSpan

log = logging.getLogger(__name__)

MOST_WAITING = 16
"""Frames that wait for a slow disk; more are not stored."""
SYNC_EVERY = 5.0
"""Seconds between two syncs: how much a power cut can cost."""
RETRY_AFTER = 5.0
"""Seconds between two tries of a disk that failed."""

Frames = list[tuple[int, bytes]]


class RingWriter:
    """Ring of one session, for an event loop. `on_change` is called with (works, message)."""

    def __init__(
        self,
        ring: Ring,
        session: int,
        on_change: Callable[[bool, str], None],
        stored: Callable[[], None] = lambda: None,
    ) -> None:
        """`stored` is called after each frame, in the thread."""
        self._stored = stored
        self._ring = ring
        self._session = session
        self._on_change = on_change
        self._waiting: deque[tuple[int, bytes]] = deque()
        """Frames that are not in the ring yet: the loop adds, the thread removes."""
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """Work of the thread, in order; None ends it."""
        self._loop = asyncio.get_running_loop()
        self._works = True
        """State of the last `on_change`."""
        self._open = False
        self._retry_at = 0.0
        self._synced = 0.0
        self._unkept = 0
        """Frames that could not be written; counted by the thread."""
        self._working = threading.Lock()
        """Held by the one thread that writes: one that was started beside it waits for its end."""
        self._closed = False
        self._refused = 0
        """Frames beyond `MOST_WAITING`; counted by the loop."""
        self.ready = asyncio.Event()
        """Set when the ring was read, or could not be."""

    @property
    def unkept(self) -> int:
        """Frames that are not in the ring because of the disk."""
        return self._unkept + self._refused

    def put(self, seq: int, payload: bytes) -> None:
        """Queue a frame to be written; never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self._refused += 1
            self._set_works(False, "the disk does not answer")
            return
        self._waiting.append((seq, payload))
        self._jobs.put(self._store_oldest)

    def spans(self) -> tuple[FrameSpan, ...]:
        """Return the frames in the ring."""
        return self._ring.spans() if self._open else ()

    async def chunk(self, session: int, first: int, last: int, most_bytes: int, most_frames: int) -> Frames:
        """Return frames of the ring, as `Ring.chunk`; none when the disk can't be read."""
        if not self._open:
            return []
        try:
            return await asyncio.to_thread(self._ring.chunk, session, first, last, most_bytes, most_frames)
        except OSError as error:
            log.warning("ring: frames %d to %d can't be read: %s", first, last, error)
            return []

    def waiting(self) -> int | None:
        """Return the number of the first frame that is not in the ring yet, if there is one."""
        try:
            return self._waiting[0][0]
        except IndexError:  # the thread has just taken the last one
            return None

    async def settled(self, seconds: float) -> None:
        """Wait until every frame that was put is stored or dropped; bounded."""
        done = asyncio.Event()
        self._jobs.put(lambda: self._in_loop(done.set))
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            if self._waiting:  # else it is the machine that is late
                log.warning("ring: the disk is behind by %d frames", len(self._waiting))

    async def run(self) -> None:
        """Write until `close`."""
        try:
            await in_thread("ring", self._work)
        except asyncio.CancelledError:
            self._jobs.put(None)
            raise

    def close(self) -> None:
        """Have `run` write the waiting frames, sync and return."""
        self._jobs.put(self._end)
        self._jobs.put(None)

    # -- In the thread -------------------------------------------------------------------------

    def _work(self) -> None:
        with self._working:
            if self._closed:
                return
            self._try(self._open_ring)
            self._in_loop(self.ready.set)
            while (job := self._jobs.get()) is not None:
                job()

    def _store_oldest(self) -> None:
        """Write the oldest waiting frame."""
        try:
            now = time.monotonic()
            if now < self._retry_at or not self._try(self._append):
                self._unkept += 1
            elif now - self._synced >= SYNC_EVERY:
                self._synced = now
                self._try(self._ring.sync)
        finally:
            self._waiting.popleft()

    def _append(self) -> None:
        self._open_ring()
        self._ring.append(self._session, *self._waiting[0])
        self._stored()

    def _open_ring(self) -> None:
        if not self._open:
            self._ring.open()
            self._open = True
            self._synced = time.monotonic()

    def _end(self) -> None:
        self._closed = True
        if self._open:
            self._try(self._ring.close)

    def _try(self, work: Callable[[], None]) -> bool:
        """Work with the disk; return whether it succeeded, and report a change of that."""
        try:
            work()
        except Exception as error:  # a fault of ours costs this frame in the ring, not the thread
            if not isinstance(error, OSError):
                log.exception("ring: a frame could not be written")
            self._retry_at = time.monotonic() + RETRY_AFTER
            self._in_loop(self._set_works, False, describe(error))
            return False
        if not self._works:
            self._in_loop(self._set_works, True, "")
        return True

    def _in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop has ended while the disk hung
            return

    # -- In the loop ---------------------------------------------------------------------------

    def _set_works(self, works: bool, message: str) -> None:
        if works != self._works:
            self._works = works
            if works:
                log.warning("ring: frames are kept on disk again")
            else:
                log.error("ring: frames are not kept on disk: %s", message)
            self._on_change(works, message)
