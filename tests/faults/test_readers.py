"""Faults of those who read: viewers that are slow, and an aggregator that stops reading the bus."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import duckdb

from bench import processes
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.node import ScriptedNode, gpu_rows
from tests.brokers import Mosquitto
from tests.endtoend.cluster import Cluster
from tests.faults.chaos import Chaos
from tests.faults.plant import Plant
from tests.faults.record import SLACK, Observe, fault
from tests.kit.waiting import end_of_patience, wait_until

SLOW_READERS = 20
QUEUE = 100
"""Messages that the broker holds for the aggregator."""
BUFFER_BYTES = 16 * 1024


@fault("32", "ingest goes on at its pace, other readers are served, memory stays flat")
def test_slow_readers(plant: Plant, observe: Observe) -> None:
    """Forty viewers ask for /metrics and for the WebSocket stream, and read next to nothing."""
    host, _, port = plant.http.partition(":")
    upgrade = (
        f"GET /api/v1/stream HTTP/1.1\r\nHost: {plant.http}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode() + _text(b'{"columns":["*"],"every":0.2}')
    pages = f"GET /metrics HTTP/1.1\r\nHost: {plant.http}\r\n\r\n".encode() * 50
    memory, began = _memory(plant), time.monotonic()
    before = plant.stored()
    wait_until(lambda: plant.stored() >= before + 40, "40 frames without readers")
    usual = time.monotonic() - began
    with _readers(host, int(port), [pages, upgrade] * SLOW_READERS) as readers:
        before = plant.stored()
        began, ends = time.monotonic(), end_of_patience()
        slowest = 0.0
        while plant.stored() < before + 40:
            asked = time.monotonic()
            assert plant.get("/api/v1/nodes") is not None
            slowest = max(slowest, time.monotonic() - asked)
            assert time.monotonic() < ends
            for reader in readers:
                with contextlib.suppress(OSError):
                    reader.recv(1)
        seconds = time.monotonic() - began
        grown = _memory(plant) - memory
    assert seconds < SLACK * usual, "the fleet's ten frames a second do not come"
    assert grown < 64
    account = plant.finish()
    assert account.lost == 0
    observe(
        f"40 frames stored in {seconds:.1f} s, {usual:.1f} without them, slowest answer to another "
        f"{1000 * slowest:.0f} ms, memory {grown:+.0f} MiB; {account}"
    )


def _memory(plant: Plant) -> float:
    """MiB of the aggregator."""
    return processes.memory(plant.processes["aggregator"].pid)["rss_mib"]


@contextlib.contextmanager
def _readers(host: str, port: int, requests: list[bytes]) -> Iterator[list[socket.socket]]:
    """Connections with the smallest of buffers that have asked, and will not listen."""
    with contextlib.ExitStack() as stack:
        found = []
        for request in requests:
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            reader.settimeout(20)
            reader.connect((host, port))
            reader.sendall(request)
            reader.setblocking(False)
            found.append(reader)
        yield found


def _text(body: bytes) -> bytes:
    """A masked WebSocket text frame, the mask being all zeros."""
    return bytes([0x81, 0x80 | len(body), 0, 0, 0, 0]) + body


class QuickNode(ScriptedNode):
    """A node that reads a hundred times a second, and says so: thousands of frames in seconds are no leap then, and its
    clock is not hours ahead."""

    step = 10**7


@fault("6", "the broker drops, the holes are seen by their numbers, all is sent again")
async def test_stopped_aggregator(tmp_path: Path, seed: int, observe: Observe) -> None:
    """SIGSTOP of the aggregator until mosquitto's queue of 100 messages has overflowed."""
    broker = Mosquitto(tmp_path, f"max_queued_messages {QUEUE}\nsys_interval 1")
    broker.start()
    chaos = Chaos(broker.port, seed, BUFFER_BYTES)
    cluster = Cluster(tmp_path, broker, seed, {"aggregator": chaos.port})
    try:
        cluster.start("aggregator")
        async with QuickNode(broker.config, "a", gpus=32) as node:
            await _stored(cluster, node)
            process = cluster.processes["aggregator"]
            process.send_signal(signal.SIGSTOP)
            dropped = asyncio.create_task(_dropped(broker))
            while not dropped.done():
                await node.tick()
                await asyncio.sleep(0.001)
                assert node.made[1] < 20_000
            process.send_signal(signal.SIGCONT)
            await _stored(cluster, node)
            backfilled = await asyncio.to_thread(cluster.sample, "kilowatch_aggregator_frames_backfilled_total")
            assert backfilled > 0
            assert await asyncio.to_thread(cluster.end, "aggregator") == 0
            values = _check(cluster.data, node)
            observe(
                f"mosquitto dropped {dropped.result()} messages; of {node.made[1]} frames "
                f"{backfilled:.0f} were sent again, none lost; {values} values right to the bit"
            )
    finally:
        cluster.end_all()
        chaos.close()
        broker.kill()


async def _dropped(broker: Mosquitto) -> int:
    """Wait until mosquitto says that it has dropped messages; return how many."""
    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe("$SYS/broker/publish/messages/dropped")
        async for message in client.messages:
            count = int(str(message.payload, "ascii"))
            if count:
                return count
    raise AssertionError("the broker is gone")


async def _stored(cluster: Cluster, node: ScriptedNode) -> None:
    """Wait until all that was made before, and what is made meanwhile, is stored."""
    target = max(1, node.made.get(node.session, 0))
    deadline = end_of_patience()
    stored = -1.0
    while stored < node.made.get(node.session, 0):
        assert time.monotonic() < deadline, f"{stored:.0f} of {node.made} stored, {target} wanted"
        if stored < target:  # only a later frame shows that the last one is missing
            await node.tick()
        await asyncio.sleep(0.1)
        stored = await asyncio.to_thread(cluster.sample, "kilowatch_aggregator_frames_stored_total")


def _check(data: Path, node: ScriptedNode) -> int:
    """Compare every row of the store with what the node has made."""
    columns = ", ".join(f't."{name}"' for name in SCHEMA.blocks[GPU_FAST].names)
    with duckdb.connect(str(data / "hot.duckdb"), read_only=True) as store:
        tables = [
            name
            for (name,) in store.execute("select table_name from duckdb_tables()").fetchall()
            if name.startswith("gpu_fast_")
        ]
        found = [
            row
            for table in tables
            for row in store.execute(
                f'select t.seq, d."index", {columns} from {table} t join devices d on t.device = d.id'
            ).fetchall()
        ]
    found.sort(key=lambda row: row[:2])
    assert len(found) == node.made[1] * node.gpus
    values = 0
    for number, row in enumerate(found):
        seq, gpu = divmod(number, node.gpus)
        if gpu == 0:
            wanted = gpu_rows(node.name, node.gpus, seq)
        assert row[:2] == (seq, gpu)
        for got, value in zip(row[2:], wanted[gpu], strict=True):
            assert got == value or (got is None and value != value)  # noqa: PLR0124 - NaN
            values += 1
    return values
