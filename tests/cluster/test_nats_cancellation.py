"""A member's task that waits for NATS ends when it is cancelled, although nats-py swallows cancellations."""

from __future__ import annotations

import asyncio

import pytest
from nats.errors import ConnectionClosedError

from aggregator.cluster.nats import NatsCoordination
from aggregator.cluster.port import CoordinationError
from aggregator.settings.members import MembersConfig


class SwallowingClient:
    """A client of nats-py that is cancelled while it flushes: it returns, or raises that it is closed."""

    is_closed = False
    is_connected = True

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.begun = asyncio.Event()

    async def publish(self, _subject: str, _payload: bytes) -> None:
        try:
            self.begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.error is not None:
                raise self.error from None


def coordination_over(client: SwallowingClient) -> NatsCoordination:
    coordination = NatsCoordination(MembersConfig(nats=("nats://127.0.0.1:1",), member="a"), "lab")
    coordination._client = client  # type: ignore[assignment]
    return coordination


@pytest.mark.parametrize("error", [None, ConnectionClosedError()], ids=["returns", "raises"])
async def test_a_task_that_nats_py_keeps_from_its_end_ends(error: Exception | None) -> None:
    client = SwallowingClient(error)
    coordination = coordination_over(client)

    async def rounds() -> None:
        while True:
            try:
                await coordination.publish("beat", b"")
            except CoordinationError:
                await asyncio.sleep(0)

    task = asyncio.create_task(rounds())
    await client.begun.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=30)
    assert task.cancelled()
