"""Queues of the publisher: newest frames, events, and resend requests. Each is bounded.

Pure bookkeeping; `collector.publish.publisher` does the sending.
"""

from __future__ import annotations

import asyncio
from collections import deque

from telemetry.wire.inventory import Command

MOST_FRAMES = 4
"""Live frames that wait for a connection or a slow socket. Beyond that the oldest is not sent
live: the ring has it, and the aggregator requests it."""
MOST_EVENTS = 1000
MOST_REQUESTS = 256


class PublishQueue:
    """Live frames and events to be sent, oldest first."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.events: deque[bytes] = deque()
        self.frames_waiting = asyncio.Event()
        self.events_waiting = asyncio.Event()
        self.unsent = 0
        """Live frames that were not sent in time."""
        self.events_dropped = 0
        """Events not sent on their own topic; the frames have them."""

    def frame(self, payload: bytes) -> None:
        """Queue a live frame."""
        if len(self.frames) >= MOST_FRAMES:
            self.frames.popleft()
            self.unsent += 1
        self.frames.append(payload)
        self.frames_waiting.set()

    def sent(self, payload: bytes) -> None:
        """Remove a frame that was sent. It may have been dropped meanwhile."""
        if self.frames and self.frames[0] is payload:
            self.frames.popleft()
        else:
            self.unsent -= 1

    def event(self, payload: bytes) -> None:
        """Queue an event."""
        if len(self.events) >= MOST_EVENTS:
            self.events.popleft()
            self.events_dropped += 1
        self.events.append(payload)
        self.events_waiting.set()

    def forget_frames(self) -> None:
        """Drop the queued frames and count them as unsent: there will be no connection."""
        self.unsent += len(self.frames)
        self.frames.clear()


class ResendRequests:
    """Requests to send frames again, oldest first."""

    def __init__(self) -> None:
        self._queue: deque[Command] = deque()
        self._current: Command | None = None
        self._waiting = asyncio.Event()
        self.refused = 0
        """Requests beyond the bound; aggregators repeat them."""

    def add(self, command: Command) -> bool:
        """Queue a request; False when one that covers it is queued or being served, or no room."""
        served = [*self._queue] if self._current is None else [*self._queue, self._current]
        if any(_covers(other, command) for other in served):
            return False
        if len(self._queue) >= MOST_REQUESTS:
            self.refused += 1
            return False
        self._queue.append(command)
        self._waiting.set()
        return True

    async def next(self) -> Command:
        """Wait for a request; it counts as being served until the next call."""
        self._current = None
        while not self._queue:
            self._waiting.clear()
            await self._waiting.wait()
        self._current = self._queue.popleft()
        return self._current

    def clear(self) -> None:
        """Remove all: their connection is gone, and aggregators repeat them."""
        self._queue.clear()
        self._current = None


def _covers(one: Command, other: Command) -> bool:
    return one.about == other.about and one.first <= other.first and other.last <= one.last
