"""Messages that are longer than any may be, over a broker that bounds nothing: passed over, counted, acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aggregator.mqtt.packets import MOST_PACKET_BYTES
from telemetry.wire.topics import Topic, topic
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_service import config, running
from tests.brokers import Mosquitto, plain_client
from tests.kit.waiting import until

LONG = MOST_PACKET_BYTES + 100_000
MORE_THAN_MAY_WAIT = 25
"""mosquitto has 20 messages of QoS 1 under way to a client, and sends no other until one is acknowledged."""


async def test_a_message_that_is_too_long_is_counted_and_holds_up_no_other(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    async with (
        running(config(mosquitto.config, tmp_path / "data")) as aggregator,
        ScriptedNode(mosquitto.config, "a") as a,
        plain_client(mosquitto.config) as hostile,
    ):
        await a.tick()
        await until(lambda: aggregator.stats.frames_received == 1)
        body = bytes(LONG)
        for kind, qos, count in ((Topic.EVENT, 1, MORE_THAN_MAY_WAIT), (Topic.FRAME, 0, 2)):
            for _ in range(count):
                await hostile.publish(topic(aggregator.cluster, "a", kind), body, qos=qos)
                await asyncio.sleep(0)
        stats = aggregator.stats
        await until(lambda: stats.dropped.get("oversize") == MORE_THAN_MAY_WAIT + 2)
        assert stats.refused["a"]["oversize"] == MORE_THAN_MAY_WAIT + 2
        assert stats.bus_connects == 1
        assert stats.bytes_received < LONG
        await a.tick()
        await until(lambda: stats.frames_received == 2)
