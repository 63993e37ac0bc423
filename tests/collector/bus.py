"""A reader of the bus for tests: collects what one node publishes, and sends it commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt

from collector.config import CollectorConfig
from collector.service import Linger, run_collector
from collector.source import Source
from telemetry.devices import Event
from telemetry.wire import border, frame
from telemetry.wire import inventory as messages
from telemetry.wire.frame import Frame
from telemetry.wire.inventory import CollectorStatus, Command, CommandReply, Inventory
from telemetry.wire.jobs import NodeJobs
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, parse, pattern, topic
from tests.kit.waiting import within

NODE = "n1"


class Reader:
    """Everything that came, by kind, in order."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client = client
        self.frames: list[Frame] = []
        self.backfills: list[bytes] = []
        self.refilled: list[Frame] = []
        self.statuses: list[CollectorStatus] = []
        self.inventories: list[Inventory] = []
        self.events: list[Event] = []
        self.replies: list[CommandReply] = []
        self.jobs: list[NodeJobs] = []
        self.order: list[Topic] = []

    async def listen(self) -> None:
        async for message in self.client.messages:
            address = parse(str(message.topic))
            assert address is not None
            assert isinstance(message.payload, bytes)
            self.order.append(address.kind)
            self.receive(address.kind, message.payload)

    def receive(self, kind: Topic, payload: bytes) -> None:
        match kind:
            case Topic.FRAME:
                self.frames.append(frame.decode(payload))
            case Topic.BACKFILL:
                self.backfills.append(payload)
                self.refilled += [frame.decode(one) for one in frame.decode_many(payload)]
            case Topic.JOBS:
                self.jobs.append(border.decode_jobs(payload))
            case Topic.STATUS:
                self.statuses.append(messages.decode(payload, CollectorStatus))
            case Topic.INVENTORY:
                self.inventories.append(messages.decode(payload, Inventory))
            case Topic.EVENT:
                self.events.append(messages.decode(payload, Event))
            case Topic.REPLY:
                self.replies.append(messages.decode(payload, CommandReply))
            case Topic.COMMAND:
                pass

    async def command(self, command: Command | bytes, retain: bool = False) -> None:
        payload = command if isinstance(command, bytes) else messages.encode(command)
        await self.client.publish(topic("default", NODE, Topic.COMMAND), payload, qos=1, retain=retain)

    def seqs(self, session: int) -> set[int]:
        """Numbers of all frames of a session, live or sent again."""
        return {one.seq for one in (*self.frames, *self.refilled) if one.session == session}


@contextlib.asynccontextmanager
async def reading(broker: BrokerConfig) -> AsyncIterator[Reader]:
    """Read all that `n1` publishes meanwhile."""
    async with connect(broker, client_id("test-reader")) as client:
        reader = Reader(client)
        await client.subscribe(pattern(node=NODE), qos=1)
        task = asyncio.create_task(reader.listen())
        try:
            yield reader
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiomqtt.MqttError):
                await task


@contextlib.asynccontextmanager
async def collecting(
    config: CollectorConfig, source: Source | None, linger: Linger | None = None
) -> AsyncIterator[Running]:
    """Run a collector meanwhile, on the source of its settings if no other is given; stops it in the planned way
    at the end. `linger`: keeps it connected until a test sets its `over`."""
    stop = asyncio.Event()
    task = asyncio.create_task(run_collector(config, stop=stop, source=source, linger=linger))
    running = Running(task, stop, linger)
    try:
        yield running
    finally:
        await running.end()


class Running:
    """A collector that runs."""

    def __init__(self, task: asyncio.Task[Any], stop: asyncio.Event, linger: Linger | None = None) -> None:
        self.task = task
        self.stop = stop
        self.linger = linger

    async def end(self) -> Any:
        """Stop it as SIGTERM does."""
        self.stop.set()
        if self.linger is not None:
            self.linger.over.set()
        async with within():
            return await self.task


def config_of(broker: BrokerConfig, folder: Path, **more: object) -> CollectorConfig:
    """A collector that ticks twenty times a second."""
    settings: dict[str, object] = {
        "node": NODE,
        "interval": 0.05,
        "slow_interval": 1.0,
        "state_dir": folder / "state",
        "broker": broker,
        "kernel_log": None,
        "node_readings": False,
        "source": "nvml",
    }
    return CollectorConfig(**{**settings, **more})  # type: ignore[arg-type]


__all__ = ["NODE", "Reader", "Running", "collecting", "config_of", "reading"]
