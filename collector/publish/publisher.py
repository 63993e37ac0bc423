"""The collector's end of the bus: tells that it is there, sends what is new, answers requests.

Live frames are QoS 0 and go first; what gets lost on the way is asked for and sent again from the
ring, slowly enough that live frames never wait for it. While there is no connection nothing is
queued here: the ring has the frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import aiomqtt

from collector.config import CollectorConfig
from collector.publish import status_message as standing
from collector.publish.queue import PublishQueue
from collector.ring.backfill import BackfillResponder, FrameRing
from telemetry import inventory as messages
from telemetry.errors import KilowattError, WireError
from telemetry.inventory import CommandKind, FrameSpan, Inventory, NodeState
from telemetry.mqtt import STABLE_AFTER, Backoff, connect
from telemetry.tasks import end
from telemetry.topics import Topic, topic

log = logging.getLogger(__name__)

STATUS_EVERY = 60.0
"""Seconds after which the status is sent again if the ring has lost its oldest frames meanwhile."""
RING_READ_TIMEOUT = 30.0
"""Seconds that the status waits for the ring to be read; without it, old frames count as gone."""
FAREWELL = 0.7
"""Seconds that the last messages may take."""
SEND_BUFFER = 128 * 1024
"""Bytes that the kernel holds for a slow connection: what a live frame may have to wait behind."""


@dataclass(slots=True)
class Counters:
    """What the publisher did."""

    frames_published: int = 0
    """Live frames handed to the network."""
    connects: int = 0
    commands: int = 0
    commands_malformed: int = 0


class Publisher:
    """One connection to the broker, made again whenever it breaks. A sink of the sampler."""

    def __init__(
        self,
        config: CollectorConfig,
        session: int,
        store: FrameRing | None,
        obey: Callable[[CommandKind], None],
        wall_ns: Callable[[], int],
    ) -> None:
        self._config = config
        self._session = session
        self._store = store
        self._obey = obey
        self._wall_ns = wall_ns
        self._inventory: bytes | None = None
        self._inventory_due = False
        self._status_due = False
        self._reported_spans: tuple[FrameSpan, ...] = ()
        self._closing = asyncio.Event()
        self._down = ""
        self.outbox = PublishQueue()
        self.backfill = BackfillResponder(session, store, config.backfill_bytes_per_second)
        self.counters = Counters()

    # What the sampler and the journal hand over. None of these waits.

    def frame(self, seq: int, payload: bytes) -> None:
        """Send a live frame, if there is a connection soon."""
        self.backfill.newest = seq
        self.outbox.frame(payload)

    def inventory(self, inventory: Inventory) -> None:
        """Publish an inventory before any later frame."""
        self._inventory = messages.encode(inventory)
        self._inventory_due = True
        self.outbox.frames_waiting.set()

    def event(self, payload: bytes) -> None:
        """Publish an event as soon as there is a connection."""
        self.outbox.event(payload)

    def announce(self) -> None:
        """Tell anew what the ring holds, so that even a lost last frame is missed by somebody."""
        self._status_due = True
        self.outbox.frames_waiting.set()

    def close(self) -> None:
        """Have `run` send what waits, say goodbye and return."""
        self._closing.set()
        self.outbox.frames_waiting.set()

    # The connection.

    async def run(self) -> None:
        """Keep a connection until `close`."""
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        will = aiomqtt.Will(
            self._topic(Topic.STATUS), self._status(NodeState.OFFLINE, "lost"), 1, retain=True
        )
        name = f"kilowatch-{self._config.cluster}-{self._config.node}"
        while not self._closing.is_set():
            began = None
            try:
                async with connect(
                    self._config.broker, name, will, send_buffer=SEND_BUFFER
                ) as client:
                    began = loop.time()
                    self._say_up()
                    await self._serve(client)
            except KilowattError as error:
                stood = None if began is None else loop.time() - began
                self._say_down(str(error), stood)
                backoff.lasted(stood or 0.0)
            except Exception:  # a fault of ours must not silence the node
                log.exception("node=%s publishing failed", self._config.node)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next()):
                    await self._closing.wait()
        self.outbox.forget_frames()

    async def _serve(self, client: aiomqtt.Client) -> None:
        """Do everything that a connection is for. Returns after `close`, raises when it breaks."""
        self._inventory_due = self._inventory is not None
        self._status_due = True
        self.backfill.requests.clear()
        self.outbox.frames_waiting.set()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._send(client), name="send"),
                    group.create_task(self._send_events(client), name="events"),
                    group.create_task(self._listen(client), name="commands"),
                    group.create_task(self._watch_ring(), name="ring"),
                    group.create_task(
                        self.backfill.run(
                            client, self._topic(Topic.BACKFILL), self._topic(Topic.REPLY)
                        ),
                        name="backfill",
                    ),
                ]
                await self._closing.wait()
                await asyncio.wait(tasks[:1], timeout=FAREWELL)
                await end(tasks, FAREWELL)
        except BaseExceptionGroup as group:
            broken, others = group.split(aiomqtt.MqttError)
            if others is not None or broken is None:
                raise
            raise broken.exceptions[0] from group
        except asyncio.CancelledError:
            await self._say_goodbye(client)  # else the broker keeps us online for ever
            raise
        await self._say_goodbye(client)

    async def _send(self, client: aiomqtt.Client) -> None:
        """Send inventory, status and live frames, in this order: a reader needs them so."""
        outbox = self.outbox
        # First, for the answer to our status may be a request; and in a task of its own, for
        # aiomqtt would wait ten seconds for the answer of a broker that has gone.
        await client.subscribe(self._topic(Topic.COMMAND), qos=1)
        while True:
            await outbox.frames_waiting.wait()
            outbox.frames_waiting.clear()
            if self._inventory_due and self._inventory is not None:
                self._inventory_due = False
                await client.publish(
                    self._topic(Topic.INVENTORY), self._inventory, qos=1, retain=True
                )
            if self._status_due and (self._store is None or self._store.ready.is_set()):
                await self._publish_status(client, NodeState.ONLINE)
            await self._send_frames(client)
            if self._closing.is_set():
                return

    async def _send_frames(self, client: aiomqtt.Client) -> None:
        outbox = self.outbox
        while outbox.frames:
            payload = outbox.frames[0]  # it stays until it is sent: the connection may break here
            await client.publish(self._topic(Topic.FRAME), payload, qos=0)
            outbox.sent(payload)
            self.counters.frames_published += 1

    async def _send_events(self, client: aiomqtt.Client) -> None:
        """Send events one by one; each is kept until the broker has it."""
        outbox = self.outbox
        while True:
            while outbox.events:
                payload = outbox.events[0]
                await client.publish(self._topic(Topic.EVENT), payload, qos=1)
                if outbox.events and outbox.events[0] is payload:  # else the bound has dropped it
                    outbox.events.popleft()
            outbox.events_waiting.clear()
            await outbox.events_waiting.wait()

    async def _listen(self, client: aiomqtt.Client) -> None:
        """Take commands."""
        async for message in client.messages:
            if message.retain:  # a command is for now; a retained one would come at every connect
                self.counters.commands_malformed += 1
                log.warning("node=%s a retained command is ignored", self._config.node)
                continue
            self._take(message.payload)

    def _take(self, payload: object) -> None:
        try:
            command = standing.command(payload)
        except WireError as error:
            self.counters.commands_malformed += 1
            log.warning("node=%s command ignored: %s", self._config.node, error)
            return
        self.counters.commands += 1
        if command.kind is CommandKind.RESEND:
            self.backfill.requests.add(command)
        else:
            self._obey(command.kind)

    async def _watch_ring(self) -> None:
        """Send the status once the ring is read, and again when it has lost frames."""
        if self._store is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RING_READ_TIMEOUT):
                await self._store.ready.wait()
        self._store.ready.set()
        self.outbox.frames_waiting.set()
        while True:
            await asyncio.sleep(STATUS_EVERY)
            if standing.shape(self._spans()) != standing.shape(self._reported_spans):
                self._status_due = True
                self.outbox.frames_waiting.set()

    async def _say_goodbye(self, client: aiomqtt.Client) -> None:
        """Send what still waits, then that we are off; bounded, for the broker may hang."""
        outbox = self.outbox
        try:
            async with asyncio.timeout(FAREWELL):
                await self._send_frames(client)
                while outbox.events:
                    await client.publish(self._topic(Topic.EVENT), outbox.events.popleft(), qos=1)
                await self._publish_status(client, NodeState.OFFLINE, "shutdown")
        except TimeoutError:
            log.warning("node=%s the broker did not take our goodbye", self._config.node)

    async def _publish_status(
        self, client: aiomqtt.Client, state: NodeState, reason: str = ""
    ) -> None:
        self._status_due = False
        self._reported_spans = self._spans()
        payload = self._status(state, reason, self._reported_spans)
        await client.publish(self._topic(Topic.STATUS), payload, qos=1, retain=True)

    def _status(self, state: NodeState, reason: str, spans: tuple[FrameSpan, ...] = ()) -> bytes:
        return standing.status(self._config, self._session, self._wall_ns(), state, reason, spans)

    def _spans(self) -> tuple[FrameSpan, ...]:
        return self._store.spans() if self._store is not None else ()

    def _topic(self, kind: Topic) -> str:
        return topic(self._config.cluster, self._config.node, kind)

    def _say_up(self) -> None:
        broker = self._config.broker
        self.counters.connects += 1
        log.info("node=%s broker=%s:%d connected", self._config.node, broker.host, broker.port)
        self._down = ""

    def _say_down(self, problem: str, stood: float | None) -> None:
        """Log a change of state, not every try."""
        if stood is not None and stood < STABLE_AFTER:
            problem += (
                f" (after {stood:.1f} s; does another collector use the name {self._config.node!r},"
                " or does the broker's access list forbid our topics?)"
            )
            level = logging.WARNING if not self._down else logging.DEBUG
        else:
            level = logging.WARNING if problem != self._down else logging.DEBUG
        log.log(level, "node=%s %s; trying on, frames go to the ring", self._config.node, problem)
        self._down = problem
