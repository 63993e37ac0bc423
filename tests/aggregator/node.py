"""A scripted node: publishes frames whose every value is known, and answers requests from memory.

The values are a pure function of node, row, column and frame, so that an audit of the store finds
loss, doubles and corruption bit for bit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import aiomqtt
import msgspec
import numpy as np
import numpy.typing as npt

from telemetry.devices import Event, Gpu
from telemetry.gap import NOT_SUPPORTED
from telemetry.runtime.tasks import end
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import (
    CollectorStatus,
    Command,
    CommandKind,
    CommandReply,
    FrameSpan,
    Inventory,
    NodeState,
)
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic, topic
from tests.brokers import plain_client

START = 1_763_700_000 * 10**9
"""The clock at frame 0 where a test drives the clocks, ns since 1970."""
_CLOCK = [0]


def begin_clock() -> None:
    """Set the clock of nodes on a real bus for the next test: one of an hour ago would count as wrong."""
    _CLOCK[0] = (time.time_ns() // (60 * 10**9) - 10) * 60 * 10**9


def now() -> int:
    """Return the clock of every node on a real bus at frame 0, about ten minutes before the test began: the aggregator's
    is the real one there. ns since 1970."""
    return _CLOCK[0]


begin_clock()
GAP_COLUMN = 2
"""A column of the gpu block that is always a gap."""


def sampled_at(seq: int, began: int = START) -> int:
    """The node's clock of a frame: one a second."""
    return began + seq * 10**9


def value(node: str, row: int, column: int, seq: int) -> float:
    """The reading that stands there: exact as a float32."""
    return float((sum(node.encode()) * 31 + row * 17 + column * 7 + seq * 3) % 4096)


def gpu_rows(node: str, gpus: int, seq: int) -> list[list[float]]:
    """The rows of the gpu block of a frame."""
    width = len(SCHEMA.blocks[GPU_FAST].names)
    rows = [[value(node, row, column, seq) for column in range(width)] for row in range(gpus)]
    for row in rows:
        row[GAP_COLUMN] = NOT_SUPPORTED
    return rows


def node_rows(node: str, seq: int) -> list[list[float]]:
    """The row of the node block of a frame."""
    return [[value(node, 99, column, seq) for column in range(len(SCHEMA.blocks[NODE_FAST].names))]]


def expected(node: str, row: int, seqs: Sequence[int]) -> npt.NDArray[np.float64]:
    """What one GPU's gauges and counters must be, shape (frames, columns); gaps are NaN."""
    width = len(SCHEMA.blocks[GPU_FAST].names)
    table = np.array([[value(node, row, column, seq) for column in range(width)] for seq in seqs], np.float64).reshape(
        len(seqs), width
    )
    table[:, GAP_COLUMN] = np.nan
    return table


def inventory(node: str, gpus: int, session: int = 1, version: int = 0) -> Inventory:
    """An inventory of GPUs `<node>-gpu-<index>`."""
    return Inventory(
        node=node,
        session=session,
        version=version,
        taken_at=START - 1,
        gpus=tuple(Gpu(uuid=f"GPU-{node}-{index}", index=index, name="NVIDIA Test 80GB") for index in range(gpus)),
    )


def payload(node: str, gpus: int, session: int, seq: int, events: Sequence[bytes] = (), at: int | None = None) -> bytes:
    """The bytes of a frame."""
    readings = {GPU_FAST: gpu_rows(node, gpus, seq), NODE_FAST: node_rows(node, seq)}
    clock = sampled_at(seq) if at is None else at
    return frames.encode(frames.build(session, seq, clock, readings, events))


class ScriptedNode:
    """One node on a real bus. Its ring holds what `sample` made, until `forget`."""

    step = 10**9
    """ns between two frames by its clock, however fast it makes them."""

    def __init__(
        self, broker: BrokerConfig, name: str, gpus: int = 2, session: int = 1, made_of: Inventory | None = None
    ) -> None:
        """`made_of`: its inventory under another name and session, in place of the usual one."""
        self.broker = broker
        self.made_of = made_of or inventory(name, gpus)
        self.name = name
        self.gpus = gpus
        self.session = session
        self.begin = now()
        """Time of its first frame by its clock, ns since 1970."""
        self.ring: dict[int, dict[int, bytes]] = {}
        self.made: dict[int, int] = {}
        """Frames made, by session."""
        self.commands: list[Command] = []
        self.silent = False
        """Whether requests go unanswered."""
        self.connected = asyncio.Event()
        self._client: aiomqtt.Client | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ScriptedNode:
        self._task = asyncio.create_task(self._run())
        await asyncio.wait_for(self.connected.wait(), 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            assert await end([self._task], 30.0)
            if not self._task.cancelled():
                self._task.result()

    def restart(self) -> None:
        """A new session; the ring keeps the old one's frames."""
        self.session += 1

    def sample(self) -> tuple[int, bytes]:
        """Make the next frame and put it into the ring."""
        seq = self.made.get(self.session, 0)
        self.made[self.session] = seq + 1
        at = self.begin + seq * self.step
        encoded = payload(self.name, self.gpus, self.session, seq, at=at)
        self.ring.setdefault(self.session, {})[seq] = encoded
        return seq, encoded

    def forget(self, session: int, below: int) -> None:
        """The ring overflows: frames before `below` are gone."""
        kept = self.ring.get(session, {})
        for seq in [seq for seq in kept if seq < below]:
            del kept[seq]

    async def tick(self, *, lost: bool = False) -> None:
        """Sample and publish a frame; `lost` means that the bus drops it."""
        _, encoded = self.sample()
        if not lost and self._client is not None and self.connected.is_set():
            with contextlib.suppress(aiomqtt.MqttError):
                await self._client.publish(self._topic(Topic.FRAME), encoded, qos=0)

    async def publish(self, kind: Topic, body: bytes, *, retain: bool = False) -> None:
        """Publish anything on one of the node's topics."""
        assert self._client is not None
        await self._client.publish(self._topic(kind), body, qos=1, retain=retain)

    async def event(self, number: int) -> None:
        """Publish an event."""
        event = Event(id=f"{self.session}-{number}", node=self.name, at=sampled_at(number, self.begin), kind="xid")
        await self.publish(Topic.EVENT, messages.encode(event))

    async def hello(self) -> None:
        """Publish status and inventory, retained."""
        spans = tuple(FrameSpan(session, min(kept), max(kept)) for session, kept in self.ring.items() if kept)
        interval = self.step / 10**9
        status = CollectorStatus(state=NodeState.ONLINE, session=self.session, interval=interval, ring=spans)
        await self.publish(Topic.STATUS, messages.encode(status), retain=True)
        its = msgspec.structs.replace(self.made_of, node=self.name, session=self.session)
        await self.publish(Topic.INVENTORY, messages.encode(its), retain=True)

    def _topic(self, kind: Topic) -> str:
        return topic("default", self.name, kind)

    async def _run(self) -> None:
        while True:
            try:
                async with plain_client(self.broker) as client:
                    self._client = client
                    await client.subscribe(self._topic(Topic.COMMAND), qos=1)
                    await self.hello()
                    self.connected.set()
                    async for message in client.messages:
                        assert isinstance(message.payload, bytes)
                        await self._obey(client, messages.decode(message.payload, Command))
            except aiomqtt.MqttError:
                self.connected.clear()
                await asyncio.sleep(0.05)

    async def _obey(self, client: aiomqtt.Client, command: Command) -> None:
        self.commands.append(command)
        if command.kind is CommandKind.INVENTORY:
            await self.hello()
        if command.kind is not CommandKind.RESEND or self.silent:
            return
        kept = self.ring.get(command.about, {})
        wanted = range(command.first, min(command.last, self.made.get(command.about, 0) - 1) + 1)
        found = [kept[seq] for seq in wanted if seq in kept]
        gone = tuple(FrameSpan(command.about, seq, seq) for seq in wanted if seq not in kept)
        for start in range(0, len(found), 16):
            body = frames.encode_many(found[start : start + 16])
            await client.publish(self._topic(Topic.BACKFILL), body, qos=0)
        reply = CommandReply(about=command.about, first=command.first, last=command.last, sent=len(found), gone=gone)
        await client.publish(self._topic(Topic.REPLY), messages.encode(reply), qos=1)
