"""The wait of the tests returns what it waited for, or says what did not come."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit import waiting
from tests.kit.waiting import until, wait_until


async def test_the_value_is_returned_also_of_a_condition_that_is_awaited() -> None:
    looks = iter([None, 0, "there"])
    assert await until(lambda: next(looks)) == "there"
    assert await until(lambda: asyncio.sleep(0, "there")) == "there"
    assert wait_until(lambda: "there") == "there"


async def test_what_did_not_come_is_said() -> None:
    """By the source of the condition, or by a text that is made once it is needed."""
    light = "red"
    with pytest.raises(AssertionError, match=r'light == "green".*at last False'):
        await until(lambda: light == "green", seconds=0.0)
    with pytest.raises(AssertionError, match="a green light"):
        wait_until(lambda: None, "a green light", seconds=0.0)
    with pytest.raises(AssertionError, match="it is red"):
        await until(lambda: None, lambda: f"it is {light}", seconds=0.0)


def test_a_slow_machine_is_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FACTOR", 4.0)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda _: now.append(now.pop() + 1.0))
    assert wait_until(lambda: now[0] > 230, seconds=60.0)
    with pytest.raises(AssertionError, match="not within 240 s"):
        wait_until(lambda: now[0] > 1000, seconds=60.0)
