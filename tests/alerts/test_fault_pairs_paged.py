"""Cells of the fault-pair matrix end to end: events over a real broker, a real aggregator, and a receiver
that calls a person as PagerDuty does: once for a dedup key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import aiomqtt
import msgspec
import pytest

from aggregator.service import Aggregator
from alerts.config import AlertsConfig
from alerts.incidents.matchers import parse_all
from alerts.incidents.policy import DEFAULT_TIMINGS
from api.alerts import NotificationState
from telemetry.devices import Event
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic, topic
from tests.aggregator.node import inventory
from tests.aggregator.test_service import config, running
from tests.alerts.fault_pairs import Cell, Outcome, Treated, Where
from tests.alerts.pager import Pager
from tests.alerts.test_fault_pairs import declared
from tests.brokers import Mosquitto
from tests.kit.waiting import until

pytestmark = pytest.mark.systems

XIDS = {"gpu_lost": 79, "gsp_dead": 119, "gpu_fault": 62}
"""An XID for which each rule fires at once."""
PAUSE = 0.5
"""Seconds between two frames of a node."""
_GPUS = [[NOT_SUPPORTED] * len(SCHEMA.blocks[GPU_FAST].names)] * 2
_NODE = [[NOT_SUPPORTED] * len(SCHEMA.blocks[NODE_FAST].names)]


class Nodes:
    """Nodes of two GPUs each on one connection, of which nothing can be read but their kernel's log."""

    def __init__(self, broker: BrokerConfig, names: Sequence[str]) -> None:
        self.names = names
        self._broker = broker
        self._client: aiomqtt.Client | None = None
        self._ready = asyncio.Event()
        self._over = False
        self._events = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Nodes:
        self._task = asyncio.create_task(self._run())
        await asyncio.wait_for(self._ready.wait(), 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        if self._task is not None:
            await self._task

    async def xid(self, node: str, gpu: int, number: int) -> None:
        """Report an XID."""
        assert self._client is not None
        self._events += 1
        event = Event(
            id=f"1-{self._events}",
            node=node,
            at=time.time_ns(),
            kind="xid",
            gpu=f"GPU-{node}-{gpu}",
            data={"xid": number},
        )
        await self._client.publish(topic("default", node, Topic.EVENT), messages.encode(event), qos=1)

    async def _run(self) -> None:
        async with aiomqtt.Client(self._broker.host, self._broker.port) as client:
            self._client = client
            status = messages.encode(CollectorStatus(state=NodeState.ONLINE, session=1, interval=PAUSE))
            for name in self.names:
                await client.publish(topic("default", name, Topic.STATUS), status, retain=True)
                body = messages.encode(inventory(name, 2))
                await client.publish(topic("default", name, Topic.INVENTORY), body, retain=True)
            seq = 0
            while not self._over:
                readings = {GPU_FAST: _GPUS, NODE_FAST: _NODE}
                body = frames.encode(frames.build(1, seq, time.time_ns(), readings))
                for name in self.names:
                    await client.publish(topic("default", name, Topic.FRAME), body)
                seq += 1
                self._ready.set()
                await asyncio.sleep(PAUSE)


class Pair:
    """Run of one cell on two nodes of its own."""

    def __init__(self, number: int, cell: Cell) -> None:
        self.cell = cell
        self.node = f"c{number}a"
        self.other = f"c{number}b"
        place = self.other if cell.where is Where.ELSEWHERE else self.node
        gpu = 1 if cell.where is Where.OTHER else 0
        self.at = place, gpu
        self.first = f"{cell.first}/{self.node}/GPU-{self.node}-0"
        self.second = f"{cell.second}/{place}/GPU-{place}-{gpu}"
        self.outcome, _ = declared(cell)


def pairs(where: Where, treated: Treated) -> list[Pair]:
    """Return the cells of the three rules that are applicable."""
    found = [Cell(first, second, where, treated) for first in XIDS for second in XIDS]
    all_pairs = [Pair(number, cell) for number, cell in enumerate(found)]
    return [one for one in all_pairs if one.outcome is not Outcome.NOT_APPLICABLE]


def incident_of(aggregator: Aggregator, alert: str) -> str:
    """Return the key of the incident that an alert belongs to; "" where it does not fire."""
    status = aggregator.pipeline.manager.status(alert)
    return "" if status is None else status.incident


def treat(aggregator: Aggregator, pair: Pair) -> None:
    """Do what a person does with the first page."""
    manager, now, wall = aggregator.pipeline.manager, aggregator.now(), time.time_ns()
    if pair.cell.treated is Treated.ACKNOWLEDGED:
        key = incident_of(aggregator, pair.first)
        aggregator.pipeline.commit(manager.acknowledge(key, who="ada", why="on it", until=None, now=now, wall_ns=wall))
    elif pair.cell.treated is Treated.SILENCED:
        matchers = parse_all([f"rule={pair.cell.first}", f"node={pair.node}"])
        aggregator.pipeline.commit(
            manager.silence(matchers, who="ada", why="known", ends=wall + 3600 * 10**9, now=now, wall_ns=wall)
        )


@pytest.mark.parametrize("treated", Treated)
@pytest.mark.parametrize("where", Where)
async def test_a_person_is_called_as_often_as_the_table_says(
    mosquitto: Mosquitto, tmp_path: Path, where: Where, treated: Treated
) -> None:
    mine = pairs(where, treated)
    pager = Pager()
    settings = msgspec.structs.replace(
        config(mosquitto.config, tmp_path / "data"), alerts=AlertsConfig(channels={"oncall": pager.settings(tmp_path)})
    )
    names = [name for pair in mine for name in (pair.node, pair.other)]
    async with pager.listening(), running(settings) as aggregator, Nodes(mosquitto.config, names) as nodes:
        await until(lambda: set(names) <= aggregator.fleet.nodes.keys())
        for pair in mine:
            await nodes.xid(pair.node, 0, XIDS[pair.cell.first])
        await until(lambda: len(pager.opened) == len(mine))
        began = aggregator.now()
        first = {pair.first: incident_of(aggregator, pair.first) for pair in mine}
        assert set(first.values()) == set(pager.opened)
        for pair in mine:
            treat(aggregator, pair)
        await until(lambda: aggregator.now() > began + DEFAULT_TIMINGS.cascade)
        for pair in mine:
            await nodes.xid(*pair.at, XIDS[pair.cell.second])
        rung = [pair for pair in mine if pair.outcome is Outcome.PAGE]
        fires = aggregator.pipeline.manager.status
        await until(lambda: all(fires(pair.second) is not None for pair in mine))
        await until(lambda: len(pager.opened) == len(mine) + len(rung))
        evaluated = aggregator.stats.rules.count
        await until(lambda: aggregator.stats.rules.count > evaluated + 5)
        await until(lambda: all(one.waiting == 0 for one in aggregator.delivery.channels()))
        assert len(pager.opened) == len(mine) + len(rung)
        assert set(pager.opened.values()) == {1}
        assert "resolve" not in {call.action for call in pager.calls}
        states = {pair.second: fires(pair.second) for pair in mine}
        for pair in mine:
            status = states[pair.second]
            assert status is not None
            assert (
                status.state
                is {
                    Outcome.PAGE: NotificationState.NOTIFIED,
                    Outcome.INHIBITED: NotificationState.INHIBITED,
                    Outcome.SILENCED: NotificationState.SILENCED,
                }[pair.outcome]
            ), pair.cell
            if pair in rung:
                assert status.incident in pager.opened
                assert status.incident not in first.values()
