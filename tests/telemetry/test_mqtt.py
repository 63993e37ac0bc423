"""The waits of the MQTT client: cancellations and timeouts; and messages of any length."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from aggregator.meters import mqtt as meters
from collector.publish import publisher
from telemetry.errors import BusError
from telemetry.wire import border
from telemetry.wire.mqtt import LEAST_BYTES, LONGEST_BYTES, PIECE_BYTES, MqttClient, client_id, connect
from tests.brokers import Mosquitto, plain_client
from tests.kit.waiting import FACTOR


async def test_a_cancellation_in_the_same_turn_as_the_result_is_not_lost() -> None:
    """Else a task group, which cancels once, waits for ever for the task that publishes."""
    client = MqttClient("127.0.0.1")
    for seconds in (None, 10.0, math.inf):
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(client._wait_for(answer, seconds))
        await asyncio.sleep(0)  # it waits for the answer now
        answer.set_result(None)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_an_answer_that_does_not_come_in_time_is_an_error_of_mqtt() -> None:
    client = MqttClient("127.0.0.1", timeout=0)
    for seconds in (None, 0.0):
        answer = asyncio.get_running_loop().create_future()
        with pytest.raises(aiomqtt.MqttError, match="timed out"):
            await client._wait_for(answer, seconds)
        assert answer.cancelled()


async def test_an_answer_is_returned() -> None:
    client = MqttClient("127.0.0.1", timeout=0)
    assert await client._wait_for(asyncio.sleep(0, "granted"), math.inf) == "granted"


async def test_a_cancellation_is_not_lost_where_the_broker_does_not_answer_the_farewell(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those who stay connected take it for a lost connection, and connect again."""
    leave = MqttClient.__aexit__

    async def unanswered(self: MqttClient, *arguments: Any) -> None:
        await leave(self, *arguments)
        raise aiomqtt.MqttError("Operation timed out")

    monkeypatch.setattr(MqttClient, "__aexit__", unanswered)
    connected = asyncio.Event()

    async def stay() -> None:
        async with connect(mosquitto.config, client_id("test")):
            connected.set()
            await asyncio.Event().wait()

    staying = asyncio.create_task(stay())
    await connected.wait()
    staying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await staying
    with pytest.raises(BusError, match="timed out"):
        async with connect(mosquitto.config, client_id("test")):
            pass


LONG = 40_000_000
LONGEST_TOPIC = 65_535


async def test_of_a_long_message_the_beginning_alone_is_kept_and_the_next_one_comes(tmp_path: Path) -> None:
    """The broker sends the next one when it has the acknowledgement of the long one."""
    broker = Mosquitto(tmp_path, "max_inflight_messages 1")
    broker.start()
    try:
        async with plain_client(broker.config) as others:
            await others.publish("long", b"x" * LONG, qos=1, retain=True)
            async with connect(broker.config, client_id("test"), longest=LEAST_BYTES) as client:
                tracemalloc.start()
                try:
                    await client.subscribe("#", qos=1)
                    await others.publish("next", b"short", qos=1)
                    async with asyncio.timeout(60 * FACTOR):
                        first, then = [await anext(client.messages) for _ in range(2)]
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
    finally:
        broker.kill()
    assert (str(first.topic), str(then.topic), then.payload) == ("long", "next", b"short")
    assert isinstance(first.payload, bytes)
    assert LEAST_BYTES - LONGEST_TOPIC < len(first.payload) < LEAST_BYTES
    assert peak < 5 * LEAST_BYTES + 2 * PIECE_BYTES


def test_what_is_kept_is_more_than_its_receiver_takes() -> None:
    """Room for the topic too, so that no message is cut that is not too long."""
    head = LONGEST_TOPIC + 4
    for kept, taken in (
        (LONGEST_BYTES, border.MOST_BACKFILL_BYTES),
        (meters.KEPT, meters.LARGEST),
        (publisher.LONGEST_BYTES, max(border.MOST_STATUS_BYTES, border.MOST_COMMAND_BYTES)),
    ):
        assert kept - head > taken


async def test_a_connection_that_ends_before_the_loop_comes_to_it_is_left_alone() -> None:
    """Else a refused one prints a traceback, or is taken for another that has its number by now."""
    client, reported = MqttClient("127.0.0.1"), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    ours, theirs = socket.socketpair()
    with theirs:

        def connected() -> None:  # in a thread, as aiomqtt connects
            client._on_socket_open(client._client, None, ours)
            client._on_socket_register_write(client._client, None, ours)

        connecting = threading.Thread(target=connected)
        connecting.start()
        connecting.join()
        number = ours.detach()  # closed for its owner, and another's from now on
        await asyncio.sleep(0)
        assert not loop.remove_reader(number)
        assert not loop.remove_writer(number)
        os.close(number)
    assert not reported
