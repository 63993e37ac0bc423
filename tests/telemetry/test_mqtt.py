"""The waits of the MQTT client: cancellations and timeouts."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import aiomqtt
import pytest

from telemetry.errors import BusError
from telemetry.wire.mqtt import MqttClient, client_id, connect
from tests.brokers import Mosquitto


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
