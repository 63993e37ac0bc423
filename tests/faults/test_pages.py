"""Faults that many feel at once, and what the one who is paged sees of them."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import aiomqtt
import msgspec
import numpy as np
import pytest

from aggregator.service import Aggregator
from alerts.config import AlertsConfig
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic, topic
from tests.aggregator.node import inventory
from tests.aggregator.test_service import running
from tests.alerts.pager import Pager
from tests.brokers import Mosquitto
from tests.faults.record import Observe, fault
from tests.faults.scripted import suspected, with_rules
from tests.kit.waiting import until

RACK, OTHERS = 72, 8
INTERVAL = 1.0
SITE = """
region = "EU"
[circuits.rack-7]
breaker = 125
volts = 230
poles = 3
wiring = "3ph-wye"
rack = "R7"
nodes = [{rack}]
[circuits.rack-8]
breaker = 63
volts = 230
poles = 3
wiring = "3ph-wye"
rack = "R8"
nodes = [{others}]
"""
SILENT = """
[[rule]]
name = "node_silent"
table = "node"
when = {{ type = "silent", intervals = 3, least = {least} }}
keep = 10
severity = "page"
remediation = "reset"
summary = "{{where}} has been silent for {{value}}"
description = "The shipped rule, but it is quicker, and it pages."
runbook = "node-silent"

[[rule]]
name = "nodes_silent"
table = "node"
when = {{ type = "silent", intervals = 3, least = {sooner}, several = 3, together = 120 }}
keep = 10
severity = "page"
remediation = "reset"
group = "rule"
inhibits = [{{ rule = "node_silent", within = "node", why = "One of several." }}]
summary = "several nodes fell silent together, {{where}} among them"
description = "The shipped rule, but quicker, and as that some seconds before each node pages alone."
runbook = "nodes-silent"
"""
POWER = "gpu_power_watts"


class Room:
    """Nodes of one GPU each, all on one connection, until their power is cut."""

    def __init__(self, broker: BrokerConfig, names: Sequence[str]) -> None:
        self.alive = list(names)
        self._broker = broker
        self._seq = 0
        gauges = SCHEMA.blocks[GPU_FAST].names
        self._row = [300.0 if name == POWER else NOT_SUPPORTED for name in gauges]
        self._node = [NOT_SUPPORTED] * len(SCHEMA.blocks[NODE_FAST].names)
        self._task: asyncio.Task[None] | None = None
        self._over = False

    async def __aenter__(self) -> Room:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True  # not cancelled: on Python 3.11 aiomqtt's `wait_for` may lose that
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        async with aiomqtt.Client(self._broker.host, self._broker.port) as client:
            status = messages.encode(CollectorStatus(state=NodeState.ONLINE, session=1, interval=INTERVAL))
            for name in self.alive:
                await client.publish(topic("default", name, Topic.STATUS), status, retain=True)
                body = messages.encode(inventory(name, 1))
                await client.publish(topic("default", name, Topic.INVENTORY), body, retain=True)
            while not self._over:
                rows = {GPU_FAST: [self._row], NODE_FAST: [self._node]}
                body = frames.encode(frames.build(1, self._seq, time.time_ns(), rows))
                self._seq += 1
                for name in self.alive:
                    await client.publish(topic("default", name, Topic.FRAME), body)
                await asyncio.sleep(INTERVAL)


@fault("26", "one page, not seventy-two; it names the circuit if that was loaded enough to trip")
@pytest.mark.parametrize(("breaker", "least"), [(125, 30), (400, 10)], ids=["loaded", "light"])
async def test_a_rack_loses_its_power(
    mosquitto: Mosquitto, tmp_path: Path, observe: Observe, breaker: int, least: int
) -> None:
    """Seventy-two nodes of a rack fall silent within a second; those of another go on."""
    rack = [f"r7-{number:02}" for number in range(RACK)]
    others = [f"r8-{number:02}" for number in range(OTHERS)]
    pager = Pager()
    settings = with_rules(mosquitto.config, tmp_path)
    with (tmp_path / "rules.toml").open("a") as rules:
        rules.write(SILENT.format(least=least, sooner=0.6 * least))
    settings = msgspec.structs.replace(
        settings,
        alerts=AlertsConfig(channels={"oncall": pager.settings(tmp_path)}),
        power=tomllib.loads(_site(rack, others, breaker)),
    )
    async with pager.listening(), running(settings) as aggregator, Room(mosquitto.config, rack + others) as room:
        await until(lambda: _loaded(aggregator) == RACK + OTHERS)
        judged = aggregator.stats.rules.count
        await until(lambda: aggregator.stats.rules.count > judged + 20)
        assert pager.calls == []
        room.alive = others
        began = time.monotonic()
        await until(lambda: bool(pager.opened))
        told = time.monotonic() - began
        await until(lambda: suspected(aggregator, "node_silent") == set(rack))
        judged = aggregator.stats.rules.count
        await until(lambda: aggregator.stats.rules.count > judged + 20)
        await until(lambda: all(one.waiting == 0 for one in aggregator.delivery.channels()))
        assert sum(pager.opened.values()) == 1, [call.body["payload"] for call in pager.calls]
        page = pager.calls[0].body["payload"]["summary"]
        assert ("the breaker of circuit rack-7" if breaker == 125 else "several nodes") in page
        assert not suspected(aggregator, "node_silent") & set(others)
    observe(f"breaker of {breaker} A: one page after {told:.1f} s, {page!r}")


def _site(rack: list[str], others: list[str], breaker: int) -> str:
    return SITE.format(rack=str(rack)[1:-1], others=str(others)[1:-1], breaker=breaker)


def _loaded(aggregator: Aggregator) -> int:
    """Return how many GPUs draw their scripted watts."""
    return int((aggregator.fleet.column(POWER, aggregator.now()) == np.float32(300)).sum())
