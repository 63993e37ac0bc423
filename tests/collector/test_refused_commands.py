"""A collector that may not read its commands now asks again: else no aggregator could request a frame."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from collector.publish.publisher import Publisher


class GrantingBroker:
    """Grants what a test wants."""

    def __init__(self, *answers: Sequence[int]) -> None:
        self._answers = list(answers)

    async def subscribe(self, _wanted: object) -> Sequence[int]:
        return self._answers.pop(0)


async def test_what_a_broker_refuses_is_what_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    publisher: Any = SimpleNamespace(_config=SimpleNamespace(node="n1"))
    broker: Any = GrantingBroker((0x80, 1), (0,))
    wanted = [("commands", 0), ("status", 1)]
    refused = await Publisher._subscribe(publisher, broker, wanted)
    assert refused == [("commands", 0)]
    assert caplog.text.count("refuses to let us read commands") == 1
    assert await Publisher._subscribe(publisher, broker, refused, again=True) == []
