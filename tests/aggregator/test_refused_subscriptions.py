"""A subscription that a broker refuses is asked for again: a NATS server refuses while it has no quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from gmqtt import Subscription

from aggregator.mqtt import client as module
from aggregator.mqtt.client import FanInClient
from api.stats import Stats
from telemetry.wire.mqtt import BrokerConfig


class RefusingBroker:
    """Answers each subscription as a test wants."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.some = asyncio.Event()

    is_connected = True

    def subscribe(self, subscription: Sequence[Subscription]) -> int:
        self.asked.append([each.topic for each in subscription])
        self.some.set()
        return len(self.asked)


async def test_a_subscription_that_was_refused_is_asked_for_until_it_is_granted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "REFUSED_SECONDS", (0.01, 0.02))
    bus = FanInClient(BrokerConfig(), "lab", None, lambda *_: None, Stats())
    broker: Any = RefusingBroker()
    bus._client = broker
    adding = asyncio.create_task(bus.add_shards(["0a", "0b"]))
    await asyncio.sleep(0)
    first, second = broker.asked[0]
    bus._on_subscribe(broker, 1, [0, 0x80], None)
    await adding
    for mid in (2, 3):
        broker.some.clear()
        await asyncio.wait_for(broker.some.wait(), 10)
        bus._on_subscribe(broker, mid, [0x80 if mid == 2 else 0], None)
    assert broker.asked == [[first, second], [second], [second]]
    assert caplog.text.count("refuses a subscription") == 1
    assert "grants all subscriptions now" in caplog.text
