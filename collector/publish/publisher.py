"""The collector's connection to the broker: publishes status, inventory, frames and events, and
answers commands.

Live frames are QoS 0 and go first; lost frames are requested by the aggregator and sent again from
the ring, slowly enough that live frames never wait. Without a connection no frames are queued here:
the ring has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aiomqtt

from collector.config import CollectorConfig
from collector.publish import status_message
from collector.publish.backfill import BackfillResponder, FrameRing
from collector.publish.command_limits import CommandLimits
from collector.publish.queue import PublishQueue
from telemetry.errors import KilowattError, WireError
from telemetry.runtime.backoff import STABLE_AFTER, Backoff
from telemetry.runtime.tasks import TaskGroup, end, unending
from telemetry.wire import inventory as messages
from telemetry.wire.border import MOST_STATUS_BYTES
from telemetry.wire.inventory import CommandKind, FrameSpan, Inventory, NodeState
from telemetry.wire.mqtt import FIRST_PAUSE, LONGEST_PAUSE, client_id, connect
from telemetry.wire.topics import Topic, topic

log = logging.getLogger(__name__)

STATUS_EVERY = 60.0
"""Seconds after which the status is sent again if the ring has lost its oldest frames meanwhile."""
RING_READ_TIMEOUT = 30.0
"""Seconds that the status waits for the ring to be read; older frames count as gone without it."""
REFUSED_SECONDS = 5.0
"""Seconds after which a subscription that was refused is asked for again."""
LAST_SECONDS = 0.7
"""Seconds that the last messages may take."""
ANSWER_SECONDS = 0.5
"""Pause before our status is sent because another replaced it."""
NAMESAKE_EVERY = 600.0
"""Seconds between two events about another collector of our name."""
SEND_BUFFER = 128 * 1024
"""Bytes that the kernel buffers for a slow connection: how long a live frame may wait."""
LONGEST_BYTES = 2 * MOST_STATUS_BYTES
"""Bytes that are kept of a message: of a status, or a command, which is shorter."""


@dataclass(slots=True)
class Counters:
    """Counts of a publisher."""

    frames_published: int = 0
    """Live frames handed to the network."""
    connects: int = 0
    commands: int = 0
    commands_malformed: int = 0


class Publisher:
    """Connection to the broker, reconnected whenever it breaks. A sink of the sampler."""

    def __init__(
        self,
        config: CollectorConfig,
        session: int,
        store: FrameRing | None,
        execute: Callable[[CommandKind], None],
        wall_ns: Callable[[], int],
        note: Callable[[str, str], None] = lambda _kind, _message: None,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        """`execute` is called with each command that is obeyed, `note` with events of the publisher,
        `sent` after each live frame, and each message that the broker has acknowledged."""
        self._sent = sent
        self.connected = False
        self._config = config
        self._session = session
        self._store = store
        self._execute = execute
        self._wall_ns = wall_ns
        self._note = note
        self._inventory: bytes | None = None
        self._inventory_due = False
        self._jobs: bytes | None = None
        self._jobs_due = False
        self._status_due = False
        self._reported_spans: tuple[FrameSpan, ...] = ()
        self._closing = asyncio.Event()
        self._down = ""
        self._namesake_at = -NAMESAKE_EVERY
        """Time of the last event about another collector that uses our name."""
        self._answer: asyncio.TimerHandle | None = None
        """Our status, about to be sent in answer to another's."""
        self._client_id = client_id(config.node)
        self.commands = CommandLimits(config.accept_commands)
        self.outbox = PublishQueue()
        self.backfill = BackfillResponder(session, store, config.backfill_bytes_per_second)
        self.counters = Counters()

    # Called by the sampler and the event queue. None of these waits.

    def frame(self, seq: int, payload: bytes) -> None:
        """Queue a live frame; it is dropped here when there is no connection soon."""
        self.backfill.newest = seq
        self.outbox.frame(payload)

    def inventory(self, inventory: Inventory) -> None:
        """Publish an inventory before any later frame."""
        self._inventory = messages.encode(inventory)
        self._inventory_due = True
        self.outbox.frames_waiting.set()

    def jobs(self, payload: bytes) -> None:
        """Publish the message of who uses the GPUs; after a reconnect the newest again."""
        self._jobs = payload
        self._jobs_due = True
        self.outbox.frames_waiting.set()

    def event(self, payload: bytes) -> None:
        """Publish an event as soon as there is a connection."""
        self.outbox.event(payload)

    def announce(self) -> None:
        """Publish the status again, so that an aggregator notices even a lost last frame."""
        self._status_due = True
        self.outbox.frames_waiting.set()

    def close(self) -> None:
        """Have `run` send the queues and an offline status, then return."""
        self._closing.set()
        self.outbox.frames_waiting.set()

    # The connection.

    async def run(self) -> None:
        """Keep a connection until `close`."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        will = aiomqtt.Will(self._topic(Topic.STATUS), self._status(NodeState.OFFLINE, "lost"), 1, retain=True)
        while not self._closing.is_set():
            began = None
            try:
                async with connect(self._config.broker, self._client_id, will, SEND_BUFFER, LONGEST_BYTES) as client:
                    began = loop.time()
                    self._log_up(client.address)
                    self.connected = True
                    await self._serve(client)
            except KilowattError as error:
                stood = None if began is None else loop.time() - began
                self._log_down(str(error), stood)
                backoff.lasted(stood or 0.0)
            finally:
                self.connected = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next()):
                    await self._closing.wait()
        self.outbox.forget_frames()

    async def _serve(self, client: aiomqtt.Client) -> None:
        """Serve one connection. Returns after `close`, raises when it breaks."""
        self._inventory_due = self._inventory is not None
        self._jobs_due = self._jobs is not None
        self._status_due = True
        self.backfill.requests.clear()
        self.outbox.frames_waiting.set()
        try:
            async with TaskGroup(again_after=LAST_SECONDS) as group:  # none has anything to clean up
                works = {
                    "send": self._send(client),
                    "events": self._send_events(client),
                    "commands": self._listen(client),
                    "ring status": self._watch_ring(),
                    "backfill": self.backfill.run(client, self._topic(Topic.BACKFILL), self._topic(Topic.REPLY)),
                }
                tasks = [
                    group.create_task(unending(work, self._closing.is_set), name=name) for name, work in works.items()
                ]
                await self._closing.wait()
                await asyncio.wait(tasks[:1], timeout=LAST_SECONDS)
                await end(tasks, LAST_SECONDS)
        except BaseExceptionGroup as group:
            broken, others = group.split(aiomqtt.MqttError)
            if others is not None or broken is None:
                raise
            raise broken.exceptions[0] from group
        except asyncio.CancelledError:
            await self._disconnect(client)  # else the retained status stays online forever
            raise
        await self._disconnect(client)

    async def _send(self, client: aiomqtt.Client) -> None:
        """Send inventory, status and live frames, in this order.

        Frames never precede their inventory. They do not wait for the status while the ring is
        still read (up to `RING_READ_TIMEOUT`): live frames matter more than what may be requested.
        """
        outbox = self.outbox
        # First, because an aggregator may answer the status with a command; and in a task of its
        # own, because aiomqtt would wait ten seconds for a broker that has gone.
        now = asyncio.get_running_loop().time
        wanted = [(self._topic(Topic.COMMAND), 0), (self._topic(Topic.STATUS), 1)]
        refused, asked = await self._subscribe(client, wanted), now()
        self._sent()  # a slow broker is no fault of ours: each message that it acknowledges is progress
        while True:
            await outbox.frames_waiting.wait()
            outbox.frames_waiting.clear()
            if refused and now() - asked >= REFUSED_SECONDS:
                refused, asked = await self._subscribe(client, refused, again=True), now()
            if self._inventory_due and self._inventory is not None:
                self._inventory_due = False
                await client.publish(self._topic(Topic.INVENTORY), self._inventory, qos=1, retain=True)
                self._sent()
            if self._status_due and (self._store is None or self._store.ready.is_set()):
                await self._publish_status(client, NodeState.ONLINE)
                self._sent()
            await self._send_frames(client)
            if self._jobs_due and self._jobs is not None:
                self._jobs_due = False
                await client.publish(self._topic(Topic.JOBS), self._jobs, qos=1, retain=True)
                self._sent()
            if self._closing.is_set():
                return

    async def _subscribe(
        self, client: aiomqtt.Client, wanted: list[tuple[str, int]], *, again: bool = False
    ) -> list[tuple[str, int]]:
        """Subscribe; return what the broker refuses, as a NATS server does while it has no quorum."""
        granted: Iterable[Any] = await client.subscribe(wanted)  # numbers, or objects with a value
        refused = [one for one, code in zip(wanted, granted, strict=False) if getattr(code, "value", code) >= 0x80]
        if refused and not again:
            log.error(
                "node=%s the broker refuses to let us read %s: no request is heard until it is granted; "
                "allow this user to",
                self._config.node,
                ", ".join(name for name, _ in refused),
            )
        return refused

    async def _send_frames(self, client: aiomqtt.Client) -> None:
        outbox = self.outbox
        while outbox.frames:
            payload = outbox.frames[0]  # it stays until it is sent: the connection may break here
            await client.publish(self._topic(Topic.FRAME), payload, qos=0)
            outbox.sent(payload)
            self.counters.frames_published += 1
            self._sent()

    async def _send_events(self, client: aiomqtt.Client) -> None:
        """Send events one by one; each stays queued until the broker has it."""
        outbox = self.outbox
        while True:
            while outbox.events:
                payload = outbox.events[0]
                await client.publish(self._topic(Topic.EVENT), payload, qos=1)
                if outbox.events and outbox.events[0] is payload:  # else it was dropped to keep the bound
                    outbox.events.popleft()
            outbox.events_waiting.clear()
            await outbox.events_waiting.wait()

    async def _listen(self, client: aiomqtt.Client) -> None:
        """Receive commands, and statuses under our name."""
        commands = self._topic(Topic.COMMAND)
        async for message in client.messages:
            if str(message.topic) != commands:
                if not message.retain:
                    self._receive_status(message.payload)
                continue
            if message.retain:  # a retained command would come again at every connect
                self.counters.commands_malformed += 1
                log.warning("node=%s a retained command is ignored", self._config.node)
                continue
            self._receive(message.payload)

    def _receive(self, payload: object) -> None:
        now = asyncio.get_running_loop().time()
        if not self.commands.spend(now):
            return
        try:
            command = status_message.command(payload)
        except WireError as error:
            self.counters.commands_malformed += 1
            log.warning("node=%s command ignored: %s", self._config.node, error)
            return
        self.counters.commands += 1
        if not self.commands.accepts(command.kind):
            self._refuse(command.kind, now)
        elif command.kind is CommandKind.RESEND:
            self.backfill.requests.add(command)
        elif (delay := self.commands.delay(command.kind, now)) == 0:
            self._execute_due(command.kind)
        elif delay is not None:
            asyncio.get_running_loop().call_later(delay, self._execute_due, command.kind)

    def _execute_due(self, kind: CommandKind) -> None:
        self._execute(self.commands.due(kind, asyncio.get_running_loop().time()))

    def _refuse(self, kind: CommandKind, now: float) -> None:
        """Report a command that this collector does not obey; the sender learns it by the event."""
        if self.commands.note_due(now):
            message = f"{kind} is not obeyed: it is not in collector.accept_commands"
            if kind in {CommandKind.RELEASE, CommandKind.RESUME}:
                message += "; stop the collector while the driver is upgraded or a GPU is reset"
            log.warning("node=%s %s", self._config.node, message)
            self._note("command_refused", message)

    def _receive_status(self, payload: object) -> None:
        """Notice a status under our name that is not ours.

        After a power cut the old connection lingers at the broker for one and a half keepalives, and
        then its last will replaces our retained status by "offline": ours is sent again. "Online" is
        another collector with our name.
        """
        try:
            found = status_message.received(payload)
        except WireError as error:
            log.debug("node=%s a status that is not ours: %s", self._config.node, error)
            return
        loop = asyncio.get_running_loop()
        if found.session == self._session:
            return
        if found.state is NodeState.OFFLINE:
            if self._answer is None:
                self._answer = loop.call_later(ANSWER_SECONDS, self._answer_status)
        elif loop.time() - self._namesake_at > NAMESAKE_EVERY:
            self._namesake_at = loop.time()
            message = "another collector uses the name of this node: give each its own, collector.node"
            log.error("node=%s %s", self._config.node, message)
            self._note("name_in_use", message)

    def _answer_status(self) -> None:
        self._answer = None
        self.announce()

    async def _watch_ring(self) -> None:
        """Send the status once the ring is read, and again when it has lost frames."""
        if self._store is None:
            await self._closing.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RING_READ_TIMEOUT):
                await self._store.ready.wait()
        self._store.ready.set()
        self.outbox.frames_waiting.set()
        while True:
            await asyncio.sleep(STATUS_EVERY)
            if status_message.shape(self._spans()) != status_message.shape(self._reported_spans):
                self._status_due = True
                self.outbox.frames_waiting.set()

    async def _disconnect(self, client: aiomqtt.Client) -> None:
        """Send the queues and an offline status; bounded, as the broker may hang."""
        outbox = self.outbox
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._send_frames(client)
                while outbox.events:
                    await client.publish(self._topic(Topic.EVENT), outbox.events.popleft(), qos=1)
                await self._publish_status(client, NodeState.OFFLINE, "shutdown")
        except TimeoutError:
            log.warning("node=%s the broker did not take the offline status", self._config.node)

    async def _publish_status(self, client: aiomqtt.Client, state: NodeState, reason: str = "") -> None:
        self._status_due = False
        self._reported_spans = self._spans()
        payload = self._status(state, reason, self._reported_spans)
        await client.publish(self._topic(Topic.STATUS), payload, qos=1, retain=True)

    def _status(self, state: NodeState, reason: str, spans: tuple[FrameSpan, ...] = ()) -> bytes:
        return status_message.status(self._config, self._session, self._wall_ns(), state, reason, spans)

    def _spans(self) -> tuple[FrameSpan, ...]:
        return self._store.spans() if self._store is not None else ()

    def _topic(self, kind: Topic) -> str:
        return topic(self._config.cluster, self._config.node, kind)

    def _log_up(self, address: str) -> None:
        self.counters.connects += 1
        log.info("node=%s broker=%s connected", self._config.node, address)
        self._down = ""

    def _log_down(self, problem: str, stood: float | None) -> None:
        """Log a change of state, not every try."""
        if stood is not None and stood < STABLE_AFTER:
            problem += f" (after {stood:.1f} s; does the broker's access list forbid our topics?)"
            level = logging.WARNING if not self._down else logging.DEBUG
        else:
            level = logging.WARNING if problem != self._down else logging.DEBUG
        log.log(level, "node=%s %s; trying on, frames go to the ring", self._config.node, problem)
        self._down = problem
