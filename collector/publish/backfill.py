"""Answers resend requests from the ring, rate limited so that live frames never wait."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import aiomqtt

from collector.publish.queue import ResendRequests
from telemetry.wire import inventory as messages
from telemetry.wire.frame import encode_many
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Command, CommandReply, FrameSpan

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024
CHUNK_FRAMES = 64
"""Bounds of a backfill message; a larger frame is sent alone."""
PAUSE = 0.01
"""Seconds between two requests: those for frames that are gone cost no bandwidth, but a reply."""
SETTLE = 2.0
"""Seconds to wait for frames that are on their way into the ring."""


class FrameRing(Protocol):
    """Store of older frames: `collector.ring.writer.RingWriter`."""

    ready: asyncio.Event

    def spans(self) -> tuple[FrameSpan, ...]:
        """Return the stored frames."""

    def waiting(self) -> int | None:
        """Return the number of the first frame that is not stored yet, if any."""

    async def settled(self, seconds: float) -> None:
        """Wait until all frames that were put are stored."""

    async def chunk(
        self, session: int, first: int, last: int, most_bytes: int, most_frames: int
    ) -> list[tuple[int, bytes]]:
        """Return the first frames of a range."""


class BackfillResponder:
    """Serves resend requests one after the other, oldest first."""

    def __init__(self, session: int, store: FrameRing | None, bytes_per_second: float) -> None:
        self._session = session
        self._store = store
        self._rate = bytes_per_second
        self.requests = ResendRequests()
        self.newest = -1
        """Number of the newest frame of this session: later ones do not exist yet."""
        self.frames = 0
        """Frames sent again."""
        self.gone = 0
        """Requested frames that the ring no longer had."""

    async def run(self, client: aiomqtt.Client, topic: str, reply_topic: str) -> None:
        """Serve until the connection breaks (`aiomqtt.MqttError`)."""
        while True:
            command = await self.requests.next()
            reply = await self._serve(client, topic, command)
            await client.publish(reply_topic, messages.encode(reply), qos=1)
            log.info(
                "resent %d of frames %d to %d of session %012x", reply.sent, command.first, command.last, command.about
            )
            await asyncio.sleep(PAUSE)

    async def _serve(self, client: aiomqtt.Client, topic: str, command: Command) -> CommandReply:
        session, at = command.about, command.first
        last = command.last
        if session == self._session:
            last = min(last, self.newest)
        sent = IntervalSet()
        if self._store is not None and at <= last:
            await self._store.ready.wait()
            await self._store.settled(SETTLE)
            waiting = self._store.waiting()
            if session == self._session and waiting is not None:
                last = min(last, waiting - 1)  # not stored yet is not gone: they are requested again
            while at <= last:
                frames = await self._store.chunk(session, at, last, CHUNK_BYTES, CHUNK_FRAMES)
                if not frames:
                    break
                payload = encode_many([frame for _, frame in frames])
                await client.publish(topic, payload, qos=0)
                for seq, _ in frames:
                    sent.add(seq)
                at = frames[-1][0] + 1
                self.frames += len(frames)
                await asyncio.sleep(len(payload) / self._rate)
        gone = sent.missing(command.first, last)
        self.gone += sum(end - begin + 1 for begin, end in gone)
        return CommandReply(
            about=session,
            first=command.first,
            last=command.last,
            sent=len(sent),
            gone=tuple(FrameSpan(session, begin, end) for begin, end in gone),
        )
