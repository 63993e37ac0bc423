"""Keeps frames in the ring without ever holding up a tick: one thread's work at a time.

A disk that is full, read-only, broken or hung costs the frames of that time their place in the
ring, counted and told once; they still go out live. The ring is tried again every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from collector.ring import Ring
from telemetry.inventory import Span

log = logging.getLogger(__name__)

MOST_WAITING = 16
"""Frames that wait for a slow disk; more are not kept."""
SYNC_EVERY = 5.0
"""Seconds between two syncs: what a power cut can cost."""
RETRY_AFTER = 5.0
"""Seconds between two tries of a disk that failed."""

Frames = list[tuple[int, bytes]]


class Keeper:
    """The ring of one session, for a loop. `tell` is called with (works, message) on a change."""

    def __init__(self, ring: Ring, session: int, tell: Callable[[bool, str], None]) -> None:
        self._ring = ring
        self._session = session
        self._tell = tell
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._closing = False
        self._works = True
        self._open = False
        self.ready = asyncio.Event()
        """Set when the ring has been read, or could not be."""
        self.unkept = 0
        """Frames that are not in the ring because the disk did not take them."""

    def put(self, seq: int, payload: bytes) -> None:
        """Have a frame written soon; never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self.unkept += 1
            self._set_works(False, "the disk does not answer")
            return
        self._waiting.append((seq, payload))
        self._idle.clear()
        self._wake.set()

    def spans(self) -> tuple[Span, ...]:
        """Return what the ring holds."""
        return self._ring.spans() if self._open else ()

    async def chunk(
        self, session: int, first: int, last: int, most_bytes: int, most_frames: int
    ) -> Frames:
        """Return frames of the ring, as `Ring.chunk`; none when the disk can't be read."""
        if not self._open:
            return []
        try:
            return await asyncio.to_thread(
                self._ring.chunk, session, first, last, most_bytes, most_frames
            )
        except OSError as error:
            log.warning("ring: frames %d to %d can't be read: %s", first, last, error)
            return []

    def waiting(self) -> int | None:
        """Return the number of the first frame that is not in the ring yet, if there is one."""
        return self._waiting[0][0] if self._waiting else None

    async def settled(self, seconds: float) -> None:
        """Wait until every frame that was put is in the ring, or given up; bounded."""
        if self._waiting or not self._idle.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("ring: the disk is behind by %d frames", len(self._waiting))

    async def run(self) -> None:
        """Write until `close`."""
        loop = asyncio.get_running_loop()
        synced = loop.time()
        retry_at = 0.0
        while True:
            now = loop.time()
            batch = list(self._waiting)
            if now >= retry_at:
                sync = self._closing or (bool(batch) and now - synced >= SYNC_EVERY)
                done, error = await asyncio.to_thread(self._write, batch, sync)
                if sync:
                    synced = now
                if error is not None:
                    retry_at = now + RETRY_AFTER
            else:
                done, error = 0, None  # known to be broken: try again later
            self.unkept += len(batch) - done
            for _ in batch:
                self._waiting.popleft()
            if error is not None:
                self._set_works(False, str(error))
            elif done:
                self._set_works(True, "")
            self.ready.set()
            if not self._waiting:
                self._idle.set()
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()

    def close(self) -> None:
        """Have `run` write what waits, sync and return."""
        self._closing = True
        self._wake.set()

    def _write(self, batch: Frames, sync: bool) -> tuple[int, OSError | None]:
        """Append frames; return how many went in, and what stopped it. Runs in a thread."""
        done = 0
        try:
            if not self._open:
                self._ring.open()
                self._open = True
            for seq, payload in batch:
                self._ring.append(self._session, seq, payload)
                done += 1
            if self._closing:
                self._ring.close()
            elif sync:
                self._ring.sync()
        except OSError as error:
            return done, error
        return done, None

    def _set_works(self, works: bool, message: str) -> None:
        if works != self._works:
            self._works = works
            if works:
                log.warning("ring: frames are kept on disk again")
            else:
                log.error("ring: frames are not kept on disk: %s", message)
            self._tell(works, message)
