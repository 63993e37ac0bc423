"""`kilowatch forget`: a node that is gone for good leaves fleet, alerts and broker; its history stays."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from aggregator.alerting.service import SlicedCpu
from alerts.engine.engine import RuleEngine
from api.alerts import Action, AlertState
from telemetry.errors import BusError, ConfigError
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.jobs import NodeJobs
from telemetry.wire.topics import Topic, topic
from tests.aggregator.alerting_stack import Hall
from tests.aggregator.node import ScriptedNode, inventory
from tests.aggregator.test_service import config, running
from tests.brokers import Broker, plain_client
from tests.kit.waiting import until


@pytest.fixture
def broker(mosquitto: Broker) -> Broker:
    """Retained messages are cleared on the broker that clusters use."""
    return mosquitto


async def command(*arguments: str, state: Path) -> tuple[int, str]:
    """Run `kilowatch forget`; return its exit code and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kilowatch",
        "forget",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "XDG_STATE_HOME": str(state), "STATE_DIRECTORY": ""},
    )
    text, _ = await process.communicate()
    return process.returncode or 0, text.decode()


async def retained(broker: Broker, *names: str) -> set[str]:
    """Return the topics of some nodes that the broker retains."""
    found = set()
    marker = topic("default", "marker", Topic.STATUS)
    async with plain_client(broker.config) as client:
        await client.subscribe([(topic("default", name, Topic.STATUS), 1) for name in names])
        await client.subscribe([(topic("default", name, Topic.INVENTORY), 1) for name in names])
        await client.subscribe([(topic("default", name, Topic.JOBS), 1) for name in names])
        await client.subscribe(marker, 1)
        await client.publish(marker, b"", 1)  # comes after all that is retained
        async for message in client.messages:
            if str(message.topic) == marker:
                return found
            found.add(str(message.topic))
    return found


async def end(broker: Broker, name: str, session: int = 1) -> None:
    """Publish that a node's collector has ended, and the jobs that it had."""
    body = CollectorStatus(state=NodeState.OFFLINE, session=session, reason="shutdown")
    jobs = messages.encode(NodeJobs(session=session))
    async with plain_client(broker.config) as client:
        await client.publish(topic("default", name, Topic.JOBS), jobs, 1, retain=True)
        await client.publish(topic("default", name, Topic.STATUS), messages.encode(body), 1, retain=True)


async def test_a_forgotten_node_is_gone_from_fleet_and_broker_also_after_a_restart(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, folder = tmp_path / "state", tmp_path / "data"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("STATE_DIRECTORY", "")
    settings = msgspec.structs.replace(config(broker.config, folder), listen="127.0.0.1:0")
    both = {topic("default", "b", kind) for kind in (Topic.STATUS, Topic.INVENTORY, Topic.JOBS)}
    async with ScriptedNode(broker.config, "a") as stays:
        async with running(settings) as aggregator:
            await until(lambda: aggregator.http_address is not None)
            host, port = aggregator.http_address or ("", 0)
            address = ("--http", f"{host}:{port}")
            async with ScriptedNode(broker.config, "b") as goes:
                for _ in range(3):
                    await goes.tick()
                    await stays.tick()
                await until(lambda: aggregator.stats.frames_stored == 6)
                code, text = await command("b", *address, state=state)
                assert code == 3
                assert "b is online" in text
                assert "Stop its collector" in text
                assert "b" in aggregator.fleet.nodes
            await end(broker, "b")
            await until(lambda: not aggregator.fleet.nodes["b"].online)
            assert await retained(broker, "b") == both
            code, text = await command("b", *address, "--why", "scrapped", state=state)
            assert (code, text) == (0, "b is forgotten; its history stays\n")
            assert set(aggregator.fleet.nodes) == {"a"}
            assert aggregator.stats.nodes_forgotten == 1
            assert await retained(broker, "b") == set()
            assert await retained(broker, "a") != set()
            history = await aggregator.store.history("GPU-b-0", "gpu_power_watts", 0, 1 << 62, 0)
            assert len(history.mean) == 3
            await stays.tick()
            await until(lambda: aggregator.stats.frames_stored == 7)
            assert aggregator.stats.dropped == {}
        async with running(settings) as again:
            await until(lambda: "a" in again.fleet.nodes and again.fleet.nodes["a"].online)
            await stays.tick()
            await until(lambda: again.stats.frames_stored == 1)
            assert set(again.fleet.nodes) == {"a"}
            async with ScriptedNode(broker.config, "b", session=2) as back:
                back.ring = goes.ring
                await back.tick()
                await until(lambda: again.stats.frames_stored == 2)
                assert again.fleet.nodes["b"].online
                history = await again.store.history("GPU-b-0", "gpu_power_watts", 0, 1 << 62, 0)
                assert len(history.mean) == 4


async def test_what_the_broker_retains_of_a_name_without_a_node_is_cleared(broker: Broker, tmp_path: Path) -> None:
    """An inventory that is refused at every start, for instance."""
    ghost = topic("default", "ghost", Topic.INVENTORY)
    async with plain_client(broker.config) as client:
        await client.publish(ghost, b"no inventory", 1, retain=True)
    async with running(config(broker.config, tmp_path / "data")) as aggregator:
        await until(lambda: aggregator.stats.dropped == {"malformed": 1})
        assert "ghost" not in aggregator.fleet.nodes
        await aggregator.forget("ghost")
        assert await aggregator.forget("nobody") is False
        for _ in range(100):
            if not await retained(broker, "ghost"):
                break
        assert await retained(broker, "ghost") == set()
        assert aggregator.stats.dropped == {"malformed": 1}
        with pytest.raises(ConfigError, match="can't be part of an MQTT topic"):
            await aggregator.forget("no/name")


async def test_without_the_broker_nothing_is_forgotten_by_half(broker: Broker, tmp_path: Path) -> None:
    async with running(config(broker.config, tmp_path / "data")) as aggregator:
        async with ScriptedNode(broker.config, "b") as node:
            await node.tick()
            await until(lambda: "b" in aggregator.fleet.nodes)
        await end(broker, "b")
        await until(lambda: not aggregator.fleet.nodes["b"].online)
        broker.kill()
        await until(lambda: not aggregator.stats.bus_connected)
        with pytest.raises(BusError, match="no connection to the broker"):
            await aggregator.forget("b")
        assert "b" in aggregator.fleet.nodes
        broker.start()


async def test_a_node_is_not_forgotten_between_two_slices_of_an_evaluation(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules would go on with rows that are another node's by then."""
    between, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_: SlicedCpu) -> None:
        between.set()
        await go_on.wait()

    async with running(config(broker.config, tmp_path / "data")) as aggregator:
        async with ScriptedNode(broker.config, "b") as node:
            await node.tick()
            await until(lambda: "b" in aggregator.fleet.nodes)
        await end(broker, "b")
        await until(lambda: not aggregator.fleet.nodes["b"].online)
        monkeypatch.setattr(SlicedCpu, "pause", pause)
        await asyncio.wait_for(between.wait(), 30)
        forgetting = asyncio.create_task(aggregator.forget("b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert "b" in aggregator.fleet.nodes
        go_on.set()
        assert await asyncio.wait_for(forgetting, 30)
        assert "b" not in aggregator.fleet.nodes


async def test_a_node_that_expires_is_forgotten_by_the_rules_and_the_store_too(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its alerts have not resolved, and none of its faults is listed until the next restart."""
    monkeypatch.setattr("aggregator.service.UPKEEP_SECONDS", 0.05)
    monkeypatch.setattr("aggregator.ingest.router.SWEEP_EVERY", 0.0)
    forgotten: list[str] = []
    forget = RuleEngine.forget

    def record(engine: RuleEngine, node: str, why: str) -> None:
        forgotten.append(node)
        forget(engine, node, why)

    monkeypatch.setattr(RuleEngine, "forget", record)
    async with running(config(broker.config, tmp_path / "data")) as aggregator:
        async with ScriptedNode(broker.config, "b") as node:
            await node.tick()
            await until(lambda: "b" in aggregator.fleet.nodes)
        await end(broker, "b")
        await until(lambda: not aggregator.fleet.nodes["b"].online)
        aside = aggregator.store.content.aside
        aside.fail("b", "put in by the test", aggregator.now())
        tracker = aggregator._ingest.nodes["b"]  # type: ignore[union-attr]
        tracker.since = tracker.last_frame = aggregator.now() - 31 * 86_400
        await until(lambda: aggregator.stats.nodes_expired == 1)
        await until(lambda: forgotten == ["b"])
        assert aside.reasons() == {}


def test_alerts_of_a_forgotten_node_end_as_forgotten_and_not_as_resolved() -> None:
    hall = Hall(3)
    hall.pass_by(10)
    hall.hot = {("n1", 0)}
    hall.silent = {"n2"}
    hall.pass_by(900, every=5.0)
    firing = {alert.node for alert in hall.pipeline.alerts() if alert.state is AlertState.FIRING}
    assert "n2" in firing
    hall.pipeline.engine.forget("n2")
    hall.fleet.remove("n2")
    hall.names.remove("n2")
    notices = hall.pass_by(900, every=5.0)
    ends = [one for one in notices if one.action is Action.RESOLVE]
    assert {one.reason for one in ends} == {"forgotten"}
    ended = [alert for alert in hall.pipeline.alerts() if alert.node == "n2"]
    assert {(alert.state, alert.ended) for alert in ended} <= {(AlertState.RESOLVED, "forgotten")}
    recent = [one for one in hall.pipeline.manager.recent() if "n2" in str(one.group)]
    for one in recent:
        assert hall.pipeline.manager.timeline(one.key)[-1].why == "forgotten"


def test_an_alert_that_waits_for_its_node_since_a_restart_ends_too() -> None:
    hall = Hall(2)
    hall.pass_by(10)
    hall.silent = {"n1"}
    hall.pass_by(600, every=5.0)
    records = hall.pipeline.engine.snapshot(hall.wall)
    assert {record.alert.node for record in records} == {"n1"}
    again = Hall(1)  # n1 has not come yet
    again.pipeline.engine.restore(records, again.now, again.wall)
    again.pass_by(5)
    assert [alert.node for alert in again.pipeline.alerts()] == ["n1"]
    again.pipeline.engine.forget("n1")
    again.pass_by(5)
    (alert,) = again.pipeline.alerts()
    assert (alert.state, alert.ended) == (AlertState.RESOLVED, "forgotten")


def test_an_inventory_that_was_cleared_is_no_message(tmp_path: Path) -> None:
    """The broker sends an empty one to every subscriber."""
    from tests.aggregator.feed import Feed

    feed = Feed(tmp_path / "data")
    feed.inventory(inventory("a", 1))
    for name in ("a", "b"):
        for kind in (Topic.STATUS, Topic.INVENTORY):
            feed.publish(name, kind, b"")
    assert feed.stats.dropped == {}
    assert set(feed.ingest.nodes) == {"a"}
