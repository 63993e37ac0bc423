"""`kilowatch record`: writes a recording of a cluster's bus, or of a source without a bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import aiomqtt

from collector.config import CollectorConfig
from collector.recording.file import RecordingHeader, RecordingWriter
from collector.sampling.event_queue import EventQueue
from collector.sampling.sampler import Sampler
from collector.service import facts_of, host_of, kernel_log_of
from collector.source import Source
from collector.sources import make_source
from telemetry.errors import BusError, ConfigError, StoreError
from telemetry.runtime.backoff import Backoff
from telemetry.runtime.release import release
from telemetry.runtime.supervision import Supervisor
from telemetry.runtime.tasks import end
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Inventory
from telemetry.wire.mqtt import FIRST_PAUSE, LONGEST_PAUSE, BrokerConfig, client_id, connect, pause
from telemetry.wire.topics import Topic, parse, pattern

log = logging.getLogger(__name__)

MAX_SIZE = 16 * 1024**3
"""Bytes at which a recording ends by itself, by default: whoever publishes must not fill the disk."""
RECORDED = (Topic.STATUS, Topic.INVENTORY, Topic.FRAME, Topic.BACKFILL, Topic.EVENT)
"""Kinds of messages in a recording of the bus; commands and replies are not recorded."""


class Recorded(NamedTuple):
    """Result of a recording."""

    messages: int
    left_out: int
    """Messages that no collector sends: too long, or of a node with an impossible name."""
    full: bool
    """Whether the recording ended because it had reached its size."""


async def record_bus(
    broker: BrokerConfig, cluster: str, path: Path, stop: asyncio.Event, node: str = "+", max_size: int = MAX_SIZE
) -> Recorded:
    """Record a cluster, or one node of it, until `stop`, or until the file has `max_size` bytes.

    Raises `ConfigError` when the file is there already, `StoreError` when it can't be written.
    """
    what = f"mqtt://{broker.address} {pattern(cluster=cluster, node=node)}"

    async def listen(writer: RecordingWriter) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                async with connect(broker, client_id("kilowatch-record")) as client:
                    for kind in RECORDED:
                        await client.subscribe(pattern(cluster=cluster, node=node, kind=kind), qos=1)
                    await _write_messages(client, writer)
            except BusError as error:
                await pause(backoff, error)

    return await _record(path, what, stop, listen, max_size)


async def record_source(
    config: CollectorConfig, path: Path, stop: asyncio.Event, source: Source | None = None, max_size: int = MAX_SIZE
) -> Recorded:
    """Record a source of this machine without a broker until `stop`, as `record_bus` does."""
    if source is None:
        source = make_source(config.source, config, time.time_ns() / 1e9)

    async def sample(writer: RecordingWriter) -> None:
        sink = _Sink(config.node, writer)
        events = EventQueue(config.node, 0, lambda event, payload: sink.event(event.at, payload))
        await source.open()
        try:
            with contextlib.ExitStack() as stack:
                host, kernel = host_of(config), kernel_log_of(config)
                for part in (host, kernel):
                    if part is not None:
                        stack.callback(part.close)
                others = [] if kernel is None else [kernel.drain]
                facts = facts_of(config)
                sampler = Sampler(config, source, 0, events, [sink], host, others, facts)
                reading = set()
                if kernel is not None:
                    work = Supervisor().run("kernel log", kernel.run)
                    reading.add(asyncio.create_task(work, name="kernel log"))
                try:
                    await sampler.run()
                finally:
                    await end(reading, 0.5)
        finally:
            await source.close()

    return await _record(path, config.source, stop, sample, max_size)


async def _record(
    path: Path, what: str, stop: asyncio.Event, work: Callable[[RecordingWriter], Awaitable[None]], max_size: int
) -> Recorded:
    header = RecordingHeader(kilowatch=release(), made_at=time.time_ns(), source=what)
    try:
        writer = RecordingWriter(path, header, max_size)
    except FileExistsError as error:
        raise ConfigError(str(path), "is there already", "Choose another name.") from error
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror}.") from error
    try:
        with contextlib.closing(writer):
            working = asyncio.ensure_future(_awaited(work(writer)))
            stopping = asyncio.ensure_future(stop.wait())
            filling = asyncio.ensure_future(writer.full.wait())
            try:
                await asyncio.wait({working, stopping, filling}, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()  # raises what ended it
            finally:
                await end({working, stopping, filling}, 1.0)
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror}.") from error
    return Recorded(writer.written, writer.left_out, writer.full.is_set())


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _write_messages(client: aiomqtt.Client, writer: RecordingWriter) -> None:
    try:
        async for message in client.messages:
            address = parse(str(message.topic))
            if address is not None and isinstance(message.payload, bytes):
                writer.write(time.time_ns(), address.kind, address.node, message.payload)
    except aiomqtt.MqttError as error:
        raise BusError(str(error)) from error


class _Sink:
    """Writes the sampler's frames and inventories into a recording."""

    def __init__(self, node: str, writer: RecordingWriter) -> None:
        self._node = node
        self._writer = writer

    def frame(self, seq: int, payload: bytes) -> None:
        del seq
        self._writer.write(time.time_ns(), Topic.FRAME, self._node, payload)

    def inventory(self, inventory: Inventory) -> None:
        payload = messages.encode(inventory)
        self._writer.write(time.time_ns(), Topic.INVENTORY, self._node, payload)

    def event(self, at: int, payload: bytes) -> None:
        self._writer.write(at, Topic.EVENT, self._node, payload)
