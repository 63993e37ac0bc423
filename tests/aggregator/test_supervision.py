"""Every task and thread of an aggregator is ended in turn: each is reported, an alert, and started again.

One aggregator with all that there is: HTTP, channels, heartbeat, remote write, meters. A task that is not
in the list, or is not supervised, fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from aggregator.config import AggregatorConfig
from aggregator.ingest.router import MessageRouter
from aggregator.service import Aggregator
from aggregator.settings.homeassistant import HomeAssistantConfig
from aggregator.settings.remote_write import RemoteWriteConfig
from aggregator.store.executor import StoreExecutor
from alerts.config import AlertsConfig, HeartbeatConfig
from api.alerts import AlertState
from telemetry.errors import ConfigError
from telemetry.runtime.systemd import ServiceManager
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.mqtt import DEFAULT_HOST, DEFAULT_PORT, BrokerConfig
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_service import audit, config, running
from tests.brokers import Mosquitto, free_port
from tests.killing import end_thread, fail_all, tasks_named
from tests.kit.waiting import until
from tests.notify_socket import NotifySocket

METERS = """
[circuits.lab]
breaker = 60
volts = 208
poles = 3
[circuits.office]
breaker = 15
[meters.ups]
type = "nut"
port = {port}
on = "office"
[meters.plug]
type = "shelly"
topic = "plug"
on = "lab"
"""

TASKS = {
    "alerting", "brokers", "bus", "channel hook", "channel states", "check of pages", "checkpoint", "circuits on the bus",
    "drift", "electrical", "evidence", "expiry", "feed managers 0", "feed managers 1", "flush", "heartbeat", "held messages",
    "home assistant", "http",
    "jobs", "journal", "load", "meter ups", "meters", "meters of our broker", "outbox",
    "polling of meters of our broker", "progress", "remote write", "rule memory", "rules", "store",
    "threads journal", "threads store", "threads store-apart", "threads store-upkeep", "upkeep",
}  # fmt: skip
"""Tasks of an aggregator that live as long as it does; a new one belongs in here."""


def everything(broker: BrokerConfig, folder: Path) -> AggregatorConfig:
    """Settings with which all tasks run; nobody answers at the other ends."""
    gone = f"http://127.0.0.1:{free_port()}/"
    names = tuple(f"{name}:{broker.port}" for name in (broker.host, "localhost"))
    broker = msgspec.structs.replace(broker, host=DEFAULT_HOST, port=DEFAULT_PORT, hosts=names)
    return msgspec.structs.replace(
        config(broker, folder, listen="127.0.0.1:0"),
        rule_seconds=0.2,
        power=tomllib.loads(METERS.format(port=free_port())),
        remote_write=RemoteWriteConfig(url=gone, every_seconds=1.0),
        homeassistant=HomeAssistantConfig(enabled=True),
        alerts=AlertsConfig(
            channels={
                "hook": {"type": "webhook", "url": gone},
                "managers": {"type": "alertmanager", "urls": [gone, gone + "other"]},
            },
            heartbeat=HeartbeatConfig(url=gone, every=1.0),
        ),
    )


def firing(aggregator: Aggregator, key: str) -> bool:
    return any(alert.key == key and alert.state is AlertState.FIRING for alert in aggregator.alerts())


async def health(aggregator: Aggregator) -> set[str]:
    """Answer of /healthz; nothing while HTTP itself is started again."""
    assert aggregator.http_address is not None
    host, port = aggregator.http_address
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as reply:
            rows = (await reply.json())["impairments"]
            return {f"{row['rule']}/{row['part']}" for row in rows}
    except aiohttp.ClientError:
        return set()


async def end_task(aggregator: Aggregator, name: str) -> list[str]:
    """End a task by an exception; return the keys of the alerts that must follow."""
    state, before = aggregator.supervisor.states[name], impaired(aggregator)
    restarts = state.restarts
    await until(lambda: state.running and fail_all(name))
    await until(lambda: state.restarts > restarts or bool(impaired(aggregator) - before))
    if state.restarts == restarts:  # its loop has reported what is wrong by itself, and goes on
        return []
    return [f"{'task_failing' if state.failing else 'task_restarted'}/task/{name}"]


def impaired(aggregator: Aggregator) -> set[str]:
    return {f"{one.rule}/{one.part}" for one in aggregator.impairments.current()}


async def until_stored(aggregator: Aggregator, node: ScriptedNode) -> None:
    """Wait until the store itself has every frame: a commit whose answer an injected error has replaced
    is written again, and counts as duplicates."""
    seen = IntervalSet()
    while seen != IntervalSet([(0, node.made[node.session] - 1)]):
        await aggregator.flushes.after(aggregator.flushes.number)
        accounted = await aggregator.store.accounted()
        seen = accounted.get((node.name, node.session), IntervalSet())


async def end_each(aggregator: Aggregator, node: ScriptedNode) -> None:
    for name in sorted(TASKS):
        keys = await end_task(aggregator, name)
        await node.tick()
        await until(lambda keys=keys: all(firing(aggregator, key) for key in keys))  # type: ignore[misc]
        seen: set[str] = set()
        while not seen.issuperset(keys):
            seen = await health(aggregator)
        await node.tick()
        states = aggregator.supervisor.states  # an outer task starts its inner ones again
        while not (states.keys() >= TASKS and all(each.running for each in states.values())):
            await aggregator.flushes.after(aggregator.flushes.number)


async def test_each_task_that_ends_is_an_alert_and_a_restart_and_costs_no_frame(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    async with running(everything(mosquitto.config, folder)) as aggregator, ScriptedNode(mosquitto.config, "a") as node:
        supervisor = aggregator.supervisor
        supervisor._pauses = (0.01, 0.02)
        await until(lambda: aggregator.serving.is_set() and aggregator.stats.bus_connected)
        await until(lambda: supervisor.states.keys() >= TASKS)
        assert supervisor.states.keys() == TASKS
        await node.tick()
        await end_each(aggregator, node)
        for name in ("http connections", "http health", "http liveness"):  # supervised by the server
            await until(lambda name=name: fail_all(name))  # type: ignore[misc]
            key = f"task_restarted/task/{name}"
            await until(lambda key=key: firing(aggregator, key))  # type: ignore[misc]
            await until(lambda name=name: any(tasks_named(name)))  # type: ignore[misc]
        await until(lambda: aggregator.stats.bus_connected)
        await node.hello()
        await node.tick()
        await until_stored(aggregator, node)
        assert aggregator.stats.frames_lost == 0
    audit(folder, node)


async def test_a_task_that_works_again_is_no_alert_any_more(mosquitto: Mosquitto, tmp_path: Path) -> None:
    async with running(config(mosquitto.config, tmp_path, listen="127.0.0.1:0")) as aggregator:
        await until(lambda: aggregator.serving.is_set() and aggregator.stats.bus_connected)
        await until(lambda: not aggregator.impairments.current())
        for rule in ("task_restarted", "task_restarted", "task_failing"):
            assert await end_task(aggregator, "upkeep") == [f"{rule}/task/upkeep"]
            assert impaired(aggregator) == {f"{rule}/task/upkeep"}
        aggregator.supervisor._healthy_after = 0.1
        await end_task(aggregator, "upkeep")
        await until(lambda: not aggregator.impairments.current())


async def test_a_task_that_loses_its_cancellation_does_not_hold_up_the_end(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose connection breaks at the moment of the end."""
    monkeypatch.setattr("aggregator.service.LAST_SECONDS", 0.1)
    lost = 0

    async def work() -> None:
        nonlocal lost
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost += 1
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()

    async with running(config(mosquitto.config, tmp_path)) as aggregator:
        await until(lambda: aggregator.stats.bus_connected)
        monkeypatch.setattr(aggregator.electrical, "run", lambda *_: work())
        await end_task(aggregator, "electrical")
        await until(lambda: aggregator.supervisor.states["electrical"].running)
    assert lost == 1


async def test_a_thread_of_the_store_that_dies_is_replaced_and_no_frame_is_lost(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    async with running(config(mosquitto.config, folder)) as aggregator, ScriptedNode(mosquitto.config, "a") as node:
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 1)
        [threads] = [each for each in aggregator.store.threads if each.name == "store"]
        [thread] = threads._threads
        assert end_thread("store")
        while thread.is_alive():  # it dies when it has something to do
            await node.tick()
            await asyncio.sleep(0.02)
        await until(lambda: aggregator.supervisor.states["threads store"].restarts == 1)
        await node.tick()
        await until_stored(aggregator, node)
    audit(folder, node)


async def test_an_address_that_is_taken_ends_the_start_with_one_line(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """An operator's mistake is not tried again and again."""
    async with running(config(mosquitto.config, tmp_path / "a", "127.0.0.1:0")) as first:
        await until(first.serving.is_set)
        assert first.http_address is not None
        listen = f"127.0.0.1:{first.http_address[1]}"
        second = Aggregator(config(mosquitto.config, tmp_path / "b", listen))
        with pytest.raises(ConfigError, match=r"aggregator\.listen"):
            await asyncio.wait_for(second.run(asyncio.Event()), 30)


@contextlib.asynccontextmanager
async def notifying(aggregator: Aggregator) -> AsyncIterator[NotifySocket]:
    """A service manager in systemd's place, notified as `kilowatch aggregate` does it."""
    with NotifySocket(f"@kilowatch-blocked-{os.getpid()}") as found:
        manager = ServiceManager.of(found.environment(watchdog=0.4))
        over = asyncio.Event()
        task = asyncio.create_task(
            manager.accompany(over.wait(), over, aggregator.serving, aggregator.marks, aggregator.status)
        )
        try:
            yield found
        finally:
            over.set()
            await task


async def test_a_blocked_part_is_an_impairment_and_starves_the_watchdog(mosquitto: Mosquitto, tmp_path: Path) -> None:
    async with (
        running(config(mosquitto.config, tmp_path, "127.0.0.1:0")) as aggregator,
        notifying(aggregator) as manager,
    ):
        await until(lambda: manager.count("WATCHDOG") > 0)
        assert manager.all[0]["READY"] == "1"
        release = asyncio.Event()

        async def blocks() -> None:
            await release.wait()

        aggregator.marks.limits = {**aggregator.marks.limits, "rules": 0.5}
        aggregator.alerting._due = blocks  # type: ignore[method-assign]
        await until(lambda: aggregator.marks.ages()["rules"] > 3)  # the tick under way has ended
        await until(lambda: "task_blocked/task/rules" in impaired(aggregator))
        await until(lambda: any("No progress of rules" in each for each in manager.statuses()))
        fed, seen = manager.count("WATCHDOG"), len(manager.all)
        await until(lambda: manager.read() >= seen + 3)
        assert manager.count("WATCHDOG") == fed
        assert "task_blocked/task/rules" in await health(aggregator)
        del aggregator.alerting._due  # type: ignore[attr-defined]
        release.set()
        await until(lambda: not aggregator.marks.vital_blocked())
        await until(lambda: manager.count("WATCHDOG") > fed)


async def test_the_time_that_the_store_takes_to_open_blocks_no_part(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks are as old as an opening of an hour makes them."""
    begin = Aggregator._begin

    async def slow(self: Aggregator, store: StoreExecutor) -> MessageRouter:
        self.marks._at = dict.fromkeys(self.marks.limits, time.monotonic() - 3600)
        return await begin(self, store)

    monkeypatch.setattr(Aggregator, "_begin", slow)
    async with running(config(mosquitto.config, tmp_path)) as aggregator:
        assert aggregator.marks.blocked() == {}
