"""The aggregator on real brokers: whatever is killed, what was sampled is stored or counted lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import numpy as np
import pytest

from aggregator.config import AggregatorConfig, BackfillConfig, StoreConfig
from aggregator.ingest.refusals import OTHERS
from aggregator.service import Aggregator
from aggregator.store.embedded import EmbeddedStore
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.wire import inventory as messages
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.node import ScriptedNode, expected, inventory
from tests.brokers import Broker, Mosquitto
from tests.faults.record import Told
from tests.kit.waiting import until

NAMES = SCHEMA.blocks[GPU_FAST].names
BACKFILL = BackfillConfig(grace_seconds=0.05, first_wait_seconds=0.3, longest_wait_seconds=1.0)


def config(broker: BrokerConfig, folder: Path, listen: str = "") -> AggregatorConfig:
    return AggregatorConfig(
        broker=broker,
        data_dir=folder,
        listen=listen,
        flush_seconds=0.05,
        store=StoreConfig(write_seconds=0.1),
        backfill=BACKFILL,
    )


@contextlib.asynccontextmanager
async def running(config: AggregatorConfig) -> AsyncIterator[Aggregator]:
    """An aggregator that ends as SIGTERM ends it."""
    aggregator, stop = Aggregator(config), asyncio.Event()
    task = asyncio.create_task(aggregator.run(stop))
    ready = asyncio.create_task(aggregator.ready.wait())
    await asyncio.wait({task, ready}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        ready.cancel()
        task.result()
    try:
        yield aggregator
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


def audit(folder: Path, node: ScriptedNode, lost: IntervalSet | None = None) -> None:
    """Compare all that is stored of the node's current session with what it must be."""
    store = EmbeddedStore(StoreConfig(), folder)
    made = node.made[node.session]
    gone = lost or IntervalSet()
    seqs = [seq for seq in range(made) if seq not in gone]
    assert store.accounted()[node.name, node.session] == IntervalSet([(0, made - 1)])
    for row in range(node.gpus):
        table = expected(node.name, row, seqs)
        for column, name in enumerate(NAMES):
            found = store.history(f"GPU-{node.name}-{row}", name, 0, 1 << 62, 0).mean
            stored = np.array([np.nan if each is None else each for each in found], np.float64)
            np.testing.assert_array_equal(stored, table[:, column], err_msg=name)
    holes = store._engine.rows("select coalesce(sum(last - first + 1), 0) from holes")
    assert holes == [(len(gone),)]
    store.close()


async def test_what_the_bus_loses_is_asked_for_again(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(config(broker.config, folder)) as aggregator, ScriptedNode(broker.config, "a") as node:
        for number in range(60):
            await node.tick(lost=number % 5 in {1, 2})
            await asyncio.sleep(0.005)
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 61)
        assert aggregator.stats.frames_lost == 0
        assert aggregator.stats.frames_backfilled >= 24
        assert aggregator.fleet.nodes["a"].seq == 60
    audit(folder, node)


async def test_what_the_ring_lost_is_counted_exactly(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(config(mosquitto.config, folder)) as aggregator, ScriptedNode(mosquitto.config, "a") as node:
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 1)
        for _ in range(30):
            await node.tick(lost=True)
        node.forget(1, below=21)
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 12)
        await until(lambda: aggregator.stats.frames_lost == 20)
    audit(folder, node, IntervalSet([(1, 20)]))


async def test_a_broker_that_dies_costs_no_frame(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(config(broker.config, folder)) as aggregator, ScriptedNode(broker.config, "a") as node:
        for number in range(90):
            if number == 30:
                broker.kill()
            if number == 60:
                broker.start()
            await node.tick()
            await asyncio.sleep(0.005)
        await asyncio.wait_for(node.connected.wait(), 60)
        await until(lambda: aggregator.stats.bus_connected)
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 91)
        assert aggregator.stats.bus_connects >= 2
        assert aggregator.stats.frames_lost == 0
    audit(folder, node)


async def test_sessions_that_it_slept_through_are_filled_from_the_ring(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with ScriptedNode(mosquitto.config, "a") as node:
        for _ in range(10):
            await node.tick()
        node.restart()
        for _ in range(5):
            await node.tick()
        await node.hello()
        async with running(config(mosquitto.config, folder)) as aggregator:
            await until(lambda: aggregator.stats.frames_stored == 15)
    accounted = EmbeddedStore(StoreConfig(), folder).accounted()
    assert accounted == {("a", 1): IntervalSet([(0, 9)]), ("a", 2): IntervalSet([(0, 4)])}


PROGRAM = """
import sys
from pathlib import Path
from tests.aggregator.mortal import live
from tests.aggregator.test_service import config
from telemetry.wire.mqtt import BrokerConfig

live(config(BrokerConfig(port=int(sys.argv[1])), Path(sys.argv[2])))
"""


async def test_kill_9_of_the_aggregator_loses_and_doubles_nothing(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with ScriptedNode(mosquitto.config, "a") as node:
        over = asyncio.Event()
        ticking = asyncio.create_task(_tick_until(over, node))
        for kill in range(4):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                str(mosquitto.port),
                str(folder),
                cwd=Path(__file__).parents[2],
                stdout=subprocess.PIPE,
            )
            assert process.stdout is not None
            commits = 0
            while commits < 3 + 2 * kill:  # killed a few commits later each time
                line = await asyncio.wait_for(process.stdout.readline(), 60)
                commits += json.loads(line) > 0
            process.send_signal(signal.SIGKILL)
            await process.wait()
        over.set()
        await ticking
        async with running(config(mosquitto.config, folder)) as aggregator:
            await until(lambda: aggregator.stats.bus_connected)
            await node.hello()
            before = sum(len(spans) for spans in (await _accounted(aggregator)).values())
            assert before > 0
            await until(lambda: _complete(aggregator, node))
    audit(folder, node)


async def _tick_until(over: asyncio.Event, node: ScriptedNode) -> None:
    """Not cancelled: on Python 3.11 aiomqtt's `wait_for` may lose that, and the ticks go on."""
    while not over.is_set():
        await node.tick()
        await asyncio.sleep(0.01)


async def _accounted(aggregator: Aggregator) -> dict[tuple[str, int], IntervalSet]:
    return await aggregator.store.accounted()


def _complete(aggregator: Aggregator, node: ScriptedNode) -> bool:
    ingest = aggregator._ingest
    account = ingest.ledger.find(node.name, node.session) if ingest is not None else None
    return account is not None and account.end == node.made[node.session] - 1 and account.missing == 0


async def test_a_full_disk_does_not_stop_the_live_view_and_passes(
    mosquitto: Mosquitto, tiny: Path, record_property: Told
) -> None:
    folder = tiny / "data"
    async with (
        running(config(mosquitto.config, folder)) as aggregator,
        ScriptedNode(mosquitto.config, "a", gpus=64) as node,
    ):
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 1)
        ballast = tiny / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(16 * 1024 * 1024))
        while aggregator.stats.store_ok:
            await node.tick()
            await asyncio.sleep(0.01)
        assert aggregator.stats.store_errors > 0
        await node.tick()
        await until(lambda: aggregator.fleet.nodes["a"].seq == node.made[1] - 1)
        ballast.unlink()
        await until(lambda: aggregator.stats.frames_stored == node.made[1])
        assert aggregator.stats.store_ok
    audit(folder, node)
    record_property("expected", "the live view goes on; all is stored when there is room again")
    record_property(
        "observed",
        f"{aggregator.stats.store_errors} commits failed, the view followed; then {node.made[1]} of {node.made[1]} frames stored",
    )


async def test_messages_of_other_releases_and_rubbish_are_counted(broker: Broker, tmp_path: Path) -> None:
    async with (
        running(config(broker.config, tmp_path / "data")) as aggregator,
        ScriptedNode(broker.config, "a") as node,
    ):
        await until(lambda: "a" in aggregator.fleet.nodes)
        assert node._client is not None
        await node._client.publish("kilowatch/7/default/aa/b/status", b"{}", qos=1)
        for _ in range(50):
            await node.publish(Topic.FRAME, os.urandom(40))
            await node.publish(Topic.REPLY, b"{")
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 1)
        await until(lambda: aggregator.stats.dropped == {"malformed": 100, "version": 1})


async def test_b1_a_retained_message_ends_no_start_and_is_named(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """An inventory that no column holds, and a state that no aggregator wrote, are retained; through
    a restart the honest node loses nothing, and health and alerts name who sends what."""
    settings = config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")
    spoiled = msgspec.structs.replace(inventory("b", 1), gpus=(Gpu(uuid="GPU-b", index=2**31, name="x"),))
    body = messages.encode(spoiled)
    async with ScriptedNode(mosquitto.config, "a") as node, ScriptedNode(mosquitto.config, "b") as bad:
        assert bad._client is not None
        for start in range(2):
            async with running(settings) as aggregator:
                await _refuses(aggregator, node, bad, body, start)
    audit(tmp_path / "data", node)


async def _refuses(aggregator: Aggregator, node: ScriptedNode, bad: ScriptedNode, body: bytes, start: int) -> None:
    stats, topic = aggregator.stats, "kilowatch/1/default/alerts/x/state"
    await until(lambda: "a" in aggregator.fleet.nodes)
    ingest = aggregator._ingest
    assert ingest is not None
    # Counted by its name from its status on, which may come behind the inventory that is retained.
    await until(lambda: "b" in ingest.nodes and ingest.nodes["b"].status is not None)
    await bad.tick()
    for _ in range(3):
        await bad.publish(Topic.INVENTORY, body, retain=True)
    await bad._client.publish(topic, b"\x1b[2J", qos=1, retain=True)  # type: ignore[union-attr]
    for _ in range(5):
        await node.tick()
    await until(lambda: aggregator.fleet.nodes["a"].seq == 5 * start + 4)
    await until(lambda: stats.refused.get("b", {}).get("malformed", 0) >= 3)
    await until(lambda: stats.refused.get(OTHERS, {}).get("malformed", 0) >= 1)
    await until(lambda: any(one.rule == "messages_refused" for one in aggregator.alerts()))
    [alert] = [one for one in aggregator.alerts() if one.rule == "messages_refused"]
    assert (alert.node, alert.summary) == (
        "b",
        "kilowatch refuses messages of b: malformed: gpus[0].index is 2147483648; 0 to 65535 are possible",
    )
    host, port = aggregator.http_address or ("", 0)
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as answer:
        listed = (await answer.json())["impairments"]
    parts = [each["part"] for each in listed if each["rule"] == "messages_refused"]
    assert parts == ["bus/b"]


async def test_events_rules_and_http_are_there(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with (
        running(config(mosquitto.config, folder, "127.0.0.1:0")) as aggregator,
        ScriptedNode(mosquitto.config, "a") as node,
    ):
        flushes = aggregator.flushes
        first = await asyncio.wait_for(flushes.after(flushes.number), 20)
        assert await asyncio.wait_for(flushes.after(first), 20) > first
        await node.tick()
        await node.event(1)
        await until(lambda: aggregator.stats.events_stored == 1)
        assert [event.id for event in aggregator.recent_events()] == ["1-1"]
        await until(lambda: aggregator.stats.rules.count > 0)
        await until(lambda: aggregator.http_address is not None)
        host, port = aggregator.http_address or ("", 0)
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/api/v1/nodes") as answer:
            assert answer.status == 200
            assert [each["node"] for each in (await answer.json())["nodes"]] == ["a"]


async def test_the_end_commits_what_came_and_is_quick(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    slow = config(mosquitto.config, folder)
    async with ScriptedNode(mosquitto.config, "a") as node:
        async with running(slow) as aggregator:
            for _ in range(20):
                await node.tick()
            await until(lambda: aggregator.stats.frames_received == 20)
            began = time.monotonic()
        assert time.monotonic() - began < 5
    audit(folder, node)


async def test_two_aggregators_on_one_folder_are_told_apart(mosquitto: Mosquitto, tmp_path: Path) -> None:
    async with running(config(mosquitto.config, tmp_path / "data")):
        with pytest.raises(ConfigError, match="in use by another aggregator"):
            await Aggregator(config(mosquitto.config, tmp_path / "data")).run(asyncio.Event())


async def test_an_address_that_is_taken_is_one_clear_error(mosquitto: Mosquitto, tmp_path: Path) -> None:
    taken = f"127.0.0.1:{mosquitto.port}"
    with pytest.raises(ConfigError, match=r"aggregator\.listen"):
        await Aggregator(config(mosquitto.config, tmp_path / "data", taken)).run(asyncio.Event())


async def test_without_a_broker_it_waits_and_then_works(mosquitto: Mosquitto, tmp_path: Path) -> None:
    mosquitto.kill()
    async with running(config(mosquitto.config, tmp_path / "data")) as aggregator:
        await until(lambda: aggregator.stats.flush.count > 5)
        assert not aggregator.stats.bus_connected
        mosquitto.start()
        await until(lambda: aggregator.stats.bus_connected)
        async with ScriptedNode(mosquitto.config, "a") as node:
            await node.tick()
            await until(lambda: aggregator.stats.frames_stored == 1)
